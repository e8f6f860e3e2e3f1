"""Numeric reference cases: every implemented method against numbers computed elsewhere, values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from reference_cases import (
    CASES,
    DOCUMENT,
    LOSS_INPUTS,
    RTOL,
    Case,
    Family,
    Fixture,
    LossInputs,
    Result,
    differences,
    family,
    shipped_cases,
    spec_of,
)
from torch import Tensor

from arlarena_rllib.objectives import (
    AXES,
    AdvantageResult,
    AdvantageRows,
    ClipInput,
    GroupFilter,
    GroupOutcome,
    ObjectiveSpec,
    anchor_ids,
    branch_by_draw,
    branch_by_threshold,
    branch_probability,
    choose_turn,
    compute_advantages,
    discounted_step_returns,
    entropy_change,
    finish_metrics,
    global_denominators,
    merge_metrics,
    mismatch_metrics,
    mismatch_weights,
    out_of_band_table,
    overlong_punishment,
    penalised_scores,
    policy_objective,
    reference_kl,
    sequence_keep,
    sequence_log_ratio,
    sequence_table,
    similarity_labels,
    stability_rule,
    text_similarity,
    thinking_signal,
    thinking_stop,
    token_rewards,
    turn_signal,
    window_means,
)
from env_connectors.parsing import parse_reply

MIN_FAMILIES, MIN_CASES = 34, 167
"""Implemented families and cases of the shipped file; a smaller number means that cases got lost."""

NOT_IMPLEMENTED: dict[Family, str] = {}
"""Belongs to methods not implemented yet: family -> what is missing."""


def loss_and_gradient(
    case: Case, fixture: Fixture, inputs: LossInputs | None = None
) -> tuple[Result, dict[str, float]]:
    """Return loss, gradient and its norm through the public objective, and the finished metrics."""
    params, (spec, advantages) = case["params"], inputs or LOSS_INPUTS[family(case)](case, fixture)
    mask_B_T = fixture.mask(params)
    logp_B_T = fixture.tensor(params["new"]).requires_grad_()
    weight_B = global_denominators(mask_B_T, fixture.trajectory_id(), spec).weight_B
    result = policy_objective(
        logp_B_T,
        fixture.tensor("old_logp"),
        advantages,
        mask_B_T,
        weight_B,
        spec,
        ref_logp_B_T=fixture.tensor("ref_logp") if spec.kl_coef else None,
        rollout_logp_B_T=fixture.tensor(params["rollout"]) if spec.mismatch != "off" else None,
        ids=fixture.row_ids(),
    )
    (grad_B_T,) = torch.autograd.grad(result.loss, logp_B_T)
    out = {"loss": result.loss.item(), "grad": grad_B_T.tolist(), "grad_l2": grad_B_T.norm().item()}
    return out, finish_metrics(result.metrics)


def plain_loss(case: Case, fixture: Fixture) -> Result:
    """Loss and gradient, and which rows the bounds act on."""
    out, metrics = loss_and_gradient(case, fixture)
    if "row_clipped" not in case["expected"]:
        return out
    spec, advantages = LOSS_INPUTS[family(case)](case, fixture)
    mask_B_T = fixture.mask(case["params"])
    d_B_T = fixture.tensor(case["params"]["new"]) - fixture.tensor("old_logp")
    adv_B_T = advantages.unsqueeze(-1).expand_as(d_B_T)
    clip = AXES["clipping"].get(spec.clipping)(ClipInput(d_B_T, adv_B_T, mask_B_T, d_B_T), spec)
    clipped_B_T = (clip.clipped_low_B_T | clip.clipped_high_B_T) & mask_B_T
    out["seq_ratio"] = sequence_log_ratio(d_B_T, mask_B_T).exp().flatten().tolist()
    out["row_clipped"] = clipped_B_T.any(-1).int().tolist()
    out["row_clip_frac"] = metrics["clip_rows_frac"]
    return out


def sequence_masked(case: Case, fixture: Fixture) -> Result:
    """Also the mask, and the mean log-ratios that decide it."""
    params = case["params"]
    out, metrics = loss_and_gradient(case, fixture)
    mask_B_T, adv_B = fixture.mask(params), fixture.tensor(params["adv"])
    d_B_T = fixture.tensor(params["new"]) - fixture.tensor("old_logp")
    keep_B = sequence_keep(d_B_T, adv_B.unsqueeze(-1).expand_as(d_B_T), mask_B_T, params["delta"])
    out["keep"] = keep_B.int().tolist()
    out["mean_log_old_over_new"] = (-sequence_log_ratio(d_B_T, mask_B_T)).flatten().tolist()
    out["masked_rows"] = round(metrics["masked_rows_frac"] * metrics["num_rows"])
    return out


def corrected_loss(case: Case, fixture: Fixture) -> Result:
    """Also the weights of the correction, and the row ratios that they rest on."""
    params = case["params"]
    out, _ = loss_and_gradient(case, fixture)
    spec, _ = LOSS_INPUTS[family(case)](case, fixture)
    mask_B_T, log_rho_B_T = fixture.mask(params), fixture.tensor("old_logp") - fixture.tensor(params["rollout"])
    mean_B = sequence_log_ratio(log_rho_B_T, mask_B_T).flatten()
    out["weight"] = mismatch_weights(log_rho_B_T, mask_B_T, spec).weight_B_T.tolist()
    out["seq_product"] = (mean_B * mask_B_T.sum(-1)).exp().tolist()
    out["seq_geometric"] = mean_B.exp().tolist()
    return out


def loss_with_advantages(case: Case, fixture: Fixture) -> Result:
    """Also the advantages, which the case does not give, and both terms of the loss."""
    out, metrics = loss_and_gradient(case, fixture)
    terms = {name: metrics[name] for name in ("policy_loss", "kl_loss") if name in metrics}
    return out | terms | {"adv": LOSS_INPUTS[family(case)](case, fixture).advantages.tolist()}


def gspo_identity(case: Case, fixture: Fixture) -> Result:
    """Rows that sequence masking would drop have no GSPO gradient."""
    params, adv_B = case["params"], fixture.tensor("row_adv")
    spec = spec_of(params, clipping="gspo", aggregation="seq-mean-token-mean", seq_mask_delta=None)
    out, _ = loss_and_gradient(case, fixture, LossInputs(spec, adv_B))
    d_B_T = fixture.tensor(params["new"]) - fixture.tensor("old_logp")
    fallen_B = -sequence_log_ratio(d_B_T, fixture.mask(params)).flatten() > params["delta"]
    masked = (fallen_B & (adv_B < 0)).nonzero().flatten().tolist()
    assert all(value == 0.0 for row in masked for value in out["grad"][row])
    return {"rows_masked_by_sm": masked, "statement": case["expected"]["statement"]}


def group_advantage(advantage: str, **more: Any) -> Callable[[dict[str, Any], Fixture], Result]:
    def run(case: Case, fixture: Fixture) -> Result:
        spec = spec_of(case["params"], advantage=advantage, **more)
        return {"adv": compute_advantages(fixture.advantage_rows(), spec).advantages_B.tolist()}

    return run


def gigpo_advantage(case: Case, fixture: Fixture) -> Result:
    rows, spec = fixture.advantage_rows(), spec_of(case["params"], advantage="gigpo")
    result: AdvantageResult = compute_advantages(rows, spec)
    parts = {name: result.parts[name].tolist() for name in ("step_return", "episode_adv", "step_adv")}
    if spec.format_penalty == 0.0:
        plain_B = discounted_step_returns(rows.step_reward_B, rows.trajectory_id_B, rows.turn_index_B, gamma=spec.gamma)
        assert plain_B.tolist() == parts["step_return"]
    sizes = [int(size) for size in result.parts["anchor_size"]]
    return parts | {"adv": result.advantages_B.tolist(), "anchor_sizes": sizes}


def reinforce_pp(case: Case, fixture: Fixture) -> Result:
    params = dict(case["params"])
    spec = spec_of(params, advantage="reinforce_pp", token_gamma=params.pop("gamma"))
    return {"token_adv": compute_advantages(fixture.advantage_rows(), spec).advantages.tolist()}


def reinforce_pp_baseline(case: Case, fixture: Fixture) -> Result:
    spec = spec_of(case["params"], advantage="reinforce_pp_baseline")
    return {"token_adv": compute_advantages(fixture.advantage_rows(), spec).advantages.tolist()}


def kl_in_reward(case: Case, fixture: Fixture) -> Result:
    params = case["params"]
    spec = spec_of(params, kl_in="reward", kl_estimator=params["kind"], kl_coef=params["beta"])
    return {"token_reward": token_rewards(fixture.advantage_rows(), spec).tolist()}


def empg(case: Case, fixture: Fixture) -> Result:
    params = {name: value for name, value in case["params"].items() if name != "eps"}
    assert params["base"] == "adv/grpo/unit=traj/score=episode_sum"
    rows = fixture.advantage_rows()
    constant = params.get("entropy_override")
    if constant is not None:
        # In double precision, because the expected normalised entropy is rounding noise over an eps of 1e-8.
        rows = replace(rows, entropy_B_T=torch.full(rows.mask_B_T.shape, constant, dtype=torch.float64))
    spec = spec_of(params, advantage="empg", adv_unit="traj", penalty_scheme="episode_sum", format_penalty=0.1)
    result = compute_advantages(rows, spec)
    names = {"step_entropy": "step_entropy", "norm_entropy": "norm_entropy", "g": "scale", "f": "bonus"}
    names["adv_before_centering"] = "uncentred"
    parts = {theirs: result.parts[ours].tolist() for theirs, ours in names.items()}
    return parts | {"adv": result.advantages_B.tolist()}


def hgpo(case: Case, fixture: Fixture) -> Result:
    result = compute_advantages(fixture.advantage_rows(), spec_of(case["params"], advantage="hgpo"))
    return {"adv": result.advantages_B.tolist(), "step_return": result.parts["step_return"].tolist()}


def arpo(case: Case, fixture: Fixture) -> Result:
    """Trajectories of different lengths: padded on the right for the call, cut again for the comparison."""
    nodes, width = fixture.raw["token_node_ids"], max(len(row) for row in fixture.raw["token_node_ids"])
    n = len(nodes)
    reward_B, every_B = fixture.tensor("rewards"), torch.ones(n, dtype=torch.bool)
    rows = AdvantageRows(
        group_id_B=torch.zeros(n, dtype=torch.int64),
        trajectory_id_B=torch.arange(n),
        turn_index_B=torch.zeros(n, dtype=torch.int64),
        step_reward_B=reward_B,
        episode_return_B=reward_B,
        format_valid_B=every_B,
        action_valid_B=every_B,
        mask_B_T=torch.tensor([[t < len(row) for t in range(width)] for row in nodes]),
        prefix_id_B_T=anchor_ids([(row + [""] * width)[t] for row in nodes for t in range(width)]).view(n, width),
    )
    variant = case["id"].split("/")[-1]
    result = compute_advantages(rows, spec_of(case["params"], advantage=f"arpo_{variant}"))
    assert result.is_per_token == (variant == "hard")

    def ragged(value: Tensor) -> list[Any]:
        return [row[: len(ids)] for row, ids in zip(value.tolist(), nodes, strict=True)]

    if variant == "soft":
        return {"token_adv": ragged(result.advantages_B.unsqueeze(-1).expand(n, width))}
    parts = {"traj_adv": result.parts["trajectory_adv"].tolist(), "sharing_counts": ragged(result.parts["sharing"])}
    return parts | {"token_adv": ragged(result.advantages)}


def arpo_branching(case: Case, fixture: Fixture) -> Result:
    table = []
    for row in case["expected"]["table"]:
        change = entropy_change(row["H_now"], row["H_initial"], row["vocab"])
        p = branch_probability(change, alpha=row["alpha"], beta=row["beta"])
        given = {name: row[name] for name in ("H_initial", "H_now", "vocab", "alpha", "beta", "tau", "u")}
        decisions = {
            "branch_threshold": branch_by_threshold(p, row["tau"]),
            "branch_bernoulli": branch_by_draw(p, row["u"]),
        }
        table.append(given | {"delta_H": change, "P": p, "P_clipped": min(max(p, 0.0), 1.0)} | decisions)
    return {"table": table}


def t2po(case: Case, fixture: Fixture) -> Result:
    if "rule" in case["params"] and "norm" not in case["params"]:
        return _turn_choices(case)
    params = case["params"]
    signal = thinking_signal(
        fixture.tensor("probs"), top_j=params["top_j"], alpha=params["alpha"], normaliser=params["norm"]
    )
    means_T = window_means(signal.delta_T, params["window_N"])
    triggers = {
        text: thinking_stop(means_T, threshold=float(text), min_tokens=params["L_min"])
        for text in case["expected"]["trigger"]
    }
    tensors = {"H": signal.entropy_T, "C": signal.confidence_T, "p_max": signal.p_max_T, "M": signal.signal_T}
    tensors |= {"delta": signal.delta_T, "window_mean": means_T}
    lists = {name: [None if math.isnan(x) else x for x in value.tolist()] for name, value in tensors.items()}
    return lists | {"trigger": triggers, "phi": turn_signal(signal.signal_T, floor=params["phi_floor"])}


def _turn_choices(case: Case) -> Result:
    table = []
    for row in case["expected"]["table"]:
        given = {name: row[name] for name in ("phi_prev", "candidates", "eta", "B_max")}
        choice = choose_turn(row["phi_prev"], row["candidates"], threshold=row["eta"], max_resamples=row["B_max"])
        found = {"accepted_index": choice.index, "resamples": choice.index, "accepted_phi": choice.signal}
        table.append(given | found | {"still_below": choice.is_still_below})
    return {"table": table}


def overlong(case: Case, fixture: Fixture) -> Result:
    lengths = [row["length"] for row in case["expected"]["table"]]
    sizes = {"max_len": case["params"]["L_max"], "buffer": case["params"]["L_cache"]}
    full, tenth = (overlong_punishment(torch.tensor(lengths), factor=factor, **sizes) for factor in (1.0, 0.1))
    rows = zip(lengths, full.tolist(), tenth.tolist(), strict=True)
    return {"table": [{"length": n, "dapo_factor1": one, "factor_0_1": small} for n, one, small in rows]}


def stability(case: Case, fixture: Fixture) -> Result:
    params = case["params"]
    rule = stability_rule(params["series"], tail_fraction=params["tail_fraction"], threshold=params["threshold"])
    assert rule.is_stable == (case["id"] == "stability/stable")
    numbers = {"tail_len": rule.tail_len, "tail_var": rule.tail_var, "tail_mean": rule.tail_mean}
    return numbers | {"stable": rule.is_steady, "max_drop_from_best": rule.drop_from_best}


def format_penalty(case: Case, fixture: Fixture) -> Result:
    rows, params = fixture.advantage_rows(), case["params"]
    score_B = penalised_scores(
        rows.episode_return_B,
        rows.format_valid_B,
        rows.trajectory_id_B,
        penalty=params["lam"],
        scheme=params["scheme"],
    )
    return {"row_score": score_B.tolist()}


def similarity(case: Case, fixture: Fixture) -> Result:
    texts = fixture.column("obs")
    labels = similarity_labels(texts, anchor_ids(fixture.column("group")).tolist(), case["params"]["similarity"])
    ratios = [[round(text_similarity(text, other), 12) for other in texts] for text in texts]
    return {"labels": labels, "ratio_matrix": ratios}


def dynamic_filter(case: Case, fixture: Fixture) -> Result:
    params = case["params"]
    assert params["drop_surplus"] == "first come, whole groups"
    spec = ObjectiveSpec(
        filtering="dynamic",
        filter_metric=params["metric"],
        max_tries=params["max_gen_batches"],
        fill=params["fill_with_uniform_on_last_try"],
    )
    groups = GroupFilter(spec, target_groups=params["target_groups"])
    for name in params["batches"]:
        if not groups.needs_more:
            break
        batch = DOCUMENT["fixtures"]["filter"][name]
        groups.offer([GroupOutcome(tuple(group["reward"]), tuple(map(bool, group["success"]))) for group in batch])
    report = groups.report()
    kept = [list(pair) for pair in groups.kept]
    return {"kept": kept, "log": list(report.log), "kept_groups": report.target - report.missing}


def diagnostics(case: Case, fixture: Fixture) -> Result:
    return _mismatch(case, fixture) if "rollout" in case["params"] else _off_policy(case, fixture)


def _mismatch(case: Case, fixture: Fixture) -> Result:
    params = case["params"]
    raw = mismatch_metrics(fixture.tensor(params["train"]), fixture.tensor(params["rollout"]), fixture.mask(params))
    done = finish_metrics(merge_metrics([raw]))
    names = ("kl_k1", "kl_k3", "abs_logp_diff_mean", "abs_logp_diff_max", "prob_diff_mean")
    return {name: done[f"mismatch_{name}"] for name in (*names, "chi2_token", "chi2_seq", "ess_token_frac")}


def _off_policy(case: Case, fixture: Fixture) -> Result:
    params = {**case["params"], "agg": "token-mean"}
    low, high = params["eps_low"], params["eps_high"]
    mask_B_T, adv_B = fixture.mask(params), fixture.tensor(params["adv"])
    new_B_T, old_B_T = fixture.tensor(params["new"]), fixture.tensor("old_logp")
    d_B_T = torch.where(mask_B_T, new_B_T - old_B_T, 0.0)
    adv_B_T = adv_B.unsqueeze(-1).expand_as(d_B_T)
    x_B_T = torch.where(mask_B_T, fixture.tensor("ref_logp") - new_B_T, 0.0)
    table = sequence_table(d_B_T, adv_B, mask_B_T, reference_kl("k3", x_B_T, d_B_T), fixture.tensor("entropy"))
    spec = spec_of(params)
    weight_B = global_denominators(mask_B_T, fixture.trajectory_id(), spec).weight_B
    entropy_B_T = fixture.tensor("entropy")
    result = policy_objective(new_B_T, old_B_T, adv_B, mask_B_T, weight_B, spec, entropy_B_T=entropy_B_T)
    done = finish_metrics(result.metrics)
    out_of_band = out_of_band_table(d_B_T, adv_B_T, mask_B_T, low=low, high=high)
    total = out_of_band.pop("total")
    copied = ("ratio_mean", "ratio_max", "ratio_min", "clip_frac", "ess_token_frac", "ess_seq_frac")
    beyond_dual = (adv_B_T < 0) & (d_B_T.exp() > 3.0) & mask_B_T
    return {
        **{name: done[name] for name in copied},
        "ppo_kl_k1": done["approx_kl_k1"],
        "ppo_kl_k3": done["approx_kl_k3"],
        "clip_frac_low": done["clip_low_frac"],
        "clip_frac_high": done["clip_high_frac"],
        "dual_clip_frac_c3": int(beyond_dual.sum()) / int(mask_B_T.sum()),
        "oob_frac_total": total,
        "oob": out_of_band,
        "seq_ratio": sequence_log_ratio(d_B_T, mask_B_T).exp().flatten().tolist(),
        "seq_counts": table.counts,
        "entropy_threshold": table.entropy_threshold,
        "kl_ref_share": table.kl_share,
        "entropy_token_mean": done["entropy"],
        "response_len_mean": done["num_tokens"] / len(fixture.rows),
        "format_valid_frac": float(fixture.advantage_rows().format_valid_B.double().mean()),
    }


def format_check(case: Case, fixture: Fixture) -> Result:
    table = []
    for row in case["expected"]["table"]:
        reply = parse_reply(row["text"])
        action = reply.action if reply.format_valid else None
        table.append({"text": row["text"], "valid": int(reply.format_valid), "action": action})
    return {"table": table}


ADAPTERS: dict[Family, Callable[[dict[str, Any], Any], Result]] = {
    **dict.fromkeys(LOSS_INPUTS, plain_loss),
    **{("loss", f"{name}_sm"): sequence_masked for name in ("grpo", "cispo", "sapo")},
    ("loss", "mismatch_is"): corrected_loss,
    **{("loss", name): loss_with_advantages for name in ("loop", "sampo")},
    ("identity", "gspo"): gspo_identity,
    ("advantage", "grpo"): group_advantage("grpo"),
    ("advantage", "dr_grpo"): group_advantage("grpo", adv_norm="mean_norm"),
    ("advantage", "rloo"): group_advantage("rloo"),
    ("advantage", "gigpo"): gigpo_advantage,
    ("advantage", "format_penalty"): format_penalty,
    ("advantage", "reinforce_pp"): reinforce_pp,
    ("advantage", "reinforce_pp_baseline"): reinforce_pp_baseline,
    ("advantage", "kl_in_reward"): kl_in_reward,
    ("advantage", "empg"): empg,
    ("advantage", "hgpo"): hgpo,
    ("advantage", "arpo"): arpo,
    ("rollout", "arpo"): arpo_branching,
    ("rollout", "t2po"): t2po,
    ("shaping", "dapo_overlong"): overlong,
    ("metric", "stability_rule"): stability,
    ("grouping", "gigpo"): similarity,
    ("filter", "dynamic_filtering"): dynamic_filter,
    ("metric", "diagnostics"): diagnostics,
    ("format", "format_check"): format_check,
}
"""Family (kind, method) of a case -> how to compute it through the public functions."""


def result_of(case: Case, dtype: torch.dtype) -> Result:
    """Compute a case. Raises KeyError for a family that no table knows."""
    if family(case) not in ADAPTERS:
        raise KeyError(f"{case['id']}: no adapter for family {family(case)}; add one, or list it in NOT_IMPLEMENTED.")
    return ADAPTERS[family(case)](case, Fixture(case["fixture"], dtype))


IMPLEMENTED = [case for case in CASES if family(case) not in NOT_IMPLEMENTED]


@pytest.mark.parametrize("dtype", RTOL, ids=["float64", "float32"])
@pytest.mark.parametrize("case", IMPLEMENTED, ids=lambda case: case["id"])
def test_refcase_through_public_functions_matches_reference(case: Case, dtype: torch.dtype) -> None:
    got, expected = result_of(case, dtype), case["expected"]
    shown = {key: got.get(key, "not computed") for key in expected}
    assert differences(shown, expected, RTOL[dtype]) == []


def test_refcase_families_of_the_file_are_all_in_one_table() -> None:
    families = {family(case) for case in CASES}
    assert not set(ADAPTERS) & set(NOT_IMPLEMENTED)
    assert families <= set(ADAPTERS) | set(NOT_IMPLEMENTED)


def test_refcase_of_unknown_family_raises() -> None:
    with pytest.raises(KeyError, match="no adapter"):
        result_of({"id": "loss/new_method", "kind": "loss", "method": "new_method", "fixture": "main"}, torch.float64)


def test_refcases_found_are_at_least_the_known_number() -> None:
    implemented = [case for case in shipped_cases() if family(case) in ADAPTERS]
    assert len({family(case) for case in implemented}) >= MIN_FAMILIES
    assert len(implemented) >= MIN_CASES
    assert len(IMPLEMENTED) >= 1


def test_refcase_not_implemented_choices_are_really_absent() -> None:
    """A choice that got built must leave the table, so that its cases run."""
    registered = {name for axis in ("clipping", "advantage") for name in AXES[axis].names()}
    assert not registered & {method for _, method in NOT_IMPLEMENTED}


def test_refcase_comparison_sees_a_wrong_number_and_a_wrong_shape() -> None:
    assert differences([1.0, 2.0], [1.0, 2.0 + 1e-6], 1e-9)
    assert differences([1.0], [1.0, 2.0], 1e-9)
    assert differences([float("nan")], [0.0], 1e-9)
    assert differences({"a": 1}, {"a": 1, "b": 2}, 1e-9)
