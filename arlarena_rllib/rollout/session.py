"""Plays episodes with any weights outside an Algorithm: for evaluation and for collecting demonstrations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from arlarena_rllib.evaluation.panel import PanelResult, panel_episodes, summarise_panel
from arlarena_rllib.rollout.agent_loop import EpisodeSpec
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvPool
from arlarena_rllib.rollout.env_runner import play_all
from arlarena_rllib.rollout.envs import make_text_env
from arlarena_rllib.trajectory import Trajectory

if TYPE_CHECKING:
    from torch import Tensor

    from arlarena_rllib.config import ARLArenaConfig


class PlaySession:
    """One engine and a pool of environments in this process; a context manager.

    .. code-block:: python

        with PlaySession(config) as session:
            session.publish(model.named_parameters())
            result = session.evaluate(task_ids, draws=4)
    """

    def __init__(self, config: ARLArenaConfig) -> None:
        """Start the engine on ``config.model_path``; raises ``ServingError`` or ``ConfigError`` when it cannot."""
        config.validate()
        self._config = config
        self.codec = TextCodec(config.model_path)
        self._version = 0
        self._pool = EnvPool(partial(make_text_env, config.env, config.env_config))
        self._policy = config.start_policy(f"session-{time.time_ns():x}", self.codec.stop_ids)

    def publish(self, named_tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Play the next episodes with these weights (Hugging Face names)."""
        self._version += 1
        self._policy.publish(self._version, named_tensors)

    def play(self, episodes: Sequence[EpisodeSpec], *, temperature: float | None = None) -> list[Trajectory]:
        """Return one trajectory per episode, in order; failed ones in their place, with their reason."""
        settings = self._config.rollout_settings(temperature)
        return asyncio.run(play_all(self.codec, self._pool, self._policy.client_spec, settings, episodes))[0]

    def sampled_episodes(self, task_ids: Sequence[str], *, draws: int) -> list[EpisodeSpec]:
        """Return ``draws`` sampled episodes per task, seeded by the configuration's seed."""
        planned = panel_episodes(task_ids, draws=draws, seed=self._config.seed)
        return [episode for episode in planned if not episode.greedy]

    def evaluate(self, task_ids: Sequence[str], *, draws: int) -> PanelResult:
        """Return greedy and sampled success on ``task_ids`` at the evaluation temperature."""
        episodes = panel_episodes(task_ids, draws=draws, seed=self._config.seed)
        trajectories = self.play(episodes, temperature=self._config.evaluation_temperature)
        return summarise_panel(trajectories, n=len(task_ids))

    def close(self) -> None:
        """Stop the engine and close the environments."""
        self._policy.stop()
        self._pool.close()

    def __enter__(self) -> PlaySession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
