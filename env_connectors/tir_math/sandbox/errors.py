"""What the sandbox raises on purpose; a program that fails is no error but a RunResult."""

from __future__ import annotations

from env_connectors.errors import EnvConnectorError


class SandboxError(EnvConnectorError, RuntimeError):
    """The sandbox is closed, or its processes are lost and could not be started again."""


class SandboxUnavailableError(SandboxError):
    """This machine or account cannot isolate programs: no bwrap, no namespaces, no filter for the processor."""


class IsolationError(SandboxError):
    """The self-test reached something that must be out of reach; no model code was run."""
