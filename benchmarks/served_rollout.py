"""The rollout as training does it: episodes of an EnvRunner actor, the engine behind Ray Serve."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

import psutil
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import RolloutError
from arlarena_rllib.models.load import load_causal_lm
from arlarena_rllib.rollout.agent_loop import EpisodeSpec
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.collector import EpisodeCollector
from arlarena_rllib.rollout.envs import bare_text_env
from arlarena_rllib.trajectory import Trajectory
from benchmarks.bare_engine import Generation
from benchmarks.processes import family


@dataclass(frozen=True)
class Played:
    """Episodes, and what the engine was asked for and answered, in the order of the turns."""

    trajectories: list[Trajectory]
    generations: list[Generation]

    @property
    def num_tokens(self) -> int:
        """Response tokens."""
        return sum(generation.num_tokens for generation in self.generations)

    def digest(self) -> str:
        """Return a hash of all prompts and reply lengths: the work that the limit repeats."""
        work = [(g.prompt_ids, g.num_tokens) for g in self.generations]
        return hashlib.sha256(json.dumps(work).encode()).hexdigest()


class ServedRollout:
    """Policy on Ray Serve, EnvRunner actors and the collector of the algorithm; a context manager."""

    def __init__(self, config: ARLArenaConfig, *, excluded_pid: int | None = None) -> None:
        """Start all of it; processes below ``excluded_pid`` do not belong to the rollout."""
        config.validate()
        self._config = config
        self._excluded_pid = excluded_pid
        self._panel = bare_text_env(config.env, config.env_config).tasks()
        self._version = 0
        self._policy = config.start_policy(f"bench-{time.time_ns():x}", TextCodec(config.model_path).stop_ids)
        self._runners = EnvRunnerGroup(config=config, local_env_runner=config.num_env_runners == 0)
        self._collector = EpisodeCollector(self._runners, self._policy.client_spec, wait_budget_s=config.retry_budget_s)
        self.publish()

    def publish(self) -> None:
        """Push the weights of the model directory again, which empties the prefix cache as in training."""
        self._version += 1
        self._policy.publish(self._version, load_causal_lm(self._config.model_path).named_parameters())

    def processes(self) -> Iterable[psutil.Process]:
        """Return this process and all of Ray's that it started."""
        excluded = {p.pid for p in family(self._excluded_pid)} if self._excluded_pid is not None else set()
        return [process for process in family(os.getpid()) if process.pid not in excluded]

    def play(self, first_group: int, groups: int) -> Played:
        """Play ``groups`` groups of new training tasks at once.

        Raises:
            RolloutError: an episode failed: the engine was not asked for the same work then.
        """
        tasks, _ = self._panel.draw("train", first_group, groups, self._config.seed)
        episodes = [
            EpisodeSpec(first_group + offset, member, task, seed=1000 * (first_group + offset) + member)
            for offset, task in enumerate(tasks)
            for member in range(self._config.group_size)
        ]
        trajectories = self._collector.collect(episodes, self._config.rollout_settings()).trajectories
        failed = [t for t in trajectories if t.stop_reason.is_failed_episode]
        if failed:
            raise RolloutError(f"{len(failed)} of {len(episodes)} episodes failed; the first: {failed[0].error}")
        return Played(trajectories, _generations(trajectories))

    def close(self) -> None:
        """Stop runners and engine."""
        self._runners.stop()
        self._policy.stop()

    def __enter__(self) -> ServedRollout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _generations(trajectories: list[Trajectory]) -> list[Generation]:
    """Return all first turns, then all second ones, and so on: about the order in which the engine was asked."""
    longest = max(len(trajectory.turns) for trajectory in trajectories)
    prompts = [trajectory.prompts for trajectory in trajectories]
    return [
        Generation(prompts[number][turn], len(trajectory.turns[turn].response_ids))
        for turn in range(longest)
        for number, trajectory in enumerate(trajectories)
        if turn < len(trajectory.turns)
    ]
