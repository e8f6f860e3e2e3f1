"""Driver side of a policy on Ray Serve: start replicas, push weights, probe, look in, stop."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.client import ClientSpec, infrastructure_errors, root_cause
from arlarena_rllib.serving.engines.base import EngineSpec, GenerationRequest, GenerationResult
from arlarena_rllib.serving.policy_server import PolicyServer
from arlarena_rllib.serving.startup import check_resources, check_spec, wait_until_running
from arlarena_rllib.serving.weights import WeightStore, clean_stale_files, remove_app_files, serialize_weights
from arlarena_rllib.serving.wire import pack_requests, unpack_results

if TYPE_CHECKING:
    import numpy as np
    from ray.serve.handle import DeploymentHandle

    from arlarena_rllib.serving.weights import NamedTensors

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 600.0
PROBE_TIMEOUT_S = 600.0
STATUS_TIMEOUT_S = 30.0
REPLICA_ENVIRONMENT = {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}
"""An engine does its work in a process or thread of its own, so Serve need not guard its event loop with another."""
MAX_ONGOING_CALLS = 10_000
"""Calls per replica that Serve lets through: the engine does its own queueing."""


class ServedPolicy:
    """N replicas of one engine under a Serve app, fed with weights by one publisher."""

    def __init__(
        self, spec: EngineSpec, client_spec: ClientSpec, handle: DeploymentHandle[Any], store: WeightStore
    ) -> None:
        self.spec = spec
        self.client_spec = client_spec
        self._handle = handle
        self._store = store
        self._is_stopped = False

    @classmethod
    def start(
        cls,
        spec: EngineSpec,
        *,
        app_name: str,
        num_replicas: int = 1,
        num_cpus_per_replica: float = 1.0,
        num_gpus_per_replica: float = 0.0,
        startup_timeout_s: float = 600.0,
        request_timeout_s: float = 300.0,
        retry_budget_s: float = 180.0,
    ) -> ServedPolicy:
        """Start the app and return when every replica answers.

        An app of the same name, e.g. of a trial that died, is replaced.

        Args:
            spec: The engine.
            app_name: Unique in the cluster; take the trial id into it.
            num_replicas: Copies of the policy, at least 1.
            num_cpus_per_replica: Logical CPUs that Ray reserves per replica, outside of any placement group.
            num_gpus_per_replica: GPUs per replica.
            startup_timeout_s: Longest wait for the replicas.
            request_timeout_s: See ``ClientSpec``.
            retry_budget_s: See ``ClientSpec``.

        Raises:
            ServingError: With the reason, after a few seconds where it can be known before the engine starts.
        """
        from ray import serve

        if num_replicas < 1:
            raise ServingError(f"num_replicas={num_replicas} must be at least 1; start_policy takes 0 for in-process.")
        entry = check_spec(spec)
        clean_stale_files()
        serve.start(proxy_location="Disabled")
        _remove_app(app_name)
        check_resources(num_replicas, num_cpus_per_replica, num_gpus_per_replica)
        store = WeightStore.create(app_name)
        client_spec = ClientSpec(
            app_name,
            num_replicas=num_replicas,
            request_timeout_s=request_timeout_s,
            retry_budget_s=retry_budget_s,
        )
        deployment = serve.deployment(PolicyServer).options(
            num_replicas=num_replicas,
            ray_actor_options={
                "num_cpus": num_cpus_per_replica,
                "num_gpus": num_gpus_per_replica,
                "runtime_env": {"env_vars": REPLICA_ENVIRONMENT},
            },
            max_ongoing_requests=MAX_ONGOING_CALLS,
            health_check_period_s=2.0,
            health_check_timeout_s=60.0,
            graceful_shutdown_wait_loop_s=0.1,
            graceful_shutdown_timeout_s=10.0,
            max_constructor_retry_count=1,
        )
        target = serve.RunTarget(deployment.bind(spec, entry, app_name), name=app_name, route_prefix=None)
        try:
            (handle,) = serve.run_many([target], wait_for_applications_running=False)
            policy = cls(spec, client_spec, handle, store)
            wait_until_running(app_name, handle, num_replicas, startup_timeout_s)
        except BaseException:
            _remove_app(app_name)
            raise
        return policy

    def publish(self, version: int, named_tensors: NamedTensors) -> list[int]:
        """Bring every replica to new weights; returns their versions, one per replica, all equal to ``version``.

        A replica that is being restarted is not waited for: it pulls the same weights before it answers.

        Args:
            version: Number that every token drawn with these weights will carry.
            named_tensors: ``module.named_parameters()`` of the policy, see ``serialize_weights``.

        Raises:
            ServingError: No replica is alive, or one refused the weights.
        """
        self._require_running()
        self._put(version, serialize_weights(named_tensors))
        answers = self._broadcast("update_weights", version, timeout_s=PUSH_TIMEOUT_S)
        return [answer["version"] for answer in answers]

    def probe(self, requests: Sequence[GenerationRequest]) -> list[list[GenerationResult]]:
        """Return the answers of every replica to the same requests, [replica][request]."""
        self._require_running()
        packed = self._broadcast("probe", pack_requests(enumerate(requests)), timeout_s=PROBE_TIMEOUT_S)
        return [[result for _, result in unpack_results(answer)] for answer in packed]

    def status(self) -> list[dict[str, Any]]:
        """Return one dictionary per running replica, see ``PolicyServer.status``."""
        self._require_running()
        return self._broadcast("status", timeout_s=STATUS_TIMEOUT_S)

    def stop(self) -> None:
        """End replicas and store and remove files; calling it again does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        _remove_app(self.client_spec.app_name)

    def _put(self, version: int, data_N: np.ndarray) -> None:
        from ray.exceptions import RayError

        try:
            self._store.put(version, data_N, timeout_s=PUSH_TIMEOUT_S)
        except RayError as error:
            raise ServingError(
                f"App {self.client_spec.app_name!r}: weights of {data_N.nbytes / 1e6:.0f} MB could not be published "
                f"({type(error).__name__}: {error}). Without its store the app ends itself; start the policy again, "
                "with a larger object_store_memory in ray.init when the weights do not fit."
            ) from error

    def _require_running(self) -> None:
        if self._is_stopped:
            raise ServingError(f"App {self.client_spec.app_name!r} was stopped.")

    def _broadcast(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """Call every running replica; those that die meanwhile are left out, those that refuse raise."""
        import ray
        from ray.serve.exceptions import RayServeException

        app_name = self.client_spec.app_name
        deadline = time.monotonic() + min(timeout_s, max(self.client_spec.retry_budget_s, 1.0))
        while True:
            try:
                answers = self._handle.broadcast(method, *args).results(timeout_s=timeout_s, return_exceptions=True)
            except (RayServeException, ray.exceptions.RayActorError) as error:
                answers = [error]
            except TimeoutError as error:
                raise ServingError(f"App {app_name!r}: {method} took longer than {timeout_s:g} s.") from error
            good = [answer for answer in answers if not isinstance(answer, BaseException)]
            bad = [answer for answer in answers if isinstance(answer, BaseException)]
            for refusal in bad:
                if not isinstance(refusal, infrastructure_errors()):
                    raise ServingError(f"App {app_name!r}: {method} failed: {root_cause(refusal)}") from refusal
            if good:
                return good
            if time.monotonic() > deadline:
                raise ServingError(f"App {app_name!r}: no replica could be reached for {method}: {root_cause(bad[-1])}")
            time.sleep(1.0)


def _remove_app(app_name: str) -> None:
    """Delete the app, its store and its files, whatever of them exists."""
    import ray
    from ray import serve

    if not ray.is_initialized():
        return
    with contextlib.suppress(ray.exceptions.RayActorError, serve.exceptions.RayServeException):
        if app_name in serve.status().applications:
            serve.delete(app_name)
    store = WeightStore.find(app_name)
    if store is not None:
        store.kill()
    remove_app_files(app_name)
