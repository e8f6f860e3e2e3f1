"""ProgressDisplay: where a run is and how fast, as a live display on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from ray.tune import Callback
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tune_experiments.trial_errors import error_summary

ETA_WINDOW = 5
PLAIN_STEP_SHARE, PLAIN_STEP_S = 0.1, 30.0
REFRESH_PER_SECOND = 2.0
_active: ProgressDisplay | None = None
_TIMERS = (("rollout", "rollout_s"), ("update", "update_s"), ("sync", "weight_sync_s"))


@dataclass
class _Trial:
    """What the display remembers of one trial."""

    iteration: int = 0
    parts: tuple[str, str, str] = ("", "", "")
    evaluation: str = ""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=ETA_WINDOW))


@dataclass
class _Phase:
    """The current phase and how far it is; ``printed`` is the last step that became a plain line."""

    name: str = "start"
    total: int | None = None
    step: int = 0
    values: str = ""
    began: float = 0.0
    printed: int = 0
    printed_at: float = 0.0


class ProgressDisplay(Callback):
    """Shows phases and iterations; a context manager, and a Tune callback inside or outside of it.

    .. code-block:: python

        with ProgressDisplay(total_iterations=60) as progress:
            progress.phase("cloning", total=300)
            progress.advance(10, loss=1.2)
            Tuner(..., run_config=RunConfig(callbacks=[progress], verbose=0)).fit()

    Without a terminal there is one flushed line per iteration and per phase, without control characters. A missing or
    NaN metric is left out of the line. The live display is not part of the pickled state.

    Args:
        total_iterations: iterations per trial, for the bar and the time left; None when unknown.
        stream: where to write; standard output by default, always so after unpickling.
        live: force the live display on or off; by default it is on when ``stream`` is a terminal.
        clock: seconds, for elapsed times.
    """

    def __init__(
        self,
        total_iterations: int | None = None,
        *,
        stream: TextIO | None = None,
        live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_iterations = total_iterations
        self._stream, self._wants_live, self._clock = stream, live, clock
        self._phase = _Phase(began=clock())
        self._trials: dict[str, _Trial] = {}
        self._shows_trial_ids = False
        self._live: Live | None = None
        self._owns_live = False  # started by Tune's setup, not by a driver's ``with``

    # --- life cycle ----------------------------------------------------------------------------------------------

    def __enter__(self) -> ProgressDisplay:
        global _active
        self._start()
        _active = self
        return self

    def __exit__(self, *_: object) -> None:
        global _active
        _active = None
        self._stop()

    def _shown(self) -> ProgressDisplay:
        """Return the display that is open in this process: after a restore Tune has a copy of it as its callback."""
        return _active or self

    def _start(self) -> None:
        if self._live is None and self._is_live():
            console = Console(file=self._out, force_terminal=True)
            self._live = Live(
                console=console, get_renderable=self._render, refresh_per_second=REFRESH_PER_SECOND, transient=False
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def _out(self) -> TextIO:
        return sys.stdout if self._stream is None else self._stream

    def _is_live(self) -> bool:
        if self._wants_live is not None:
            return self._wants_live
        return self._out.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None, "_stream": None}

    # --- what a driver says --------------------------------------------------------------------------------------

    def phase(self, name: str, total: int | None = None, *, unit: str = "steps") -> None:
        """Begin a phase, of ``total`` steps (or another unit) if that is known."""
        now = self._clock()
        before, self._phase = self._phase, _Phase(name, total, began=now, printed_at=now)
        steps = f" ({total} {unit})" if total else ""
        has_news = before.name != "start" and now - before.began >= 1
        after = f" | {before.name} took {_duration(now - before.began)}" if has_news else ""
        self._line(f"phase: {name}{steps}{after}")

    def advance(self, step: int, **values: Any) -> None:
        """Say that the phase has done ``step`` steps; plain output shows every tenth of it and the last step."""
        phase, now = self._phase, self._clock()
        phase.step = step
        phase.values = " ".join(f"{key}={_short(value)}" for key, value in values.items())
        is_last = phase.total is not None and step >= phase.total
        is_far = phase.total is not None and step - phase.printed >= max(1.0, PLAIN_STEP_SHARE * phase.total)
        if (is_last and phase.printed < step) or is_far or now - phase.printed_at >= PLAIN_STEP_S:
            phase.printed, phase.printed_at = step, now
            self._line(" | ".join(filter(None, (f"{phase.name} {_of(step, phase.total)}", phase.values))))

    def report(self, result: Mapping[str, Any], trial_id: str = "") -> None:
        """Show one iteration's result dict."""
        trial = self._trials.setdefault(trial_id, _Trial())
        trial.iteration = int(_number(result, "training_iteration") or trial.iteration + 1)
        seconds = _number(result, "time_this_iter_s")
        if seconds is not None:
            trial.seconds.append(seconds)
        trial.parts = _parts(result)
        trial.evaluation = _evaluation(result, "evaluation") or trial.evaluation
        fresh = [_evaluation(result, "evaluation_before", "before"), _evaluation(result, "evaluation", "eval")]
        left = self._seconds_left(trial)
        eta = [] if left is None else [f"eta {_duration(left)}"]
        head = f"iteration {_of(trial.iteration, self.total_iterations)}"
        self._line(
            self._prefix(trial_id) + " | ".join(filter(None, [head, *trial.parts[:1], *fresh, *trial.parts[1:], *eta]))
        )
        for notice in result.get("notices", ()):
            self.message(f"{self._prefix(trial_id)}warning: {notice}")

    def message(self, text: str) -> None:
        """Show a line of text; it stays above a live display."""
        if self._live is not None:
            self._live.console.print(Text(text))
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        if self._live is not None:
            self._live.refresh()
        elif not self._is_live():
            print(text, file=self._out, flush=True)

    def _prefix(self, trial_id: str) -> str:
        return f"[{trial_id}] " if trial_id and self._shows_trial_ids else ""

    def _seconds_left(self, trial: _Trial) -> float | None:
        if self.total_iterations is None or not trial.seconds or trial.iteration >= self.total_iterations:
            return None
        return (self.total_iterations - trial.iteration) * sum(trial.seconds) / len(trial.seconds)

    # --- the live picture ----------------------------------------------------------------------------------------

    def _render(self) -> Group:
        phase = self._phase
        elapsed = _duration(self._clock() - phase.began)
        head = Text.assemble(("phase ", "dim"), (phase.name, "bold cyan"), f"  {elapsed}")
        rows: list[Any] = [head]
        if phase.total or phase.step:
            rows.append(_bar_row(phase.name, phase.step, phase.total, phase.values))
        for trial_id, trial in self._trials.items():
            left = self._seconds_left(trial)
            eta = "" if left is None else f"eta {_duration(left)}"
            label = self._prefix(trial_id) + "iteration"
            rows.append(_bar_row(label, trial.iteration, self.total_iterations, eta))
            success, speed, times = trial.parts
            shown = [success, trial.evaluation and f"eval {trial.evaluation}", speed]
            rows += [Text("  " + " | ".join(filter(None, shown))), Text(f"  {times}")]
        return Group(*rows)

    # --- Tune ----------------------------------------------------------------------------------------------------

    def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None, **info: Any) -> None:
        """Start the display if nobody did; the trial's engine comes up next."""
        display = self._shown()
        display._shows_trial_ids = (total_num_samples or 1) != 1
        display._owns_live = display._live is None
        display._start()
        display.phase("start engine")

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """The trial is set up; it trains now."""
        display = self._shown()
        if display._phase.name != "training":
            display.phase("training")

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
        """Show one iteration."""
        display = self._shown()
        display.report(result, str(trial) if display._shows_trial_ids else trial.trial_id)

    def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Of several trials only those that run are shown."""
        display = self._shown()
        if display._shows_trial_ids:
            display._trials.pop(str(trial), None)

    def on_trial_recover(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Say that a trial failed and starts again."""
        self._shown().message(f"trial {trial} failed, it starts again from its last checkpoint: {error_summary(trial)}")

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Say that a trial failed."""
        self._shown().message(f"trial {trial} failed: {error_summary(trial)}")

    def on_experiment_end(self, trials: list, **info: Any) -> None:
        """Stop the live display, unless a driver's ``with`` block goes on with it."""
        display = self._shown()
        if display._owns_live:
            display._stop()


def _bar_row(label: str, step: int, total: int | None, text: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=total or None, completed=min(step, total or step), width=40, pulse=not total)
    grid.add_row(Text(label), bar, Text(_of(step, total)), Text(text, style="dim"))
    return grid


def _parts(result: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return success, speed and times of an iteration as text, each ``""`` when its metrics are missing."""
    success = _number(result, "env_runners/success_rate")
    tokens, rollout_s = _number(result, "env_runners/num_response_tokens"), _number(result, "timers/rollout_s")
    seconds = _number(result, "time_this_iter_s")
    evaluation = (
        (("eval", "evaluation_s"),) if _evaluation(result, "evaluation") else ()
    )  # else the timer is an old one
    timers = [(name, _number(result, f"timers/{key}")) for name, key in (*_TIMERS, *evaluation)]
    split = [f"{name} {value:.1f}" for name, value in timers if value is not None]
    times = " ".join(
        filter(None, ["" if seconds is None else f"{seconds:.1f} s", f"({', '.join(split)})" if split else ""])
    )
    return (
        "" if success is None else f"success {success:.1%}",
        f"{tokens / rollout_s:.0f} tok/s" if tokens is not None and rollout_s else "",
        times,
    )


def _evaluation(result: Mapping[str, Any], key: str, label: str = "") -> str:
    values = [(name, _number(result, f"{key}/env_runners/{name}")) for name in ("sampled", "greedy")]
    shown = [f"{name} {value:.1%}" for name, value in values if value is not None]
    return " ".join(filter(None, [label, *shown])) if shown else ""


def _number(result: Mapping[str, Any], path: str) -> float | None:
    """Return the finite number at ``path``, None when there is none."""
    value: Any = result
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, Mapping) else None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _of(step: int, total: int | None) -> str:
    return f"{step}/{total}" if total else str(step)


def _short(value: Any) -> str:
    number = _number({"value": value}, "value")
    return str(value) if number is None or isinstance(value, str) else f"{number:.4g}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"
