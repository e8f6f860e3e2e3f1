"""The table of all methods on one batch: what must be equal is equal, what must be counted is counted."""

from __future__ import annotations

import math
import time
from dataclasses import astuple, replace

import pytest
import torch

from arlarena_rllib.presets import METHODS, resolve_method
from tune_experiments.cli import main
from tune_experiments.method_losses import MethodLoss, method_loss, synthetic_batch


def _of(name: str, **overrides: object) -> MethodLoss:
    return method_loss(resolve_method(name, overrides), synthetic_batch())


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_finite_loss_and_a_gradient_and_is_the_same_every_time(name: str) -> None:
    found = _of(name)
    assert all(math.isfinite(value) for value in astuple(found))
    assert found.grad_norm > 0 and 0 <= found.clip_frac < 1
    assert found == _of(name)


def test_gspo_and_its_token_form_are_one_for_advantages_of_whole_rows() -> None:
    assert astuple(_of("gspo_token")) == pytest.approx(astuple(_of("gspo")), rel=1e-12)


def test_equal_specs_have_equal_rows_and_other_specs_do_not() -> None:
    """SAMPO made from its neighbour by naming what differs."""
    as_sampo = {"clipping": "gspo", "aggregation": "seq-mean-token-mean", "clip_low": 3e-3, "clip_high": 4e-3}
    assert resolve_method("dapo_gigpo", as_sampo) == resolve_method("sampo")
    assert _of("dapo_gigpo", **as_sampo) == _of("sampo")
    different = {tuple(round(value, 9) for value in astuple(_of(name))) for name in METHODS}
    assert len(different) == len(METHODS) - 2  # gspo and gspo_token, sampo and sampo_token


def test_filter_leaves_out_the_rows_of_the_groups_without_a_difference() -> None:
    batch = synthetic_batch()
    won = [set(batch["won_B"][batch["group_id_B"] == group].tolist()) for group in range(6)]
    assert won == [{True}, {False}, *[{True, False}] * 4]
    rows = int((batch["group_id_B"] <= 1).sum())
    filtered = {name: _of(name).rows_filtered for name in METHODS}
    assert rows > 0
    assert filtered == {name: rows if METHODS[name].filtering == "dynamic" else 0 for name in METHODS}
    # Without the filter these are the rows without an advantage.
    assert (_of("grpo").rows_zero, _of("dapo_grpo").rows_zero) == (rows, 0)
    assert _of("loop").rows_masked == rows


def test_sequence_mask_is_counted_by_its_definition() -> None:
    batch, found = synthetic_batch(), _of("grpo_sm")
    fallen = 0
    for row in range(len(batch["group_id_B"])):
        mask = batch["mask_B_T"][row]
        drop = float((batch["old_logp_B_T"][row] - batch["logp_B_T"][row])[mask].mean())
        fallen += drop > 3e-3 and not bool(batch["won_B"][row]) and int(batch["group_id_B"][row]) > 1
    # A lost episode of a mixed group has a negative advantage in this batch, a won one has not.
    assert found.rows_masked == fallen > 0
    assert found.grad_norm < _of("grpo").grad_norm


def test_gradient_of_reinforce_is_that_of_the_formula() -> None:
    """sum over tokens of A^2 / rows^2 without KL; A = reward minus the mean reward of the three others."""
    batch = synthetic_batch()
    first = batch["turn_index_B"] == 0
    reward = batch["episode_return_B"][first].view(6, 4)
    invalid = torch.zeros(24, dtype=torch.float64).index_add(
        0, batch["trajectory_id_B"], (~batch["action_valid_B"]).double()
    )
    score = reward - 0.1 * invalid.view(6, 4)
    left_out = (score - (score.sum(1, keepdim=True) - score) / 3).flatten()[batch["trajectory_id_B"]]
    squares = (left_out.square() * batch["mask_B_T"].sum(1)).sum() / len(left_out) ** 2
    assert _of("rloo", kl_coef=0.0).grad_norm == pytest.approx(float(squares) ** 0.5, rel=1e-12)


def test_batch_has_several_turns_invalid_actions_and_ratios_on_both_sides() -> None:
    batch = synthetic_batch()
    assert int(batch["turn_index_B"].max()) == 3
    assert 0 < int((~batch["action_valid_B"]).sum()) < len(batch["group_id_B"]) / 4
    ratio = (batch["logp_B_T"] - batch["old_logp_B_T"]).exp()[batch["mask_B_T"]]
    assert float(ratio.min()) < 0.8 and float(ratio.max()) > 1.2


def test_command_prints_one_line_for_every_method_within_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    assert main(["methods", "losses"]) == 0
    assert time.process_time() - began < 5.0
    head, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert head.split()[:3] == ["method", "loss", "grad"]
    assert [line.split()[0] for line in lines] == list(METHODS)
    sampo = next(line.split() for line in lines if line.startswith("sampo"))
    assert float(sampo[2]) == pytest.approx(_of("sampo").grad_norm, abs=1e-6)


def test_command_compares_a_method_that_was_added(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METHODS, "twin", replace(METHODS["sampo"], source="a copy"))
    assert main(["methods", "losses"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line}
    assert lines["twin"] == lines["sampo"]
