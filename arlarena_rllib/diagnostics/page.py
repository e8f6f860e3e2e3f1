"""One page of pictures of a run, in the form of ARLArena 2602.21534 figures 3 and 4; matplotlib without a display."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from arlarena_rllib.diagnostics import metric_names as names
from arlarena_rllib.diagnostics.alarm import AlarmReport, AlarmSignal
from arlarena_rllib.objectives.tables import BAND_CELLS, KL_CELLS

WIDTH_PX, HEIGHT_PX, DPI = 1500, 1200, 100
# Distinguishable also with the common colour-vision deficiencies (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, VERMILION, GREY, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666", "#CC79A7", "#56B4E9",
)  # fmt: skip

History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Line:
    """One metric in a panel."""

    metric: str
    label: str
    colour: str
    marker: str = ""


@dataclass(frozen=True)
class Panel:
    """Lines over the iterations; `signals` are the alarm's that this panel shows; `may_log` = logarithmic if it helps."""

    title: str
    lines: tuple[Line, ...]
    signals: tuple[str, ...] = ()
    is_share: bool = False
    may_log: bool = False


PANELS = (
    Panel(
        "success",
        (
            Line(names.SUCCESS, "training", GREY),
            Line(names.EVALUATION_BEFORE_SAMPLED, "panel, sampled, before training", BLUE, "D"),
            Line(names.EVALUATION_SAMPLED, "panel, sampled", BLUE, "o"),
            Line(names.EVALUATION_GREEDY, "panel, greedy", ORANGE, "s"),
        ),
        ("success", "evaluation"),
        is_share=True,
    ),
    Panel("off-policy KL (k3)", (Line(names.OFF_POLICY_KL, "", PURPLE),), ("off_policy_kl",), may_log=True),
    Panel("KL to the reference", (Line(names.REF_KL, "", PURPLE),), ("ref_kl",), may_log=True),
    Panel(
        "gradient norm before clipping",
        (Line(names.GRAD_NORM, "mean", VERMILION), Line(names.GRAD_NORM_MAX, "max of the steps", GREY)),
        ("grad_norm", "nonfinite_steps"),
        may_log=True,
    ),
    Panel(
        "valid turns",
        (Line(names.ACTION_VALID, "action", GREY), Line(names.FORMAT_VALID, "format", GREEN)),
        ("format",),
        is_share=True,
    ),
    Panel("entropy [nats per token]", (Line(names.ENTROPY, "", BLUE),)),
)

_BAND_COLOURS = (VERMILION, ORANGE, SKY, BLUE)
_BANDS = [
    (f"{names.LEARNER}oob_token_{cell}_frac", label, colour, "")
    for cell, label, colour in zip(
        BAND_CELLS[:4], ("A < 0, low", "A < 0, high", "A > 0, low", "A > 0, high"), _BAND_COLOURS, strict=True
    )
]
_KL_SHARES = [
    (
        f"{names.LEARNER}ref_kl_share_{cell.replace('|', '_')}",
        f"{sign}, {side}, {level} H",
        _BAND_COLOURS[number // 2],
        "////" if level == "high" else "",
    )
    for number, (cell, (sign, side, level)) in enumerate(
        zip(KL_CELLS, itertools.product(("A < 0", "A ≥ 0"), ("s < 1", "s ≥ 1"), ("low", "high")), strict=True)
    )
]
_QUANTILES = [f"{names.LEARNER}ratio_q{q}" for q in ("05", "25", "50", "75", "95")]


def collapse_page(
    path: str | Path, history: History, alarm_report: AlarmReport | None = None, *, title: str = ""
) -> Path:
    """Draw what a collapse shows in, over the iterations, mark the alarm, and return the picture's path.

    Args:
        path: PNG to write, 1500 x 1200 pixels; folders are made.
        history: flat metrics per iteration, under the names that the project logs
            (``learners/default_policy/grad_norm``); the iteration is ``training_iteration``, else it counts from 1.
            A metric that is missing everywhere leaves a labelled empty panel, one that is missing here and there a gap.
        alarm_report: of the run; its first signal is a line in all panels, each other one a line in its own.
        title: above the picture.

    Raises:
        ValueError: `history` is empty.
    """
    if not history:
        raise ValueError("history is empty: a collapse page needs the metrics of at least one iteration.")
    x = np.array([_number(row.get(names.ITERATION, number)) for number, row in enumerate(history, start=1)])
    figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, layout="constrained")
    axes = figure.subplots(3, 3, sharex=True).flatten()
    for panel, ax in zip(PANELS, axes[:6], strict=True):
        _draw_lines(ax, x, history, panel)
    _draw_stack(axes[6], x, history, "tokens out of the band, by sign of A and side", _BANDS)
    _draw_stack(axes[7], x, history, "share of the KL to the reference, by row", _KL_SHARES)
    _draw_quantiles(axes[8], x, history)
    for ax in axes[6:]:
        ax.set_xlabel("iteration")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes[0].set_xlim(x[0] - 0.5, x[-1] + 0.5)
    first = alarm_report.first if alarm_report else None
    _mark_alarm(axes, alarm_report.signals if alarm_report else ())
    caption = f"first alarm: {first}" if first else "no alarm" if alarm_report else ""
    figure.suptitle("\n".join(filter(None, (title or "Signals of a collapse", caption))), fontsize=14)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(target, dpi=DPI, format="png")
    return target


def _draw_lines(axes: Axes, x: np.ndarray, history: History, panel: Panel) -> None:
    columns = [_column(history, line.metric) for line in panel.lines]
    is_log = panel.may_log and _spans_a_decade(columns)
    drawn = []
    for line, y in zip(panel.lines, columns, strict=True):
        if is_log:
            y[y <= 0] = math.nan
        if np.isfinite(y).any():
            # A value between two gaps has no line to be seen by.
            marker = line.marker or ("." if len(x) <= 60 or not _has_neighbours(y) else "")
            shown = np.isfinite(y) if line.marker else slice(None)
            axes.plot(x[shown], y[shown], color=line.colour, lw=1.6, marker=marker, ms=5, label=line.label)
            drawn.append(line)
    if is_log:
        axes.set_yscale("log")
    if panel.is_share and drawn:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(-0.02, 1.02)
    if len(drawn) > 1:
        axes.legend(loc="best", fontsize=8, framealpha=0.9)
    _finish(axes, panel.title, [line.metric for line in panel.lines], is_empty=not drawn)


def _draw_stack(
    axes: Axes, x: np.ndarray, history: History, title: str, cells: Sequence[tuple[str, str, str, str]]
) -> None:
    shares = np.stack([_column(history, metric) for metric, *_ in cells])
    is_known = np.isfinite(shares).any(axis=0)
    if is_known.any():
        # One more half iteration at both ends, so that a single iteration has a width.
        at = np.array([x[0] - 0.5, *x, x[-1] + 0.5])
        where = np.pad(is_known, 1, mode="edge")
        heights = np.pad(np.nan_to_num(shares), ((0, 0), (1, 1)), mode="edge")
        upper = np.cumsum(heights, axis=0)
        for (_, _, colour, hatch), low, high in zip(cells, upper - heights, upper, strict=True):
            axes.fill_between(
                at, low, high, where=where, step="mid", facecolor=colour, hatch=hatch, edgecolor="white", lw=0
            )
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set_ylim(0, max(float(upper[-1].max()), 1e-3) * 1.02)
        handles = [Patch(facecolor=c, hatch=h, edgecolor="white", lw=0, label=label) for _, label, c, h in cells]
        axes.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=8, frameon=False,
            ncols=4 if len(cells) == 4 else 2, columnspacing=1.0,
        )  # fmt: skip
    _finish(axes, title, [cells[0][0], "..."], is_empty=not is_known.any())


def _draw_quantiles(axes: Axes, x: np.ndarray, history: History) -> None:
    q05, q25, q50, q75, q95 = (_column(history, metric) for metric in _QUANTILES)
    is_empty = not np.isfinite(q50).any()
    if not is_empty:
        axes.axhline(1.0, color=GREY, lw=0.8)
        axes.fill_between(x, q05, q95, color=BLUE, alpha=0.18, lw=0, label="5 to 95 %")
        axes.fill_between(x, q25, q75, color=BLUE, alpha=0.35, lw=0, label="25 to 75 %")
        axes.plot(x, q50, color=BLUE, lw=1.6, marker="." if len(x) <= 60 else "", ms=5, label="median")
        axes.legend(loc="best", fontsize=8, framealpha=0.9)
    _finish(axes, "token ratio, quantiles", _QUANTILES, is_empty=is_empty)


def _mark_alarm(axes: Sequence[Axes], signals: Sequence[AlarmSignal]) -> None:
    for index, ax in enumerate(axes):
        own = PANELS[index].signals if index < len(PANELS) else ()
        marks = []
        for number, signal in enumerate(signals):
            if number == 0 or signal.name in own:
                style = "--" if number == 0 else ":"
                ax.axvline(signal.iteration, color=VERMILION if number == 0 else "black", ls=style, lw=1.4, zorder=5)
            if signal.name in own:
                marks.append(f"{signal.name}: iteration {signal.iteration}")
        if marks:
            white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
            ax.text(
                0.98,
                0.03,
                "\n".join(marks),
                transform=ax.transAxes,
                ha="right",
                va="bottom",
                fontsize=8,
                bbox=white,
                zorder=6,
            )


def _finish(axes: Axes, title: str, metrics: Iterable[str], *, is_empty: bool) -> None:
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    if is_empty:
        axes.set_yticks([])
        text = "not logged:\n" + "\n".join(metrics)
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=8, color=GREY)
    else:
        axes.grid(axis="y", alpha=0.3)


def _column(history: History, metric: str) -> np.ndarray:
    return np.array([_number(row.get(metric)) for row in history])


def _number(value: Any) -> float:
    return float(value) if isinstance(value, Real) and math.isfinite(value) else math.nan


def _spans_a_decade(columns: Iterable[np.ndarray]) -> bool:
    positive = np.concatenate([y[y > 0] for y in columns])
    return bool(positive.size) and bool(positive.max() >= 10 * positive.min())


def _has_neighbours(y: np.ndarray) -> bool:
    is_known = np.isfinite(y)
    return bool((is_known[1:] & is_known[:-1]).any())
