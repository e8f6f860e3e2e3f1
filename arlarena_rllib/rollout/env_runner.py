"""AgentEnvRunner: an RLlib EnvRunner that plays all its episodes at once against the served policy."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import gymnasium
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.typing import StateDict

from arlarena_rllib.rollout.agent_loop import EpisodeRunner, EpisodeSpec, RolloutSettings
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvPool
from arlarena_rllib.rollout.envs import make_text_env
from arlarena_rllib.serving import ClientSpec, connect
from arlarena_rllib.trajectory import Trajectory


class AgentEnvRunner(EnvRunner, Checkpointable):
    """Holds a codec and a pool of environments; tasks, seeds and the engine's address come with every call.

    So a restarted runner repeats nothing and skips nothing.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.kwargs = kwargs
        self.module = None
        self._codec: TextCodec | None = None
        self._pool: EnvPool | None = None

    def sample(
        self,
        *,
        episodes: Sequence[EpisodeSpec] = (),
        settings: RolloutSettings | None = None,
        client: ClientSpec | None = None,
        share: int = 0,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Play ``episodes``; return ``trajectories``, ``serving`` (counters), ``seconds`` and the caller's ``share``.

        Trajectories come in the order of ``episodes``; a failed one is in its place, with its reason.
        """
        if not episodes or settings is None or client is None:
            return {"trajectories": [], "serving": {}, "seconds": 0.0, "share": share}
        if self._codec is None:
            self._codec = TextCodec(self.config.model_path)
            gc.collect()
            gc.freeze()  # What was imported stays: the collector need not walk through it again and again.
        if self._pool is None:
            self._pool = EnvPool(partial(make_text_env, self.config.env, self.config.env_config))
        began = time.perf_counter()
        trajectories, serving = asyncio.run(play_all(self._codec, self._pool, client, settings, episodes))
        return {
            "trajectories": trajectories,
            "serving": serving,
            "seconds": time.perf_counter() - began,
            "share": share,
        }

    def get_spaces(self) -> dict[str, tuple[gymnasium.Space, gymnasium.Space]]:
        """Return placeholder spaces: the module reads tokens, not arrays, but RLlib asks for spaces."""
        spaces: tuple[gymnasium.Space, gymnasium.Space] = (gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(1))
        return {INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces}

    def make_env(self) -> None:
        """Do nothing: environments are made when the first episodes come."""

    def make_module(self) -> None:
        """Do nothing: the policy is served."""

    def assert_healthy(self) -> None:
        """Do nothing: a runner that answers is healthy."""

    def get_metrics(self) -> dict[str, Any]:
        """Return nothing: metrics are computed from the trajectories, on the driver."""
        return {}

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> StateDict:
        """Return nothing: a runner has no state."""
        return {}

    def set_state(self, state: StateDict) -> None:
        """Do nothing."""

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what makes this runner again."""
        return (), {"config": self.config, **self.kwargs}

    def stop(self) -> None:
        """Close the environments."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


async def play_all(
    codec: TextCodec, pool: EnvPool, spec: ClientSpec, settings: RolloutSettings, episodes: Sequence[EpisodeSpec]
) -> tuple[list[Trajectory], dict[str, float]]:
    """Play all ``episodes`` at once; return them in order, and the counters of the serving side."""
    client = connect(spec)
    try:
        runner = EpisodeRunner(codec, pool, client, settings)
        trajectories = await asyncio.gather(*(runner.run(episode) for episode in episodes))
    finally:
        await client.close()
    return list(trajectories), client.stats()
