"""`python -m env_connectors.tir_math.sandbox`: is this machine's sandbox sound, and how fast is it?

Prints what the self-test tried, the table of hostile programs, and the latency of calls. Exit status 1 if anything was not
contained, 2 if there is no sandbox here.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from env_connectors.errors import EnvConnectorError
from env_connectors.tir_math.sandbox import probes, timing
from env_connectors.tir_math.sandbox.limits import Limits
from env_connectors.tir_math.sandbox.result import RunResult, Status
from env_connectors.tir_math.sandbox.sandbox import Sandbox

_PROBE_LIMITS = Limits(timeout_s=20.0, memory_mb=128)
_SHORT_S = 1.0  # for programs that would never end


def _seen(result: RunResult) -> str:
    """Return the last line of what the model sees, short and printable."""
    lines = [line for line in result.text.splitlines() if line.strip()] or ["(nothing)"]
    line = lines[-1] if len(lines[-1]) <= 110 else lines[-1][:50] + " ... " + lines[-1][-55:]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line).replace("|", "\\|")


def _selftest(sandbox: Sandbox) -> bool:
    print("| tried at the start | contained | by |\n|---|---|---|")
    for finding in sandbox.report:
        print(f"| {finding.name} | {'yes' if finding.is_contained else 'NO'} | {finding.seen} |")
    return all(finding.is_contained for finding in sandbox.report)


def _probes() -> bool:
    print("\n| hostile program | contained by | status | the last line that the model sees |\n|---|---|---|---|")
    failed = 0
    with Sandbox(_PROBE_LIMITS) as sandbox:
        session = sandbox.session()
        for probe in probes.PROBES:
            time_s = _SHORT_S if probe.status is Status.TIMEOUT else None
            result, is_sound = probes.run(session, probe, timeout_s=time_s)
            by = probe.contained_by if is_sound else "NOT CONTAINED"
            print(f"| {probe.name} | {by} | {result.status} | {_seen(result)} |", flush=True)
            if not is_sound:
                failed += 1
                session.close()
                session = sandbox.session()
    print(
        f"\n{len(probes.PROBES) - failed} of {len(probes.PROBES)} contained, each with an honest call before and after."
    )
    return failed == 0


def _timing(sandbox: Sandbox, calls: int) -> None:
    load = os.getloadavg()[0]
    print(f"\n{os.cpu_count()} cores, load {load:.1f}\n")
    print("| program | sessions | calls | calls/s | best ms | p50 ms | p95 ms | CPU ms of a call |")
    print("|---" * 8 + "|")
    for sessions in (0, 1, 16):
        for program in timing.PROGRAMS:
            if sessions:
                row = timing.measure(sandbox, program, sessions, max(2, calls // sessions))
            else:
                row = timing.measure_plain(program, max(2, calls // 16))
            times = f"{row.best_ms:.1f} | {row.p50_ms:.1f} | {row.p95_ms:.1f} | {row.cpu_ms:.1f}"
            print(f"| {row.program} | {row.sessions} | {row.calls} | {row.calls_per_s:.0f} | {times} |", flush=True)
    opened = []
    for _ in range(10):
        began = time.perf_counter()
        with sandbox.session():
            opened.append(1e3 * (time.perf_counter() - began))
    print(f"\nopening a session: {sorted(opened)[len(opened) // 2]:.0f} ms")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m env_connectors.tir_math.sandbox", description=__doc__)
    parser.add_argument("--no-probes", action="store_true", help="leave the hostile programs out")
    parser.add_argument("--calls", type=int, default=160, help="calls to time for each row; 0 leaves the timing out")
    arguments = parser.parse_args()
    began = time.perf_counter()
    try:
        with Sandbox() as sandbox:
            print(f"started and proved in {time.perf_counter() - began:.1f} s; {sandbox.versions}\n")
            is_sound = _selftest(sandbox)
            if not arguments.no_probes:
                is_sound = _probes() and is_sound
            if arguments.calls:
                _timing(sandbox, arguments.calls)
    except EnvConnectorError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
