"""The command that tells whether this machine's sandbox is sound."""

from __future__ import annotations

import sys

import pytest

from env_connectors.tir_math.sandbox import Sandbox, Status, __main__, probes, timing
from env_connectors.tir_math.sandbox.probes import Probe


def _run(monkeypatch: pytest.MonkeyPatch, rows: tuple[Probe, ...], *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sandbox", *arguments])
    monkeypatch.setattr(probes, "PROBES", rows)
    return __main__.main()


def test_command_prints_the_three_tables(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "PROGRAMS", {"stdlib": timing.PROGRAMS["stdlib"]})
    assert _run(monkeypatch, probes.PROBES[:2], "--calls", "32") == 0
    said = capsys.readouterr().out
    assert "2 of 2 contained" in said and said.count("| yes |") == len(sandbox.report)
    assert all(f"| stdlib | {row} |" in said for row in ("new interpreters | 2", "1 | 32", "16 | 32"))


def test_command_fails_when_a_program_is_not_contained(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free = Probe("free", "print('REACHED')", "nothing", Status.OK)
    assert _run(monkeypatch, (free,), "--calls", "0") == 1
    assert "| free | NOT CONTAINED | ok |" in capsys.readouterr().out


def test_command_without_a_sandbox_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ARLARENA_BWRAP", "/no/such/bwrap")
    assert _run(monkeypatch, ()) == 2
    assert "SandboxUnavailableError" in capsys.readouterr().err
