"""What groups of episodes say beyond the episode metrics: success by type of task, and why groups are uniform."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from arlarena_rllib.objectives import GroupOutcome, is_mixed


def task_type_names(task_type: str | None) -> list[str]:
    """Return the names under which a type is counted: ``'kitchen/pick two'`` as ``kitchen`` and ``kitchen_pick_two``.

    Blanks and slashes become underscores, so that a name is one piece of a metric's; [] for None and "".
    """
    levels = [["_".join(level.split())] for level in (task_type or "").split("/") if level.strip()]
    return ["_".join(level) for level in accumulate(levels)]


def success_by_task_type(task_types: Sequence[str | None], successes: Sequence[bool]) -> dict[str, float]:
    """Return success and number of episodes of each type of task.

    Args:
        task_types: one per episode, as the environment's info gave it; None or "" = it gave none, the episode is left
            out.
        successes: one per episode, failed episodes left out by the caller.
    Returns:
        ``task_type_<type>_success_rate`` and ``task_type_<type>_episodes``, sorted by type; {} without any type. An
        episode counts for each name of its type (:func:`task_type_names`).
    Raises:
        ValueError: the lengths differ.
    """
    if len(task_types) != len(successes):
        raise ValueError(f"{len(task_types)} task types but {len(successes)} successes; give one of each per episode.")
    won: dict[str, list[bool]] = {}
    for task_type, success in zip(task_types, successes, strict=True):
        for name in task_type_names(task_type):
            won.setdefault(name, []).append(success)
    metrics: dict[str, float] = {}
    for name, results in sorted(won.items()):
        metrics[f"task_type_{name}_success_rate"] = sum(results) / len(results)
        metrics[f"task_type_{name}_episodes"] = float(len(results))
    return metrics


def group_uniformity(outcomes: Sequence[GroupOutcome]) -> dict[str, float]:
    """Return the shares of groups that teach nothing, by reason.

    A group is uniform when all its episodes succeed (too easy) or all fail (too hard): with advantages from success
    inside the group, it has no gradient.

    Args:
        outcomes: all groups of an iteration, before filtering; empty groups are left out.
    Returns:
        ``uniform_frac = all_success_frac + all_failure_frac``, and ``equal_return_frac`` (all returns equal); {} without
        a group.
    """
    groups = [outcome for outcome in outcomes if outcome.successes]
    if not groups:
        return {}
    n = len(groups)
    return {
        "uniform_frac": sum(not is_mixed(group, "success") for group in groups) / n,
        "all_success_frac": sum(all(group.successes) for group in groups) / n,
        "all_failure_frac": sum(not any(group.successes) for group in groups) / n,
        "equal_return_frac": sum(not is_mixed(group, "reward") for group in groups) / n,
    }
