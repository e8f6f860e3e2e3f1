"""A made-up study with numbers that can be followed by hand: two arms, one task, a panel of four test tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tune_experiments.study_record import ArmRecord, StudyRecord, TestResult, TrialRecord

SUCCESS = "env_runners/success_rate"
STABILITY = {"metric": SUCCESS, "tail_fraction": 0.5, "threshold": 0.01, "max_drop": 0.1}
STEADY = (0.2, 0.4, 0.6, 0.6)  # tail 0.6, 0.6: variance 0, drop 0
SWINGING = (0.2, 0.4, 0.3, 0.7)  # tail 0.3, 0.7: mean 0.5, variance 0.04, drop 0.2


def result(*task_sampled: float, greedy: Sequence[float] = (1.0, 0.0, 1.0, 0.0)) -> TestResult:
    """Return a test with these values per task."""
    mean = sum(task_sampled) / len(task_sampled)
    return TestResult(mean, sum(greedy) / len(greedy), len(task_sampled), 4, list(task_sampled), list(greedy))


def history(values: Sequence[float]) -> list[dict[str, float]]:
    """Return one iteration of 1000 tokens and 30 seconds per success rate."""
    return [
        {
            "training_iteration": float(i),
            SUCCESS: value,
            "env_runners/num_response_tokens": 1000.0,
            "time_this_iter_s": 30.0,
        }
        for i, value in enumerate(values, start=1)
    ]


def trial(arm: str, seed: int, test: TestResult | None, values: Sequence[float] = STEADY, **more: Any) -> TrialRecord:
    """Return a finished confirm trial of an arm's default."""
    facts = {
        "trial_id": f"{arm}-{more.get('purpose', 'confirm')}-{seed}",
        "task": "sokoban",
        "setting": {},
        "purpose": "confirm",
        "status": "finished",
        "history": history(values),
    }
    return TrialRecord(**{**facts, "arm": arm, "seed": seed, "test": test, **more})


def study(trials: Sequence[TrialRecord], **more: Any) -> StudyRecord:
    """Return a study of the arms sampo and grpo with confirm seeds 1 and 2."""
    facts = {
        "name": "made_up",
        "arms": [
            ArmRecord("sampo", "sampo", {"clipping": "gspo", "advantage": "gigpo"}),
            ArmRecord("grpo", "grpo", {"clipping": "ppo", "advantage": "grpo"}),
        ],
        "tasks": {"sokoban": {"env_id": "arlarena/Sokoban-v0", "panel_hash": "abc", "test_n": 4}},
        "stability": STABILITY,
        "iterations": 4,
        "seeds": {"search": [0], "confirm": [1, 2]},
        "start_test": {"sokoban": result(0.25, 0.0, 0.5, 0.25)},
        "seconds": 600.0,
        "commit": "0123456789abcdef",
        "engine": "vllm",
    }
    return StudyRecord(**{**facts, "trials": list(trials), **more})


def full_study() -> StudyRecord:
    """Return the study of the hand-computed numbers: one seed of grpo swings."""
    return study(
        [
            trial("sampo", 1, result(1.0, 0.5, 1.0, 0.5)),
            trial("sampo", 2, result(0.5, 0.5, 1.0, 1.0)),
            trial("grpo", 1, result(0.5, 0.25, 0.5, 0.25)),
            trial("grpo", 2, result(0.25, 0.25, 1.0, 0.5), SWINGING),
        ]
    )
