"""The report of a study: complete in itself, failures shown, nothing that a missing number breaks."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from study_cases import full_study, history, result, study, trial

from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.cli import main
from tune_experiments.study_record import ArmRecord, ExchangeRecord, StudyRecord
from tune_experiments.study_report import report_command, write_report
from tune_experiments.study_text import DASH, amount, duration, p_value, percent, points

VOID = {"meta", "br", "img", "hr", "link", "input"}


class _Page(HTMLParser):
    """Checks that tags close in order and that ids are there once; keeps the text of each table row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href") and not (value or "").startswith(("#", "data:")):
                self.loads.append(value or "")
        if tag == "tr":
            self.rows.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "tr" in self.open:
            self.rows[-1] += f"{data} | "


def _write(record: StudyRecord, folder: Path) -> tuple[_Page, str, str]:
    files = write_report(record, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.md"]
    html = files.html.read_text()
    return _Page(html), html, files.markdown.read_text()


def test_report_has_the_numbers_computed_by_hand(tmp_path: Path) -> None:
    page, html, markdown = _write(full_study(), tmp_path)
    assert (
        "| sampo | default | 2/2 seeds stable (worst: var 0, drop 0.00) | **75.0 ± 0.0** (75.0 · 75.0) | +50.0 (0.0) "
        "| 50.0 ± 0.0 (50.0 · 50.0) |"
    ) in markdown
    # over the start: .125, .25, .25, .125: mean .1875, sd .125/sqrt 3, standard error half of it
    assert (
        "| grpo | default | 1/2 seeds stable (worst: var 0.04, drop 0.20) | 43.8 ± 8.8 (37.5 · 50.0) | +18.8 (3.6) "
    ) in markdown
    assert "| 8 k (4 min) | 8 (0 + 2 trials) |" in markdown
    assert "| sampo | grpo | +31.2 (3.6) | 0.125 | 0.125 | no clear difference | 0.0, 8.8 | 6.2 |" in markdown
    assert "4 trials started = 4 finished + 0 stopped + 0 failed." in markdown
    assert "training\\_iteration runs 1..n once in all 4 trials" in markdown
    assert any(row.startswith("grpo | default | 1/2 seeds stable") for row in page.rows)
    assert "a seed ended early" not in html


def test_page_is_complete_in_itself(tmp_path: Path) -> None:
    two_tasks = dataclasses.replace(full_study(), tasks={"sokoban": {}, "alfworld": {}})
    trials = [*two_tasks.trials, trial("grpo", 1, result(1.0, 0.0), task="alfworld", trial_id="other")]
    page, html, _ = _write(dataclasses.replace(two_tasks, trials=trials), tmp_path)
    assert page.loads == [] and "http" not in html and "@import" not in html
    assert not re.findall(r"url\((?!#)", html)
    assert "script" not in page.tags and "svg" in page.tags
    assert len(set(page.ids)) == len(page.ids) > 0
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html)) <= {(i, "") for i in page.ids} | {
        ("", i) for i in page.ids
    }
    assert "prefers-color-scheme: dark" in html and "#010203" not in html and "var(--arm0)" in html


def test_a_failed_and_a_stopped_seed_have_rows_of_their_own(tmp_path: Path) -> None:
    record = study(
        [
            trial("sampo", 1, result(1.0, 0.5, 1.0, 0.5)),
            trial("sampo", 2, None, (0.5, 0.1), status="failed", reason="LearnerError: <loss> | is nan"),
            trial("grpo", 1, result(0.0, 0.0, 0.0, 0.0), (0.1,), status="stopped", reason="no time left"),
        ]
    )
    page, html, markdown = _write(record, tmp_path)
    assert "↳ seed 2 | failed after 2 iterations: LearnerError: <loss> | is nan | " in page.rows
    assert "<loss>" not in html
    assert "| ↳ seed 2 | failed after 2 iterations: LearnerError: &lt;loss&gt; \\| is nan |" in markdown
    assert "| ↳ seed 1 | stopped after 1 iterations: no time left; its test counts above |" in markdown
    assert "| ↳ seed 2 | planned, not started |" in markdown
    assert "| sampo | default | 1/2 seeds stable" in markdown and f"**75.0** (75.0 · {DASH} (1 of 2))" in markdown
    assert "3 trials started = 1 finished + 1 stopped + 1 failed." in markdown
    assert "`arlarena sweep ... --retry-failed` runs those of the confirmation again" in html
    assert "a seed ended early" in html


def test_search_shows_every_setting_and_marks_the_confirmed_one(tmp_path: Path) -> None:
    tried = [
        trial("sampo", 0, None, setting=s, purpose="search", trial_id=f"t{i}", status=status, reason=reason)
        for i, (s, status, reason) in enumerate(
            [({}, "finished", ""), ({"training.lr": 1e-6}, "finished", ""), ({"training.lr": 0.1}, "stopped", "worse")]
        )
    ]
    record = study([*tried, trial("sampo", 1, result(1.0), setting={"training.lr": 1e-6})])
    _, _, markdown = _write(record, tmp_path)
    assert f"| sampo | default | 0 | stable | 60.0 | 0 | 0.000 | {DASH} | {DASH} | 4 | 2 min |" in markdown
    assert "| sampo | **training.lr=1e-06** | 0 | stable |" in markdown
    assert "| sampo | training.lr=0.1 | 0 | stopped (worse) |" in markdown
    assert f"| grpo | {DASH} | nothing confirmed | {DASH} | {DASH} |" in markdown


def test_missing_and_nan_values_are_dashes(tmp_path: Path) -> None:
    nothing = result(math.nan, math.nan, greedy=(math.nan, math.nan))
    record = study(
        [trial("sampo", 1, nothing, history=[{}, {"env_runners/success_rate": math.nan}])],
        start_test={},
        seconds=math.nan,
    )
    _, html, markdown = _write(record, tmp_path)
    assert "nan" not in html.partition("</style>")[2].lower()
    unknown = f"{DASH} ({DASH}) | {DASH}"
    assert f"| 0/2 seeds stable | {unknown} | {unknown} | {DASH} ({DASH}) | 2 (0 + 1 trials) |" in markdown
    assert "Without training\\_iteration, so not checked: sampo-confirm-1." in markdown


@pytest.mark.parametrize("trials", [[], [trial("sampo", 1, None, (), status="failed", reason="no memory")]])
def test_a_study_without_a_finished_trial_says_so(tmp_path: Path, trials: list) -> None:
    _, html, markdown = _write(study(trials), tmp_path)
    for text in ("No trial of this study has finished.", "so there is no result.", "so there are no curves."):
        assert text in html and text in markdown
    assert "<svg" not in html


def test_panels_of_different_sizes_are_named_and_not_compared(tmp_path: Path) -> None:
    record = study([trial("sampo", 1, result(1.0, 0.5, 1.0, 0.5)), trial("grpo", 1, result(1.0, 0.5))])
    _, _, markdown = _write(record, tmp_path)
    assert (
        "sokoban: test panels of different sizes cannot be paired (2 tasks: grpo-confirm-1; 4 tasks: start" in markdown
    )
    assert "none are compared" in markdown


def test_lost_iterations_are_named(tmp_path: Path) -> None:
    rows = history((0.5, 0.5, 0.5))
    record = study([trial("sampo", 1, None, history=[rows[0], rows[2]])])
    _, _, markdown = _write(record, tmp_path)
    assert "Iterations lost or repeated in: sampo-confirm-1; 0 were done again after a stop or a kill." in markdown


def test_repeated_iterations_are_named(tmp_path: Path) -> None:
    record = study([trial("sampo", 1, None, history=history((0.5, 0.5)), repeated=3)])
    _, _, markdown = _write(record, tmp_path)
    assert "Iterations lost or repeated in: sampo-confirm-1; 3 were done again after a stop or a kill." in markdown
    assert "Finished with another number of iterations than 4: sampo-confirm-1." in markdown


def test_published_numbers_are_those_of_the_paper_and_marked_as_another_scale(tmp_path: Path) -> None:
    arms = [ArmRecord("sampo", "sampo"), ArmRecord("masked", "cispo_sm"), ArmRecord("own", "somewhere:mine")]
    _, _, markdown = _write(study([], arms=arms), tmp_path)
    assert "## Published numbers (another scale)" in markdown
    assert "| SAMPO | 92.72 | 77.73 | 88.86 | Table 3 |" in markdown
    assert f"| CISPO with sequence masking | 78.88 | {DASH} | {DASH} | Table 4 |" in markdown
    assert "GRPO | 62.36" not in markdown
    _, _, markdown = _write(study([], arms=[ArmRecord("own", "somewhere:mine")]), tmp_path)
    assert "reports none of these methods" in markdown


def test_every_published_method_is_one_of_ours() -> None:
    import json

    from arlarena_rllib.presets import METHODS
    from tune_experiments.study_tables import PUBLISHED

    rows = json.loads(PUBLISHED.read_text())["rows"]
    assert len(rows) == 12 and {row["method"] for row in rows} <= set(METHODS)


def test_report_command_reads_the_folder_and_names_a_broken_file(tmp_path: Path) -> None:
    full_study().save(tmp_path / "study.json")
    files = report_command(tmp_path)
    assert files.html.is_file() and files.markdown == tmp_path / "report.md"
    (tmp_path / "study.json").write_text('{"name": ')
    with pytest.raises(CheckpointError, match=r"study\.json does not hold a StudyRecord"):
        report_command(tmp_path)


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_directory_in_the_way_of_the_report_is_told(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full_study().save(tmp_path / "study.json")
    (tmp_path / name).mkdir()
    assert main(["report", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / name} is a directory. Move it away" in line
    assert {path.name for path in tmp_path.iterdir()} == {"study.json", name}


def test_markup_in_names_is_text(tmp_path: Path) -> None:
    bad = "<script>*x*</script>[a](b)`c`\\|\x1b[31m"
    record = study(
        [trial(bad, 1, None, task=bad, setting={bad: bad}, reason=bad, status="failed")],
        name=bad,
        arms=[ArmRecord(bad, bad, {}, {bad: bad})],
        tasks={bad: {bad: bad}},
        seeds={bad: [1]},
        start_test={},
    )
    _, html, markdown = _write(record, tmp_path)
    assert "<script" not in html and "<script" not in markdown and "\x1b" not in markdown
    assert (
        "# Study &lt;script&gt;\\*x\\*&lt;/script&gt;\\[a\\](b)\\`c\\`\\\\\\|\N{REPLACEMENT CHARACTER}\\[31m\n"
        in markdown
    )
    assert not re.search(r"(?<!\\)(\\\\)*`", markdown)


def test_values_beyond_all_reason_are_not_stable(tmp_path: Path) -> None:
    _, _, markdown = _write(study([trial("sampo", 1, None, (1e308, 1e308, 1e308, 1e308))]), tmp_path)
    assert "0/2 seeds stable" in markdown


def test_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"the report cannot be written to .*file"):
        write_report(full_study(), tmp_path / "file")


def test_numbers_as_text() -> None:
    assert (percent(0.125), percent(math.nan)) == ("12.5", DASH)
    assert (points(-0.05, 0.01), points(0.05, math.nan), points(math.nan, 1.0)) == (
        "-5.0 (1.0)",
        f"+5.0 ({DASH})",
        DASH,
    )
    assert (p_value(0.0004), p_value(0.0316), p_value(math.nan)) == ("< 0.001", "0.032", DASH)
    assert (amount(999.0), amount(1_234_567.0)) == ("999", "1.23 M")
    assert (duration(59.0), duration(3540.0), duration(3900.0), duration(math.nan)) == (
        "59 s",
        "59 min",
        "1 h 05 min",
        DASH,
    )


def test_importing_the_report_needs_neither_ray_nor_torch() -> None:
    modules = ", ".join(
        f"tune_experiments.study_{n}" for n in ("record", "statistics", "tables", "page", "plots", "report")
    )
    code = f"import sys, {modules}; print([m for m in ('ray', 'torch', 'mlflow') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_arms_with_the_same_success_have_no_best_one(tmp_path: Path) -> None:
    trials = [trial(arm, seed, result(0.0, 0.0, 0.0, 0.0)) for arm in ("sampo", "grpo") for seed in (1, 2)]
    text = write_report(study(trials), tmp_path).markdown.read_text()
    assert "No arm is ahead: sampo, grpo have the same test success, 0.0" in text and "Highest test success" not in text


def test_population_shows_its_exchanges_and_does_not_call_its_members_independent(tmp_path: Path) -> None:
    trials = [trial("sampo", seed, result(0.5, 0.5, 0.5, 0.0)) for seed in (1, 2)]
    exchange = ExchangeRecord(2, 1, 2, {"lr": 1e-4}, {"lr": 3e-4})
    record = study(trials, exchanges={"sokoban": [exchange]})
    text = write_report(record, tmp_path).markdown.read_text()
    assert "The seeds are the members of one population, with 1 exchanges" in text
    assert re.search(r"\| 2 +\| seed 1 +\| seed 2 +\| lr=0\.0001 +\| lr=0\.0003 +\|", text), text
    record.save(tmp_path / "study.json")
    assert StudyRecord.load(tmp_path / "study.json").exchanges == record.exchanges
