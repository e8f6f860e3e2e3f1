"""Every hostile program is contained, leaves its session sound, and runs only where the self-test has passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from env_connectors.tir_math.sandbox import Sandbox, Session, Status, probes
from env_connectors.tir_math.sandbox.probes import PROBES, Probe


@pytest.fixture(scope="module")
def shared(sandbox: Sandbox) -> Session:
    """One session for all probes: each must leave it as it was."""
    return sandbox.session()


@pytest.mark.parametrize("probe", PROBES, ids=[probe.name for probe in PROBES])
def test_hostile_program_is_contained_and_the_session_goes_on(shared: Session, probe: Probe) -> None:
    time_s = 0.5 if probe.status is Status.TIMEOUT and probe.name != "sleep" else None
    result, is_sound = probes.run(shared, probe, timeout_s=1.5 if probe.name == "sleep" else time_s)
    assert is_sound, (result.status, result.text[-2000:])


def test_there_are_as_many_probes_as_promised() -> None:
    assert len(PROBES) >= 50 and len({probe.name for probe in PROBES}) == len(PROBES)


def test_page_of_the_sandbox_shows_every_probe_and_nothing_that_is_no_probe() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "sandbox.md").read_text()
    table = text.split("## Hostile programs")[1].split("## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    shown = [(row[0].removeprefix("| "), row[1], row[2]) for row in rows]
    assert shown == [(probe.name, probe.contained_by, str(probe.status)) for probe in PROBES]


def test_example_of_the_page_runs(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "sandbox.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], {})
    said = capsys.readouterr().out
    assert said.startswith("ok [-sqrt(2), sqrt(2)]\n") and "ZeroDivisionError" in said


def test_probe_outside_a_proven_sandbox_is_not_run() -> None:
    class Unproven:
        sandbox = Sandbox()  # never started: its report is empty

        def run(self, *_: object, **__: object) -> None:
            raise AssertionError("a hostile program was run")

    with pytest.raises(RuntimeError, match="self-test has passed"):
        probes.run(Unproven(), PROBES[0])  # type: ignore[arg-type]


def test_other_sessions_see_nothing_of_a_hostile_one(sandbox: Sandbox) -> None:
    fill = next(probe for probe in PROBES if probe.name.startswith("symlinks"))
    with sandbox.session() as hostile, sandbox.session() as honest:
        probes.run(hostile, fill)
        assert honest.run("import os, numpy; print(os.listdir('/tmp'), numpy.ones(2))").stdout == "[] [1. 1.]\n"
