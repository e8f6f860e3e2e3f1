"""A ratio of a whole row goes with one advantage per row: other combinations are refused, and the flags tell the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from arlarena_rllib.objectives import AXES, AdvantageRows, ObjectiveSpec, compute_advantages

ADVANTAGES = AXES["advantage"]
PER_TOKEN = ["arpo_hard", "gae_token", "reinforce_pp"]


@pytest.mark.parametrize("advantage", ADVANTAGES.names())
def test_advantage_differs_inside_a_row_exactly_if_it_says_so(
    rows_of: Callable[..., AdvantageRows], advantage: str
) -> None:
    rows = rows_of(0)
    spec = ObjectiveSpec(advantage=advantage, token_gamma=0.5, kl_in="reward", kl_estimator="k1")
    result = compute_advantages(rows, spec)
    differs = result.is_per_token and any(
        len(set(row[mask.bool()].tolist())) > 1 for row, mask in zip(result.advantages, rows.mask_B_T, strict=True)
    )
    assert differs == ("row_advantages" in ADVANTAGES.rules_out(advantage))
    assert differs == (advantage in PER_TOKEN)


@pytest.mark.parametrize("advantage", PER_TOKEN)
@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"clipping": "gspo"}, "clipping='gspo' needs row_advantages.*Choose another clipping \\(gspo_token, "),
        ({"clipping": "loop", "ratio_level": "turn"}, "ratio_level='turn' needs row_adv.*Choose another ratio_level"),
        ({"clipping": "loop", "ratio_level": "trajectory"}, "ratio_level='trajectory' needs row_advantages"),
    ],
)
def test_ratio_of_a_row_with_advantages_of_tokens_is_refused_with_the_remedy(
    choice: dict[str, Any], words: str, advantage: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        ObjectiveSpec(advantage=advantage, **choice)
    assert f"which advantage={advantage!r} does not give" in str(caught.value)
    assert str(caught.value).endswith("gae_turn, gigpo, grpo, hgpo, reinforce_pp_baseline, rloo).")
    remedy = {"clipping": "gspo_token"} if choice["clipping"] == "gspo" else {**choice, "ratio_level": "token"}
    ObjectiveSpec(advantage=advantage, **remedy)
    ObjectiveSpec(advantage="grpo", **choice)


def test_registration_that_rules_out_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'row_advantage' is not known\. Nearest: 'row_advantages'"):
        ADVANTAGES.register("mine", rules_out=("row_advantage",))


def test_unknown_choice_is_reported_without_asking_what_it_rules_out() -> None:
    with pytest.raises(ValueError, match=r"^advantage='gae_tokn' is not known"):
        ObjectiveSpec(clipping="gspo", advantage="gae_tokn")


def test_gspo_of_token_advantages_would_spread_them_over_the_row(batch_of: Callable[..., Any]) -> None:
    """Why it is refused: every token gets the gradient of the row's mean advantage, credit of tokens is lost."""
    batch = batch_of(5, spread=0.0, token_advantages=True)
    spec = ObjectiveSpec(clipping="gspo", kl_coef=0.0)
    _, grad = batch.objective(spec)
    for row, mask in zip(grad, batch.mask, strict=True):
        assert torch.allclose(row[mask], row[mask].mean())
    _, token_grad = batch.objective(ObjectiveSpec(clipping="gspo_token", kl_coef=0.0))
    assert not torch.allclose(token_grad, grad)
