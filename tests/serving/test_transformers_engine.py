"""The transformers engine against direct forwards: what it samples, reports, stops at, and does after a push."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from serving_cases import NO_END, largest_difference, make_request, make_requests, perturb, stopped_by
from transformers import PreTrainedModel

from arlarena_rllib.errors import ServingError
from arlarena_rllib.models import load_tokenizer
from arlarena_rllib.serving import EngineSpec, GenerationRequest, LocalPolicy, connect
from arlarena_rllib.serving.engines.decoding import keep_top
from arlarena_rllib.serving.engines.transformers_engine import TransformersEngine

StartLocal = Callable[..., LocalPolicy]


@pytest.fixture
def policy(start_local: StartLocal) -> LocalPolicy:
    return start_local()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_logprobs_equal_a_direct_forward(policy: LocalPolicy, model: PreTrainedModel, temperature: float) -> None:
    requests = make_requests(12, temperature=temperature)
    (results,) = policy.probe(requests)
    assert largest_difference(model, requests, results) < 1e-5


def test_seeded_answers_do_not_depend_on_the_batch(policy: LocalPolicy) -> None:
    requests = make_requests(12)
    (together,) = policy.probe(requests)
    alone = [policy.probe([request])[0][0] for request in requests]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert together[0].logprobs == pytest.approx(alone[0].logprobs, abs=1e-5)


def test_stop_text_ends_an_answer_behind_the_whole_token_that_completes_it(
    policy: LocalPolicy, tiny_model_dir: Path
) -> None:
    tokenizer = load_tokenizer(tiny_model_dir)
    requests = make_requests(12, max_tokens=40)
    (wholes,) = policy.probe(requests)
    pairs = [stopped_by(tokenizer, r, w.token_ids) for r, w in zip(requests, wholes, strict=True)]
    (results,) = policy.probe([request for request, _ in pairs])
    assert [result.token_ids for result in results] == [expected for _, expected in pairs]
    assert {result.finish_reason for result in results} == {"stop"}
    assert all(r.logprobs == pytest.approx(w.logprobs[: len(r.logprobs)], abs=1e-5) for r, w in zip(results, wholes))


def test_seeds_differ_answers_differ(policy: LocalPolicy) -> None:
    (results,) = policy.probe([make_request(0, seed=seed) for seed in range(6)])
    assert len({tuple(result.token_ids) for result in results}) == 6


def test_unseeded_answers_differ_and_repeat_after_a_new_start(start_local: StartLocal) -> None:
    first, second = start_local(seed=5), start_local(seed=5)
    requests = [make_request(0, seed=None)] * 4
    (answers,) = first.probe(requests)
    assert len({tuple(answer.token_ids) for answer in answers}) == 4
    assert second.probe(requests) == [answers]


def test_sampling_follows_the_distribution(policy: LocalPolicy, model: PreTrainedModel) -> None:
    perturb(model, 3.0)
    policy.publish(1, model.named_parameters())
    prompt = make_request().prompt_ids
    with torch.inference_mode():
        probs_V = torch.softmax(model(torch.tensor([prompt])).logits[0, -1], dim=-1)
    draws = 3000
    (results,) = policy.probe([GenerationRequest(prompt, max_tokens=1, seed=seed) for seed in range(draws)])
    counts_V = torch.bincount(torch.tensor([result.token_ids[0] for result in results]), minlength=len(probs_V))
    deviation_V = (counts_V - draws * probs_V).abs() / (draws * probs_V * (1 - probs_V) + 1.0).sqrt()
    assert deviation_V.max() < 5.0


def test_greedy_takes_the_argmax(policy: LocalPolicy, model: PreTrainedModel) -> None:
    requests = make_requests(5, temperature=0.0)
    (results,) = policy.probe(requests)
    for request, result in zip(requests, results, strict=True):
        text_1_T = torch.tensor([request.prompt_ids + result.token_ids])
        with torch.inference_mode():
            best_T = model(text_1_T).logits[0].argmax(-1)
        assert best_T[len(request.prompt_ids) - 1 : -1].tolist() == result.token_ids


def test_stop_and_end_tokens_end_the_answer(start_local: StartLocal) -> None:
    reference = start_local(eos_token_ids=NO_END)
    ((answer,),) = reference.probe([make_request()])
    assert answer.finish_reason == "length" and len(answer.token_ids) == 10
    stop_id = answer.token_ids[4]
    position = answer.token_ids.index(stop_id)
    ((stopped,),) = reference.probe([make_request(stop_token_ids=(stop_id,))])
    ((ended,),) = start_local(eos_token_ids=(stop_id,)).probe([make_request()])
    for result in (stopped, ended):
        assert result.finish_reason == "stop"
        assert result.token_ids == answer.token_ids[: position + 1]
        assert len(result.logprobs) == len(result.weight_versions) == position + 1


def test_answer_at_the_length_limit_ends_with_length(policy: LocalPolicy) -> None:
    prompt = [30 + i % 50 for i in range(policy._engine.spec.max_model_len - 3)]
    ((result,),) = policy.probe([GenerationRequest(prompt, max_tokens=50, seed=0)])
    assert result.finish_reason == "length" and len(result.token_ids) == 3


def test_prompt_too_long_is_an_error_result_and_others_are_answered(policy: LocalPolicy) -> None:
    ((bad, good),) = policy.probe([GenerationRequest([30] * 192, max_tokens=5), make_request()])
    assert bad.is_error and "192 tokens but max_model_len=192" in (bad.error or "")
    assert bad.token_ids == bad.logprobs == bad.weight_versions == []
    assert good.finish_reason == "length" and good.error is None


def test_token_outside_the_vocabulary_is_an_error_result_and_the_engine_lives(policy: LocalPolicy) -> None:
    ((bad,),) = policy.probe([GenerationRequest([10**6], max_tokens=5)])
    assert bad.is_error and "outside the vocabulary" in (bad.error or "")
    ((good,),) = policy.probe([make_request()])
    assert not good.is_error


@pytest.mark.parametrize("filters", [{"top_k": 5}, {"top_p": 0.3}, {"top_k": 20, "top_p": 0.5}])
def test_filtered_logprobs_are_renormalised(
    policy: LocalPolicy, model: PreTrainedModel, filters: dict[str, float]
) -> None:
    request = make_request(max_tokens=1, **filters)
    ((result,),) = policy.probe([request])
    with torch.inference_mode():
        logits_V = model(torch.tensor([request.prompt_ids])).logits[0, -1]
    kept_V = keep_top(logits_V, request.top_k, request.top_p)
    expected = torch.log_softmax(kept_V, dim=-1)[result.token_ids[0]].item()
    assert result.logprobs[0] == pytest.approx(expected, abs=1e-5)


def test_keep_top_by_hand() -> None:
    logits_V = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    kept = lambda top_k, top_p: torch.isfinite(keep_top(logits_V, top_k, top_p)).tolist()  # noqa: E731
    assert kept(2, 1.0) == [False, True, False, True]
    assert kept(0, 0.65) == [False, True, False, True]
    assert kept(0, 0.75) == [False, True, True, True]
    assert kept(0, 0.01) == [False, True, False, False]
    assert kept(2, 0.5) == [False, True, False, False]


def test_push_changes_answers_and_versions(policy: LocalPolicy, model: PreTrainedModel) -> None:
    requests = make_requests(6)
    (before,) = policy.probe(requests)
    assert policy.publish(7, perturb(model, 0.5).named_parameters()) == [7]
    (after,) = policy.probe(requests)
    assert {version for result in before for version in result.weight_versions} == {0}
    assert {version for result in after for version in result.weight_versions} == {7}
    assert [result.token_ids for result in before] != [result.token_ids for result in after]
    assert largest_difference(model, requests, after) < 1e-5


def test_push_during_an_answer_marks_each_token_with_its_weights(
    start_local: StartLocal, model: PreTrainedModel
) -> None:
    """After the push the rest is drawn from the new weights with a cache of the new weights."""
    policy = start_local(eos_token_ids=NO_END)
    perturb(model, 0.5)
    request = make_request(max_tokens=150)

    async def run():
        client = connect(policy.client_spec)
        task = asyncio.create_task(client.generate(request))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(policy.publish, 3, list(model.named_parameters()))
        return await task

    result = asyncio.run(run())
    switch = result.weight_versions.index(3)
    assert 0 < switch < len(result.token_ids) - 1
    assert result.weight_versions == [0] * switch + [3] * (len(result.token_ids) - switch)
    assert largest_difference(model, [request], [result]) > 1e-3
    tail = GenerationRequest(request.prompt_ids + result.token_ids[:switch], max_tokens=1)
    rest = type(result)(result.token_ids[switch:], result.logprobs[switch:], "length", [])
    assert largest_difference(model, [tail], [rest]) < 1e-5


def test_push_that_does_not_fit_is_refused_and_the_old_weights_stay(
    policy: LocalPolicy, model: PreTrainedModel
) -> None:
    ((before,),) = policy.probe([make_request()])
    named = dict(model.named_parameters())
    name = "model.norm.weight"
    with pytest.raises(ServingError, match=r"missing \['model.norm.weight'\] \(1\)"):
        policy.publish(1, {key: tensor for key, tensor in named.items() if key != name})
    with pytest.raises(ServingError, match=r"unknown \['extra'\] \(1\)"):
        policy.publish(1, {**named, "extra": torch.ones(1)})
    with pytest.raises(ServingError, match=r"model.norm.weight has shape \(3,\), the model has"):
        policy.publish(1, {**named, name: torch.ones(3)})
    assert policy.probe([make_request()]) == [[before]]


def test_requests_beyond_max_num_seqs_are_all_answered(start_local: StartLocal) -> None:
    policy = start_local(max_num_seqs=4)
    requests = [make_request(index, max_tokens=1 + index % 7) for index in range(30)]
    (results,) = policy.probe(requests)
    assert [len(result.token_ids) for result in results] == [request.max_tokens for request in requests]


def test_request_cancelled_leaves_the_others_alone(start_local: StartLocal) -> None:
    policy = start_local(eos_token_ids=NO_END)

    async def run():
        client = connect(policy.client_spec)
        tasks = [asyncio.create_task(client.generate(make_request(i, max_tokens=100))) for i in range(4)]
        await asyncio.sleep(0.05)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())
    assert isinstance(answers[1], asyncio.CancelledError)
    assert [len(answers[index].token_ids) for index in (0, 2, 3)] == [100, 100, 100]


def test_engine_stopped_answers_nobody(spec: EngineSpec) -> None:
    async def run():
        engine = TransformersEngine(spec)
        with pytest.raises(ServingError, match="not running"):
            await engine.generate(make_request())
        await engine.start()
        task = asyncio.create_task(engine.generate(make_request(max_tokens=150)))
        await asyncio.sleep(0.05)
        await engine.stop()
        with pytest.raises(ServingError, match="engine was stopped"):
            await task
        with pytest.raises(ServingError, match="not running"):
            await engine.check_health()

    asyncio.run(run())


def test_engine_option_unknown_is_refused_with_the_nearest(spec: EngineSpec) -> None:
    with pytest.raises(ServingError, match=r"engine_kwargs.devise is not known .* Nearest: 'device'"):
        TransformersEngine(EngineSpec("transformers", spec.model_path, engine_kwargs={"devise": "cpu"}))


def test_local_policy_errors_say_what_helps(start_local: StartLocal, spec: EngineSpec, tmp_path: Path) -> None:
    first = start_local()
    with pytest.raises(ServingError, match="exists already"):
        LocalPolicy.start(spec, app_name=first.client_spec.app_name)
    with pytest.raises(ServingError, match=r"'vllm' cannot run inside the driver process: set num_replicas >= 1"):
        LocalPolicy.start(EngineSpec("vllm", spec.model_path), app_name="other")
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with pytest.raises(ServingError, match="local engine did not start"):
        LocalPolicy.start(EngineSpec("transformers", str(tmp_path)), app_name="other")
    first.stop()
    with pytest.raises(ServingError, match="num_env_runners=0"):
        connect(first.client_spec)
    with pytest.raises(ServingError, match="was stopped"):
        first.probe([make_request()])
