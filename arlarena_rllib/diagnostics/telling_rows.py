"""Which rows are behind an alarm, in words: the fullest cells of the tables of that iteration."""

from __future__ import annotations

from collections.abc import Mapping

from arlarena_rllib.diagnostics.metric_names import LEARNER

_KL_SHARE, _OUT_OF_BAND = f"{LEARNER}ref_kl_share_", f"{LEARNER}oob_token_"
_WORDS = {
    "adv_neg": "A < 0",
    "adv_nonneg": "A >= 0",
    "adv_pos": "A > 0",
    "is_lt1": "ratio < 1",
    "is_ge1": "ratio >= 1",
    "ratio_low": "ratio below the band",
    "ratio_high": "ratio above the band",
    "lowH": "low entropy",
    "highH": "high entropy",
}


def telling_rows(metrics: Mapping[str, float]) -> str:
    """Return one sentence on the rows that carry most of the KL and the tokens that left the band; "" without tables.

    Args:
        metrics: flat, of one iteration, names as logged.
    """
    kl = _largest(metrics, _KL_SHARE, "")
    band = _largest(metrics, _OUT_OF_BAND, "_frac")
    parts = []
    if kl is not None:
        parts.append(f"rows with {kl[0]} carry {kl[1]:.0%} of the KL to the reference")
    if band is not None:
        parts.append(f"{band[1]:.1%} of the tokens have {band[0]}")
    return "; ".join(parts)


def _largest(metrics: Mapping[str, float], prefix: str, suffix: str) -> tuple[str, float] | None:
    cells = {
        name.removeprefix(prefix).removesuffix(suffix): value
        for name, value in metrics.items()
        if name.startswith(prefix) and not name.removesuffix(suffix).endswith("total")
    }
    cell = max(cells, key=lambda name: cells[name], default=None)
    if cell is None or not cells[cell] > 0:
        return None
    return ", ".join(words for key, words in _WORDS.items() if key in _parts(cell)), cells[cell]


def _parts(cell: str) -> set[str]:
    """Return the parts of a cell's name, ``adv_neg_is_lt1_lowH`` or ``adv_neg|is_lt1|lowH``."""
    text = f"_{cell.replace('|', '_')}_"
    return {key for key in _WORDS if f"_{key}_" in text}
