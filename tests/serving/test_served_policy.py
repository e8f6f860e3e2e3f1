"""A served policy through real Ray Serve: coalescing, streaming, pushes, retries after a kill, clean ends."""

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest
import ray
from ray import serve
from serving_cases import largest_difference, make_request, make_requests, perturb
from transformers import PreTrainedModel

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving import (
    ClientSpec,
    EngineSpec,
    GenerationRequest,
    LocalPolicy,
    ServedPolicy,
    connect,
    register_engine,
)
from arlarena_rllib.serving.weights import FILE_PREFIX, WeightStore, weight_directory


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.2)


def weight_files() -> list[str]:
    return [path.name for path in weight_directory().glob(f"{FILE_PREFIX}-served*")]


def test_requests_of_one_moment_are_one_call_with_the_answers_of_a_local_engine(
    served: ServedPolicy, start_local: Callable[..., LocalPolicy], model: PreTrainedModel
) -> None:
    requests = make_requests(40, max_tokens=6)
    client = connect(served.client_spec)

    async def run() -> list:
        return await asyncio.gather(*(client.generate(request) for request in requests))

    served.publish(1, model.named_parameters())
    results = asyncio.run(run())
    stats = client.stats()
    assert stats["requests"] == 40 and stats["handle_calls"] == 1 and stats["retries"] == 0
    assert stats["response_tokens"] == sum(len(result.token_ids) for result in results)
    (expected,) = start_local().probe(requests)
    assert [result.token_ids for result in results] == [result.token_ids for result in expected]
    assert client.stats()["requests"] == 0


def test_short_answers_do_not_wait_for_long_ones(served: ServedPolicy) -> None:
    client = connect(served.client_spec)
    ended: list[int] = []

    async def ask(index: int, max_tokens: int) -> None:
        await client.generate(make_request(index, max_tokens=max_tokens))
        ended.append(max_tokens)

    async def run() -> None:
        await asyncio.gather(ask(0, 150), ask(1, 1), ask(2, 150), ask(3, 3))

    asyncio.run(run())
    assert ended[:2] == [1, 3]
    assert client.stats()["handle_calls"] == 1


def test_client_in_an_actor_and_in_several_loops_answers(served: ServedPolicy) -> None:
    @ray.remote(num_cpus=0)
    class Runner:
        """Like a rollout actor: synchronous, with a private event loop per call."""

        def __init__(self, spec: ClientSpec) -> None:
            self._client = connect(spec)

        def sample(self, requests: list[GenerationRequest]) -> list[str]:
            async def run() -> list[str]:
                answers = await asyncio.gather(*(self._client.generate(request) for request in requests))
                await self._client.close()
                return [answer.finish_reason for answer in answers]

            return asyncio.run(run())

    runner = Runner.remote(served.client_spec)
    for count in (3, 5):
        reasons = ray.get(runner.sample.remote(make_requests(count)))
        assert reasons == ["length"] * count


def test_bad_request_is_an_error_result_for_it_alone(served: ServedPolicy) -> None:
    ((bad, good),) = served.probe([make_request(prompt_ids=[30] * 500), make_request()])
    assert bad.is_error and "max_model_len" in (bad.error or "")
    assert not good.is_error


def test_request_timeout_is_an_error_that_names_the_limit(served: ServedPolicy) -> None:
    client = connect(ClientSpec("served", request_timeout_s=0.01))

    async def run() -> None:
        try:
            await client.generate(make_request(max_tokens=150))
        finally:
            await client.close()

    with pytest.raises(ServingError, match=r"request_timeout_s=0.01"):
        asyncio.run(run())
    assert client.stats()["timeouts"] == 1


def test_client_closed_leaves_nobody_waiting_and_works_again(served: ServedPolicy) -> None:
    client = connect(served.client_spec)

    async def run() -> list:
        flying = asyncio.create_task(client.generate(make_request(0, max_tokens=150)))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(client.generate(make_request(1)))
        await asyncio.sleep(0)
        await client.close()
        outcomes = await asyncio.gather(flying, waiting, return_exceptions=True)
        return [*outcomes, await client.generate(make_request(2))]

    flying, waiting, later = asyncio.run(run())
    assert isinstance(flying, asyncio.CancelledError) and isinstance(waiting, asyncio.CancelledError)
    assert later.finish_reason == "length"


def test_push_reaches_the_replica_and_leaves_no_file(served: ServedPolicy, model: PreTrainedModel) -> None:
    requests = make_requests(4)
    assert served.publish(11, perturb(model, 0.5).named_parameters()) == [11]
    (results,) = served.probe(requests)
    assert largest_difference(model, requests, results) < 1e-5
    assert {version for result in results for version in result.weight_versions} == {11}
    (status,) = served.status()
    assert status["version"] == 11 and status["startup_error"] is None and status["rss_mb"] > 100
    assert served.publish(4, perturb(model, 0.1).named_parameters()) == [4], "a restore may go back"
    assert weight_files() == []


def test_push_that_does_not_fit_raises_in_the_driver(served: ServedPolicy, model: PreTrainedModel) -> None:
    good = dict(model.named_parameters())
    with pytest.raises(ServingError, match=r"update_weights failed: Pushed weights do not fit .*missing"):
        served.publish(12, {"model.norm.weight": good["model.norm.weight"]})
    assert served.publish(13, good) == [13]


def test_replica_killed_requests_are_sent_again_to_one_with_the_newest_weights(
    served: ServedPolicy, model: PreTrainedModel
) -> None:
    served.publish(21, perturb(model, 0.5).named_parameters())
    (before,) = served.status()
    requests = make_requests(20, max_tokens=150)
    patient, impatient = connect(served.client_spec), connect(ClientSpec("served", retry_budget_s=-1.0))

    async def run() -> list:
        lost = asyncio.create_task(impatient.generate(requests[0]))
        tasks = [asyncio.create_task(patient.generate(request)) for request in requests]
        await asyncio.sleep(0.15)
        os.kill(before["pid"], signal.SIGKILL)
        with pytest.raises(ServingError, match=r"retry_budget_s=-1.*last error: .*(died|unavailable)"):
            await lost
        return await asyncio.gather(*tasks)

    results = asyncio.run(run())
    assert {result.finish_reason for result in results} == {"length"}
    assert {version for result in results for version in result.weight_versions} == {21}
    assert largest_difference(model, requests, results) < 1e-5
    assert patient.stats()["retries"] == 20 and impatient.stats()["retries"] == 0
    (after,) = served.status()
    assert after["pid"] != before["pid"] and after["version"] == 21


def test_replica_killed_with_calls_taken_over_loses_none_of_their_requests(served: ServedPolicy) -> None:
    (before,) = served.status()
    client = connect(served.client_spec)

    async def run() -> list:
        tasks = []
        for request in make_requests(8, max_tokens=150):
            tasks.append(asyncio.create_task(client.generate(request)))
            await asyncio.sleep(0.02)
        os.kill(before["pid"], signal.SIGKILL)
        return await asyncio.gather(*tasks)

    results = asyncio.run(run())
    counts = client.stats()
    assert {result.finish_reason for result in results} == {"length"}
    assert counts["retries"] == 8 and counts["handle_calls"] >= 8, "every request was under way in a call of its own"
    (after,) = served.status()
    assert after["num_running"] == 0


def test_two_replicas_share_the_requests_and_get_the_same_weights(
    digest_spec: EngineSpec, ray_cluster: None, model: PreTrainedModel
) -> None:
    policy = ServedPolicy.start(digest_spec, app_name="served-twice", num_replicas=2, num_cpus_per_replica=0.5)
    (untouched, _) = policy.probe(make_requests(3))
    assert policy.publish(2, perturb(model, 0.5).named_parameters()) == [2, 2]
    first, second = policy.probe(make_requests(3))
    assert first == second and first != untouched
    client = connect(policy.client_spec)

    async def run() -> None:
        await asyncio.gather(*(client.generate(request) for request in make_requests(30)))

    for _ in range(6):
        asyncio.run(run())
    assert client.stats()["handle_calls"] == 12
    assert all(status["num_requests"] >= 15 for status in policy.status())
    policy.stop()
    policy.stop()
    assert "served-twice" not in serve.status().applications
    assert WeightStore.find("served-twice") is None
    with pytest.raises(ServingError, match="was stopped"):
        policy.status()
    with pytest.raises(ServingError, match="no Serve app 'served-twice'"):
        asyncio.run(connect(policy.client_spec).generate(make_request()))


def test_app_of_the_same_name_is_replaced(digest_spec: EngineSpec, ray_cluster: None, model: PreTrainedModel) -> None:
    """As after a trial that died: the new one starts with the weights of its model directory, not with old ones."""
    first = ServedPolicy.start(digest_spec, app_name="served-again", num_cpus_per_replica=0.5)
    first.publish(9, model.named_parameters())
    second = ServedPolicy.start(digest_spec, app_name="served-again", num_cpus_per_replica=0.5)
    assert [status["version"] for status in second.status()] == [0]
    second.stop()


def test_store_killed_push_is_an_error_with_the_reason_and_the_app_ends(
    digest_spec: EngineSpec, ray_cluster: None, model: PreTrainedModel
) -> None:
    policy = ServedPolicy.start(digest_spec, app_name="served-storeless", num_cpus_per_replica=0.5)
    policy._store.kill()
    with pytest.raises(ServingError, match=r"weights of 1 MB could not be published \(ActorDiedError"):
        policy.publish(1, model.named_parameters())
    wait_until(lambda: "served-storeless" not in serve.status().applications)
    policy.stop()


def test_owner_killed_app_is_deleted_by_its_replicas(digest_spec: EngineSpec, ray_cluster: None) -> None:
    """As when a trial dies: nobody is left to delete the app, and its CPUs must not stay taken."""

    @ray.remote(num_cpus=0)
    class Trial:
        def start(self, spec: EngineSpec) -> int:
            register_engine("digest", "digest_engine:DigestEngine")
            self._policy = ServedPolicy.start(spec, app_name="served-orphan", num_cpus_per_replica=0.5)
            return self._policy.status()[0]["pid"]

    trial = Trial.remote()
    pid = ray.get(trial.start.remote(digest_spec))
    assert "served-orphan" in serve.status().applications
    ray.kill(trial)
    wait_until(lambda: "served-orphan" not in serve.status().applications)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
