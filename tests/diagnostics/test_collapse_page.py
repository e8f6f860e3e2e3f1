"""The page is a PNG of the right size whatever is missing, and shows what the history and the alarm say."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from matplotlib.axes import Axes

from arlarena_rllib.diagnostics import AlarmReport, AlarmSignal, finish_update_tables, page
from arlarena_rllib.diagnostics.page import collapse_page

DOCS = Path(__file__).resolve().parents[2] / "docs" / "collapse.md"
LEARNER = "learners/default_policy/"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[Axes]]:
    """The axes of every figure that is saved."""
    seen: list[list[Axes]] = []
    save = matplotlib.figure.Figure.savefig

    def spy(figure: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(list(figure.axes))
        return save(figure, *args, **kwargs)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", spy)
    return seen


def _size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _texts(axes: Axes) -> str:
    return "\n".join(text.get_text() for text in axes.texts)


def _history(rows_of: Callable[..., Any], iterations: int) -> list[dict[str, Any]]:
    history = []
    for i in range(1, iterations + 1):
        tables = finish_update_tables(rows_of(i, spread=0.1 * i).tables())
        history.append(
            {
                "training_iteration": i,
                "env_runners/success_rate": 0.1 * i,
                "env_runners/format_valid_frac": 0.9,
                "env_runners/action_valid_frac": 0.8,
                **{LEARNER + name: value for name, value in tables.items()},
                **{
                    LEARNER + name: 10.0**-i
                    for name in ("approx_kl_k3", "ref_kl", "grad_norm", "grad_norm_max", "entropy")
                },
            }
        )
    return history


def test_page_of_a_full_history_has_no_empty_panel(
    rows_of: Callable[..., Any], tmp_path: Path, drawn: list[list[Axes]]
) -> None:
    path = collapse_page(tmp_path / "new" / "page.png", _history(rows_of, 4))
    assert _size(path) == (1500, 1200)
    (axes,) = drawn
    assert len(axes) == 9
    assert not [text for ax in axes if "not logged" in (text := _texts(ax))]
    success = axes[0].lines[0]
    assert list(success.get_xdata()) == [1, 2, 3, 4]
    assert list(success.get_ydata()) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert [ax.get_yscale() for ax in axes[:6]] == ["linear", "log", "log", "log", "linear", "linear"]


def test_stacked_cells_add_up_to_the_shares_of_the_history(
    rows_of: Callable[..., Any], tmp_path: Path, drawn: list[list[Axes]]
) -> None:
    history = _history(rows_of, 3)
    collapse_page(tmp_path / "page.png", history)
    cells = [key for key in history[-1] if "oob_token_adv" in key]
    top = max(sum(row[cell] for cell in cells) for row in history)
    highest = max(path.vertices[:, 1].max() for c in drawn[0][6].collections for path in c.get_paths())
    assert len(cells) == 4 and highest == pytest.approx(top)
    assert max(p.vertices[:, 1].max() for c in drawn[0][7].collections for p in c.get_paths()) == pytest.approx(1.0)


@pytest.mark.parametrize("missing", range(9))
def test_panel_without_its_metrics_is_empty_and_names_them(
    rows_of: Callable[..., Any], tmp_path: Path, drawn: list[list[Axes]], missing: int
) -> None:
    metrics = [[line.metric for line in panel.lines] for panel in page.PANELS]
    metrics += [[cell[0] for cell in page._BANDS], [cell[0] for cell in page._KL_SHARES], page._QUANTILES]
    history = [{k: v for k, v in row.items() if k not in metrics[missing]} for row in _history(rows_of, 3)]
    assert _size(collapse_page(tmp_path / "page.png", history)) == (1500, 1200)
    empty = [index for index, ax in enumerate(drawn[0]) if "not logged" in _texts(ax)]
    assert empty == [missing]
    assert metrics[missing][0] in _texts(drawn[0][missing])


@pytest.mark.parametrize(
    "history",
    [
        [{}],
        [{"env_runners/success_rate": 0.5}],
        [{LEARNER + "grad_norm": value} for value in (math.nan, math.inf, 0.0, -1.0, None, "x")],
        [{LEARNER + "ref_kl": np.float32(0.1)}, {}, {LEARNER + "ref_kl": np.float64(0.2)}],
        [{LEARNER + "oob_token_adv_neg_ratio_low_frac": 0.1}, {}, {LEARNER + "ratio_q50": 1.0}],
        [{LEARNER + "oob_token_adv_neg_ratio_low_frac": 0.0}],
    ],
)
def test_page_of_a_patchy_history_is_a_picture(history: list[dict[str, Any]], tmp_path: Path) -> None:
    assert _size(collapse_page(tmp_path / "page.png", history, AlarmReport(3))) == (1500, 1200)


def test_alarm_is_marked_in_all_panels_and_others_in_their_own(
    rows_of: Callable[..., Any], tmp_path: Path, drawn: list[list[Axes]]
) -> None:
    signals = (
        AlarmSignal("off_policy_kl", LEARNER + "approx_kl_k3", 2, 0.5, 0.1),
        AlarmSignal("success", "env_runners/success_rate", 3, 0.1, 0.3),
    )
    collapse_page(tmp_path / "page.png", _history(rows_of, 4), AlarmReport(4, signals))
    marks = [[line.get_xdata()[0] for line in ax.lines if list(line.get_ydata()) == [0, 1]] for ax in drawn[0]]
    assert marks == [[2, 3]] + [[2]] * 8
    title = drawn[0][0].figure.get_suptitle()  # type: ignore[union-attr]
    assert title.splitlines()[1] == "first alarm: off_policy_kl at iteration 2: 0.5 is above the limit 0.1"
    assert "success: iteration 3" in _texts(drawn[0][0])


def test_names_of_the_page_are_those_of_the_tables(rows_of: Callable[..., Any]) -> None:
    produced = {LEARNER + name for name in finish_update_tables(rows_of(1).tables())}
    shown = [*(cell[0] for cell in page._BANDS), *(cell[0] for cell in page._KL_SHARES), *page._QUANTILES]
    assert len(shown) == 4 + 8 + 5 and set(shown) <= produced


def test_labels_of_the_kl_cells_say_what_their_names_say() -> None:
    labels = {metric.split("share_")[1]: label for metric, label, _, _ in page._KL_SHARES}
    assert labels["adv_neg_is_lt1_lowH"] == "A < 0, s < 1, low H"
    assert labels["adv_nonneg_is_lt1_highH"] == "A ≥ 0, s < 1, high H"
    assert labels["adv_nonneg_is_ge1_lowH"] == "A ≥ 0, s ≥ 1, low H"


def test_example_of_the_documentation_draws_a_page(
    rows_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {"history": _history(rows_of, 2)})
    assert _size(tmp_path / "collapse.png") == (1500, 1200)


def test_page_of_an_empty_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="history is empty"):
        collapse_page(tmp_path / "page.png", [])
