"""Diagnostics: why a run collapses. Pure functions, an alarm and a page of pictures; needs torch, numpy and matplotlib.

Learner: `row_mean_entropy` and `entropy_threshold` before the update, `update_tables` per micro-batch, then
`merge_metrics` and `finish_update_tables`. Driver: `CollapseAlarm` once per iteration, `collapse_page` at the end.
"""

from arlarena_rllib.diagnostics.alarm import AlarmReport, AlarmSignal, AlarmThresholds, CollapseAlarm, replay_alarm
from arlarena_rllib.diagnostics.groups import group_uniformity, success_by_task_type, task_type_names
from arlarena_rllib.diagnostics.prompt_dependence import (
    CrossPlan,
    cross_scores,
    plan_cross_scoring,
    prompt_dependence,
)
from arlarena_rllib.diagnostics.ratio_histogram import ratio_histogram, ratio_quantiles
from arlarena_rllib.diagnostics.telling_rows import telling_rows
from arlarena_rllib.diagnostics.update_tables import TableBands, finish_update_tables, update_tables
from arlarena_rllib.objectives.tables import entropy_threshold, row_mean_entropy

__all__ = [
    "AlarmReport",
    "AlarmSignal",
    "AlarmThresholds",
    "CollapseAlarm",
    "CrossPlan",
    "TableBands",
    "cross_scores",
    "entropy_threshold",
    "finish_update_tables",
    "group_uniformity",
    "plan_cross_scoring",
    "prompt_dependence",
    "ratio_histogram",
    "ratio_quantiles",
    "replay_alarm",
    "row_mean_entropy",
    "success_by_task_type",
    "task_type_names",
    "telling_rows",
    "update_tables",
]
