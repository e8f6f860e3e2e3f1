"""Writes the 'results to expect': methods x seeds of a configuration, tabled by this command and never by hand.

`python -m tune_experiments.record [--config quickstart] [--methods sampo,grpo] [--seeds 0,1,2] [--without-control]
[section.key=value ...]` runs what is missing below `runs/record/CONFIG/` and writes `docs/results/NAME.json`, `.md`,
`.png` and `NAME_curve.png`, where NAME is CONFIG without `_cpu`; for the quick start, the picture and the results in
README.md too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arlarena_rllib.evaluation import paired_difference
from tune_experiments.cli import EXIT_INTERRUPTED, EXIT_OK, guarded
from tune_experiments.quickstart import REPORTS
from tune_experiments.run_config import load_run_config, shipped_config

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
STORAGE = Path("runs/record")
RECORD = "python -m tune_experiments.record"
QUICKSTART = "quickstart"
README = DOCS.parents[1] / "README.md"
README_MARKS = "<!-- results, written by `make record` -->", "<!-- end of results -->"


def record(
    config: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    out: Path,
    *,
    with_control: bool = True,
) -> bool:
    """Run every method and seed that has no summary yet, then write tables and pictures; False when stopped early.

    The methods of one seed share start and control, which depend on the seed alone: the first method makes them. The
    other methods run for as many iterations as make up the first one's episodes, which its filter decides.
    """
    summaries = []
    for seed in seeds:
        first = STORAGE / config / f"{methods[0]}_seed{seed}"
        for method in methods:
            folder = first.with_name(f"{method}_seed{seed}")
            is_done = (folder / "summary.json").is_file()
            if not is_done and not _run(config, method, seed, folder, first, overrides, with_control):
                return False
            summaries.append(_with_control(folder, first) | {"by_task_type": _by_task_type(folder)})
    write_results(config, summaries, out, overrides)
    curve = "learning_curve.png" if config == QUICKSTART else f"{page_name(config)}_curve.png"
    shutil.copyfile(STORAGE / config / f"{methods[0]}_seed{seeds[0]}" / "learning_curve.png", out / curve)
    if out == DOCS and config == QUICKSTART:
        README.write_text(with_results(README.read_text(), summaries))
    return True


def _run(
    config: str, method: str, seed: int, folder: Path, first: Path, overrides: Sequence[str], with_control: bool
) -> bool:
    from tune_experiments.quickstart import quickstart

    given = [
        f"training.method={method}",
        f"debugging.seed={seed}",
        f"run.name={folder.name}",
        f"run.storage_path={folder.parent}",
        *overrides,
    ]
    if folder != first:
        iterations = iterations_of_equal_episodes(config, json.loads((first / "summary.json").read_text()), given)
        given += [
            f"model.path={first / 'start'}",
            "warm_start.source=none",
            f"run.iterations={iterations}",
            f"training.lr_decay_iterations={iterations}",
        ]
    return quickstart(config, given, with_control=with_control and folder == first) is not None


def iterations_of_equal_episodes(config: str, summary: dict[str, Any], overrides: Sequence[str]) -> int:
    """Return how many unfiltered iterations of ``config`` with ``overrides`` play ``summary``'s episodes."""
    settings = load_run_config(shipped_config(config), overrides).algorithm("")
    return max(1, round(summary["episodes"] / (settings.groups_per_iteration * settings.group_size)))


def _with_control(folder: Path, first: Path) -> dict[str, Any]:
    """Return the summary of ``folder``, with the control of ``first`` (if that has one) when it has none of its own."""
    summary = json.loads((folder / "summary.json").read_text())
    of_first = json.loads((first / "summary.json").read_text())
    if "control" not in summary and "control" in of_first:
        summary["control"] = of_first["control"]
        after = json.loads((folder / REPORTS).read_text())["after"]["task_sampled"]
        control = json.loads((first / REPORTS).read_text())["control"]["task_sampled"]
        summary["differences"]["after - control"] = paired_difference(after, control)
    return summary


def _by_task_type(folder: Path) -> dict[str, dict[str, float]]:
    """Return sampled success by type of task, before and after; {} where all tasks are of one type."""
    reports = json.loads((folder / REPORTS).read_text())
    ending = "_sampled"
    found = {key: reports[key].get("by_task_type", {}) for key in ("before", "after")}
    names = [name for name in found["before"] if name.endswith(ending) and name in found["after"]]
    return {
        name.removeprefix("task_type_").removesuffix(ending).replace("_", " "): {k: found[k][name] for k in found}
        for name in names
    }


def write_results(config: str, summaries: Sequence[dict[str, Any]], out: Path, overrides: Sequence[str]) -> None:
    """Write the results of ``config`` to ``out``: its page's name with ``.json``, ``.md`` and ``.png``."""
    from tune_experiments.plots import comparison_plot

    name = page_name(config)

    out.mkdir(parents=True, exist_ok=True)
    machine = machine_class()
    runs = [
        {key: value for key, value in s.items() if not key.startswith("mlflow_")} for s in summaries
    ]  # of this machine
    document = {"machine": machine, "overrides": list(overrides), "runs": runs}
    (out / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    (out / f"{name}.md").write_text(table(config, summaries, machine))
    rows = [
        {
            "method": s["method"],
            "seed": s["seed"],
            "before": s["before"]["sampled"],
            "after": s["after"]["sampled"],
            "control": s["control"]["sampled"] if "control" in s else None,
            "ci95": s["after"]["ci95"],
        }
        for s in summaries
    ]
    comparison_plot(out / f"{name}.png", rows, title="Held-out success (sampled), before and after RL")


def page_name(config: str) -> str:
    """Return the name of the files with the results of ``config``."""
    return config.removesuffix("_cpu")


def table(config: str, summaries: Sequence[dict[str, Any]], machine: str) -> str:
    """Return the Markdown page: one row per run, means over seeds, and what the environment counts of an episode."""
    first = summaries[0]
    title, command = ("Quick start", "make record") if config == QUICKSTART else (config, _command(config, summaries))
    others = {"before": "cloning", **({"control": "more cloning"} if all("control" in s for s in summaries) else {})}
    lines = [
        f"# {title}: results to expect",
        "",
        f"Written by `{command}` on {machine}; engine {first['engine']}, panel `{first['panel_hash']}`, "
        f"{first['before']['n']} held-out test tasks x {first['before']['draws']} draws, commit "
        f"`{(first['commit'] or 'unknown')[:12]}`.",
        "Success: sampled at temperature 1 (greedy in brackets). Differences are paired by task, with their standard "
        f"error in brackets. {_about_control(first) if 'control' in others else ''}The start of a seed is one for all "
        "methods; each run samples its success anew.",
        "",
        *_head(
            ["method", "seed", "after cloning", "after RL", *list(others.values())[1:]]
            + [f"RL - {name}" for name in others.values()]
            + ["episodes", "format valid", "CPU seconds of RL"]
        ),
    ]
    for s in summaries:
        cells = [s["method"], str(s["seed"]), _pair(s["before"]), _pair(s["after"])]
        cells += [_pair(s[key]) for key in others if key != "before"]
        cells += [_gain(s["differences"][f"after - {key}"]) for key in others]
        cells += [str(s["episodes"]), f"{s['format_valid']:.3f}", f"{s['training_cpu_seconds']:.0f}"]
        lines.append(_row(cells))
    columns = [column for name in others.values() for column in (f"RL - {name}, mean", "above 2 standard errors")]
    lines += ["", *_head(["method", "seeds", *columns])]
    for method in dict.fromkeys(s["method"] for s in summaries):
        found = [s["differences"] for s in summaries if s["method"] == method]
        means = [_over_seeds([f[f"after - {other}"] for f in found]) for other in others]
        lines.append(_row([method, str(len(found)), *means]))
    lines += _type_table(summaries)
    lines += _env_table(summaries)
    lines += ["", f"![held-out success]({page_name(config)}.png)", ""]
    if config != QUICKSTART:
        learner = f"{first['method'].upper()}, seed {first['seed']}"
        lines += [f"![learning curve of {learner}, on the validation panel]({page_name(config)}_curve.png)", ""]
    return "\n".join(lines)


def _command(config: str, summaries: Sequence[dict[str, Any]]) -> str:
    """Return the command that records these runs."""
    methods, seeds = (",".join(dict.fromkeys(str(s[key]) for s in summaries)) for key in ("method", "seed"))
    without = "" if all("control" in s for s in summaries) else " --without-control"
    return f"{RECORD} --config {config} --methods {methods} --seeds {seeds}{without}"


def _about_control(first: dict[str, Any]) -> str:
    return (
        f"More cloning: the CPU time that {first['method']} trained for with the same seed, spent on the same "
        "demonstrations. "
    )


def _head(cells: Sequence[str]) -> list[str]:
    """Return the two lines that a Markdown table begins with."""
    return [_row(cells), "|" + "---|" * len(cells)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _type_table(summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of success by type of task; [] when there is one type only."""
    rows: dict[
        tuple[str, ...], str
    ] = {}  # a type that is all of another one (the only kind of a level) is not repeated
    for name in summaries[0].get("by_task_type", {}):
        values = [s["by_task_type"][name] for s in summaries]
        rows.setdefault(tuple(f"{v['before']:.3f} -> {v['after']:.3f}" for v in values), name)
    if not rows:
        return []
    head = _head(["", *(f"{s['method']}, seed {s['seed']}" for s in summaries)])
    about = "By type of task, sampled, after cloning -> after RL:"
    return ["", about, "", *head, *(_row([name, *cells]) for cells, name in rows.items())]


def _env_table(summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of the environment's own means, before and after RL; [] when it counts nothing."""
    names = sorted({name for s in summaries for name in s["before"].get("env_metrics", {})})
    if not names:
        return []
    lines = [
        "",
        "What the environment counts of the sampled episodes, mean per episode after cloning -> after RL; then the difference, "
        "paired by task (tasks that have the number both times), with its standard error in brackets.",
        "",
        *_head(["", *(f"{s['method']}, seed {s['seed']}" for s in summaries)]),
    ]
    for name in names:
        label = name.removeprefix("env_").removesuffix("_mean").replace("_", " ")
        lines.append(_row([label, *(_env_cell(s, name) for s in summaries)]))
    return lines


def _env_cell(summary: dict[str, Any], name: str) -> str:
    """Return one number of the environment before and after, with the paired difference where the summary has it."""
    before, after = (summary[key]["env_metrics"].get(name, math.nan) for key in ("before", "after"))
    found = summary.get("env_differences", {}).get(name)
    return f"{before:.3f} -> {after:.3f}" + ("" if found is None else f", {_gain(found)}")


def with_results(page: str, summaries: Sequence[dict[str, Any]]) -> str:
    """Return ``page`` with the table between the marks of the README written anew: means over the seeds."""
    first = summaries[0]
    lines = [
        "",
        f"Held-out success on {first['before']['n']} test boards, sampled at temperature 1 (greedy in brackets); means over "
        f"seeds, commit {(first['commit'] or 'unknown')[:7]}, all runs in",
        "[the table of results](docs/results/quickstart.md):",
        "",
        f"| method | seeds | after cloning | after RL | more cloning, CPU time of {first['method']} | episodes |",
        "|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(s["method"] for s in summaries):
        runs = [s for s in summaries if s["method"] == method]
        cells = [_pair(_mean_panel([s[key] for s in runs])) for key in ("before", "after", "control")]
        episodes = round(sum(s["episodes"] for s in runs) / len(runs))
        lines.append(f"| {method} | {len(runs)} | {' | '.join(cells)} | {episodes} |")
    head, rest = page.split(README_MARKS[0])
    tail = rest.split(README_MARKS[1])[1]
    return "".join([head, README_MARKS[0], "\n".join([*lines, "", ""]), README_MARKS[1], tail])


def _mean_panel(panels: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {key: sum(p[key] for p in panels) / len(panels) for key in ("sampled", "greedy")}


def _over_seeds(differences: Sequence[dict[str, float]]) -> str:
    """Return the mean difference and how many of the seeds hold by themselves, as two cells."""
    mean = sum(d["difference"] for d in differences) / len(differences)
    return f"{mean:+.3f} | {sum(d['z'] > 2 for d in differences)} of {len(differences)}"


def _pair(panel: dict[str, Any]) -> str:
    return f"{panel['sampled']:.3f} ({panel['greedy']:.3f})"


def _gain(found: dict[str, float]) -> str:
    return f"{found['difference']:+.3f} ({found['standard_error']:.3f})"


def machine_class() -> str:
    """Return what kind of machine this is, without its name."""
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), Python {platform.python_version()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and record."""
    parser = argparse.ArgumentParser(prog=RECORD, description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    parser.add_argument("--config", default=QUICKSTART, help="name of a shipped configuration whose start is cloned")
    parser.add_argument("--methods", default="sampo,grpo")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--without-control", action="store_true", help="leave the equal-cost control out")
    options = parser.parse_args(arguments)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    methods, with_control = options.methods.split(","), not options.without_control
    done = record(options.config, methods, seeds, options.overrides, options.out, with_control=with_control)
    return EXIT_OK if done else EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(guarded(main))
