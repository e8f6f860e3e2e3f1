"""What a set of trajectories says: success, returns, lengths, validity, and where every group went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from arlarena_rllib.trajectory import StopReason, Trajectory


def trajectory_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return RLlib's episode metrics and this project's, over the episodes that did not fail.

    ``episode_return_*`` are the environment's rewards without penalties; ``format_valid_frac`` and
    ``action_valid_frac`` are shares of turns; ``stop_<reason>_frac`` are shares of all episodes, failed ones included.
    Without a single good episode only the stop reasons are there.
    """
    metrics = {f"stop_{reason.value}_frac": 0.0 for reason in StopReason}
    for reason, count in Counter(t.stop_reason for t in trajectories).items():
        metrics[f"stop_{reason.value}_frac"] = count / len(trajectories)
    metrics["num_failed_episodes"] = float(sum(t.stop_reason.is_failed_episode for t in trajectories))
    metrics["num_retried_episodes"] = float(sum(t.retries > 0 for t in trajectories))
    good = [t for t in trajectories if not t.stop_reason.is_failed_episode and t.turns]
    if not good:
        return metrics
    turns = [turn for t in good for turn in t.turns]
    returns = [t.episode_return for t in good]
    prompts = [length for t in good for length in t.prompt_lengths]
    metrics.update(
        success_rate=_mean(t.success for t in good),
        episode_return_mean=_mean(returns),
        episode_return_min=min(returns),
        episode_return_max=max(returns),
        episode_len_mean=_mean(len(t.turns) for t in good),
        num_episodes=float(len(good)),
        num_env_steps_sampled=float(len(turns)),
        response_len_tokens_mean=_mean(len(turn.response_ids) for turn in turns),
        prompt_len_tokens_mean=_mean(prompts),
        response_truncated_frac=_mean(turn.finish_reason == "length" for turn in turns),
        format_valid_frac=_mean(turn.format_valid for turn in turns),
        action_valid_frac=_mean(turn.action_valid for turn in turns),
        num_response_tokens=float(sum(len(turn.response_ids) for turn in turns)),
        num_prompt_tokens=float(sum(prompts)),
        cached_prompt_tokens_frac=sum(turn.cached_tokens for turn in turns) / max(1, sum(prompts)),
    )
    return metrics | env_metrics(good)


def env_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return ``env_<name>_mean`` of what environments count of an episode, over the episodes that have it."""
    names = sorted({name for t in trajectories for name in t.env_metrics})
    return {
        f"env_{name}_mean": _mean(t.env_metrics[name] for t in trajectories if name in t.env_metrics) for name in names
    }


def version_lag(trajectories: Sequence[Trajectory], newest: int) -> dict[str, float]:
    """Return how many weight versions the sampled tokens are behind ``newest``: mean and max over tokens."""
    lags = [newest - v for t in trajectories for turn in t.turns for v in turn.weight_versions]
    return {"weight_version_lag_mean": _mean(lags), "weight_version_lag_max": float(max(lags, default=0))}


def _mean(values: Any) -> float:
    found = [float(v) for v in values]
    return float(np.mean(found)) if found else 0.0
