"""The curves of a study, one picture per task: mean and range over the confirm seeds of every arm, as SVG for a page.

The page's text colour is ``currentColor`` and an arm's colour a CSS variable, so one picture fits light and dark screens.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tune_experiments.study_record import TrialRecord
from tune_experiments.study_statistics import Contender

# Okabe and Ito 2008, distinguishable also with the common colour-vision deficiencies; each with a lighter tone for dark
# screens. Lines differ in their dashes too where there are more arms than colours.
ARM_COLOURS = (
    ("#0072b2", "#4c9fe0"),
    ("#d55e00", "#f0803c"),
    ("#009e73", "#2fc796"),
    ("#cc79a7", "#e29bc4"),
    ("#e69f00", "#f5c04d"),
    ("#56b4e9", "#a8dcff"),
)
DASHES = ("-", "--", ":", "-.")
CSS_COLOURS = {f"arm{number}": pair for number, pair in enumerate(ARM_COLOURS)}
_INK = "#010203"  # stands for the page's text colour until the SVG is written
_WIDTH_IN, _HEIGHT_IN = 12.0, 10.0

Points = dict[int, float]


@dataclass(frozen=True)
class Panel:
    """A metric over the iterations; ``before`` is the metric of iteration 0, in the first iteration's results."""

    title: str
    ylabel: str
    metric: str
    before: str = ""
    is_share: bool = False
    may_log: bool = False
    marker: str = ""


@dataclass(frozen=True)
class Band:
    """Mean, lowest and highest value over the seeds that have the iteration."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def panels() -> tuple[Panel, ...]:
    """Return what is drawn, in the order of the picture."""
    from arlarena_rllib.diagnostics import metric_names as names  # torch comes with it

    return (
        Panel("training success", "share of episodes", names.SUCCESS, is_share=True),
        Panel(
            "held-out success, sampled", "mean over panel tasks", names.EVALUATION_SAMPLED,
            before=names.EVALUATION_BEFORE_SAMPLED, is_share=True, marker="o",
        ),
        Panel("valid format", "share of turns", names.FORMAT_VALID, is_share=True),
        Panel("off-policy KL (k3)", "nats per token", names.OFF_POLICY_KL, may_log=True),
        Panel("KL to the reference", "nats per token", names.REF_KL, may_log=True),
        Panel("gradient norm before clipping", "L2 norm", names.GRAD_NORM, may_log=True),
        Panel("tokens out of the band .8 to 1.2", "share of tokens", f"{names.LEARNER}oob_token_total_frac", is_share=True),
        Panel(
            "of them A < 0 with a low ratio", "share of tokens",
            f"{names.LEARNER}oob_token_adv_neg_ratio_low_frac", is_share=True,
        ),
        Panel("rows out of the band .997 to 1.004", "share of rows", f"{names.LEARNER}oob_seq_total_frac", is_share=True),
    )  # fmt: skip


_DRAWABLE = 1e100
"""Matplotlib cannot make ticks for values near the largest float."""


def trial_points(trial: TrialRecord, panel: Panel) -> Points:
    """Return iteration -> finite value; an iteration that is there twice counts as it was last."""
    points = {}
    if panel.before and trial.history:
        points[0] = trial.history[0].get(panel.before, math.nan)
    for number, row in enumerate(trial.history, start=1):
        at = row.get("training_iteration", math.nan)
        points[int(at) if math.isfinite(at) else number] = row.get(panel.metric, math.nan)
    return {at: value for at, value in points.items() if abs(value) < _DRAWABLE}


def band(seeds: Sequence[Points]) -> Band:
    """Return mean and range over the seeds, at every iteration that one of them has."""
    x = sorted({at for points in seeds for at in points})
    columns = [[points[at] for points in seeds if at in points] for at in x]
    mean, low, high = (np.array([f(column) for column in columns]) for f in (np.mean, min, max))
    return Band(np.array(x), mean, low, high)


def study_curves(rows: Sequence[Contender], arms: Sequence[str], *, title: str) -> str:
    """Return the curves of one task as an SVG element, or "" when no confirm trial has an iteration.

    Args:
        rows: arms with their confirm trials.
        arms: names of all arms of the study, so that an arm has one colour in all pictures.
        title: what a screen reader says, and what keeps the element's ids apart from those of other pictures.
    """
    shown = [row for row in rows if any(trial.history for trial in row.trials)]
    if not shown:
        return ""
    styles = _styles(shown, arms)
    with matplotlib.rc_context(_RC):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.12)
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout=layout)
        for panel, axes in zip(panels(), figure.subplots(3, 3).flatten(), strict=True):
            _draw(axes, panel, shown, styles)
        handles = [Line2D([], [], color=c, ls=ls, lw=2, label=row.label) for row, (c, ls) in zip(shown, styles)]
        if any(trial.status != "finished" for row in shown for trial in row.trials):
            handles.append(Line2D([], [], color=_INK, ls="", marker="x", ms=7, mew=1.8, label="a seed ended early"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6), frameon=False)
        return _as_element(figure, title)


def _styles(rows: Sequence[Contender], arms: Sequence[str]) -> list[tuple[str, str]]:
    """Return colour and dashes of each row; several settings of an arm share its colour."""
    styles = []
    for i, row in enumerate(rows):
        number = arms.index(row.arm.name)
        earlier = sum(other.arm.name == row.arm.name for other in rows[:i])
        styles.append(
            (
                ARM_COLOURS[number % len(ARM_COLOURS)][0],
                DASHES[(number // len(ARM_COLOURS) + earlier) % len(DASHES)],
            )
        )
    return styles


def _draw(axes: Axes, panel: Panel, rows: Sequence[Contender], styles: Sequence[tuple[str, str]]) -> None:
    seeds = {row.label: [(trial, trial_points(trial, panel)) for trial in row.trials] for row in rows}
    values = [v for found in seeds.values() for _, points in found for v in points.values()]
    is_log = panel.may_log and _spans_a_decade(values)
    for row, (colour, dashes) in zip(rows, styles):
        found = [
            (trial, {at: v for at, v in points.items() if v > 0} if is_log else points)
            for trial, points in seeds[row.label]
        ]
        drawn = band([points for _, points in found])
        if not len(drawn.x):
            continue
        marker = panel.marker or ("o" if len(drawn.x) == 1 else "")
        axes.fill_between(drawn.x, drawn.low, drawn.high, color=colour, alpha=0.16, lw=0)
        axes.plot(drawn.x, drawn.mean, color=colour, ls=dashes, lw=1.8, marker=marker, ms=3.5)
        for trial, points in found:
            if trial.status != "finished" and points:
                axes.plot(max(points), points[max(points)], color=colour, marker="x", ms=7, mew=1.8, ls="")
    if is_log:
        axes.set_yscale("log")
    if panel.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title(panel.title)
    axes.set_ylabel(panel.ylabel)
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(axis="y", alpha=0.18)
    if not values:
        axes.set_yticks([])
        axes.text(0.5, 0.5, f"not logged:\n{panel.metric}", transform=axes.transAxes, ha="center", va="center")


def _spans_a_decade(values: Sequence[float]) -> bool:
    positive = [v for v in values if v > 0]
    return bool(positive) and max(positive) >= 10 * min(positive)


def _as_element(figure: Figure, title: str) -> str:
    """Return the figure as ``<svg>`` without namespaces and metadata, in the page's colours, its ids its own."""
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    own = re.sub(r"\W+", "-", title)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{own}-", svg)
    for colour, replacement in _page_colours().items():
        svg = svg.replace(colour, replacement)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1).strip()


def _page_colours() -> Mapping[str, str]:
    arms = {light: f"var(--arm{number})" for number, (light, _) in enumerate(ARM_COLOURS)}
    return {_INK: "currentColor", **arms}


_RC = {
    "svg.fonttype": "path",
    "svg.hashsalt": "study",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
}
