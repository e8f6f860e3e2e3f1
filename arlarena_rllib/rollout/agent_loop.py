"""One episode: render, generate, parse, step, until the task or a limit ends it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from arlarena_rllib.errors import ServingError
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvCallTimeout, EnvPool
from arlarena_rllib.serving import GenerationRequest, GenerationResult
from arlarena_rllib.trajectory import APPEND, WINDOWED, StopReason, Trajectory, Turn
from env_connectors.prompting import PastTurn, PromptConfig, render_followup, render_prompt
from env_connectors.reply_form import ReplyForm
from env_connectors.text_env import own_info


class Client(Protocol):
    """What an episode needs of the serving side."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Return the sampled tokens of one request."""


@dataclass(frozen=True)
class EpisodeSpec:
    """Which episode to run; equal specs give equal tasks and, with seeded sampling, equal episodes."""

    group_id: int
    member: int
    task_id: str
    seed: int
    greedy: bool = False


@dataclass(frozen=True)
class RolloutSettings:
    """How episodes are run; all of it comes from the configuration."""

    temperature: float = 1.0
    max_response_tokens: int = 32
    max_model_len: int = 512
    memory_window: int = 2
    prompt_style: str = "chat"
    mode: str = WINDOWED
    env_step_timeout_s: float = 60.0
    episode_retries: int = 1
    seeded_sampling: bool = True
    keep_info: bool = False
    """Keep what the environment's info says of each turn."""


@dataclass
class EpisodeRunner:
    """Runs episodes with one codec, one pool of environments and one connection to the engine."""

    codec: TextCodec
    pool: EnvPool
    client: Client
    settings: RolloutSettings
    prompt: PromptConfig = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.prompt = PromptConfig(
            window=settings.memory_window,
            instructions=settings.prompt_style == "chat",
            style=settings.prompt_style,
        )

    async def run(self, spec: EpisodeSpec) -> Trajectory:
        """Return the episode. It never raises: a failure is a trajectory with its reason, after the allowed retries."""
        retries = 0
        while True:
            trajectory = await self._attempt(spec)
            trajectory.retries = retries
            if not trajectory.stop_reason.is_failed_episode or retries >= self.settings.episode_retries:
                return trajectory
            retries += 1

    async def _attempt(self, spec: EpisodeSpec) -> Trajectory:
        trajectory = Trajectory(spec.task_id, spec.group_id, spec.member, mode=self.settings.mode)
        env = None
        try:
            env = await self.pool.acquire(self.settings.env_step_timeout_s)
            await self._play(spec, env, trajectory)
        except EnvCallTimeout as error:
            env = None
            trajectory.stop_reason, trajectory.error = StopReason.ENV_TIMEOUT, str(error)
        except ServingError as error:
            trajectory.stop_reason, trajectory.error = StopReason.ENGINE_ERROR, str(error)
        except Exception as error:  # noqa: BLE001  an environment may raise anything; its episode fails, siblings go on
            env = None
            trajectory.stop_reason = StopReason.ENV_ERROR
            trajectory.error = f"{type(error).__name__}: {error}"
        if env is not None:
            self.pool.release(env)
        return trajectory

    async def _play(self, spec: EpisodeSpec, env: Any, trajectory: Trajectory) -> None:
        timeout_s = self.settings.env_step_timeout_s
        observation, info = await self.pool.run(
            env.reset, seed=spec.seed, options={"task_id": spec.task_id}, timeout_s=timeout_s
        )
        trajectory.task_type = str(info.get("task_type", ""))
        history: list[PastTurn] = []
        conversation: list[int] = []
        while True:
            context = self._context(env, observation, info, history, conversation, trajectory)
            if context is None:
                trajectory.stop_reason = StopReason.PROMPT_TOO_LONG
                return
            form = env.unwrapped.reply_form
            result, seconds = await self._generate(spec, conversation + context, len(trajectory.turns), form.stop)
            reply = form.parse(text := self.codec.decode(result.token_ids))
            began = time.perf_counter()
            anchor, brief = info["anchor"], info["brief"]
            next_observation, reward, terminated, truncated, info = await self.pool.run(
                env.step, reply.action, timeout_s=timeout_s
            )
            trajectory.env_metrics = dict(info.get("episode_metrics", {}))
            trajectory.turns.append(
                Turn(
                    context_ids=context,
                    response_ids=result.token_ids,
                    response_logp=result.logprobs,
                    response_mask=[1] * len(result.token_ids),
                    weight_versions=result.weight_versions,
                    reply=text,
                    thought=reply.thought,
                    action=reply.action,
                    format_valid=reply.format_valid,
                    action_valid=reply.format_valid and bool(info["action_valid"]),
                    anchor=anchor,
                    reward=float(reward),
                    observation=observation,
                    finish_reason=result.finish_reason,
                    cached_tokens=result.num_cached_tokens,
                    generate_s=seconds,
                    env_s=time.perf_counter() - began,
                    info=own_info(info) if self.settings.keep_info else {},
                )
            )
            if self.settings.mode == APPEND:
                conversation += context + result.token_ids
            history.append(PastTurn(brief, reply.action))
            observation = next_observation
            if terminated or truncated:
                trajectory.success = bool(info["success"])
                trajectory.stop_reason = StopReason(info["stop_reason"])
                if trajectory.is_truncated:
                    last = self._context(env, observation, info, history, conversation, trajectory)
                    trajectory.final_context_ids = conversation + last if last else []
                return

    def _context(
        self,
        env: Any,
        observation: str,
        info: dict[str, Any],
        history: list[PastTurn],
        conversation: list[int],
        trajectory: Trajectory,
    ) -> list[int] | None:
        """Return the tokens before the next reply, or None when they cannot fit.

        Rule: prompt and a full reply must fit into ``max_model_len``. A windowed prompt gives up its oldest past turns
        until it fits; a conversation that grows cannot, and ends.
        """
        room = self.settings.max_model_len - self.settings.max_response_tokens - len(conversation)
        if self.settings.mode == APPEND and trajectory.turns:
            ids = self._followup(env.unwrapped.reply_form, observation, trajectory.turns[-1].response_ids)
            return ids if len(ids) <= room else None
        window = history[-self.settings.memory_window :] if self.settings.memory_window else []
        if self.settings.mode == APPEND:
            window = []
        while True:
            messages = render_prompt(
                instructions=env.unwrapped.instructions,
                observation=observation,
                history=window,
                admissible=info["admissible"],
                config=self.prompt,
                turn=len(trajectory.turns),
                form=env.unwrapped.reply_form,
            )
            ids = self.codec.encode_prompt(messages)
            if len(ids) <= room:
                return ids
            if not window:
                return None
            window = window[1:]

    def _followup(self, form: ReplyForm, observation: str, reply: list[int]) -> list[int]:
        """Return the tokens between a reply and the next one of a conversation that grows."""
        has_ended = reply[-1] in self.codec.stop_ids
        if form.continues and not has_ended:
            return self.codec.encode_text(observation)
        followup = render_followup(observation, config=self.prompt)
        return self.codec.encode_continuation([followup], reply_ended=has_ended)

    async def _generate(
        self, spec: EpisodeSpec, prompt: list[int], turn: int, stop: tuple[str, ...]
    ) -> tuple[GenerationResult, float]:
        began = time.perf_counter()
        result = await self.client.generate(
            GenerationRequest(
                prompt_ids=prompt,
                max_tokens=self.settings.max_response_tokens,
                temperature=0.0 if spec.greedy else self.settings.temperature,
                seed=(spec.seed * 1009 + turn) % 2**31 if self.settings.seeded_sampling else None,
                stop_token_ids=self.codec.stop_ids,
                stop=stop,
            )
        )
        if result.is_error or not result.token_ids:
            raise ServingError(result.error or f"the engine returned no token (finish reason {result.finish_reason!r})")
        return result, time.perf_counter() - began
