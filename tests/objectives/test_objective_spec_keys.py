"""Names and keys of methods: unknown, unread and impossible settings are refused; `reads` tells the truth."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from arlarena_rllib.objectives import (
    AXES,
    NEEDS,
    SPEC_FIELDS,
    AdvantageRows,
    ClipInput,
    GroupFilter,
    GroupOutcome,
    ObjectiveSpec,
    Registry,
    UnknownChoiceError,
    WholeBatch,
    compute_advantages,
    global_denominators,
    mismatch_weights,
    policy_objective,
)
from arlarena_rllib.objectives.axes import REGISTRIES
from arlarena_rllib.objectives.clipping import CONTEXTS
from arlarena_rllib.objectives.mismatch import REGISTRY as MISMATCH
from arlarena_rllib.presets import METHODS, method_names, resolve_method

ALWAYS = {
    *("format_penalty", "penalise", "kl_coef", "kl_in", "entropy_coef", *REGISTRIES),
    *("seq_mask_delta", "seq_mask_norm", "mismatch", "geo_low", "geo_high"),
    *("overlong_buffer", "overlong_max_len", "overlong_factor", "overlong_mask", "void_turn", "min_abs_advantage"),
}
OF_THE_CRITIC = {"value_clip", "value_coef"}
"""Registered with the advantages that need a critic, read by its loss."""


class ReadRecorder:
    """Stands in for a spec and remembers which fields are looked at."""

    def __init__(self, spec: ObjectiveSpec) -> None:
        self._spec, self.seen = spec, set()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self._spec, name)


@pytest.mark.parametrize("axis", AXES)
def test_unknown_axis_name_raises_with_key_value_nearest_and_allowed(axis: str) -> None:
    known = AXES[axis].names()[-1]
    with pytest.raises(ValueError) as caught:
        ObjectiveSpec(**{axis: known + "x"})
    message = str(caught.value)
    assert f"{axis}='{known}x'" in message
    assert f"Nearest: '{known}'" in message
    assert all(name in message for name in AXES[axis].names())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"adv_unit": "trajectory"}, ["adv_unit='trajectory'", "row, traj"]),
        ({"kl_estimator": "k4"}, ["kl_estimator='k4'", "k3_is"]),
        ({"clip_low": 1.5}, ["clip_low=1.5", "[0, 1]"]),
        ({"gamma": float("nan")}, ["gamma=nan"]),
        ({"gamma": "0.9"}, ["gamma='0.9'"]),
        ({"dual_clip": 0.5}, ["dual_clip=0.5", "greater than 1"]),
        ({"max_tries": 0}, ["max_tries=0"]),
        ({"is_low": 1.1}, ["is_low=1.1", "[0, 1]"]),
        ({"is_high": 0.9}, ["is_high=0.9", "[1, inf]"]),
        ({"tau_neg": 0.0}, ["tau_neg=0.0", "(0, inf]"]),
        ({"cov_frac": 1.5}, ["cov_frac=1.5", "(0, 1]"]),
        ({"clipping": "clip_cov", "cov_low": 6.0}, ["cov_low=6.0 must be smaller than cov_high=5.0"]),
        ({"ratio_level": "episode"}, ["ratio_level='episode'", "token, trajectory, turn"]),
        ({"seq_mask_delta": -0.1}, ["seq_mask_delta=-0.1", "none for off"]),
        ({"seq_mask_norm": "kept"}, ["seq_mask_norm='kept'", "kept_tokens"]),
        ({"mismatch": "on"}, ["mismatch='on'", "active, observe, off"]),
        ({"mismatch_is": "tis"}, ["mismatch_is='tis'", "tis_seq, tis_token"]),
        ({"mismatch_high": 0.5}, ["mismatch_high=0.5", "[1, inf]"]),
        ({"geo_low": 1.01}, ["geo_low=1.01", "[0, 1]"]),
        ({"mismatch": "active", "mismatch_is": "none"}, ["mismatch='active' corrects nothing", "geo_low"]),
        ({"kl_in": "rewards"}, ["kl_in='rewards'", "loss, reward"]),
        ({"kl_in": "reward", "kl_estimator": "k3+"}, ["kl_in='reward'", "'k3+'", "gradient"]),
        ({"kl_in": "reward", "kl_estimator": "k3_is"}, ["kl_in='reward'", "'k3_is'", "ratio is 1"]),
        ({"max_tries": 2.5}, ["max_tries=2.5", "whole number"]),
        ({"fill": 1}, ["fill=1", "true or false"]),
        ({"aggregation": "seq-mean-token-sum-norm", "length_norm": 0}, ["length_norm=0"]),
        ({"kl_in": "both"}, ["kl_in='both'", "loss, reward"]),
        ({"anchor_match": "fuzzy"}, ["anchor_match='fuzzy'", "exact, similar"]),
        ({"similarity_threshold": 0.0}, ["similarity_threshold=0.0", "[0.01, 1]"]),
        ({"hgpo_levels": 1.5}, ["hgpo_levels=1.5", "whole number"]),
        ({"hgpo_levels": -1}, ["hgpo_levels=-1"]),
        ({"token_gamma": 1.1}, ["token_gamma=1.1", "[0, 1]"]),
        ({"gae_lambda": -0.1}, ["gae_lambda=-0.1"]),
        ({"adv_whiten": "yes"}, ["adv_whiten='yes'", "true or false"]),
        ({"surplus": "hold"}, ["surplus='hold'", "drop, keep"]),
        ({"void_turn": "mask"}, ["void_turn='mask'", "mask_turn"]),
        ({"overlong_buffer": 8, "overlong_max_len": 4}, ["overlong_max_len=4 must be at least overlong_buffer=8"]),
        ({"overlong_buffer": 8, "overlong_max_len": 9.5}, ["overlong_max_len=9.5", "whole number"]),
        ({"overlong_mask": 1}, ["overlong_mask=1", "true or false"]),
        ({"min_abs_advantage": -1.0}, ["min_abs_advantage=-1.0"]),
    ],
)
def test_impossible_value_raises_and_says_what_is_allowed(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        ObjectiveSpec(**settings)
    assert all(word in str(caught.value) for word in words)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        ObjectiveSpec(
            clipping="gpso", gamma=2.0, adv_norm="none", max_tries=0, tau_pos="1", mismatch="active", mismatch_is="none"
        )
    assert len(str(caught.value).splitlines()) == 6


def test_unread_key_raises_and_names_who_would_read_it() -> None:
    with pytest.raises(ValueError, match=r"omega=1\.0 is set, but nothing reads it .*advantage='grpo'.*gigpo"):
        ObjectiveSpec().refuse_unread(["omega", "clip_low"])
    ObjectiveSpec(advantage="gigpo").refuse_unread(["omega", "clip_low"])


@pytest.mark.parametrize(
    ("spec", "key", "switch"),
    [
        (ObjectiveSpec(format_penalty=0.0), "penalty_scheme", "format_penalty"),
        (ObjectiveSpec(format_penalty=0.0), "penalise", "format_penalty"),
        (ObjectiveSpec(kl_coef=0.0), "kl_estimator", "kl_coef"),
        (ObjectiveSpec(adv_norm="mean_norm"), "adv_eps", "adv_norm"),
        (ObjectiveSpec(kl_coef=0.0), "kl_in", "kl_coef"),
        (ObjectiveSpec(advantage="gigpo", anchor_match="exact"), "similarity_threshold", "anchor_match"),
        (ObjectiveSpec(overlong_buffer=0), "overlong_max_len", "overlong_buffer"),
        (ObjectiveSpec(overlong_buffer=0), "overlong_factor", "overlong_buffer"),
    ],
)
def test_key_behind_a_switch_that_is_off_is_unread(spec: ObjectiveSpec, key: str, switch: str) -> None:
    with pytest.raises(ValueError, match=f"{key}=.*{switch}="):
        spec.refuse_unread([key])
    switched_on = {"overlong_buffer": 2, "overlong_max_len": 4, "anchor_match": "similar", "advantage": "gigpo"}
    ObjectiveSpec(**switched_on).refuse_unread([key])


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        (ObjectiveSpec(advantage="hgpo"), "penalty_scheme"),
        (ObjectiveSpec(advantage="hgpo"), "adv_unit"),
        (ObjectiveSpec(advantage="gae_turn"), "token_gamma"),
        (ObjectiveSpec(advantage="gae_token"), "gamma"),
        (ObjectiveSpec(advantage="reinforce_pp"), "adv_norm"),
        (ObjectiveSpec(advantage="grpo"), "gae_lambda"),
        (ObjectiveSpec(advantage="gigpo"), "hgpo_levels"),
        (ObjectiveSpec(advantage="grpo"), "empg_zeta"),
        (ObjectiveSpec(filtering="none"), "surplus"),
    ],
)
def test_key_of_another_choice_is_unread(spec: ObjectiveSpec, key: str) -> None:
    with pytest.raises(ValueError, match=rf"{key}=.* nothing reads it"):
        spec.refuse_unread([key])


def test_needs_are_those_of_the_choices_and_of_the_kl_in_the_reward() -> None:
    assert ObjectiveSpec().needs() == {"groups"}
    assert ObjectiveSpec(advantage="gae_token", filtering="dynamic").needs() == {"mask", "values", "groups"}
    assert not ObjectiveSpec(advantage="gigpo").scores_before_advantages
    assert ObjectiveSpec(advantage="gigpo").needs() == {"groups", "anchors", "turns"}
    similar = ObjectiveSpec(advantage="gigpo", anchor_match="similar")
    assert similar.needs() == {"groups", "anchors", "turns", "anchor_texts"}
    assert ObjectiveSpec(anchor_match="similar").needs() == {"groups"}
    in_reward = ObjectiveSpec(kl_in="reward")
    assert in_reward.needs() == {"groups", "mask", "old_logp", "ref_logp"}
    assert in_reward.scores_before_advantages
    assert ObjectiveSpec(kl_in="reward", kl_coef=0.0).needs() == {"groups"}
    assert ObjectiveSpec(advantage="gae_turn").needs() == {"mask", "values", "turns"}
    assert ObjectiveSpec(advantage="empg").scores_before_advantages
    assert ObjectiveSpec(void_turn="mask_turn").needs() == {"groups", "turn_rows"}
    assert ObjectiveSpec(overlong_buffer=1, overlong_max_len=2).needs() == {"groups", "mask"}


def test_need_that_cannot_be_had_is_refused_with_who_needs_it() -> None:
    spec = ObjectiveSpec(advantage="gae_turn", kl_in="reward")
    with pytest.raises(ValueError) as caught:
        spec.refuse_missing(["mask", "old_logp", "values"], where="trajectory_mode='append'")
    turns, ref = str(caught.value).splitlines()
    assert (
        "advantage='gae_turn' needs turns (reward and validity of every turn), which trajectory_mode='append' does not give"
        in turns
    )
    assert "kl_in='reward' needs ref_logp" in ref
    spec.refuse_missing(NEEDS, where="anything")


def test_registry_refuses_a_need_that_does_not_exist() -> None:
    registry: Registry[Callable[[], int]] = Registry("advantage")
    with pytest.raises(UnknownChoiceError, match=r"'valuse' is not known\. Nearest: 'values'"):
        registry.register("one", needs=("valuse",))


@pytest.mark.parametrize(
    ("key", "unread", "hint", "read"),
    [
        ("tau_pos", {"clipping": "ppo"}, "clipping: sapo", {"clipping": "sapo"}),
        ("is_high", {"clipping": "gspo"}, "clipping: cispo", {"clipping": "cispo"}),
        ("clip_low", {"clipping": "cispo"}, "clipping: clip_cov, gspo", {"clipping": "clip_cov"}),
        ("clip_low", {"clipping": "loop", "ratio_bounds": "reciprocal"}, "ratio_bounds=", {"clipping": "loop"}),
        ("clip_low", {"clipping": "none", "ratio_bounds": "reciprocal"}, "clipping: ", {"ratio_bounds": "reciprocal"}),
        ("ratio_level", {"clipping": "ppo"}, "clipping: loop", {"clipping": "loop"}),
        ("cov_coef", {"clipping": "clip_cov"}, "clipping: kl_cov", {"clipping": "kl_cov"}),
        ("seq_mask_norm", {}, "seq_mask_delta=None", {"seq_mask_delta": 0.0}),
        ("mismatch_is", {}, "mismatch='off'", {"mismatch": "observe"}),
        ("mismatch_high", {}, "mismatch='off'", {"mismatch": "active"}),
        ("geo_low", {}, "mismatch='off'", {"mismatch": "active"}),
        (
            "mismatch_low",
            {"mismatch": "active"},
            "mis_seq, mis_token",
            {"mismatch": "active", "mismatch_is": "mis_seq"},
        ),
    ],
)
def test_bound_that_the_chosen_loss_never_reads_is_refused(
    key: str, unread: dict[str, Any], hint: str, read: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"{key}=.*{hint}"):
        ObjectiveSpec(**unread).refuse_unread([key])
    ObjectiveSpec(**read).refuse_unread([key])


def test_unread_check_of_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'clip_hihg' is not known\. Nearest: 'clip_high'"):
        ObjectiveSpec().refuse_unread(["clip_hihg"])


def test_every_field_is_read_by_some_choice() -> None:
    read = set().union(*(registry.reads(name) for registry in REGISTRIES.values() for name in registry.names()))
    assert read <= set(SPEC_FIELDS)
    assert set(SPEC_FIELDS) == read | ALWAYS
    assert len(SPEC_FIELDS) >= 25


@pytest.mark.parametrize("name", AXES["clipping"].names())
def test_clipping_reads_exactly_what_it_registered(batch_of: Callable[..., Any], name: str) -> None:
    batch, recorder = batch_of(0), ReadRecorder(ObjectiveSpec(clipping=name, dual_clip=3.0))
    adv = batch.advantages.unsqueeze(-1).expand_as(batch.logp)
    tensors = (batch.logp - batch.old_logp, adv, batch.mask, batch.logp)
    whole = WholeBatch(*tensors, batch.mask.sum(-1), batch.ids())
    context = CONTEXTS[name][1](whole, recorder) if name in CONTEXTS else {}
    AXES["clipping"].get(name)(ClipInput(*tensors, context), recorder)
    assert recorder.seen == AXES["clipping"].reads(name)


@pytest.mark.parametrize("name", MISMATCH.names())
def test_mismatch_weight_reads_exactly_what_it_registered(batch_of: Callable[..., Any], name: str) -> None:
    batch, recorder = batch_of(0), ReadRecorder(ObjectiveSpec(mismatch="active", mismatch_is=name, geo_low=0.5))
    mismatch_weights(batch.old_logp - batch.rollout_logp, batch.mask, recorder)
    assert recorder.seen - {"mismatch_is", "geo_low", "geo_high"} == MISMATCH.reads(name)


@pytest.mark.parametrize("name", AXES["advantage"].names())
def test_advantage_reads_exactly_what_it_registered(rows_of: Callable[..., AdvantageRows], name: str) -> None:
    similar = ObjectiveSpec(advantage=name, anchor_match="similar")
    seen = set()
    for spec in (similar, replace(similar, kl_in="reward", overlong_buffer=1, overlong_max_len=2)):
        recorder = ReadRecorder(spec)
        AXES["advantage"].get(name)(rows_of(0), recorder)
        seen |= recorder.seen
    assert seen - ALWAYS == AXES["advantage"].reads(name) - OF_THE_CRITIC


@pytest.mark.parametrize("name", AXES["aggregation"].names())
def test_aggregation_reads_exactly_what_it_registered(name: str) -> None:
    recorder = ReadRecorder(ObjectiveSpec(aggregation=name, length_norm=4))
    global_denominators(torch.ones(2, 3), torch.tensor([0, 1]), recorder)
    assert recorder.seen - {"aggregation"} == AXES["aggregation"].reads(name)


@pytest.mark.parametrize("name", AXES["filtering"].names())
def test_filtering_reads_nothing_that_it_did_not_register(name: str) -> None:
    recorder = ReadRecorder(ObjectiveSpec(filtering=name, max_tries=1))
    groups = GroupFilter(recorder, target_groups=1)
    groups.offer([GroupOutcome((0.0, 0.0), (False, False))])
    unread = {"filtering", "cold_start_iterations"} if name == "none" else {"filtering"}
    assert recorder.seen - unread - AXES["filtering"].reads(name) <= ({"fill"} if name == "none" else set())


def test_registry_refuses_a_name_that_is_taken_and_an_unknown_one() -> None:
    registry: Registry[Callable[[], int]] = Registry("clipping")

    @registry.register("one", reads=("clip_low",))
    def one() -> int:
        return 1

    assert registry.get("one")() == 1
    assert registry.reads("one") == {"clip_low"}
    assert registry.readers("clip_low") == ["one"]
    with pytest.raises(ValueError, match="registered already"):
        registry.register("one")
    with pytest.raises(UnknownChoiceError, match="clipping='two' is not known"):
        registry.get("two")


def test_unknown_choice_error_survives_pickling() -> None:
    with pytest.raises(UnknownChoiceError) as caught:
        AXES["clipping"].get("gpso")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("name", METHODS)
def test_method_takes_one_finite_step_on_a_random_batch(
    batch_of: Callable[..., Any], rows_of: Callable[..., AdvantageRows], name: str
) -> None:
    """From rows to gradient through the public functions, with advantages of the method itself."""
    spec = resolve_method(name).within(8)
    rows = rows_of(3)
    out = compute_advantages(rows, spec)
    batch = replace(
        batch_of(3, n_rows=len(rows.group_id_B), width=rows.mask_B_T.shape[1], spread=1e-3),
        mask=rows.mask_B_T.bool(),
        advantages=out.advantages,
        trajectory_id=rows.trajectory_id_B,
    )
    result, grad = batch.objective(spec)
    assert torch.isfinite(result.loss)
    assert float(grad.norm()) > 0.0


@pytest.mark.parametrize("name", METHODS)
def test_method_sets_only_parameters_that_it_reads_and_has_a_source(name: str) -> None:
    method = METHODS[name]
    spec = resolve_method(name)
    spec.refuse_unread(method.settings())
    assert any(character.isdigit() for character in method.source)
    assert set(method.params) <= set(SPEC_FIELDS) - set(AXES)


def test_method_table_holds_grpo_and_sampo_with_their_published_settings() -> None:
    assert {"grpo", "sampo"} <= set(method_names())
    grpo, sampo = resolve_method("grpo"), resolve_method("sampo")
    assert (grpo.clipping, grpo.advantage, grpo.filtering, grpo.aggregation) == ("ppo", "grpo", "none", "token-mean")
    assert (grpo.clip_low, grpo.clip_high, grpo.kl_coef, grpo.kl_estimator) == (0.2, 0.2, 0.01, "k3")
    assert (sampo.clipping, sampo.advantage, sampo.filtering) == ("gspo", "gigpo", "dynamic")
    assert sampo.aggregation == "seq-mean-token-mean"
    assert (sampo.clip_low, sampo.clip_high, sampo.omega, sampo.gamma) == (3e-3, 4e-3, 1.0, 0.95)
    assert (sampo.filter_metric, sampo.max_tries, sampo.fill) == ("success", 3, True)
    assert (sampo.kl_coef, sampo.kl_estimator, sampo.adv_norm) == (0.01, "k3", "mean_std_norm")


def test_resolve_method_replaces_parameters_and_axes() -> None:
    spec = resolve_method("sampo", {"clip_high": 0.04, "aggregation": "token-mean"})
    assert (spec.clip_high, spec.aggregation, spec.clip_low) == (0.04, "token-mean", 3e-3)


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("sampp", {}, ["method='sampp'", "Nearest: 'sampo'", "grpo, grpo_st", "turn_ppo, sampo"]),
        ("sampo", {"clip_hi": 1.0}, ["no parameter 'clip_hi'", "Nearest: 'clip_high'"]),
        ("grpo", {"gamma": 0.9}, ["gamma=0.9 is set, but nothing reads it"]),
        ("grpo", {"max_tries": 5}, ["filtering='none'", "dynamic"]),
        ("grpo", {"gamma": 9.0, "advantage": "gigpo"}, ["gamma=9.0", "[0, 1]"]),
    ],
)
def test_resolve_method_refuses_what_it_does_not_know_or_read(
    name: str, overrides: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:
        resolve_method(name, overrides)
    assert all(word in str(caught.value) for word in words)


def test_objective_without_a_tensor_that_the_spec_needs_raises(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(1)
    arguments = (batch.logp, batch.old_logp, batch.advantages, batch.mask, batch.weight(ObjectiveSpec()))
    with pytest.raises(ValueError, match=r"kl_coef=0\.01 needs ref_logp_B_T"):
        policy_objective(*arguments, ObjectiveSpec())
    with pytest.raises(ValueError, match="needs entropy_B_T"):
        policy_objective(*arguments, ObjectiveSpec(kl_coef=0.0, entropy_coef=0.1))


def test_objective_with_wrong_shapes_raises_and_names_them(batch_of: Callable[..., Any]) -> None:
    batch, spec = batch_of(1), ObjectiveSpec(kl_coef=0.0)
    weight = batch.weight(spec)
    with pytest.raises(ValueError, match=r"old_logp_B_T \(6, 4\)"):
        policy_objective(batch.logp, batch.old_logp[:, :4], batch.advantages, batch.mask, weight, spec)
    with pytest.raises(ValueError, match=r"weight_B has shape \(3,\) for 6 rows"):
        policy_objective(batch.logp, batch.old_logp, batch.advantages, batch.mask, weight[:3], spec)
    with pytest.raises(ValueError, match=r"advantages \(5,\)"):
        policy_objective(batch.logp, batch.old_logp, batch.advantages[:5], batch.mask, weight, spec)


def test_denominators_with_wrong_shapes_raise() -> None:
    with pytest.raises(ValueError, match="equal 1-D shapes"):
        global_denominators(torch.ones(2, 3), torch.tensor([0]), ObjectiveSpec())
    with pytest.raises(ValueError, match="rows, tokens"):
        global_denominators(torch.ones(3), torch.tensor([0, 0, 0]), ObjectiveSpec())


def test_import_of_objectives_and_presets_loads_neither_ray_nor_models_nor_envs() -> None:
    heavy = ("ray", "transformers", "gymnasium", "vllm", "env_connectors")
    code = f"import sys, arlarena_rllib.presets; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_lengths_left_open_are_those_of_the_run() -> None:
    spec = ObjectiveSpec(aggregation="seq-mean-token-sum-norm", overlong_buffer=2, overlong_max_len=6)
    assert spec.length_norm is None
    closed = spec.within(16)
    assert (closed.length_norm, closed.overlong_max_len) == (16, 6)
    with pytest.raises(ValueError, match="overlong_max_len=3 must be at least overlong_buffer=4"):
        ObjectiveSpec(overlong_buffer=4).within(3)
