"""The importance ratios of a study's arms as a table: how much left the band, and with which sign of the advantage."""

from __future__ import annotations

from collections.abc import Sequence

from tune_experiments.study_page import Cell, Row, Table
from tune_experiments.study_statistics import Contender, TaskNumbers, finite
from tune_experiments.study_text import DASH, number, percent

_LEARNER = "learners/default_policy/"  # as in diagnostics.metric_names, with which torch would come
_SHARES = {
    "tokens out": "oob_token_total_frac",
    "A < 0, low": "oob_token_adv_neg_ratio_low_frac",
    "A < 0, high": "oob_token_adv_neg_ratio_high_frac",
    "A > 0, low": "oob_token_adv_pos_ratio_low_frac",
    "A > 0, high": "oob_token_adv_pos_ratio_high_frac",
    "rows out": "oob_seq_total_frac",
}
_KLS = {"off-policy KL": "approx_kl_k3", "KL to reference": "ref_kl"}


def ratios_table(numbers: TaskNumbers) -> Table | None:
    """Return one row per arm, or None when no confirm trial logged a ratio."""
    rows = [_row(contender) for contender in numbers.rows if _values(contender, _SHARES["tokens out"])]
    if not rows:
        return None
    return Table(
        ["arm", *(f"{name}, %" for name in _SHARES), *_KLS],
        rows,
        "l" + "r" * (len(_SHARES) + len(_KLS)),
        note=(
            "Tokens whose ratio to the policy that sampled them is below 0.8 or above 1.2, whatever the method clips, by the "
            "sign of the advantage; rows whose mean ratio is outside of 0.997 to 1.004. Mean over all iterations of the "
            "confirm seeds, below it the means of the first and of the last iteration. KL in nats per token."
        ),
    )


def _row(contender: Contender) -> Row:
    cells = [_cell(contender, metric, is_share=True) for metric in _SHARES.values()]
    return [Cell(contender.label), *cells, *(_cell(contender, metric, is_share=False) for metric in _KLS.values())]


def _cell(contender: Contender, metric: str, *, is_share: bool) -> Cell:
    seeds = _values(contender, metric)
    if not seeds:
        return Cell(DASH)
    say = percent if is_share else number
    first, last = (_mean([seed[at] for seed in seeds]) for at in (0, -1))
    return Cell(
        say(_mean([value for seed in seeds for value in seed])), f"{say(first)} \N{RIGHTWARDS ARROW} {say(last)}"
    )


def _values(contender: Contender, metric: str) -> list[list[float]]:
    """Return the finite values of each seed that has one, in the order of training."""
    found = [finite(row[_LEARNER + metric] for row in t.history if _LEARNER + metric in row) for t in contender.trials]
    return [values for values in found if values]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
