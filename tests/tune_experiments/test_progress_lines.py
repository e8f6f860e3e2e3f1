"""What a run says: exact lines without a terminal, a live picture with one, and nothing that can stop a run."""

from __future__ import annotations

import io
import math
import os
import pty
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ray import cloudpickle, tune
from tune_cases import counter_tuner

from tune_experiments.progress import ProgressDisplay


class _Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _result(iteration: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "time_this_iter_s": 10.0 + iteration,
        "env_runners": {"success_rate": np.float64(0.1 * iteration), "num_response_tokens": np.float32(3200)},
        "timers": {"rollout_s": 4.0, "update_s": 5.25, "weight_sync_s": 0.5, "evaluation_s": 7.0},
        "evaluation": {"env_runners": {"sampled": math.nan, "greedy": math.nan}},
        **more,
    }


def test_progress_without_a_terminal_prints_exactly_these_lines() -> None:
    out, clock = io.StringIO(), _Clock()
    with ProgressDisplay(3, stream=out, clock=clock) as progress:
        progress.phase("cloning", total=300)
        for step in range(1, 301):
            clock.now += 0.1
            if step % 50 == 0:
                progress.advance(step, loss=np.float32(1 / step), kind="full")
        progress.phase("training")
        before = {"env_runners": {"sampled": 0.123, "greedy": 0.15}}
        progress.report(_result(1, evaluation_before=before))
        progress.report(_result(2, evaluation={"env_runners": {"sampled": 0.25, "greedy": 0.5}}))
        clock.now += 75
        progress.report(_result(3))
        progress.message("done")
        progress.phase("evaluating")
    assert out.getvalue().splitlines() == [
        "phase: cloning (300 steps)",
        "cloning 50/300 | loss=0.02 kind=full",
        "cloning 100/300 | loss=0.01 kind=full",
        "cloning 150/300 | loss=0.006667 kind=full",
        "cloning 200/300 | loss=0.005 kind=full",
        "cloning 250/300 | loss=0.004 kind=full",
        "cloning 300/300 | loss=0.003333 kind=full",
        "phase: training | cloning took 30s",
        "iteration 1/3 | success 10.0% | before sampled 12.3% greedy 15.0% | 800 tok/s "
        "| 11.0 s (rollout 4.0, update 5.2, sync 0.5) | eta 22s",
        "iteration 2/3 | success 20.0% | eval sampled 25.0% greedy 50.0% | 800 tok/s "
        "| 12.0 s (rollout 4.0, update 5.2, sync 0.5, eval 7.0) | eta 12s",
        "iteration 3/3 | success 30.0% | 800 tok/s | 13.0 s (rollout 4.0, update 5.2, sync 0.5)",
        "done",
        "phase: evaluating | training took 1m15s",
    ]


def test_progress_advance_in_single_steps_prints_every_tenth_and_the_last() -> None:
    out = io.StringIO()
    progress = ProgressDisplay(stream=out, clock=_Clock())
    progress.phase("cloning", total=25)
    for step in range(1, 26):
        progress.advance(step)
    steps = [int(n) for n in re.findall(r"cloning (\d+)/25", out.getvalue())]
    assert steps == [3, 6, 9, 12, 15, 18, 21, 24, 25]


def test_progress_of_slow_steps_without_total_prints_by_time() -> None:
    out, clock = io.StringIO(), _Clock()
    progress = ProgressDisplay(stream=out, clock=clock)
    progress.phase("collecting")
    for step in range(1, 8):
        clock.now += 10.0
        progress.advance(step)
    assert out.getvalue().splitlines()[1:] == ["collecting 3", "collecting 6"]


def test_progress_with_missing_or_odd_metrics_still_reports() -> None:
    out = io.StringIO()
    progress = ProgressDisplay(stream=out)
    progress.report({})
    progress.report(
        {"training_iteration": np.int64(7), "env_runners": None, "timers": {"rollout_s": "x"}, "evaluation": 3}
    )
    progress.report({"time_this_iter_s": math.inf, "env_runners": {"success_rate": [1]}})
    assert out.getvalue().splitlines() == ["iteration 1", "iteration 7", "iteration 8"]


def test_progress_pickled_while_live_leaves_the_display_out_and_works_again(capsys: Any) -> None:
    with ProgressDisplay(5, stream=io.StringIO(), live=True) as progress:
        progress.report(_result(1))
        copy = cloudpickle.loads(cloudpickle.dumps(progress))
    copy._wants_live = None
    copy.report(_result(2))
    assert capsys.readouterr().out.startswith("iteration 2/5 | success 20.0%")


def test_progress_copy_that_tune_restored_speaks_through_the_open_display(capsys: Any) -> None:
    out = io.StringIO()
    with ProgressDisplay(5, stream=out, clock=_Clock()) as progress:
        copy = cloudpickle.loads(cloudpickle.dumps(ProgressDisplay(5)))
        copy.setup(total_num_samples=1)
        copy.on_trial_result(1, [], _Trial("t1"), _result(2))
        copy.on_experiment_end([])
        progress.message("end")
    assert [line.split(" |")[0] for line in out.getvalue().splitlines()] == [
        "phase: start engine",
        "iteration 2/5",
        "end",
    ]
    assert capsys.readouterr().out == ""


class _Trial:
    """The only thing that the display reads of a Tune trial that runs."""

    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


def test_progress_on_a_terminal_draws_bars_and_keeps_messages() -> None:
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        with ProgressDisplay(4, stream=stream) as progress:
            progress.phase("training", total=4)
            progress.advance(2, loss=0.5)
            progress.report(_result(2, evaluation={"env_runners": {"sampled": 0.25}}))
            progress.message("a message")
        sent = b""
        while b"\x1b[?25h" not in sent:  # the cursor comes back last; a terminal hands on its input in pieces
            sent += os.read(main, 100_000)
    os.close(main)
    shown = sent.decode()
    assert "\x1b[" in shown and "━" in shown
    for text in ("phase", "training", "2/4", "loss=0.5", "success 20.0%", "eval sampled 25.0%", "eta 24s", "a message"):
        assert text in shown


def test_progress_in_tune_with_two_trials_names_them_and_the_failure(
    ray_cluster: None, tmp_path: Path, capsys: Any, new_tracker: Callable[..., Any]
) -> None:
    (tmp_path / "broken").touch()
    counter_tuner(tmp_path, [ProgressDisplay(2)], fail_at=tune.grid_search([0, 1]), iterations=2).fit()
    lines = capsys.readouterr().out.splitlines()
    mine = [line for line in lines if line.startswith(("phase", "[", "trial"))]
    assert mine[0] == "phase: start engine"
    assert mine[1].startswith("phase: training | start engine took ")
    (failed,) = [line for line in mine if line.startswith("trial")]
    assert re.fullmatch(r"trial \w+ failed: RuntimeError: broken on purpose in iteration 1", failed)
    iterations = [line for line in mine if line.startswith("[")]
    assert [re.sub(r"^\[\w+\] (iteration \d/2 \| success \d+\.0%).*", r"\1", line) for line in iterations] == [
        "iteration 1/2 | success 10.0%",
        "iteration 2/2 | success 20.0%",
    ]
    assert not any("\x1b" in line for line in mine)


def test_notices_of_an_iteration_are_shown_below_its_line() -> None:
    stream = io.StringIO()
    display = ProgressDisplay(3, stream=stream, live=False)
    display.report({"training_iteration": 1, "notices": ["collapse alarm: grad_norm at iteration 1"]})
    display.report({"training_iteration": 2, "notices": []})
    lines = stream.getvalue().splitlines()
    assert lines[1] == "warning: collapse alarm: grad_norm at iteration 1"
    assert len(lines) == 3
