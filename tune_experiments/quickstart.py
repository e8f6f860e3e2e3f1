"""The quick start: cloning, RL, the equal-cost control, and one page that says what came of it.

`python -m tune_experiments.quickstart [section.key=value ...]` writes `runs/quickstart/summary.json` and
`learning_curve.png`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tune_experiments.cli import EXIT_INTERRUPTED, EXIT_OK, guarded

REPORTS = "reports.json"
"""Per-task results of every model of a run, beside its summary."""


def quickstart(config: str, overrides: Sequence[str], *, with_control: bool = True) -> dict[str, Any] | None:
    """Run ``config`` with ``overrides`` and return the summary; None when it was stopped early."""
    from arlarena_rllib.evaluation import paired_difference
    from tune_experiments.control import more_cloning
    from tune_experiments.plots import learning_curve
    from tune_experiments.progress import ProgressDisplay
    from tune_experiments.run_config import load_run_config, shipped_config
    from tune_experiments.train import opened, report_panels, train_in

    began = time.perf_counter()
    run = load_run_config(shipped_config(config), overrides)
    with ProgressDisplay(run.run.iterations) as progress, opened(run, progress=progress) as folder:
        outcome = train_in(folder, run, progress=progress, report=False)
        if outcome.interrupted:
            return None
        models = {"before": outcome.start.path, "after": outcome.final}
        if with_control:
            progress.phase("control: the same CPU time of more cloning", total=100, unit="%")
            models["control"] = more_cloning(
                run,
                outcome.start.path,
                outcome.folder,
                outcome.training_cpu_seconds,
                lambda step, done, loss: progress.advance(min(100, int(100 * done)), loss=loss),
            )
        reports = report_panels(run, models, progress)
    (outcome.folder / REPORTS).write_text(json.dumps({name: asdict(report) for name, report in reports.items()}))
    spec = run.algorithm(outcome.start.path)
    summary: dict[str, Any] = {name: _panel_summary(report) for name, report in reports.items()}
    summary["differences"] = {
        f"after - {name}": paired_difference(reports["after"].task_sampled, reports[name].task_sampled)
        for name in models
        if name != "after"
    }
    summary["env_differences"] = {
        name: paired_difference(values, reports["before"].task_env_metrics[name])
        for name, values in reports["after"].task_env_metrics.items()
        if name in reports["before"].task_env_metrics
    }
    last = outcome.results[-1]
    summary.update(
        method=spec.method,
        seed=run.seed,
        format_valid=reports["after"].format_valid,
        iterations=len(outcome.results),
        episodes=int(last["env_runners"]["num_episodes_lifetime"]),
        seconds=time.perf_counter() - began,
        training_cpu_seconds=outcome.training_cpu_seconds,
        cloning_cpu_seconds=outcome.start.cloning.cpu_seconds if outcome.start.cloning else None,
        mlflow_run_id=outcome.mlflow_run_id,
        mlflow_tracking_uri=outcome.tracker.tracking_uri,
        panel_hash=outcome.panel_hash,
        engine=spec.engine,
        commit=git_commit(),
    )
    path = outcome.folder / "summary.json"
    path.write_text(json.dumps(summary, indent=1))
    curve = learning_curve(
        outcome.folder / "learning_curve.png",
        outcome.results,
        method=spec.method,
        panel_hash=outcome.panel_hash,
    )
    for artifact in (path, curve):
        outcome.tracker.log_artifact(artifact, trial_id=outcome.trial_id)
    outcome.tracker.finish("FINISHED")
    print(page(summary, outcome.folder))
    return summary


def _panel_summary(report: Any) -> dict[str, Any]:
    return {
        "greedy": report.greedy,
        "sampled": report.sampled,
        "n": report.n,
        "ci95": report.ci95,
        "greedy_ci95": report.greedy_ci95,
        "draws": report.draws,
        "format_valid": report.format_valid,
        "turns": report.turns,
        "score": report.score,
        "failed": report.failed,
        "env_metrics": report.env_metrics,
    }


def page(summary: dict[str, Any], folder: Path) -> str:
    """Return what a person reads at the end: the result, whether it holds, and where to look next."""
    lines = [
        f"\nheld-out success, +- half of a 95 % interval ({summary['before']['n']} test tasks, panel {summary['panel_hash']})"
    ]
    names = {
        "before": "after cloning",
        "after": f"after {summary['method'].upper()}",
        "control": "more cloning instead",
    }
    for key, name in names.items():
        if key in summary:
            panel = summary[key]
            lines.append(
                f"  {name:22s} sampled {panel['sampled']:.3f} +- {panel['ci95']:.3f}   greedy {panel['greedy']:.3f}"
            )
    for name, found in summary["differences"].items():
        verdict = "holds" if found["z"] > 2 else "does NOT hold"
        lines.append(
            f"  {name:22s} {found['difference']:+.3f}, paired standard error {found['standard_error']:.3f}: {verdict}"
        )
    lines += [
        f"{summary['iterations']} iterations, {summary['episodes']} episodes, {summary['seconds'] / 60:.1f} minutes",
        f"\ncurve:   {folder / 'learning_curve.png'}",
        f"signals: {folder / 'collapse.png'}",
        f"summary: {folder / 'summary.json'}",
        f"MLflow:  mlflow ui --backend-store-uri {summary['mlflow_tracking_uri']}",
        f"next:    arlarena train quickstart training.method=grpo run.name=grpo   (another method, same panel)\n"
        f"         arlarena evaluate quickstart {folder / 'final'}   (the trained policy again)",
    ]
    return "\n".join(lines)


def git_commit() -> str | None:
    """Return the commit of the checkout that this file is in, with ``+`` when it has changes; None outside of one."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "-C", str(here), "status", "--porcelain"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if dirty else "")


def _main() -> int:
    return EXIT_INTERRUPTED if quickstart("quickstart", sys.argv[1:]) is None else EXIT_OK


if __name__ == "__main__":
    sys.exit(guarded(_main))
