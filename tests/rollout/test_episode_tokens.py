"""Tokens in, tokens out: what was sampled is what the row holds, whatever it decodes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from rollout_cases import CALLING, GUESS, SOKOBAN, ScriptedClient, ids_of, play

from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.metrics import trajectory_metrics
from arlarena_rllib.trajectory import APPEND, StopReason, TrajectoryGroup, build_token_batch
from env_connectors import make_text_env


def test_sampled_tokens_are_kept_verbatim(tiny_model_dir: Path) -> None:
    reply = ids_of(tiny_model_dir, "<think>push</think><action>up</action>")
    trajectory = play(tiny_model_dir, ScriptedClient([reply]))
    assert trajectory.turns and all(turn.response_ids == reply for turn in trajectory.turns)
    assert all(turn.format_valid and turn.action == "up" for turn in trajectory.turns)
    assert all(turn.response_mask == [1] * len(reply) for turn in trajectory.turns)
    assert trajectory.turns[0].weight_versions == [2] * len(reply)


def test_gold_replies_end_in_success(tiny_model_dir: Path) -> None:
    env = make_text_env(SOKOBAN)
    task = env.tasks().train[3]
    replies = [
        ids_of(tiny_model_dir, f"<think>push</think><action>{action}</action>") for action in env.gold_actions(task)
    ]
    trajectory = play(tiny_model_dir, ScriptedClient(replies), task=task)
    assert trajectory.success and trajectory.stop_reason is StopReason.SUCCESS
    assert len(trajectory.turns) == len(replies)
    assert trajectory.episode_return > 9


def test_numbers_that_the_environment_tells_are_those_of_the_last_turn(tiny_model_dir: Path) -> None:
    reply = ids_of(tiny_model_dir, "<think>look</think><action>search[shoes]</action>")
    trajectory = play(tiny_model_dir, ScriptedClient([reply]), env="arlarena/WebShop-v0", max_model_len=8192)
    assert len(trajectory.turns) == 15 and all(turn.action_valid for turn in trajectory.turns)
    assert (trajectory.env_metrics["searches"], trajectory.env_metrics["score"]) == (15.0, 0.0)
    assert play(tiny_model_dir, ScriptedClient([reply])).env_metrics == {}


def test_empty_reply_is_a_malformed_turn_not_a_failure(tiny_model_dir: Path) -> None:
    trajectory = play(tiny_model_dir, ScriptedClient([ids_of(tiny_model_dir, "")]))
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert [turn.reply for turn in trajectory.turns] == [""] * len(trajectory.turns)
    assert not any(turn.format_valid or turn.action_valid for turn in trajectory.turns)


def test_reply_that_is_not_utf8_is_a_malformed_turn_and_its_bytes_stay_as_tokens(tiny_model_dir: Path) -> None:
    codec = TextCodec(str(tiny_model_dir))
    broken = codec.tokenizer.encode("√", add_special_tokens=False)[:2]  # two of the three bytes of the character
    reply = [*broken, codec.tokenizer.eos_token_id]
    trajectory = play(tiny_model_dir, ScriptedClient([reply]))
    assert "\ufffd" in trajectory.turns[0].reply
    assert trajectory.turns[0].response_ids == reply
    assert not trajectory.turns[0].format_valid
    assert trajectory.stop_reason is StopReason.MAX_TURNS


def test_windowed_prompt_shows_the_last_turns_only(tiny_model_dir: Path) -> None:
    client = ScriptedClient([ids_of(tiny_model_dir, "<think>a</think><action>up</action>")])
    play(tiny_model_dir, client, memory_window=1)
    codec = TextCodec(str(tiny_model_dir))
    texts = [codec.decode(request.prompt_ids) for request in client.requests]
    assert texts[0].count("past") == 0
    assert all(text.count("past") == 1 for text in texts[1:])


def test_append_row_is_the_exact_conversation_that_the_engine_saw(tiny_model_dir: Path) -> None:
    reply = ids_of(tiny_model_dir, "<think>low</think><action>1</action>")
    client = ScriptedClient([reply])
    trajectory = play(tiny_model_dir, client, env=GUESS, mode=APPEND)
    assert len(trajectory.turns) > 1
    batch = build_token_batch([TrajectoryGroup(0, "t", [trajectory])], pad_id=0)
    assert len(batch["input_ids"]) == 1
    row = batch["input_ids"][0].tolist()
    assert row == client.requests[-1].prompt_ids + reply
    assert batch["loss_mask"][0].sum() == len(reply) * len(trajectory.turns)
    for request in client.requests[1:]:
        assert request.prompt_ids[: len(client.requests[0].prompt_ids)] == client.requests[0].prompt_ids


@pytest.mark.parametrize("mode", ["windowed", "append"])
def test_prompt_lengths_are_those_that_the_engine_was_given(tiny_model_dir: Path, mode: str) -> None:
    client = ScriptedClient([ids_of(tiny_model_dir, "<think>low</think><action>1</action>")])
    trajectory = play(tiny_model_dir, client, env=GUESS, mode=mode)
    assert trajectory.prompts == [request.prompt_ids for request in client.requests]
    assert trajectory.prompt_lengths == [len(request.prompt_ids) for request in client.requests]
    assert trajectory_metrics([trajectory])["num_prompt_tokens"] == sum(trajectory.prompt_lengths)


def test_append_mode_adds_the_missing_end_of_a_cut_reply_masked(tiny_model_dir: Path) -> None:
    codec = TextCodec(str(tiny_model_dir))
    cut = ids_of(tiny_model_dir, "<think>low</think><action>1</action>", end=False)
    trajectory = play(tiny_model_dir, ScriptedClient([cut]), env=GUESS, mode=APPEND)
    assert trajectory.turns[1].context_ids[0] == codec.tokenizer.eos_token_id
    ended = play(tiny_model_dir, ScriptedClient([[*cut, codec.tokenizer.eos_token_id]]), env=GUESS, mode=APPEND)
    assert ended.turns[1].context_ids == trajectory.turns[1].context_ids[1:]


def test_answer_to_a_call_stands_behind_it_as_plain_text_and_is_masked(tiny_model_dir: Path) -> None:
    codec = TextCodec(str(tiny_model_dir))
    call = ids_of(tiny_model_dir, "so <call>4</call>", end=False)
    client = ScriptedClient([call])
    trajectory = play(tiny_model_dir, client, env=CALLING, task="guess/3-10/5", mode=APPEND)
    assert [turn.action for turn in trajectory.turns] == ["4"] * 4
    assert all(request.stop == ("</call>",) for request in client.requests)
    assert [turn.context_ids for turn in trajectory.turns[1:]] == [codec.encode_text("higher")] * 3
    batch = build_token_batch([TrajectoryGroup(0, "t", [trajectory])], pad_id=0)
    sampled = batch["loss_mask"][0] > 0
    assert batch["input_ids"][0][sampled].tolist() == call * 4
    assert batch["input_ids"][0].tolist() == client.requests[-1].prompt_ids + call


def test_reply_that_ended_its_message_is_answered_in_a_message_of_its_own(tiny_model_dir: Path) -> None:
    codec = TextCodec(str(tiny_model_dir))
    client = ScriptedClient([ids_of(tiny_model_dir, "so <call>4</call>")])
    trajectory = play(tiny_model_dir, client, env=CALLING, task="guess/3-10/5", mode=APPEND)
    between = codec.tokenizer.decode(trajectory.turns[1].context_ids)
    assert between == "<|user|>now higher<|end|><|assistant|>"


@pytest.mark.parametrize("mode", ["windowed", "append"])
def test_prompt_that_cannot_fit_ends_the_episode_with_its_reason(tiny_model_dir: Path, mode: str) -> None:
    client = ScriptedClient([ids_of(tiny_model_dir, "<think>a</think><action>1</action>")])
    trajectory = play(tiny_model_dir, client, env=GUESS, mode=mode, max_model_len=18)
    assert trajectory.stop_reason is StopReason.PROMPT_TOO_LONG
    assert all(len(r.prompt_ids) + r.max_tokens <= 18 for r in client.requests)


def test_long_history_is_dropped_oldest_first_until_the_prompt_fits(tiny_model_dir: Path) -> None:
    client = ScriptedClient([ids_of(tiny_model_dir, "<think>a</think><action>up</action>")])
    codec = TextCodec(str(tiny_model_dir))
    full = play(tiny_model_dir, client, memory_window=4)
    longest = max(len(turn.context_ids) for turn in full.turns)
    limited = play(tiny_model_dir, client, memory_window=4, max_model_len=longest + 16 - 1)
    assert limited.stop_reason is StopReason.MAX_TURNS
    kept = [codec.decode(turn.context_ids).count("past") for turn in limited.turns]
    assert max(kept) < 4 and max(kept) >= 1
