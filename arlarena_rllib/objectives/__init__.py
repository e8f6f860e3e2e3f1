"""Objectives: pure tensor functions for the four axes of the method grid; needs torch and nothing else.

Driver: `compute_advantages`, `rows_in_loss` and `global_denominators` on the whole batch, `GroupFilter` while sampling.
Learner: `batch_context` where `needs_context`, `policy_objective` and, with a critic, `value_loss` on any split of the
rows, then `merge_metrics` and
`finish_metrics`.
"""

from arlarena_rllib.objectives.advantages import (
    AdvantageResult,
    AdvantageRows,
    AdvantageTerms,
    compute_advantages,
    generalised_advantages,
    token_rewards,
)
from arlarena_rllib.objectives.aggregation import (
    Denominators,
    RowCounts,
    global_denominators,
    global_denominators_from_counts,
)
from arlarena_rllib.objectives.axes import AXES
from arlarena_rllib.objectives.clipping import (
    ClipInput,
    ClipResult,
    RowIds,
    WholeBatch,
    clipped_surrogate,
    sequence_log_ratio,
    token_ratio,
)
from arlarena_rllib.objectives.context import batch_context, needs_context
from arlarena_rllib.objectives.exploration import (
    ThinkingSignal,
    TurnChoice,
    branch_by_draw,
    branch_by_threshold,
    branch_probability,
    choose_turn,
    entropy_change,
    thinking_signal,
    thinking_stop,
    turn_signal,
    window_means,
)
from arlarena_rllib.objectives.filtering import FilterReport, GroupFilter, GroupOutcome, is_mixed
from arlarena_rllib.objectives.grouping import (
    anchor_ids,
    dense_index,
    group_normalise,
    group_statistics,
    similarity_labels,
    text_similarity,
)
from arlarena_rllib.objectives.kl import kl_reward_penalty, reference_kl
from arlarena_rllib.objectives.loss import ObjectiveResult, policy_objective
from arlarena_rllib.objectives.metrics import finish_metrics, importance_metrics, merge_metrics, mismatch_metrics
from arlarena_rllib.objectives.mismatch import MismatchWeights, mismatch_weights
from arlarena_rllib.objectives.registry import NEEDS, SCORED_NEEDS, Registry, UnknownChoiceError
from arlarena_rllib.objectives.scores import discounted_step_returns, episode_returns, penalised_scores
from arlarena_rllib.objectives.shaping import (
    RowSelection,
    overlong_punishment,
    rows_in_loss,
    small_advantage_rows,
    void_rows,
)
from arlarena_rllib.objectives.spec import SPEC_FIELDS, ObjectiveSpec
from arlarena_rllib.objectives.stability import Stability, stability_rule
from arlarena_rllib.objectives.tables import SequenceTable, out_of_band_table, sequence_table
from arlarena_rllib.objectives.value_loss import value_loss
from arlarena_rllib.objectives.weighting import sequence_keep

__all__ = [
    "AXES",
    "AdvantageResult",
    "AdvantageRows",
    "AdvantageTerms",
    "ClipInput",
    "ClipResult",
    "Denominators",
    "FilterReport",
    "GroupFilter",
    "GroupOutcome",
    "MismatchWeights",
    "NEEDS",
    "ObjectiveResult",
    "ObjectiveSpec",
    "Registry",
    "RowCounts",
    "RowIds",
    "RowSelection",
    "SCORED_NEEDS",
    "SPEC_FIELDS",
    "SequenceTable",
    "Stability",
    "ThinkingSignal",
    "TurnChoice",
    "UnknownChoiceError",
    "WholeBatch",
    "anchor_ids",
    "batch_context",
    "branch_by_draw",
    "branch_by_threshold",
    "branch_probability",
    "choose_turn",
    "clipped_surrogate",
    "compute_advantages",
    "dense_index",
    "discounted_step_returns",
    "entropy_change",
    "episode_returns",
    "finish_metrics",
    "generalised_advantages",
    "global_denominators",
    "global_denominators_from_counts",
    "group_normalise",
    "group_statistics",
    "importance_metrics",
    "is_mixed",
    "kl_reward_penalty",
    "merge_metrics",
    "mismatch_metrics",
    "mismatch_weights",
    "needs_context",
    "out_of_band_table",
    "overlong_punishment",
    "penalised_scores",
    "policy_objective",
    "reference_kl",
    "sequence_keep",
    "rows_in_loss",
    "sequence_log_ratio",
    "sequence_table",
    "similarity_labels",
    "small_advantage_rows",
    "stability_rule",
    "text_similarity",
    "thinking_signal",
    "thinking_stop",
    "token_ratio",
    "token_rewards",
    "turn_signal",
    "value_loss",
    "void_rows",
    "window_means",
]
