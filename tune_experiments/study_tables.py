"""The tables of a study's report, as text cells from its record."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tune_experiments.study_page import Cell, Row, Table
from tune_experiments.study_record import StudyRecord, TestResult, TrialRecord
from tune_experiments.study_statistics import (
    Comparison,
    Contender,
    Decoding,
    TaskNumbers,
    cost,
    difference,
    finite,
    same_setting,
    series,
    setting_words,
    success,
    task_means,
    task_values,
    verdict,
)
from tune_experiments.study_text import (
    DASH,
    amount,
    duration,
    each_seed,
    mean_and_sd,
    number,
    p_value,
    percent,
    points,
    setting_or_dash,
)

PUBLISHED = Path(__file__).parent / "data" / "published_results.json"
AXES = ("aggregation", "clipping", "advantage", "filtering")


def arms_table(record: StudyRecord) -> Table:
    """Return what each arm is."""
    rows: list[Row] = [
        [
            Cell(arm.name),
            arm.method,
            *(arm.axes.get(axis, DASH) for axis in AXES),
            setting_words(arm.overrides) if arm.overrides else DASH,
        ]
        for arm in record.arms
    ]
    return Table(["arm", "method", *AXES, "changed for the study"], rows, "llllllt")


def headline_table(record: StudyRecord, numbers: TaskNumbers) -> Table:
    """Return one row per arm: setting, stability, test success, cost; below it a row per seed without a full result."""
    start = record.start_test.get(numbers.task)
    highest = max(finite(success(row, "sampled").mean for row in numbers.rows), default=math.nan)
    table: list[Row] = []
    if start:
        table.append(
            [Cell("start", "before RL"), DASH, DASH, percent(start.sampled), "", percent(start.greedy), "", "", ""]
        )
    for row in numbers.rows:
        table.append(_headline_row(record, row, start, highest))
        table += [_loss_row(trial) for trial in row.trials if trial.status != "finished"]
        if row.setting is not None:
            table += [[f"↳ seed {seed}", "planned, not started"] for seed in row.unstarted_seeds]
    return Table(
        ["arm", "setting", "stable", "test sampled, %", "over start", "test greedy, %", "over start", "tokens", "iterations"],
        table,
        "ltlrrrrrr",
        note="Mean over the confirm seeds ± standard deviation over them, then every seed. Over start: points, paired by test "
        "task, standard error over tasks in brackets. Response tokens, time, iterations: of all trials of the arm on this task, "
        "search + confirm. Bold: highest mean; whether the distance means anything is in the next table.",
    )  # fmt: skip


def _headline_row(record: StudyRecord, row: Contender, start: TestResult | None, highest: float) -> Row:
    trials = [t for t in record.trials if (t.arm, t.task) == (row.arm.name, row.task)]
    used = cost(trials)
    num_search = sum(t.purpose == "search" for t in trials)
    return [
        Cell(row.arm.name),
        setting_or_dash(row.setting),
        _stability_cell(record, row),
        *_success_cells(row, start, "sampled", highest),
        *_success_cells(row, start, "greedy", math.nan),
        Cell(amount(used.response_tokens), duration(used.seconds)),
        Cell(str(used.iterations), f"{num_search} + {used.trials - num_search} trials"),
    ]


def _success_cells(row: Contender, start: TestResult | None, decoding: Decoding, highest: float) -> list[Cell]:
    found = success(row, decoding)
    gain = difference(task_means(row, decoding), task_values(start, decoding)) if start else (math.nan, math.nan, 0)
    tone = "best" if math.isfinite(found.mean) and found.mean == highest else ""
    detail = each_seed(found)
    if 0 < found.count < row.num_seeds:
        detail += f" ({found.count} of {row.num_seeds})"
    return [Cell(mean_and_sd(found), detail, tone), Cell(points(*gain[:2]))]


def _stability_cell(record: StudyRecord, row: Contender) -> Cell:
    if row.setting is None:
        return Cell("nothing confirmed", tone="bad")
    verdicts = [verdict(trial, record.stability) for trial in row.trials]
    stable = sum(v.is_stable for v in verdicts)
    numbers = [v.numbers for v in verdicts if v.numbers]
    detail = ""
    if numbers:
        worst_var, worst_drop = max(n.tail_var for n in numbers), max(n.drop_from_best for n in numbers)
        detail = f"worst: var {number(worst_var, 2)}, drop {worst_drop:.2f}"
    return Cell(f"{stable}/{row.num_seeds} seeds stable", detail, "good" if stable == row.num_seeds else "bad")


def _loss_row(trial: TrialRecord) -> Row:
    tested = "; its test counts above" if trial.test else ""
    reason = f": {trial.reason}" if trial.reason else ""
    return [f"↳ seed {trial.seed}", f"{trial.status} after {len(trial.history)} iterations{reason}{tested}"]


def significance_table(numbers: TaskNumbers) -> Table | None:
    """Return the paired comparison of every two arms, or None for fewer than two tested ones."""
    found = numbers.comparisons
    if not found:
        return None
    seeds = {row.label: success(row, "sampled") for row in numbers.rows}
    body: list[Row] = [
        [
            c.first,
            c.second,
            points(c.difference, c.standard_error),
            p_value(c.p),
            p_value(c.p_holm),
            _result_cell(c),
            f"{percent(seeds[c.first].sd)}, {percent(seeds[c.second].sd)}",
            percent(c.seed_error),
        ]
        for c in found
    ]
    return Table(
        [
            "A",
            "B",
            "A - B, points",
            "p",
            "p (Holm)",
            "over the test tasks",
            "sd over seeds A, B",
            "seed error of A - B",
        ],
        body,
        "llrrrlrr",
        note=f"Sampled success, mean over seeds per task, paired over {max(c.n for c in found)} test tasks; standard error "
        f"over tasks in brackets. p: two-sided sign-flip permutation test of the mean difference, because per-task "
        f"differences take few values and many are zero, which fits neither a t-test nor ranks; Holm's correction over the "
        f"{len(found)} pairs. p and the standard error cover which tasks are in the panel, not the luck of a training seed: "
        "compare A - B with the seed error in the last column as well, √(sd²/seeds of A + sd²/seeds of B).",
    )


def _result_cell(found: Comparison) -> Cell:
    if not found.higher:
        return Cell("no clear difference", tone="muted")
    if not found.is_beyond_seeds:
        known = math.isfinite(found.seed_error)
        return Cell(f"{found.higher} higher", "not beyond 2 seed errors" if known else "seed error unknown")
    return Cell(f"{found.higher} higher", tone="good")


def search_table(record: StudyRecord, numbers: TaskNumbers) -> Table | None:
    """Return every trial of the search on a task with its verdict and numbers, or None if there was none."""
    rows: list[Row] = []
    for arm in record.arms:
        confirmed = [row.setting for row in numbers.rows if row.arm == arm and row.setting is not None]
        for trial in record.trials:
            if (trial.arm, trial.task, trial.purpose) == (arm.name, numbers.task, "search"):
                is_chosen = any(same_setting(trial.setting, setting) for setting in confirmed)
                rows.append(_search_row(record, trial, is_chosen=is_chosen))
    if not rows:
        return None
    head = ["arm", "setting", "seed", "verdict", "tail mean, %", "tail variance", "drop", "held-out last, %"]
    head += ["test sampled, %", "iterations", "time"]
    return Table(head, rows, "ltltrrrrrrr", note="Bold: the setting that was confirmed.")


def _search_row(record: StudyRecord, trial: TrialRecord, *, is_chosen: bool) -> Row:
    found = verdict(trial, record.stability)
    tail = found.numbers
    held_out = series(trial, "evaluation/env_runners/sampled")
    used = cost([trial])
    return [
        trial.arm,
        Cell(setting_words(trial.setting), tone="best" if is_chosen else ""),
        str(trial.seed),
        Cell(found.words, trial.reason, "good" if found.is_stable else "bad"),
        percent(tail.tail_mean) if tail else DASH,
        number(tail.tail_var, 2) if tail else DASH,
        f"{tail.drop_from_best:.3f}" if tail else DASH,
        percent(held_out[-1]) if held_out else DASH,
        percent(trial.test.sampled) if trial.test else DASH,
        str(used.iterations),
        duration(used.seconds),
    ]


def published_table(record: StudyRecord) -> Table | None:
    """Return what the ARLArena paper reports for the methods of the study, or None if it has none of them."""
    document = json.loads(PUBLISHED.read_text())
    tasks = document["models"]
    methods = {arm.method.rpartition(":")[2] for arm in record.arms}
    rows: list[Row] = [
        [row["name"], *(_published(row[task]) for task in tasks), row["table"]]
        for row in document["rows"]
        if row["method"] in methods
    ]
    if not rows:
        return None
    models = "; ".join(f"{task}: {model}" for task, model in tasks.items())
    return Table(
        ["method in the paper", *(f"{task}, %" for task in tasks), "from"],
        rows,
        "l" + "r" * len(tasks) + "l",
        note=f"{document['paper']}, success rates. Models: {models}. {' '.join(document['notes'])}",
    )


def _published(value: Any) -> str:
    return DASH if value is None else f"{value:.2f}"
