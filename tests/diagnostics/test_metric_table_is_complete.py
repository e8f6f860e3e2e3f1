"""docs/diagnostics.md names every metric that the functions produce."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from arlarena_rllib.diagnostics import (
    AlarmReport,
    finish_update_tables,
    group_uniformity,
    prompt_dependence,
    success_by_task_type,
)
from arlarena_rllib.evaluation import summarise_panel
from arlarena_rllib.learner.batching import build_learner_batch
from arlarena_rllib.objectives import (
    GroupFilter,
    GroupOutcome,
    ObjectiveSpec,
    RowIds,
    finish_metrics,
    mismatch_metrics,
    policy_objective,
)
from arlarena_rllib.objectives import metrics as of_update
from arlarena_rllib.objectives.tables import BAND_CELLS, KL_CELLS
from arlarena_rllib.rollout.metrics import trajectory_metrics, version_lag
from arlarena_rllib.trajectory import StopReason, Trajectory, TrajectoryGroup, Turn, build_token_batch

TABLE = Path(__file__).resolve().parents[2] / "docs" / "diagnostics.md"


def _documented() -> dict[str, set[str]]:
    """Return section -> names in the first column of its table; a name without a slash has the prefix before it in its row."""
    found: dict[str, set[str]] = {}
    for line in TABLE.read_text().splitlines():
        prefix = ""
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else []:
            prefix, _, bare = name.rpartition("/") if "/" in name else (prefix, "/", name)
            found.setdefault(prefix, set()).add(bare)
    return found


def _family(name: str) -> str:
    for cell in BAND_CELLS:
        name = re.sub(rf"^(oob_(?:token|seq))_{cell}_frac$", r"\1_<cell>_frac", name)
    for cell in KL_CELLS:
        name = name.replace(cell.replace("|", "_"), "<sign>_<side>_<entropy>")
    for reason in StopReason:
        name = name.replace(f"stop_{reason.value}_frac", "stop_<reason>_frac")
    return name.replace("task_type_look", "task_type_<type>").replace("env_look_frac_mean", "env_<name>_mean")


def _objective_names(rows: Any) -> set[str]:
    """Names of the objective with everything that adds some switched on, and of the gap to the engine."""
    arguments = (rows.logp, rows.old_logp, rows.advantages, rows.mask, torch.ones(9))
    names = set(finish_metrics(mismatch_metrics(rows.old_logp, rows.ref_logp, rows.mask)))
    for more in ({}, {"seq_mask_delta": 0.0}, {"mismatch": "observe"}, {"clipping": "clip_cov"}):
        result = policy_objective(
            *arguments,
            ObjectiveSpec(kl_coef=0.1, **more),
            ref_logp_B_T=rows.ref_logp,
            entropy_B_T=rows.entropy,
            rollout_logp_B_T=rows.old_logp,
            ids=RowIds(torch.arange(9), torch.zeros(9, dtype=torch.int64)),
        )
        names |= set(finish_metrics(result.metrics))
    # The learner adds the critic's loss by itself; every name that can be finished must be met here.
    finished = (of_update._MEANS, of_update._EXTREMES, of_update._EFFECTIVE_SAMPLES, of_update._CHI_SQUARES)
    assert names | {"value_loss"} == {*of_update.LOSSES, "num_tokens", "num_rows"}.union(*finished)
    return names | {"value_loss"}


TURN = Turn([1], [2], [-0.1], [1], [0], "reply", "act", True, True, "state", 1.0)


def _episode_names() -> list[str]:
    trajectories = [Trajectory("task", 0, 0, turns=[TURN], env_metrics={"look_frac": 0.5})]
    return [
        *trajectory_metrics(trajectories),
        *version_lag(trajectories, 0),
        *success_by_task_type(["look"], [True]),
    ]


def _evaluation_names() -> set[str]:
    trajectories = [
        Trajectory("task", number, 0, turns=[TURN], task_type=task_type, env_metrics={"look_frac": 0.5})
        for number, task_type in enumerate(("look", "go"))
    ]
    names = {*summarise_panel(trajectories, n=2).summary(), "episode_return_mean"}  # the algorithm's name for the score
    return {name for name in names if not name.startswith("task_type_go")}


def _group_names() -> list[str]:
    report = GroupFilter(ObjectiveSpec(), target_groups=1).report()
    return [*report.as_metrics(), *group_uniformity([GroupOutcome((1.0,), (True,))])]


def _batch_names() -> set[str]:
    group = TrajectoryGroup(0, "task", [Trajectory("task", 0, member, turns=[TURN]) for member in (0, 1)])
    names = {"skipped_updates"}  # the algorithm's own
    for advantage in ("gigpo", "hgpo"):
        rows = build_token_batch([group], pad_id=0)
        spec = ObjectiveSpec(advantage=advantage)
        names |= set(build_learner_batch(rows, spec, num_minibatches=1, seed=0, iteration=0)[1])
    return names


def _timers() -> set[str]:
    return set(re.findall(r'"(\w+_s)"', (TABLE.parents[1] / "arlarena_rllib" / "algorithm.py").read_text()))


@pytest.mark.parametrize(
    ("prefix", "names_of"),
    [
        ("learner", _objective_names),
        ("learner", lambda rows: finish_update_tables(rows.tables())),
        ("env_runners", lambda rows: _episode_names()),
        ("evaluation/env_runners", lambda rows: _evaluation_names()),
        ("groups", lambda rows: _group_names()),
        ("batch", lambda rows: _batch_names()),
        ("timers", lambda rows: _timers()),
        ("prompts", lambda rows: prompt_dependence(torch.zeros(1, 2), [0], [1])),
        ("alarm", lambda rows: AlarmReport(0).as_metrics()),
    ],
)
def test_table_names_every_metric(rows_of: Callable[..., Any], prefix: str, names_of: Callable[[Any], Any]) -> None:
    names = {_family(name) for name in names_of(rows_of(1))} - {"num_env_steps_sampled"}  # logged as a lifetime sum
    assert names and names - _documented()[prefix] == set()
    # In these sections all names come from one function, so that a name that went away is seen too.
    assert prefix not in ("batch", "timers", "prompts", "alarm") or _documented()[prefix] - names == set()
