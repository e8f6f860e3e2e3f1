"""What the rows of a batch must carry for a spec, and who asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arlarena_rllib.objectives.axes import AXES
from arlarena_rllib.objectives.registry import NEEDS
from arlarena_rllib.objectives.spec_reads import read_keys

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


def ruled_out(spec: ObjectiveSpec) -> list[str]:
    """Return one message for every need of a choice that another choice of the same spec makes impossible."""
    return [
        _ruled_out_message(spec, need, owner, axis)
        for need, owner in needs_and_owners(spec)
        for axis, registry in AXES.items()
        if need in registry.rules_out(getattr(spec, axis))
    ]


def _ruled_out_message(spec: ObjectiveSpec, need: str, owner: str, axis: str) -> str:
    now = getattr(spec, axis)
    givers = ", ".join(name for name in AXES[axis].names() if need not in AXES[axis].rules_out(name))
    return (
        f"{owner} needs {need} ({NEEDS[need]}), which {axis}={now!r} does not give. "
        f"{another_choice(spec, need, owner)} or another {axis} ({givers})."
    )


def another_choice(spec: ObjectiveSpec, need: str, owner: str) -> str:
    """Return which choices in place of the owner's do without a need, those of a similar name first."""
    key = owner.split("=")[0]
    others = [n for n in AXES[key].names() if need not in AXES[key].needs(n)] if key in AXES else []
    relatives_first = sorted(others, key=lambda name: not name.startswith(getattr(spec, key)))
    return f"Choose another {key}" + (f" ({', '.join(relatives_first)})" if others else "")


def needs_and_owners(spec: ObjectiveSpec) -> list[tuple[str, str]]:
    """Return (need, who needs it) pairs; needs are keys of `NEEDS`."""
    pairs = [
        (need, f"{axis}={getattr(spec, axis)!r}")
        for axis, registry in AXES.items()
        for need in sorted(registry.needs(getattr(spec, axis)))
    ]
    if spec.kl_in == "reward" and spec.kl_coef != 0.0:
        pairs += [(need, "kl_in='reward'") for need in ("mask", "old_logp", "ref_logp")]
    if spec.anchor_match == "similar" and "anchor_match" in read_keys(spec):
        pairs.append(("anchor_texts", "anchor_match='similar'"))
    if spec.overlong_buffer > 0:
        pairs.append(("mask", f"overlong_buffer={spec.overlong_buffer}"))
    if spec.void_turn == "mask_turn":
        pairs.append(("turn_rows", "void_turn='mask_turn'"))
    if spec.clipping == "loop" and spec.ratio_level != "token":
        need = "turn_rows" if spec.ratio_level == "turn" else "trajectories"
        pairs += [(name, f"ratio_level={spec.ratio_level!r}") for name in (need, "row_advantages")]
    return pairs
