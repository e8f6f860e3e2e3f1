"""Every hostile program is contained, leaves its session sound, and runs only where the self-test has passed."""

from __future__ import annotations

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
