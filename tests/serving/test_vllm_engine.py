"""The vLLM engine on Serve against Hugging Face forwards: parity, versions, caches after a push, bad requests."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from serving_cases import largest_difference, make_request, make_requests, perturb, stopped_by
from transformers import PreTrainedModel

from arlarena_rllib.errors import ServingError
from arlarena_rllib.models import load_tokenizer
from arlarena_rllib.serving import EngineSpec, GenerationRequest, ServedPolicy, connect
from arlarena_rllib.serving.engines.vllm_engine import VllmEngine

pytestmark = pytest.mark.vllm

MAX_MODEL_LEN = 512
CACHE_BLOCK = 128
"""Tokens per block of vLLM's prefix cache on CPU."""


@pytest.fixture(scope="module")
def policy(ray_cluster: None, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPolicy]:
    """One replica of a model directory without an end token: answers have their full length."""
    endless_dir = shutil.copytree(tiny_model_dir, tmp_path_factory.mktemp("endless"), dirs_exist_ok=True)
    for name in ("config.json", "generation_config.json"):
        fields = json.loads((endless_dir / name).read_text())
        (endless_dir / name).write_text(json.dumps({**fields, "eos_token_id": None}))
    spec = EngineSpec("vllm", str(endless_dir), max_model_len=MAX_MODEL_LEN, max_num_seqs=64)
    started = ServedPolicy.start(spec, app_name="served-vllm", num_cpus_per_replica=0.5, startup_timeout_s=300.0)
    yield started
    started.stop()


def long_prompt(length: int) -> list[int]:
    return [20 + (11 * position) % 200 for position in range(length)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_logprobs_equal_hugging_face_before_and_after_a_push(
    policy: ServedPolicy, model: PreTrainedModel, temperature: float
) -> None:
    """The output layer is tied: vLLM's packed copy of it must follow the push too."""
    requests = make_requests(24, temperature=temperature, max_tokens=20)
    policy.publish(1, model.named_parameters())
    (before,) = policy.probe(requests)
    assert largest_difference(model, requests, before) <= 1e-5
    policy.publish(2, perturb(model, 0.5).named_parameters())
    (after,) = policy.probe(requests)
    assert largest_difference(model, requests, after) <= 1e-5
    assert [result.token_ids for result in before] != [result.token_ids for result in after]
    assert {version for result in after for version in result.weight_versions} == {2}


def test_stop_text_ends_an_answer_behind_the_whole_token_that_completes_it(
    policy: ServedPolicy, model: PreTrainedModel, tiny_model_dir: Path
) -> None:
    policy.publish(1, model.named_parameters())
    tokenizer = load_tokenizer(tiny_model_dir)
    requests = make_requests(12, max_tokens=40)
    wholes = [policy.probe([request])[0][0] for request in requests]  # alone, so that the draws come again
    pairs = [stopped_by(tokenizer, r, w.token_ids) for r, w in zip(requests, wholes, strict=True)]
    results = [policy.probe([request])[0][0] for request, _ in pairs]
    assert [result.token_ids for result in results] == [expected for _, expected in pairs]
    assert {result.finish_reason for result in results} == {"stop"}
    assert all(len(result.logprobs) == len(result.token_ids) == len(result.weight_versions) for result in results)


def test_push_during_an_answer_marks_each_token_with_its_weights(policy: ServedPolicy, model: PreTrainedModel) -> None:
    policy.publish(1, model.named_parameters())
    request = make_request(max_tokens=400)

    async def run():
        client = connect(policy.client_spec)
        task = asyncio.create_task(client.generate(request))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(policy.publish, 2, list(perturb(model, 0.5).named_parameters()))
        return await task

    result = asyncio.run(run())
    switch = result.weight_versions.index(2)
    assert 0 < switch < len(result.token_ids)
    assert result.weight_versions == [1] * switch + [2] * (len(result.token_ids) - switch)
    tail = GenerationRequest(request.prompt_ids + result.token_ids[:switch], max_tokens=1)
    rest = type(result)(result.token_ids[switch:], result.logprobs[switch:], "length", [])
    assert largest_difference(model, [tail], [rest]) <= 1e-5


def test_push_drops_the_prefix_cache(policy: ServedPolicy, model: PreTrainedModel) -> None:
    request = GenerationRequest(long_prompt(2 * CACHE_BLOCK + 9), max_tokens=5, seed=3)
    policy.publish(1, model.named_parameters())
    policy.probe([request])
    ((cached,),) = policy.probe([request])
    assert cached.num_cached_tokens == 2 * CACHE_BLOCK
    policy.publish(2, perturb(model, 0.5).named_parameters())
    ((fresh,),) = policy.probe([request])
    assert fresh.num_cached_tokens == 0
    assert largest_difference(model, [request], [fresh]) <= 1e-5


def test_many_long_seeded_prompts_are_all_answered(policy: ServedPolicy) -> None:
    """More prompt tokens than one step takes: prefill in parts would end the engine process."""
    requests = [GenerationRequest(long_prompt(200 + index), max_tokens=4, seed=index) for index in range(80)]
    (results,) = policy.probe(requests)
    assert {result.finish_reason for result in results} == {"length"}
    assert policy.probe(requests[:1])[0][0].token_ids == results[0].token_ids


def test_stop_tokens_and_the_length_limit_end_the_answer(policy: ServedPolicy) -> None:
    ((answer,),) = policy.probe([make_request()])
    assert answer.finish_reason == "length" and len(answer.token_ids) == 10
    stop_id = answer.token_ids[4]
    end = answer.token_ids.index(stop_id) + 1
    ((stopped,),) = policy.probe([make_request(stop_token_ids=(stop_id,))])
    assert stopped.finish_reason == "stop" and stopped.token_ids == answer.token_ids[:end]
    assert len(stopped.logprobs) == len(stopped.weight_versions) == end
    ((cut,),) = policy.probe([GenerationRequest(long_prompt(MAX_MODEL_LEN - 3), max_tokens=50)])
    assert cut.finish_reason == "length" and len(cut.token_ids) == 3


def test_bad_requests_are_error_results_and_the_others_are_answered(policy: ServedPolicy) -> None:
    requests = [GenerationRequest(long_prompt(MAX_MODEL_LEN), 5), GenerationRequest([10**6], 5), make_request()]
    ((too_long, unknown_token, good),) = policy.probe(requests)
    assert too_long.is_error and "512 tokens but max_model_len=512" in (too_long.error or "")
    assert unknown_token.is_error and "has 1000000, outside the vocabulary" in (unknown_token.error or "")
    assert good.finish_reason == "length"


def test_push_that_does_not_fit_is_refused_and_the_old_weights_stay(
    policy: ServedPolicy, model: PreTrainedModel
) -> None:
    policy.publish(1, model.named_parameters())
    named = dict(model.named_parameters())
    with pytest.raises(ServingError, match=r"missing \['model.norm.weight'\]"):
        policy.publish(2, {name: tensor for name, tensor in named.items() if name != "model.norm.weight"})
    requests = make_requests(3)
    (results,) = policy.probe(requests)
    assert largest_difference(model, requests, results) <= 1e-5
    assert {version for result in results for version in result.weight_versions} == {1}


@pytest.mark.parametrize(("key", "words"), [("max_model_len", "use the setting"), ("logprobs_mode", "training needs")])
def test_engine_argument_that_training_owns_is_refused(key: str, words: str) -> None:
    with pytest.raises(ServingError, match=rf"engine_kwargs.{key} cannot be set: {words}"):
        VllmEngine(EngineSpec("vllm", "/models/x", engine_kwargs={key: 1}))


def test_engine_process_killed_replica_is_replaced_and_serves_the_newest_weights(
    policy: ServedPolicy, model: PreTrainedModel
) -> None:
    """Last in this file: the new replica takes as long to start as the first one."""
    policy.publish(5, perturb(model, 0.5).named_parameters())
    (before,) = policy.status()
    engine_process = max(psutil.Process(before["pid"]).children(), key=lambda child: child.memory_info().rss)
    requests = make_requests(8, max_tokens=400)
    client = connect(policy.client_spec)

    async def run():
        tasks = [asyncio.create_task(client.generate(request)) for request in requests]
        await asyncio.sleep(0.3)
        engine_process.kill()
        return await asyncio.gather(*tasks)

    results = asyncio.run(run())
    assert client.stats()["retries"] >= 8
    assert {version for result in results for version in result.weight_versions} == {5}
    assert largest_difference(model, requests, results) <= 1e-5
    assert [status["version"] for status in policy.status()] == [5]
