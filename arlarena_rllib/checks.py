"""Checks of values that several sections share; each returns what is wrong, or None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_keyed(value: Any) -> str | None:
    """Check a mapping whose keys are names."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return None
    return "must be a mapping with text keys"


def two_betas(value: Any) -> str | None:
    """Check the two decay rates of AdamW."""
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    if is_pair and all(isinstance(b, (int, float)) and not isinstance(b, bool) and 0 <= b < 1 for b in value):
        return None
    return "must be two numbers in [0, 1)"
