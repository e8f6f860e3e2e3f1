"""What is written down of an iteration, and what happens when it cannot be."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arlarena_rllib.objectives import ObjectiveSpec
from arlarena_rllib.trajectory import APPEND, StopReason, Trajectory, TrajectoryGroup, Turn, build_token_batch
from arlarena_rllib.trajectory_record import TEXT_CHARS, TRAJECTORY_CHARS, trajectory_record, turns_training
from arlarena_rllib.trajectory_recorder import TrajectoryRecorder


def _turn(number: int, *, valid: bool = True, observation: str = "seen", **fields: Any) -> Turn:
    return Turn(
        context_ids=[7, 8],
        response_ids=[number, number + 1],
        response_logp=[-0.1, -0.2],
        response_mask=[1, 1],
        weight_versions=[4, 5],
        reply=f"<think>t{number}</think><action>up</action>",
        thought=f"t{number}",
        action="up",
        format_valid=valid,
        action_valid=valid,
        anchor=f"s{number}",
        reward=float(number),
        observation=observation,
        **fields,
    )


def _groups(count: int = 2, members: int = 2, *, mode: str = "windowed") -> list[TrajectoryGroup]:
    return [
        TrajectoryGroup(
            group,
            f"task {group}",
            [
                Trajectory(f"task {group}", group, member, mode=mode, turns=[_turn(member), _turn(member + 10)])
                for member in range(members)
            ],
        )
        for group in range(count)
    ]


def _recorder(folder: Path, count: int, **spec: Any) -> TrajectoryRecorder:
    return TrajectoryRecorder(count, folder, ObjectiveSpec(**spec), lambda ids: " ".join(map(str, ids)), {"env": "e"})


def _written(folder: Path, iteration: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"iteration_{iteration:06d}.jsonl").read_text().splitlines()]


def _all(groups: list[TrajectoryGroup]) -> list[Trajectory]:
    return [t for group in groups for t in group.trajectories]


def test_file_has_texts_of_the_tokens_and_what_training_made_of_each_turn(tmp_path: Path) -> None:
    groups = _groups()
    groups[1].trajectories[0].turns[1].action_valid = False
    recorder = _recorder(tmp_path, 3, format_penalty=0.5)
    recorder.begin(_all(groups), [groups[1]])  # the first group was filtered out
    rows = build_token_batch([groups[1]], pad_id=0)
    rows["advantages"] = np.array([0.5, -0.5, 1.5, -1.5], dtype=np.float32)
    marked = recorder.marked(rows)
    assert marked["recorded"].tolist() == [True, True, False, False]
    ratios = {(0, 0): np.log(np.array([1.0, 3.0])), (0, 1): np.log(np.array([0.5, 0.5]))}
    assert recorder.write(7, lambda: [{}, ratios]) == []
    records = _written(tmp_path, 7)
    # The first episode of each group, then the second of each.
    assert [(r["group"], r["member"], r["use"]) for r in records] == [
        (0, 0, "left out"), (1, 0, "trained"), (0, 1, "left out"),
    ]  # fmt: skip
    assert {(r["iteration"], r["env"]) for r in records} == {(7, "e")}
    first, second = records[1]["turns"]
    assert (first["advantage"], first["ratio_mean"], first["ratio_min"], first["ratio_max"]) == (0.5, 2.0, 1.0, 3.0)
    assert (second["advantage"], second["ratio_mean"], second["reward"]) == (-0.5, 0.5, 10.0)
    assert (first["prompt"], first["reply"], first["thought"], first["weight_version"]) == ("7 8", "0 1", "t0", [4, 5])
    assert (first["loss_tokens"], first["response_tokens"], first["prompt_tokens"]) == (2, 2, 2)
    assert (first["costs"], second["costs"]) == ({}, {"format_penalty": 0.5})
    left_out = records[0]["turns"][0]
    assert (left_out["loss_tokens"], left_out["advantage"], left_out["ratio_mean"]) == (0, None, None)


def test_turns_of_a_growing_conversation_get_their_own_part_of_the_row() -> None:
    trajectory = _groups(1, 1, mode=APPEND)[0].trajectories[0]
    trajectory.turns[0].response_mask = [1, 0]  # the second token was forced
    rows = build_token_batch([TrajectoryGroup(0, "t", [trajectory])], pad_id=0)
    per_token = np.arange(rows["loss_mask"].shape[1], dtype=np.float32)[None]
    rows["advantages"] = per_token
    # Columns: 2 of the prompt, 2 of the reply, 2 added, 2 of the reply.
    first, second = turns_training(trajectory, rows, {(0, 0): np.array([0.1, 0.2, 0.3])}, 0)
    assert (first.num_loss_tokens, first.advantage) == (1, 2.0)
    assert (second.num_loss_tokens, second.advantage) == (2, 6.5)
    assert first.log_ratio_K is not None and first.log_ratio_K.tolist() == [0.1]
    assert second.log_ratio_K is not None and second.log_ratio_K.tolist() == [0.2, 0.3]


def test_row_that_is_masked_out_of_the_loss_is_said_to_be(tmp_path: Path) -> None:
    groups = _groups(1, 1)
    recorder = _recorder(tmp_path, 1)
    recorder.begin(_all(groups), groups)
    rows = build_token_batch(groups, pad_id=0) | {"advantages": np.ones(2, dtype=np.float32)}
    recorder.marked({name: column[1:] for name, column in rows.items()})
    recorder.write(1, lambda: [{}])
    assert [t["loss_tokens"] for t in _written(tmp_path, 1)[0]["turns"]] == [0, 2]


def test_nothing_is_done_when_nothing_is_recorded(tmp_path: Path) -> None:
    recorder, batch = _recorder(tmp_path / "none", 0), {"trajectory_id": np.zeros(1)}
    recorder.begin([], [])
    assert recorder.marked(batch) is batch
    assert recorder.write(1, lambda: pytest.fail("asked the learners")) == []
    assert not (tmp_path / "none").exists()


def test_iteration_that_is_done_again_replaces_its_file_and_later_ones_go(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 1)
    for iteration in (1, 2, 3, 2):
        groups = _groups()
        recorder.begin(_all(groups), groups)
        assert recorder.write(iteration, list) == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["iteration_000001.jsonl", "iteration_000002.jsonl"]
    assert len(_written(tmp_path, 2)) == 1


def test_full_disk_warns_once_in_a_while_and_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    recorder = _recorder(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        notices = []
        for iteration in range(1, 22):
            recorder.begin(_all(_groups()), [])
            notices.append(recorder.write(iteration, list))
        assert [bool(n) for n in notices] == [True, *[False] * 19, True]
        assert "record_trajectories=2: iteration 1 could not be written to" in notices[0][0]
        assert "No space left on device. Training goes on" in notices[0][0]
    assert list(tmp_path.iterdir()) == []
    recorder.begin(_all(_groups()), [])
    assert recorder.write(22, list) == [] and len(_written(tmp_path, 22)) == 2


def test_folder_that_cannot_be_made_warns(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recorder = _recorder(tmp_path / "file" / "trajectories", 2)
    recorder.begin(_all(_groups()), [])
    assert len(recorder.write(1, list)) == 1


def test_failed_episode_tells_its_error(tmp_path: Path) -> None:
    failed = Trajectory("t", 0, 0, stop_reason=StopReason.ENV_ERROR, error="the shop burned down")
    recorder = _recorder(tmp_path, 2)
    recorder.begin([failed, *_all(_groups(1))], [])
    recorder.write(1, list)
    record = _written(tmp_path, 1)[0]
    assert (record["use"], record["error"], record["turns"]) == ("failed", "the shop burned down", [])


def test_long_texts_are_cut_with_a_note_and_numbers_are_json() -> None:
    turns = [_turn(n, observation="x" * 100_000, info={"score": float("inf"), "won": True}) for n in range(60)]
    turns[0].reward = float("nan")
    record = trajectory_record(
        Trajectory("t", 0, 0, turns=turns),
        turns_training(Trajectory("t", 0, 0, turns=turns), {"turn_index": np.zeros(0, dtype=np.int64)}, {}, 0),
        use="trained",
        spec=ObjectiveSpec(),
        decode=lambda ids: "y",
    )
    assert record["turns"][0]["observation"].startswith("x" * TEXT_CHARS + "\n[cut: 84000 of 100000 characters")
    assert record["turns"][59]["observation"].startswith("\n[cut: 100000 of 100000")
    assert len(json.dumps(record, allow_nan=False)) < 1.2 * TRAJECTORY_CHARS
    assert (record["turns"][0]["reward"], record["turns"][0]["info"]) == (None, {"score": None, "won": True})
