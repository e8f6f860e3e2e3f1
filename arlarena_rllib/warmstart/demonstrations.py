"""Where demonstrations come from: an environment's own plan, played well or clumsily, or the policy's successes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from arlarena_rllib.errors import RolloutError
from arlarena_rllib.rollout.agent_loop import EpisodeRunner, EpisodeSpec
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvPool
from arlarena_rllib.rollout.envs import make_text_env
from arlarena_rllib.serving import GenerationRequest, GenerationResult
from arlarena_rllib.trajectory import StopReason, Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    from arlarena_rllib.config import ARLArenaConfig
    from env_connectors import TextEnv


class Demonstrator:
    """Plays an environment by its own plan, answering like an engine, with one written reply a turn.

    With ``slip`` > 0 it is a clumsy player: with that probability its hand does another action (``TextEnv.slips``) than
    the one it thought of, and it plans anew from where it then stands.
    """

    def __init__(self, env: TextEnv, codec: TextCodec, *, slip: float = 0.0, seed: int = 0) -> None:
        """``env`` must be the one that the episode runs in."""
        self._env = env
        self._codec = codec
        self._slip = slip
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 0x736C]))
        self._plan: list[tuple[str, str]] = []

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Return the next reply; the prompt is not read."""
        if self._env.turn == 0 or not self._plan:
            self._plan = self._env.plan()
        others = self._env.slips()
        thought, action = self._plan.pop(0) if self._plan else ("give up", others[0])
        others = [other for other in others if other != action]
        if self._slip and others and self._rng.random() < self._slip:
            action, self._plan = others[int(self._rng.integers(len(others)))], []
        form = self._env.reply_form
        reply = form.render(thought, action)
        ids = self._codec.encode_reply(reply)
        if not reply.endswith(form.stop or ("\0",)):  # A stop text ends a reply as it stands, as it does the policy's.
            ids.append(self._codec.tokenizer.eos_token_id)
        return GenerationResult(ids, [0.0] * len(ids), "stop", [0] * len(ids))


def demonstrations(
    config: ARLArenaConfig,
    task_ids: Sequence[str],
    codec: TextCodec,
    *,
    slip: float = 0.0,
    seed: int = 0,
    tries: int = 20,
) -> list[TrajectoryGroup]:
    """Return one won episode of each task, prompted exactly as the policy will be.

    Args:
        config: Environment and prompt settings.
        task_ids: Tasks to demonstrate.
        codec: The policy's tokenizer.
        slip: Probability that an action is a slip (0 = gold play); slips are demonstrated like any other action.
        seed: Decides the slips.
        tries: Episodes of a clumsy player per task; a task that it never wins is left out.

    Raises:
        RolloutError: gold play does not win a task, the environment failed, or no task at all was won.
    """
    env = make_text_env(config.env, config.env_config)
    pool = EnvPool(lambda: env, num_threads=1)
    won, last = asyncio.run(_play_until_won(config, task_ids, codec, env, pool, slip, seed, tries if slip else 1))
    pool.close()
    if not won:
        remedy = _remedy(config, last) if last is StopReason.PROMPT_TOO_LONG else "Lower warm_start.slip."
        raise RolloutError(
            f"none of {len(task_ids)} tasks was won with slip={slip:g}; the last episode ended with {last}. {remedy}"
        )
    return [TrajectoryGroup(number, t.task_id, [t]) for number, t in enumerate(won)]


async def _play_until_won(
    config: ARLArenaConfig,
    task_ids: Sequence[str],
    codec: TextCodec,
    env: gymnasium.Env,
    pool: EnvPool,
    slip: float,
    seed: int,
    tries: int,
) -> tuple[list[Trajectory], StopReason]:
    text_env: TextEnv = env.unwrapped  # type: ignore[assignment]  # checked by make_text_env
    runner = EpisodeRunner(codec, pool, Demonstrator(text_env, codec, slip=slip, seed=seed), config.rollout_settings())
    won = []
    last = StopReason.MAX_TURNS
    for number, task in enumerate(task_ids):
        for _ in range(tries):
            trajectory = await runner.run(EpisodeSpec(number, 0, task, number))
            last = trajectory.stop_reason
            if trajectory.success:
                won.append(trajectory)
                break
            if trajectory.stop_reason.is_failed_episode:
                raise RolloutError(
                    f"the demonstration of task {task!r} in {config.env!r} ended with {trajectory.stop_reason.value}: "
                    f"{trajectory.error}. Run `arlarena envs check {config.env}`."
                )
        if not slip and not trajectory.success:
            raise RolloutError(
                f"the gold actions of task {task!r} end with {last}, not with success. {_remedy(config, last)}"
            )
    return won, last


def _remedy(config: ARLArenaConfig, reason: StopReason) -> str:
    if reason is StopReason.PROMPT_TOO_LONG:
        return (
            f"Prompt and reply do not fit into serving.max_model_len={config.max_model_len} with "
            f"env_runners.max_response_tokens={config.max_response_tokens}: raise it."
        )
    return f"Run `arlarena envs check {config.env}`."


def keep_successes(trajectories: Sequence[Trajectory], *, most_per_task: int = 1) -> list[TrajectoryGroup]:
    """Return the successful, always well-formed episodes as demonstrations (rejection fine-tuning, RFT).

    Args:
        trajectories: Episodes that the policy itself played.
        most_per_task: Upper bound per task, first come, so that easy tasks do not crowd out the others.
    """
    kept: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        clean = trajectory.success and all(turn.format_valid for turn in trajectory.turns)
        if clean and len(kept.setdefault(trajectory.task_id, [])) < most_per_task:
            kept[trajectory.task_id].append(trajectory)
    return [TrajectoryGroup(i, task, found) for i, (task, found) in enumerate(kept.items()) if found]
