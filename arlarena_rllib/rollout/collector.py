"""Spreads episodes over the EnvRunners and gathers every one of them, whichever runner dies meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.rllib.env.env_runner_group import EnvRunnerGroup

from arlarena_rllib.errors import RolloutError
from arlarena_rllib.rollout.agent_loop import EpisodeSpec, RolloutSettings
from arlarena_rllib.serving import ClientSpec
from arlarena_rllib.trajectory import Trajectory


@dataclass
class Collected:
    """Trajectories in the order of the episodes asked for, and counters of the serving side."""

    trajectories: list[Trajectory] = field(default_factory=list)
    serving: dict[str, float] = field(default_factory=dict)
    resubmitted: int = 0
    seconds: float = 0.0


class EpisodeCollector:
    """Runs episodes on an :class:`EnvRunnerGroup`; an episode whose runner died is given to another one."""

    def __init__(self, runners: EnvRunnerGroup, client: ClientSpec, *, wait_budget_s: float) -> None:
        """``wait_budget_s``: how long to wait for a dead runner to come back when none is left."""
        self._runners = runners
        self._client = client
        self._wait_budget_s = wait_budget_s

    def collect(self, episodes: Sequence[EpisodeSpec], settings: RolloutSettings) -> Collected:
        """Return one trajectory per episode.

        Raises:
            RolloutError: no runner answered for ``wait_budget_s``.
        """
        began = time.perf_counter()
        collected = Collected()
        found: dict[int, Trajectory] = {}
        missing = list(range(len(episodes)))
        give_up = time.monotonic() + self._wait_budget_s
        while missing:
            answers = self._dispatch([(i, episodes[i]) for i in missing], settings)
            for indices, answer in answers:
                found.update(zip(indices, answer["trajectories"], strict=True))
                for key, value in answer["serving"].items():
                    collected.serving[key] = collected.serving.get(key, 0) + value
            if answers:
                give_up = time.monotonic() + self._wait_budget_s
            left = [i for i in missing if i not in found]
            collected.resubmitted += len(left)
            if left and not answers:
                self._wait_for_runners(give_up, len(left))
            missing = left
        collected.trajectories = [found[i] for i in range(len(episodes))]
        collected.seconds = time.perf_counter() - began
        return collected

    def _dispatch(
        self, indexed: Sequence[tuple[int, EpisodeSpec]], settings: RolloutSettings
    ) -> list[tuple[list[int], dict[str, Any]]]:
        """Send each healthy runner its share, group by group; return (episode indices, answer) of those that answered."""
        common = {"settings": settings, "client": self._client}
        if self._runners.num_remote_env_runners() == 0:
            answer = self._runners.local_env_runner.sample(episodes=[e for _, e in indexed], **common)
            return [([i for i, _ in indexed], answer)]
        workers = self._runners.healthy_worker_ids()
        if not workers:
            return []
        shares: list[list[tuple[int, EpisodeSpec]]] = [[] for _ in workers]
        groups = list(dict.fromkeys(e.group_id for _, e in indexed))
        home = {group: number % len(workers) for number, group in enumerate(groups)}
        for item in indexed:
            shares[home[item[1].group_id]].append(item)
        results = self._runners.foreach_env_runner(
            "sample",
            kwargs=[{"episodes": [e for _, e in share], **common, "share": n} for n, share in enumerate(shares)],
            remote_worker_ids=workers,
            local_env_runner=False,
            timeout_seconds=None,
        )
        answers = []
        for answer in results:
            if answer["trajectories"]:
                share = shares[answer["share"]]
                answers.append(([i for i, _ in share], answer))
        return answers

    def _wait_for_runners(self, give_up: float, missing: int) -> None:
        if time.monotonic() > give_up:
            raise RolloutError(
                f"no EnvRunner answered for {self._wait_budget_s:g} s; {missing} episodes are missing. "
                "See the log of the EnvRunner actors."
            )
        self._runners.probe_unhealthy_env_runners()
        time.sleep(1.0)
