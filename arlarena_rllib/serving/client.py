"""What rollout code needs to know of a policy: where it is, how it is asked, which errors pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arlarena_rllib.serving.engines.base import EngineDiedError, GenerationRequest, GenerationResult


@dataclass(frozen=True)
class ClientSpec:
    """What a process needs to reach a policy; picklable.

    Attributes:
        app_name: Name of the Serve app, or of the local policy.
        is_local: True for a policy that lives in the driver process.
        num_replicas: Requests made together are spread over this many replicas.
        request_timeout_s: Longest wait for one answer, retries included.
        retry_budget_s: Longest time that a request is retried after its replica has died.
    """

    app_name: str
    is_local: bool = False
    num_replicas: int = 1
    request_timeout_s: float = 300.0
    retry_budget_s: float = 180.0


class Client(Protocol):
    """What rollout code sees of a policy."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Return the answer to one request; ServingError when there is none in time."""

    async def close(self) -> None:
        """Drop what is still running; the client can be used again, also in a new event loop."""

    def stats(self) -> dict[str, float]:
        """Return counters since the last call of this method."""


class ClientStats:
    """Counters of a client: plain numbers, reset when read."""

    KEYS = ("requests", "handle_calls", "retries", "timeouts", "prompt_tokens", "response_tokens", "wait_s")

    def __init__(self) -> None:
        self.values = dict.fromkeys(self.KEYS, 0.0)

    def add(self, request: GenerationRequest, result: GenerationResult, wait_s: float) -> None:
        """Count one answered request."""
        self.values["requests"] += 1
        self.values["prompt_tokens"] += len(request.prompt_ids)
        self.values["response_tokens"] += len(result.token_ids)
        self.values["wait_s"] += wait_s

    def take(self) -> dict[str, float]:
        """Return the counters and start again at zero."""
        values, self.values = self.values, dict.fromkeys(self.KEYS, 0.0)
        return values


def root_cause(error: BaseException) -> BaseException:
    """Return what was raised in a remote process without the remote traceback that Ray puts around it."""
    return getattr(error, "cause", None) or error


def infrastructure_errors() -> tuple[type[Exception], ...]:
    """Return the errors after which the same request can succeed on another or a restarted replica."""
    from ray import exceptions
    from ray.serve.exceptions import RayServeException

    return (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.RpcError,
        exceptions.TaskCancelledError,
        RayServeException,
        EngineDiedError,
    )
