"""Names under which the alarm and the pictures find the metrics of an iteration, as the algorithm logs them."""

from __future__ import annotations

LEARNER = "learners/default_policy/"
ITERATION = "training_iteration"

SUCCESS = "env_runners/success_rate"
FORMAT_VALID = "env_runners/format_valid_frac"
ACTION_VALID = "env_runners/action_valid_frac"
EVALUATION_BEFORE_SAMPLED = "evaluation_before/env_runners/sampled"
EVALUATION_SAMPLED = "evaluation/env_runners/sampled"
EVALUATION_GREEDY = "evaluation/env_runners/greedy"

OFF_POLICY_KL = LEARNER + "approx_kl_k3"
REF_KL = LEARNER + "ref_kl"
GRAD_NORM = LEARNER + "grad_norm"
GRAD_NORM_MAX = LEARNER + "grad_norm_max"
ENTROPY = LEARNER + "entropy"
NONFINITE_STEPS = LEARNER + "nonfinite_steps"
