"""What one program, and one session, may use."""

from __future__ import annotations

import dataclasses

from env_connectors.errors import EnvConfigError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a call, and of the /tmp of a session.

    Raises:
        EnvConfigError: a value that is not positive, or out of its range.
    """

    timeout_s: float = 5.0
    """Wall clock of a call; CPU time is capped two seconds above it."""
    memory_mb: int = 512
    """Address space of a call beyond what the interpreter with its preloaded packages takes."""
    output_bytes: int = 65_536
    """Kept of each of standard output and standard error; the rest is counted and thrown away."""
    output_stop_mb: int = 64
    """A program that has written more than this is stopped."""
    input_bytes: int = 1_048_576
    """Largest program, and largest standard input."""
    tmp_mb: int = 64
    """Size of a session's /tmp, and of a file in it; it is memory of the host."""
    tmp_files: int = 1_000
    """Files and folders in a session's /tmp."""
    open_files: int = 64
    """Open descriptors of a call."""
    threads: int = 32
    """Threads of a call, counted every 20 ms; 1 forbids them. Processes are forbidden."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), 8 if field.name == "open_files" else 0
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > least or value > 2**31:
                raise EnvConfigError(f"Limits: {field.name}={value!r} must be a number above {least}, at most 2^31.")
            if field.name != "timeout_s" and not isinstance(value, int):
                raise EnvConfigError(f"Limits: {field.name}={value!r} must be an integer.")

    def as_message(self) -> dict[str, float]:
        """Return what the session inside is told."""
        message = dataclasses.asdict(self)
        message["output_stop_bytes"] = message.pop("output_stop_mb") << 20
        # Per user account, so only a backstop: it counts all sessions together, and root is exempt from it.
        message["processes"] = 64 * (self.threads + 4)
        return message
