"""The table of settings that this project adds to RLlib's: section, default, check, and meaning, in one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from arlarena_rllib.checks import text_keyed, two_betas
from arlarena_rllib.diagnostics import AlarmThresholds
from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.task_defaults import TASKS
from arlarena_rllib.trajectory import TRAJECTORY_MODES


@dataclass(frozen=True)
class Setting:
    """One setting: the builder method (= YAML section) it belongs to, its default, its check and its meaning."""

    section: str
    default: Any
    check: Callable[[Any], str | None]
    doc: str

    def validate(self, name: str, value: Any) -> None:
        """Raise :class:`ConfigError` with key, value and what is allowed when the check refuses ``value``."""
        problem = self.check(value)
        if problem:
            raise ConfigError(f"{self.section}.{name}={value!r} is not allowed: {problem}. Meaning: {self.doc}")


def _number(low: float | None = None, high: float | None = None, *, integer: bool = False, optional: bool = False):
    kind = "an integer" if integer else "a number"
    bounds = f" >= {low:g}" if low is not None else ""
    bounds += f" and <= {high:.15g}" if high is not None else ""

    def check(value: Any) -> str | None:
        if value is None and optional:
            return None
        types = (int,) if integer else (int, float)
        if isinstance(value, bool) or not isinstance(value, types):
            return f"must be {kind}{bounds}, got {type(value).__name__}"
        if math.isnan(value) or (low is not None and value < low) or (high is not None and value > high):
            return f"must be {kind}{bounds}"
        return None

    return check


def _choice(*allowed: Any, optional: bool = False):
    def check(value: Any) -> str | None:
        if value in allowed or (optional and value is None):
            return None
        return f"must be one of {', '.join(map(repr, allowed))}"

    return check


def _instance(*types: type, optional: bool = False):
    names = " or ".join(t.__name__ for t in types)

    def check(value: Any) -> str | None:
        if isinstance(value, types) or (optional and value is None):
            return None
        return f"must be {names}, got {type(value).__name__}"

    return check


def _thresholds(value: Any) -> str | None:
    problem = text_keyed(value)
    if problem:
        return problem
    names = [f.name for f in fields(AlarmThresholds)]
    unknown = [key for key in value if key not in names]
    if unknown:
        return f"{unknown[0]!r} is no threshold.{nearest(unknown[0], names)} Allowed: {', '.join(names)}"
    try:
        AlarmThresholds(**value)
    except ValueError as error:
        return str(error).replace("\n", " ").rstrip(".")
    return None


def _full_softmax(only: float):
    def check(value: Any) -> str | None:
        if value == only and not isinstance(value, bool):
            return None
        return f"must be {only:g}; ratios of log-probs assume that tokens are sampled from the full softmax"

    return check


_COUNT = _number(1, integer=True)
_COUNT0 = _number(0, integer=True)
_METHOD_VALUE = _instance(str, int, float, bool, optional=True)

SETTINGS: dict[str, Setting] = {
    # env_runners: how episodes are collected
    "groups_per_iteration": Setting("env_runners", 16, _COUNT, "tasks that one iteration trains on"),
    "group_size": Setting("env_runners", 8, _COUNT, "episodes of each task, compared with each other"),
    "temperature": Setting("env_runners", 1.0, _number(1e-3), "sampling temperature of training rollouts"),
    "max_response_tokens": Setting("env_runners", 32, _COUNT, "most tokens of one reply"),
    "top_p": Setting("env_runners", 1.0, _full_softmax(1.0), "share of probability that is sampled from"),
    "top_k": Setting("env_runners", 0, _full_softmax(0), "tokens that are sampled from; 0 = all"),
    "memory_window": Setting("env_runners", 2, _COUNT0, "past turns shown in a windowed prompt"),
    "prompt_style": Setting(
        "env_runners", "chat", _choice("chat", "compact"), "long instructions (chat) or a bare state (compact)"
    ),
    "trajectory_mode": Setting(
        "env_runners", "windowed", _choice(*TRAJECTORY_MODES), "one row per turn (windowed) or per trajectory (append)"
    ),
    "env_step_timeout_s": Setting("env_runners", 60.0, _number(1e-3), "seconds after which reset or step has failed"),
    "episode_retries": Setting("env_runners", 1, _COUNT0, "new tries of an episode after an infrastructure failure"),
    # policy: the model
    "model_path": Setting("policy", "", _instance(str), "Hugging Face directory of the policy at the start"),
    "reference_path": Setting("policy", None, _instance(str, optional=True), "frozen reference; default model_path"),
    # training: the method, as one preset and any axis or parameter laid over it
    "method": Setting("training", "grpo", _instance(str), "name of a row of the preset table"),
    "task": Setting(
        "training", None, _choice(*TASKS, optional=True), "task family whose published values replace the method's"
    ),
    "num_minibatches": Setting("training", 4, _COUNT, "optimiser steps per epoch over one rollout"),
    "old_policy": Setting(
        "training",
        "learner",
        _choice("learner", "sampler"),
        "whose log-probs ratios start from: the learner's before the update, or those that the sampler reported",
    ),
    "micro_batch_tokens": Setting("training", 8192, _COUNT, "padded tokens of one forward and backward pass"),
    "weight_decay": Setting("training", 0.0, _number(0), "AdamW weight decay"),
    "adam_betas": Setting("training", (0.9, 0.99), two_betas, "AdamW betas"),
    "lr_warmup_iterations": Setting("training", 0, _COUNT0, "iterations of linear warm-up"),
    "lr_decay_iterations": Setting(
        "training",
        None,
        _number(1, integer=True, optional=True),
        "iteration at which linear decay ends; null = no decay",
    ),
    "lr_final_fraction": Setting("training", 0.1, _number(0, 1), "share of lr left after the decay"),
    "max_nonfinite_steps": Setting(
        "training", 3, _COUNT, "skipped optimiser steps in a row (non-finite loss or gradient) that end the run"
    ),
    # serving: the inference engine
    "engine": Setting("serving", "vllm", _instance(str), "inference engine: vllm or transformers, or a registered one"),
    "num_replicas": Setting("serving", 1, _COUNT0, "Serve replicas; 0 = engine in the algorithm's process"),
    "num_cpus_per_replica": Setting("serving", 1.0, _number(0), "logical CPUs of one replica"),
    "num_gpus_per_replica": Setting("serving", 0.0, _number(0), "GPUs of one replica"),
    "engine_dtype": Setting("serving", "float32", _instance(str), "dtype of the engine's weights"),
    "max_model_len": Setting("serving", 512, _COUNT, "most tokens of prompt and reply together"),
    "max_num_seqs": Setting("serving", 128, _COUNT, "requests that one replica decodes at once"),
    "engine_kwargs": Setting("serving", {}, text_keyed, "engine arguments by the engine's own names, passed through"),
    "startup_timeout_s": Setting("serving", 600.0, _number(1), "seconds that the engine may take to start"),
    "request_timeout_s": Setting("serving", 300.0, _number(1e-3), "seconds after which one generation has failed"),
    "retry_budget_s": Setting("serving", 180.0, _number(0), "seconds that a request waits for a replica to come back"),
    "sync_check_sequences": Setting("serving", 4, _COUNT0, "sequences that compare sampler and learner; 0 = off"),
    "weight_lag": Setting(
        "serving",
        0,
        _COUNT0,
        "versions that training rollouts are behind the learner; 0 = none. Not compared with it then",
    ),
    "sync_check_bound": Setting("serving", 1e-2, _number(0), "largest log-prob difference before the run stops"),
    # evaluation on fixed held-out panels
    "evaluation_split": Setting(
        "evaluation", "validation", _choice("train", "validation", "test"), "panel that is evaluated during training"
    ),
    "evaluation_num_tasks": Setting("evaluation", 128, _COUNT, "first tasks of the panel that are evaluated"),
    "evaluation_samples": Setting("evaluation", 1, _COUNT0, "sampled episodes per task, besides one greedy episode"),
    "evaluation_temperature": Setting("evaluation", 1.0, _number(1e-3), "temperature of the sampled episodes"),
    "evaluate_before_training": Setting("evaluation", True, _instance(bool), "evaluate the start as iteration 0"),
    # reporting: diagnostics
    "alarm_thresholds": Setting(
        "reporting", {}, _thresholds, "limits of the collapse alarm, fields of diagnostics.AlarmThresholds"
    ),
    "stop_on_collapse": Setting("reporting", False, _instance(bool), "end the trial when the collapse alarm fires"),
    "prompt_dependence_interval": Setting(
        "reporting", 0, _COUNT0, "iterations between measurements of prompts/... (costs forward passes); 0 = off"
    ),
    "record_trajectories": Setting(
        "reporting", 0, _COUNT0, "episodes of each iteration that are written down, for `arlarena view`; 0 = none"
    ),
}
"""All settings that are not parameters of a method (those are in ``objectives``)."""


def _rate(value: Any) -> str | None:
    if isinstance(value, (list, tuple)):
        return (
            None
            if _is_schedule(value)
            else "must be a number > 0, or RLlib's schedule: [[0, rate], [timestep, rate], ...]"
        )
    problem = _number(0)(value)
    return "must be a number > 0, or RLlib's schedule" if problem or value in (0, math.inf) else None


def _is_schedule(value: Sequence[Any]) -> bool:
    """Say whether RLlib will take the value for a schedule; it would say so only when the learner is built."""
    pairs = [tuple(pair) for pair in value if isinstance(pair, (list, tuple)) and len(pair) == 2]
    is_right = len(pairs) == len(value) >= 2 and not any(_number(0)(number) for pair in pairs for number in pair)
    return is_right and pairs[0][0] == 0


RLLIB_SETTINGS: dict[str, Setting] = {
    "lr": Setting("training", None, _rate, "learning rate"),
    "grad_clip": Setting("training", None, _number(1e-12, optional=True), "largest global norm of the gradient"),
    "num_epochs": Setting("training", None, _COUNT, "passes over one rollout"),
    "num_env_runners": Setting("env_runners", None, _COUNT0, "remote EnvRunners; 0 = in the algorithm's process"),
    "num_cpus_per_env_runner": Setting("env_runners", None, _number(0), "logical CPUs of one EnvRunner"),
    "num_learners": Setting("learners", None, _COUNT0, "remote learners; 0 = in the algorithm's process"),
    "num_gpus_per_learner": Setting("learners", None, _number(0), "GPUs of one learner"),
    "num_cpus_for_main_process": Setting("resources", None, _number(0), "logical CPUs of the algorithm's process"),
    "evaluation_interval": Setting(
        "evaluation", None, _number(1, integer=True, optional=True), "iterations between evaluations; null = never"
    ),
    "framework_str": Setting("framework", None, _choice("torch"), "deep-learning framework"),
    "seed": Setting("debugging", None, _number(0, 2**31 - 1, integer=True), "seed of tasks, sampling and shuffling"),
}
"""RLlib's settings whose values RLlib itself does not check before a run."""

METHOD_SETTING_DOC = "parameter of the method; null = the value of the preset"


def method_setting() -> Setting:
    """Return the :class:`Setting` of one method parameter: unset means that the preset decides."""
    return Setting("training", None, _METHOD_VALUE, METHOD_SETTING_DOC)


READ_RLLIB_SETTINGS = frozenset(
    {
        *RLLIB_SETTINGS,
        *("env", "env_config", "algo_class", "framework_str", "env_runner_cls"),
        *("num_gpus_per_env_runner", "custom_resources_per_env_runner", "max_requests_in_flight_per_env_runner"),
        *("num_cpus_per_learner", "custom_resources_per_learner", "max_requests_in_flight_per_learner"),
        *("local_gpu_idx", "torch_ddp_kwargs", "learner_config_dict", "num_gpus"),
        *("restart_failed_env_runners", "max_num_env_runner_restarts", "delay_between_env_runner_restarts_s"),
        *("num_consecutive_env_runner_failures_tolerance", "ignore_env_runner_failures"),
        *("env_runner_health_probe_timeout_s", "env_runner_restore_timeout_s"),
        "validate_env_runners_after_construction",
        *("callbacks_class", "callbacks_on_algorithm_init", "callbacks_on_checkpoint_loaded"),
        *("callbacks_on_env_runners_recreated", "callbacks_on_train_result"),
        *("log_level", "log_sys_usage"),
        *("min_time_s_per_iteration", "min_sample_timesteps_per_iteration", "min_train_timesteps_per_iteration"),
        *("custom_resources_for_main_process", "placement_strategy", "in_evaluation"),
        *("extra_python_environs_for_driver", "extra_python_environs_for_worker"),
        *("policies", "policy_states_are_swappable", "simple_optimizer"),  # RLlib fills them in itself
        *("enable_rl_module_and_learner", "enable_env_runner_and_connector_v2"),
    }
)
"""RLlib's settings that this algorithm, or RLlib's part of it, does read; setting any other one is an error."""

INSTEAD_OF_RLLIB_SETTINGS: dict[str, str] = {
    "train_batch_size": "the batch is groups_per_iteration x group_size episodes",
    "train_batch_size_per_learner": "the batch is groups_per_iteration x group_size episodes",
    "minibatch_size": "set training.num_minibatches and training.micro_batch_tokens",
    "shuffle_batch_per_epoch": "rows are always shuffled by the run's seed",
    "num_envs_per_env_runner": "all episodes of a runner's groups run at once",
    "rollout_fragment_length": "rollouts are complete episodes",
    "batch_mode": "rollouts are complete episodes",
    "sample_timeout_s": "set env_runners.env_step_timeout_s and serving.request_timeout_s",
    "explore": "set env_runners.temperature",
    "evaluation_duration": "set evaluation.evaluation_num_tasks and evaluation.evaluation_samples",
    "evaluation_duration_unit": "set evaluation.evaluation_num_tasks and evaluation.evaluation_samples",
    "evaluation_num_env_runners": "evaluation uses the training EnvRunners",
    "evaluation_config": "set the evaluation.* settings of this project",
    "evaluation_parallel_to_training": "evaluation uses the training EnvRunners, so it runs after the update",
    "custom_evaluation_function": "evaluation runs the fixed panels",
    "model": "set policy.model_path",
    "grad_clip_by": "the global norm is clipped",
    "optimizer": "AdamW is configured by weight_decay and adam_betas",
    "observation_space": "spaces come from the text environment",
    "action_space": "spaces come from the text environment",
    "compress_observations": "there are no array observations",
    "observation_filter": "there are no array observations",
    "torch_compile_learner": "the learner runs eagerly",
}
"""What to set instead of RLlib settings that are never read here; those without a word of their own get none."""
