"""A sandbox for model-written Python: namespaces, a system call filter, limits; see docs/sandbox.md."""

from env_connectors.tir_math.sandbox.errors import IsolationError, SandboxError, SandboxUnavailableError
from env_connectors.tir_math.sandbox.limits import Limits
from env_connectors.tir_math.sandbox.result import RunResult, Status
from env_connectors.tir_math.sandbox.sandbox import Sandbox, Session

__all__ = [
    "IsolationError",
    "Limits",
    "RunResult",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailableError",
    "Session",
    "Status",
]
