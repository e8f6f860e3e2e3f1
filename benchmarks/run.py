"""The command `python -m benchmarks.run [NAME ...] [--rounds N] [--out DIR]`; the names are in `BENCHMARKS`."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tune_experiments.cli import EXIT_OK, guarded  # sets what Ray and the libraries read at their import

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's processes and the limit get the same priority.

BENCHMARKS = {
    "rollout": "response tokens per CPU second, against the bare engine",
    "update": "training tokens per second, against plain PyTorch",
    "diagnostics": "CPU seconds of the update with the tables of the diagnostics, against the same without",
    "memory": "memory of every process of a served run, against 8 GB",
    "iteration": "where the time of one iteration goes",
    "prefix_cache": "CPU seconds of the engine on growing conversations, with its prefix cache against without",
    "tracking": "seconds of MLflow and the other callbacks per iteration, against the iteration",
}
"""Each is a module of this package with ``run(rounds=, small=)``, which returns a result and its table."""
RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks, one after the other; a missed target is shown, it is not an error."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:12s} {what}" for name, what in BENCHMARKS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="\n".join(["Measure ratios against a limit of the same run; all by default.", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each benchmark (default 5)")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of the JSON files (default benchmarks/results)"
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    return parser


def _run(options: argparse.Namespace) -> int:
    from arlarena_rllib.errors import ConfigError, nearest
    from benchmarks.machine import machine_facts
    from benchmarks.report import publish

    for name in options.names:
        if name not in BENCHMARKS:
            raise ConfigError(
                f"{name!r} is not a benchmark.{nearest(name, BENCHMARKS)} Allowed: {', '.join(BENCHMARKS)}."
            )
    if options.rounds < 1:
        raise ConfigError(f"--rounds={options.rounds} must be at least 1")
    names = options.names or list(BENCHMARKS)
    if len(names) > 1:
        return _each_in_its_own_process(names, options)
    (name,) = names
    print(f"{name}: {BENCHMARKS[name]} ...", flush=True)
    facts = machine_facts()
    result, text = importlib.import_module(f"benchmarks.{name}").run(rounds=options.rounds, small=options.small)
    publish({**result, "is_small": options.small}, text, options.out, facts)
    return EXIT_OK


def _each_in_its_own_process(names: Sequence[str], options: argparse.Namespace) -> int:
    """Run the benchmarks one after the other, so that none finds what another has imported or left running."""
    codes = []
    for name in names:
        command = [sys.executable, "-m", "benchmarks.run", name, f"--rounds={options.rounds}", f"--out={options.out}"]
        codes.append(subprocess.run(command + ["--small"] * options.small, check=False).returncode)
    return next((code for code in codes if code != EXIT_OK), EXIT_OK)


if __name__ == "__main__":
    sys.exit(main())
