"""The values that a study tries for a method when its default is not stable: the parameters of its own axes, no others."""

from __future__ import annotations

from typing import Any

from arlarena_rllib.presets import METHODS, find_method, resolve_method

Setting = dict[str, Any]

# Values around the defaults, one change at a time. GSPO's and SAPO's are those that ARLArena 2602.21534 (table 2)
# compares; no grid of the others is published, theirs are this project's choice.
_GRIDS: dict[tuple[str, str], list[Setting]] = {
    ("clipping", "ppo"): [{"clip_high": 0.28}, {"clip_low": 0.1, "clip_high": 0.1}],
    ("clipping", "gspo"): [{"clip_low": 3e-2, "clip_high": 4e-2}, {"clip_low": 3e-4, "clip_high": 4e-4}],
    ("clipping", "gspo_token"): [{"clip_low": 3e-2, "clip_high": 4e-2}, {"clip_low": 3e-4, "clip_high": 4e-4}],
    ("clipping", "cispo"): [{"is_high": 1.28}, {"is_high": 1.1}],
    ("clipping", "sapo"): [{"tau_pos": 2.0, "tau_neg": 2.1}, {"tau_pos": 3.0, "tau_neg": 3.15}],
    ("clipping", "clip_cov"): [{"cov_frac": 2e-3}, {"clip_high": 0.28}],
    ("clipping", "kl_cov"): [{"cov_frac": 2e-3}, {"cov_coef": 0.1}],
    ("clipping", "loop"): [{"ratio_level": "turn", "aggregation": "traj-mean-turn-mean-token-mean"}],
    ("advantage", "gigpo"): [{"omega": 0.5}, {"gamma": 0.9}],
    ("advantage", "hgpo"): [{"gamma": 0.9}, {"hgpo_alpha": 0.5}],
    ("advantage", "empg"): [{"empg_zeta": 0.1}, {"empg_k": 0.5, "empg_k_future": 0.5}],
    ("advantage", "gae_token"): [{"gae_lambda": 0.95}],
    ("advantage", "gae_turn"): [{"gae_lambda": 1.0}],
    ("filtering", "dynamic"): [{"max_tries": 2}, {"max_tries": 1}],
}
_SEQ_MASK: list[Setting] = [{"seq_mask_delta": 1e-2}, {"seq_mask_delta": 1e-3}]
_KL: list[Setting] = [{"kl_coef": 0.05}]


def grid_of(method: str) -> list[Setting]:
    """Return the settings to try after a method's default, in order, as overrides ``training.<parameter>``.

    Raises:
        ValueError: the method is unknown.
    """
    spec = resolve_method(method)
    choices = METHODS[find_method(method)].settings()
    grid = [
        setting
        for axis_choice, values in _GRIDS.items()
        if choices[axis_choice[0]] == axis_choice[1]
        for setting in values
    ]
    grid += _SEQ_MASK if spec.seq_mask_delta is not None else []
    grid += _KL if spec.kl_coef else []
    return [{f"training.{key}": value for key, value in setting.items()} for setting in grid]
