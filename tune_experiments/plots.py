"""Pictures of a run and of several runs, from the result files that Tune writes; plain matplotlib without a display."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from arlarena_rllib.diagnostics import AlarmThresholds, replay_alarm
from arlarena_rllib.diagnostics.page import collapse_page
from tune_experiments.mlflow_names import as_number, metric_values

logger = logging.getLogger(__name__)

WIDTH_PX, HEIGHT_PX, DPI = 1200, 700, 100
# Distinguishable also with the common colour-vision deficiencies (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, VERMILION, GREY, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666", "#CC79A7", "#56B4E9",
)  # fmt: skip
METHOD_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)


@dataclass(frozen=True)
class CurvePoint:
    """One iteration of a learning curve; fractions in 0..1, NaN where the iteration has no value."""

    iteration: int
    episodes: float
    success: float
    format_valid: float
    kl: float
    sampled: float
    sampled_ci95: float
    greedy: float
    greedy_ci95: float


def read_results(trial_dir: str | Path) -> list[dict[str, Any]]:
    """Return the results in a trial's ``result.json``, ordered, one per training iteration.

    After a restore Tune appends iterations that are there already: the last line of an iteration counts. A last line
    that was cut off by a kill is left out; so is another one, cut off by a full disk say, with a warning.

    Raises:
        FileNotFoundError: the folder has no ``result.json``.
    """
    file = Path(trial_dir, "result.json")
    lines = [line for line in file.read_text().splitlines() if line.strip()]
    results: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            result = json.loads(line)
        except json.JSONDecodeError as error:
            if number < len(lines):
                logger.warning("%s, line %d is not JSON: %s. It is left out.", file, number, error)
            continue
        results[int(result["training_iteration"])] = result
    return [results[iteration] for iteration in sorted(results)]


def curve_points(results: Sequence[Mapping[str, Any]]) -> list[CurvePoint]:
    """Return the points of a learning curve from result dicts (missing values become NaN).

    The evaluation before training, when the first result has one, is the point at iteration 0.
    """
    points = [
        CurvePoint(
            iteration=int(_value(r, "training_iteration")),
            episodes=_value(r, "env_runners/num_episodes_lifetime"),
            success=_value(r, "env_runners/success_rate"),
            format_valid=_value(r, "env_runners/format_valid_frac"),
            kl=_value(r, "learners/default_policy/approx_kl_k3"),
            **_panel_values(r, "evaluation"),
        )
        for r in results
    ]
    before = _panel_values(results[0], "evaluation_before") if results else {}
    if any(math.isfinite(value) for value in before.values()):
        points.insert(0, CurvePoint(0, 0.0, math.nan, format_valid=math.nan, kl=math.nan, **before))
    return points


def _panel_values(result: Mapping[str, Any], key: str) -> dict[str, float]:
    names = {"sampled": "sampled", "sampled_ci95": "ci95", "greedy": "greedy", "greedy_ci95": "greedy_ci95"}
    return {field: _value(result, f"{key}/env_runners/{name}") for field, name in names.items()}


def learning_curve(
    path: str | Path,
    results: Sequence[Mapping[str, Any]],
    *,
    method: str = "",
    panel_hash: str = "",
    start: float | None = None,
    control: float | None = None,
) -> Path:
    """Draw success over iterations, with format validity and off-policy KL below, and return the picture's path.

    Args:
        path: PNG to write, 1200 x 700 pixels; folders are made.
        results: result dicts of one trial, e.g. of :func:`read_results`.
        method: for the title.
        panel_hash: which fixed tasks were evaluated, for the title.
        start: sampled success before training; by default that of the first result's ``evaluation_before``.
        control: success of the untrained or other policy to compare with.

    Raises:
        ValueError: ``results`` is empty.
    """
    if not results:
        raise ValueError(
            "results is empty: a learning curve needs at least one iteration. See read_results(trial_dir)."
        )
    points = curve_points(results)
    before = _value(results[0], "evaluation_before/env_runners/sampled") if start is None else start
    figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.25])
    _draw_success(top, points, before, math.nan if control is None else control)
    _draw_health(bottom, points)
    _add_episode_axis(top, points)
    name = f"{method}: success during training" if method else "Success during training"
    figure.suptitle(f"{name}   (panel {panel_hash})" if panel_hash else name, fontsize=14)
    return _save(figure, path)


def _draw_success(axes: Axes, points: Sequence[CurvePoint], start: float, control: float) -> None:
    x = [p.iteration for p in points]
    axes.plot(x, [p.success for p in points], color=GREY, lw=1.0, marker=".", ms=5, label="training episodes")
    for name, colour, marker in (("sampled", BLUE, "o"), ("greedy", ORANGE, "s")):
        shown = [p for p in points if math.isfinite(getattr(p, name))]
        if not shown:
            continue
        mean = [getattr(p, name) for p in shown]
        half = [h if math.isfinite(h := getattr(p, f"{name}_ci95")) else 0.0 for p in shown]
        at = [p.iteration for p in shown]
        low, high = [m - h for m, h in zip(mean, half)], [m + h for m, h in zip(mean, half)]
        axes.fill_between(at, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(at, mean, color=colour, marker=marker, ms=5, lw=2.2, label=f"held-out tasks, {name} (95 % band)")
    for name, value, style, colour in (("start", start, "--", VERMILION), ("control", control, ":", "black")):
        if math.isfinite(value):
            axes.axhline(value, color=colour, ls=style, lw=1.6, label=f"{name} {value:.1%}")
    axes.set_ylabel("success")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(*_fraction_limits([p.success for p in points], _bands(points), [start, control]))
    _finish_axes(axes)
    axes.legend(loc="best", fontsize=10, framealpha=0.9)


def _draw_health(axes: Axes, points: Sequence[CurvePoint]) -> None:
    x = [p.iteration for p in points]
    axes.plot(x, [p.format_valid for p in points], color=GREEN, lw=1.8, marker=".", ms=5)
    axes.set_ylabel("valid format", color=GREEN)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(*_fraction_limits([p.format_valid for p in points]))
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlim(x[0] - 0.5, x[-1] + 0.5)
    _finish_axes(axes)
    kl_axes = axes.twinx()
    kl_axes.plot(x, [p.kl for p in points], color=PURPLE, lw=1.8, marker=".", ms=5)
    kl_axes.set_ylabel("off-policy KL (k3)", color=PURPLE)
    kl_axes.set_ylim(bottom=min([0.0, *_finite(p.kl for p in points)]))
    kl_axes.spines[["top"]].set_visible(False)


def _add_episode_axis(axes: Axes, points: Sequence[CurvePoint]) -> None:
    known = [(0.0, 0.0), *((p.episodes, p.iteration) for p in points if math.isfinite(p.episodes))]
    episodes, iterations = zip(*sorted(known))
    ticks = [t for t in MaxNLocator(nbins=8, integer=True).tick_values(0, episodes[-1]) if 0 <= t <= episodes[-1]]
    if episodes[-1] > 0:
        upper = axes.secondary_xaxis("top")
        upper.set_xticks(np.interp(ticks, episodes, iterations), [f"{tick:,.0f}" for tick in ticks])
        upper.set_xlabel("training episodes")


def run_collapse_page(
    path: str | Path,
    results: Sequence[Mapping[str, Any]],
    *,
    thresholds: Mapping[str, Any],
    method: str = "",
    panel_hash: str = "",
) -> Path:
    """Draw the signals of a collapse over the iterations of a run, mark its alarm, and return the picture's path.

    Args:
        path: PNG to write; folders are made.
        results: nested result dicts of one trial, e.g. of :func:`read_results`.
        thresholds: limits of the alarm, as in ``reporting.alarm_thresholds``.
        method: for the title.
        panel_hash: which fixed tasks were evaluated, for the title.

    Raises:
        ValueError: ``results`` is empty.
    """
    history = [metric_values(result) for result in results]
    report = replay_alarm(history, AlarmThresholds(**thresholds))
    name = f"{method}: signals of a collapse" if method else "Signals of a collapse"
    title = f"{name}   (panel {panel_hash})" if panel_hash else name
    return collapse_page(path, history, report, title=title)


def comparison_plot(path: str | Path, runs: Sequence[Mapping[str, Any]], *, title: str = "") -> Path:
    """Draw success before and after training of every seed, grouped by method, and return the picture's path.

    Args:
        path: PNG to write, 1200 x 700 pixels; folders are made.
        runs: one mapping per run: ``method``, ``seed``, ``before``, ``after`` (fractions), ``control`` (or None),
            optionally ``ci95`` (half-width of the interval of ``after``).
        title: above the picture.

    Raises:
        ValueError: ``runs`` is empty.
        KeyError: a run lacks a key.
    """
    if not runs:
        raise ValueError("runs is empty: a comparison needs at least one run with method, seed, before and after.")
    ordered = sorted(runs, key=lambda run: _sortable(run["seed"]))
    by_method = {
        method: [r for r in ordered if r["method"] == method] for method in dict.fromkeys(r["method"] for r in runs)
    }
    figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    ticks: list[tuple[float, str]] = []
    x = 0.0
    for number, (method, group) in enumerate(by_method.items()):
        colour = METHOD_COLOURS[number % len(METHOD_COLOURS)]
        _draw_method(axes, x, method, group, colour)
        ticks += [(x + i, str(run["seed"])) for i, run in enumerate(group)]
        x += len(group) + 1
    axes.set_xticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.set_xlim(-0.9, x - 1.1)
    axes.set_xlabel("seed")
    axes.set_ylabel("success on held-out tasks")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    values = [_value(run, key) for run in runs for key in ("before", "after", "control")]
    low, high = _fraction_limits(values, [v for run in runs for v in _interval(run)])
    axes.set_ylim(low, high + 0.15 * (high - low))  # room for the names of the methods
    _finish_axes(axes)
    _comparison_legend(axes, runs)
    figure.suptitle(title or "Success before and after training", fontsize=14)
    return _save(figure, path)


def _draw_method(axes: Axes, x: float, method: str, group: Sequence[Mapping[str, Any]], colour: str) -> None:
    for i, run in enumerate(group):
        before, after, control = (_value(run, key) for key in ("before", "after", "control"))
        axes.plot([x + i, x + i], [before, after], color=colour, lw=2.2, alpha=0.6, zorder=2)
        axes.plot(x + i, before, "o", ms=8, mfc="white", mec=colour, mew=1.8, zorder=3)
        axes.errorbar(x + i, after, yerr=_half_width(run), fmt="o", ms=9, color=colour, capsize=4, lw=1.4, zorder=4)
        axes.plot(x + i + 0.16, control, "x", ms=8, color=GREY, mew=2, zorder=3)
    after_mean = _mean(_value(run, "after") for run in group)
    gain = _mean(_value(run, "after") - _value(run, "before") for run in group)
    axes.hlines(after_mean, x - 0.4, x + len(group) - 0.6, color=colour, lw=1.4, ls="--", zorder=1)
    label = f"{method}\nmean {after_mean:.1%}\n{100 * gain:+.1f} points"
    axes.text(
        x + (len(group) - 1) / 2, 0.985, label, color=colour, ha="center", va="top", fontsize=11, weight="bold",
        transform=axes.get_xaxis_transform(), bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )  # fmt: skip


def _comparison_legend(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    marks = [
        Line2D([], [], ls="", marker="o", ms=8, mfc="white", mec="black", label="before training"),
        Line2D([], [], ls="", marker="o", ms=9, color="black", label="after training"),
        Line2D([], [], ls="--", color="black", lw=1.4, label="mean of the seeds, after"),
    ]
    if _finite(_value(run, "control") for run in runs):
        marks.append(Line2D([], [], ls="", marker="x", ms=8, mew=2, color=GREY, label="control"))
    axes.figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=10, frameon=False)


def _finish_axes(axes: Axes) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: str | Path) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(target, dpi=DPI, format="png")
    return target


def _value(result: Mapping[str, Any], path: str) -> float:
    value: Any = result
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, Mapping) else None
    number = as_number(value)
    return math.nan if number is None else number


def _bands(points: Sequence[CurvePoint]) -> list[float]:
    edges = [(p.sampled, p.sampled_ci95) for p in points] + [(p.greedy, p.greedy_ci95) for p in points]
    return [mean + sign * (half if math.isfinite(half) else 0.0) for mean, half in edges for sign in (-1, 1)]


def _interval(run: Mapping[str, Any]) -> tuple[float, float]:
    return _value(run, "after") - _half_width(run), _value(run, "after") + _half_width(run)


def _half_width(run: Mapping[str, Any]) -> float:
    half = _value(run, "ci95")
    return half if math.isfinite(half) else 0.0


def _fraction_limits(*values: Iterable[float]) -> tuple[float, float]:
    """Return y limits around the finite values, within -0.02..1.02 and never narrower than 0.1."""
    finite = _finite(v for group in values for v in group) or [0.0, 1.0]
    low, high = min(finite), max(finite)
    margin = max(0.05 * (high - low), (0.1 - (high - low)) / 2, 0.02)
    return max(-0.02, low - margin), min(1.02, high + margin)


def _finite(values: Iterable[float]) -> list[float]:
    return [v for v in values if math.isfinite(v)]


def _mean(values: Iterable[float]) -> float:
    finite = _finite(values)
    return fmean(finite) if finite else math.nan


def _sortable(seed: Any) -> tuple[bool, Any]:
    return (isinstance(seed, str), seed)
