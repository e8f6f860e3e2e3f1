"""A method from outside the package is a registered function and a row of the table, in at most 20 lines."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest
from learner_cases import largest_difference, train_steps

from arlarena_rllib.errors import ConfigError
from arlarena_rllib.objectives import AXES
from arlarena_rllib.presets import METHODS

SOURCE = Path(__file__).with_name("method_of_ones_own.py")
MAX_LINES = 20


@pytest.fixture
def fade(monkeypatch: pytest.MonkeyPatch) -> str:
    """Register the method for one test, and return its name."""
    monkeypatch.setattr(AXES["clipping"], "_choices", dict(AXES["clipping"]._choices))
    # Set first, so that the end of the test takes it out again.
    monkeypatch.setitem(METHODS, "fade", METHODS["grpo"])
    runpy.run_path(str(SOURCE))
    return "fade"


def test_method_of_ones_own_takes_at_most_twenty_lines() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_method_of_ones_own_trains_real_steps_and_reads_its_parameter(tiny_model_dir: Path, fade: str) -> None:
    before, _ = train_steps(tiny_model_dir, method=fade, updates=0)
    after, (metrics,) = train_steps(tiny_model_dir, method=fade)
    assert largest_difference(before, after) > 1e-5
    assert {name: value for name, value in metrics.items() if not math.isfinite(value)} == {}
    other, _ = train_steps(tiny_model_dir, method=fade, clip_high=1e-3)
    assert largest_difference(after, other) > 1e-5


def test_method_of_ones_own_with_endless_reach_is_the_method_without_a_bound(tiny_model_dir: Path, fade: str) -> None:
    wide, _ = train_steps(tiny_model_dir, method=fade, clip_high=1e9, num_epochs=2)
    loop, _ = train_steps(tiny_model_dir, method="grpo", clip_low=1.0, clip_high=1e9, kl_coef=0.0, num_epochs=2)
    assert largest_difference(wide, loop) <= 1e-5


def test_method_of_ones_own_refuses_what_it_does_not_read_and_is_refused_when_unknown(
    tiny_model_dir: Path, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(ConfigError, match=r"training\.method='fade' is not known"):
        train_steps(tiny_model_dir, method="fade")
    request.getfixturevalue("fade")
    with pytest.raises(ConfigError, match=r"tau_pos=2\.0 is set, but nothing reads it.*clipping='fade'"):
        train_steps(tiny_model_dir, method="fade", tau_pos=2.0)
