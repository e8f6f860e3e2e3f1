"""Errors of the RL core: one base class, one subclass per boundary, all picklable."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArenaError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(ArenaError, ValueError):
    """A setting is unknown, unread, of the wrong type, or in conflict with another one."""


class ModelError(ArenaError, ValueError):
    """A policy model cannot be found, built or loaded."""


class ServingError(ArenaError, RuntimeError):
    """The inference side cannot start, answer, or take new weights."""


class RolloutError(ArenaError, RuntimeError):
    """Episodes could not be collected."""


class LearnerError(ArenaError, RuntimeError):
    """An update cannot be done, e.g. a non-finite loss."""


class CheckpointError(ArenaError, RuntimeError):
    """A checkpoint is missing, incomplete, or does not belong to this configuration."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``" Nearest: 'x'."`` for the closest allowed name, or ``""`` when nothing is close."""
    match = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" Nearest: {match[0]!r}." if match else ""
