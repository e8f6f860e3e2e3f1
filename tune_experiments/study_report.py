"""The report of a study: one HTML page complete in itself, and the same tables as Markdown."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from arlarena_rllib.errors import ConfigError
from tune_experiments.study_accounting import (
    accounting_words,
    balance_table,
    exchanges_table,
    exchanges_words,
    trials_table,
)
from tune_experiments.study_page import Document, Section, Table, to_html, to_markdown
from tune_experiments.study_ratios import ratios_table
from tune_experiments.study_record import StudyRecord
from tune_experiments.study_statistics import TaskNumbers, success, task_numbers, verdict
from tune_experiments.study_tables import (
    arms_table,
    headline_table,
    published_table,
    search_table,
    significance_table,
)
from tune_experiments.study_text import DASH, duration, mean_and_sd, number

STUDY_FILE = "study.json"
_CURVES = (
    "Line: mean over the confirm seeds that have the iteration; band: lowest to highest of them. The held-out panel is the one "
    "of training, not the test panel. KL and gradient norm are logarithmic where they span a decade."
)


@dataclass(frozen=True)
class ReportFiles:
    """Where a report was written."""

    html: Path
    markdown: Path


def report_command(folder: Path) -> ReportFiles:
    """Write the report of the study in ``folder`` beside its ``study.json``.

    Raises:
        CheckpointError: there is no such file, or it does not hold a study.
        ConfigError: as :func:`write_report`.
    """
    return write_report(StudyRecord.load(folder / STUDY_FILE), folder)


def write_report(record: StudyRecord, folder: Path) -> ReportFiles:
    """Write ``report.html`` and ``report.md`` to ``folder``; a study without results gets a report that says so.

    Raises:
        ConfigError: one of them is a directory, or cannot be written.
    """
    files = ReportFiles(folder / "report.html", folder / "report.md")
    for file in (files.html, files.markdown):
        if file.is_dir():
            raise ConfigError(
                f"the report cannot be written: {file} is a directory. Move it away, then `arlarena report`."
            )
    document = study_document(record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.html.write_text(to_html(document), encoding="utf-8")
        files.markdown.write_text(to_markdown(document), encoding="utf-8")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ConfigError(f"the report cannot be written to {folder}: {error.strerror}.") from error
    return files


def study_document(record: StudyRecord) -> Document:
    """Return what the report says."""
    from tune_experiments.study_plots import CSS_COLOURS

    sections = [Section("Arms", tables=[arms_table(record)])]
    for task in record.tasks:
        sections += _task_sections(record, task)
    sections += [_published_section(record), _accounting_section(record)]
    return Document(f"Study {record.name}", _facts(record), sections, CSS_COLOURS)


def _facts(record: StudyRecord) -> list[tuple[str, str]]:
    seeds = {purpose: ", ".join(map(str, values)) or DASH for purpose, values in record.seeds.items()}
    finished = sum(trial.status == "finished" for trial in record.trials)
    return [
        ("trials finished", f"{finished} of {len(record.trials)}"),
        ("iterations per trial", str(record.iterations)),
        *((f"seeds, {purpose}", values) for purpose, values in seeds.items()),
        ("time", duration(record.seconds)),
        ("engine", record.engine or DASH),
        ("commit", record.commit[:12] or DASH),
    ]


def _task_sections(record: StudyRecord, task: str) -> list[Section]:
    numbers = task_numbers(record, task)
    facts = ", ".join(f"{key} {value}" for key, value in record.tasks[task].items())
    text = [*_findings(record, numbers), _rule_words(record)]
    population = []
    if task in record.exchanges:
        text.insert(0, exchanges_words(record, task))
        population = [Section("Exchanges of the population", tables=[exchanges_table(record, task)], level=3)]
    return [
        Section(f"Task {task}", [f"{facts}.", *text] if facts else text, [headline_table(record, numbers)]),
        _or_words(
            "Every two arms", significance_table(numbers), "Fewer than two arms have a test, so none are compared."
        ),
        *population,
        _curves_section(record, numbers),
        _or_words("Importance ratios", ratios_table(numbers), "No confirm trial logged a ratio."),
        _or_words("Search", search_table(record, numbers), "No trial searched for a setting."),
    ]


def _curves_section(record: StudyRecord, numbers: TaskNumbers) -> Section:
    from tune_experiments.study_plots import study_curves

    arms = [arm.name for arm in record.arms]
    picture = study_curves(numbers.rows, arms, title=f"curves of {numbers.task}")
    none = "No confirm trial has an iteration, so there are no curves."
    return Section("Curves", () if picture else [none], picture=picture, caption=_CURVES, level=3)


def _or_words(title: str, table: Table | None, words: str) -> Section:
    return Section(title, () if table else [words], [table] if table else [], level=3)


def _findings(record: StudyRecord, numbers: TaskNumbers) -> list[str]:
    """Return the result of a task in words, no stronger than its numbers."""
    found = {row.label: success(row, "sampled") for row in numbers.rows}
    tested = [row for row in numbers.rows if found[row.label].count]
    if not any(t.status == "finished" for t in record.trials if t.task == numbers.task):
        return ["No trial on this task has finished, so there is no result."]
    if not tested:
        return ["No confirm trial on this task has a test, so there is no result."]
    best = max(tested, key=lambda row: found[row.label].mean)
    equal = [row.label for row in tested if found[row.label].mean == found[best.label].mean]
    if len(equal) > 1:
        return [f"No arm is ahead: {', '.join(equal)} have the same test success, {mean_and_sd(found[best.label])} %."]
    stable = sum(verdict(trial, record.stability).is_stable for trial in best.trials)
    text = (
        f"Highest test success: {best.label}, {mean_and_sd(found[best.label])} % sampled ({found[best.label].count} of "
        f"{best.num_seeds} seeds tested, {stable} stable)."
    )
    pairs = [c for c in numbers.comparisons if best.label in (c.first, c.second)]
    if not pairs:
        return [text]
    above = [c for c in pairs if c.higher == best.label]
    beyond = sum(c.is_beyond_seeds for c in above)
    return [
        f"{text} It is better than {len(above)} of the {len(pairs)} other arms by the paired test over the test tasks, and than "
        f"{beyond} of them by more than two seed errors as well."
    ]


def _rule_words(record: StudyRecord) -> str:
    rule = record.stability
    return (
        f"Stable: over the last {100 * rule['tail_fraction']:g} % of the values of {rule['metric']} the variance is below "
        f"{number(rule['threshold'])} and the mean is at most {number(rule['max_drop'])} below the best value; a trial that "
        "did not finish is not stable. The variance is the ARLArena paper's rule, the bound on the drop this project's, "
        "because a flat collapse varies little."
    )


def _published_section(record: StudyRecord) -> Section:
    table = published_table(record)
    text = (
        "ANOTHER SCALE, not a target: the paper trains models of 4B parameters with its own budgets and task sets. At most "
        "the order of the methods can be compared."
    )
    none = "The ARLArena paper reports none of these methods."
    return Section("Published numbers (another scale)", [text if table else none], [table] if table else [])


def _accounting_section(record: StudyRecord) -> Section:
    text = accounting_words(record)
    if not any(trial.status == "finished" for trial in record.trials):
        text.insert(0, "No trial of this study has finished.")
    return Section("Accounting", text, [balance_table(record), trials_table(record)])
