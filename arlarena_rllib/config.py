"""ARLArenaConfig: RLlib's builder with this project's settings, strict on every route.

A key that nobody knows, or that nobody reads with these choices, is an error that names the key, its place and the
nearest valid key: as a keyword of a builder method, as an attribute, in a dict (``update_from_dict``, Tune) and in YAML.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.result import TRIAL_INFO
from ray.util.debug import log_once

from arlarena_rllib.checks import text_keyed
from arlarena_rllib.errors import ConfigError, ServingError, nearest
from arlarena_rllib.objectives import NEEDS, SPEC_FIELDS, ObjectiveSpec
from arlarena_rllib.presets import find_method, resolve_method
from arlarena_rllib.settings import (
    INSTEAD_OF_RLLIB_SETTINGS,
    READ_RLLIB_SETTINGS,
    RLLIB_SETTINGS,
    SETTINGS,
    Setting,
    method_setting,
)
from arlarena_rllib.trajectory import APPEND

if TYPE_CHECKING:
    from arlarena_rllib.rollout.agent_loop import RolloutSettings
    from arlarena_rllib.serving import EngineSpec, Policy

METHOD_KEYS = SPEC_FIELDS
ALL_SETTINGS: dict[str, Setting] = {**SETTINGS, **{key: method_setting() for key in METHOD_KEYS}}
_RLLIB_SECTIONS = (
    "environment", "env_runners", "training", "learners", "evaluation", "checkpointing", "callbacks", "debugging",
    "fault_tolerance", "resources", "reporting", "framework", "experimental", "rl_module", "python_environment",
)  # fmt: skip
SECTIONS = tuple(dict.fromkeys((*_RLLIB_SECTIONS, *(s.section for s in SETTINGS.values()))))
_known_keys: dict[type, frozenset[str]] = {}


class ARLArenaConfig(AlgorithmConfig):
    """Configuration of :class:`~arlarena_rllib.algorithm.ARLArena`.

    ``.environment() .env_runners() .training() .learners() .evaluation() .checkpointing() .callbacks() .debugging()`` are
    RLlib's and take this project's settings as well; ``.policy()`` and ``.serving()`` are added. All settings are in
    :mod:`arlarena_rllib.settings`; the parameters of a method are the fields of
    :class:`~arlarena_rllib.objectives.ObjectiveSpec`, unset until given.

    .. code-block:: python

        config = (
            ARLArenaConfig()
            .environment("arlarena/Sokoban-6x6-1-v0", env_config={"observation": "coords"})
            .policy(model_path="runs/quickstart/start")
            .training(method="sampo", lr=5e-4)
        )
        algo = config.build_algo()
    """

    def __init__(self, algo_class: type | None = None) -> None:
        from arlarena_rllib.algorithm import ARLArena

        super().__init__(algo_class or ARLArena)
        for key, setting in ALL_SETTINGS.items():
            setattr(self, key, dict(setting.default) if isinstance(setting.default, dict) else setting.default)
        self._apply_house_defaults()
        self._is_strict = True

    def _apply_house_defaults(self) -> None:
        from arlarena_rllib.rollout.env_runner import AgentEnvRunner

        self.env_runner_cls = AgentEnvRunner
        self.num_env_runners, self.num_learners = 0, 0
        self.lr, self.grad_clip, self.grad_clip_by = 1e-6, 1.0, "global_norm"
        self.num_epochs = 1
        self.evaluation_interval = None
        # A slow generation is not a dead runner, and a restarted runner must not hold up the others for a minute.
        self.restart_failed_env_runners = True
        self.delay_between_env_runner_restarts_s = 1.0
        self._dont_auto_sync_env_runner_states = True
        self._validate_config = True
        self.seed = 0

    # --- strict keys ---------------------------------------------------------------------------------------------

    def __setattr__(self, key: str, value: Any) -> None:
        if self.__dict__.get("_is_strict") and not key.startswith("_"):
            if not hasattr(self, key):
                raise _unknown(key, "an attribute of ARLArenaConfig", self.known_keys())
            if key in SECTIONS and not isinstance(getattr(type(self), key), property):
                raise ConfigError(f"{key!r} is a section: call config.{key}(key=value) instead of assigning {value!r}.")
        super().__setattr__(key, value)

    def __setitem__(self, key: str, value: Any) -> None:
        """Set one flat key, as :meth:`update_from_dict` does."""
        self.update_from_dict({key: value})

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """Return every public setting name: this project's and RLlib's."""
        if cls not in _known_keys:
            default = cls()
            names = {key for key in vars(default) if not key.startswith("_")} | set(default.to_dict())
            _known_keys[cls] = frozenset(names)
        return _known_keys[cls]

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> ARLArenaConfig:
        """Set flat keys, as Tune does; raise :class:`ConfigError` for a key that does not exist."""
        known = self.known_keys()
        for key in config_dict:
            if not isinstance(key, str):
                raise ConfigError(f"{key!r} (the config dict) is not a setting: keys are texts.")
            if key == TRIAL_INFO or key in known or key.startswith("_"):
                continue
            raise _unknown(key, "the config dict", known)
        own = {key: value for key, value in config_dict.items() if key in ALL_SETTINGS}
        super().update_from_dict({key: value for key, value in config_dict.items() if key not in ALL_SETTINGS})
        for key, value in own.items():
            setattr(self, key, value)
        return self

    def apply_sections(self, sections: Mapping[str, Mapping[str, Any]], *, place: str = "config") -> ARLArenaConfig:
        """Call the builder methods named by ``sections``, e.g. ``{"training": {"lr": 1e-6}}`` (the YAML form).

        Raises:
            ConfigError: a section or a key is unknown; ``place`` (file name, say) is part of the message.
        """
        for section, values in sections.items():
            if section not in SECTIONS:
                home = section_of(section)
                hint = f" It is a key of a section: write {home}.{section}." if home else ""
                raise ConfigError(
                    f"{section!r} ({place}) is not a section.{hint or nearest(section, SECTIONS)} "
                    f"Allowed: {', '.join(SECTIONS)}."
                )
            if not isinstance(values, Mapping):
                raise ConfigError(f"section {section!r} ({place}) must be a mapping of keys, got {values!r}.")
            try:
                self._configure(section, values)
            except ConfigError as error:
                raise ConfigError(f"{error} (in {place})") from None
        return self

    def _configure(self, section: str, given: Mapping[str, Any]) -> ARLArenaConfig:
        own = {k: v for k, v in given.items() if k in ALL_SETTINGS and ALL_SETTINGS[k].section == section}
        theirs = {k: v for k, v in given.items() if k not in own}
        problem = text_keyed(theirs["env_config"]) if theirs.get("env_config", NotProvided) is not NotProvided else None
        if problem:
            raise ConfigError(
                f"environment.env_config={theirs['env_config']!r} {problem}: the environment's constructor arguments."
            )
        method = getattr(AlgorithmConfig, section, None)
        accepted = _rllib_keys(section)
        for key in theirs:
            if key not in accepted:
                raise _misplaced(key, section, accepted)
        if method is not None and theirs:
            try:
                method(self, **theirs)
            except (TypeError, ValueError, AttributeError) as error:
                raise ConfigError(f"section {section!r}: {error}") from error
        for key, value in own.items():
            if value is not NotProvided:
                setattr(self, key, value)
        return self

    # --- builder methods -----------------------------------------------------------------------------------------

    def environment(self, env: Any = NotProvided, **keys: Any) -> ARLArenaConfig:
        """RLlib's ``environment``; ``env`` is a Gymnasium id of a :class:`env_connectors.TextEnv`."""
        return self._configure("environment", keys if env is NotProvided else {"env": env, **keys})

    def env_runners(self, **keys: Any) -> ARLArenaConfig:
        """RLlib's ``env_runners`` and how episodes are collected (section ``env_runners`` of the settings)."""
        return self._configure("env_runners", keys)

    def policy(self, **keys: Any) -> ARLArenaConfig:
        """The policy model and its frozen reference (section ``policy`` of the settings)."""
        return self._configure("policy", keys)

    def training(self, **keys: Any) -> ARLArenaConfig:
        """RLlib's ``training``, the method with any axis or parameter laid over it, and the optimiser."""
        return self._configure("training", keys)

    def serving(self, **keys: Any) -> ARLArenaConfig:
        """The inference engine behind Ray Serve (section ``serving`` of the settings)."""
        return self._configure("serving", keys)

    def learners(self, **keys: Any) -> ARLArenaConfig:
        """RLlib's ``learners``: number and resources of the Learner actors."""
        return self._configure("learners", keys)

    def reporting(self, **keys: Any) -> ARLArenaConfig:
        """RLlib's ``reporting`` and the diagnostics (section ``reporting`` of the settings)."""
        return self._configure("reporting", keys)

    def evaluation(self, **keys: Any) -> ARLArenaConfig:
        """RLlib's ``evaluation_interval`` and the fixed panels (section ``evaluation`` of the settings)."""
        return self._configure("evaluation", keys)

    # --- resolved views ------------------------------------------------------------------------------------------

    def objective_spec(self) -> ObjectiveSpec:
        """Return the four axes with all parameters: the preset with this configuration's values laid over it.

        Raises:
            ConfigError: unknown method, axis or value, or a parameter that the chosen axes never read.
        """
        overrides = {key: getattr(self, key) for key in METHOD_KEYS if getattr(self, key) is not None}
        try:
            find_method(self.method)
        except ValueError as error:
            raise ConfigError(f"training.{error}") from error
        try:
            spec = resolve_method(self.method, overrides, task=self.task)
            with_turns = f" with advantage={spec.advantage!r}" if "turns" in spec.needs() else ""
            where = f"trajectory_mode={self.trajectory_mode!r}{with_turns}"
            spec.refuse_missing(self._row_contents(spec), where=where)
            return spec.within(self.max_model_len if self.trajectory_mode == APPEND else self.max_response_tokens)
        except ValueError as error:
            raise ConfigError(f"training (method={self.method!r}): {error}") from error

    def least_group_size(self) -> int:
        """Return how many episodes of a task the method needs: 2 where it compares them, else 1."""
        return 2 if "groups" in self.objective_spec().needs() else 1

    def _row_contents(self, spec: ObjectiveSpec) -> set[str]:
        """Return what the rows of this configuration can carry: all but shared prefixes, which no rollout has yet.

        A row of a growing conversation holds several turns: an advantage of turns differs inside it.
        """
        contents = set(NEEDS) - {"prefixes"}
        if self.trajectory_mode != APPEND:
            return contents
        return contents - ({"turn_rows", "row_advantages"} if "turns" in spec.needs() else {"turn_rows"})

    def resolved(self) -> dict[str, Any]:
        """Return the settings that decide a run, JSON-able, by section; logged and written beside checkpoints."""
        sections: dict[str, dict[str, Any]] = {
            "environment": {"env": str(self.env), "env_config": dict(self.env_config)}
        }
        for key, setting in SETTINGS.items():
            sections.setdefault(setting.section, {})[key] = getattr(self, key)
        spec = self.objective_spec()
        sections["training"].update({key: getattr(spec, key) for key in METHOD_KEYS})
        sections["training"].update(lr=self.lr, grad_clip=self.grad_clip, num_epochs=self.num_epochs)
        sections["env_runners"]["num_env_runners"] = self.num_env_runners
        sections["learners"] = {
            "num_learners": self.num_learners,
            "num_gpus_per_learner": self.num_gpus_per_learner,
        }
        sections["evaluation"]["evaluation_interval"] = self.evaluation_interval
        sections["debugging"] = {"seed": self.seed}
        return sections

    def rollout_settings(self, temperature: float | None = None) -> RolloutSettings:
        """Return how episodes are run, at the training temperature unless another one is given."""
        from arlarena_rllib.rollout.agent_loop import RolloutSettings

        return RolloutSettings(
            temperature=self.temperature if temperature is None else temperature,
            max_response_tokens=self.max_response_tokens,
            max_model_len=self.max_model_len,
            memory_window=self.memory_window,
            prompt_style=self.prompt_style,
            mode=self.trajectory_mode,
            env_step_timeout_s=self.env_step_timeout_s,
            episode_retries=self.episode_retries,
            # vLLM keeps one generator per seeded row, which halves its throughput and still is not reproducible in a
            # busy batch; the transformers engine is exactly reproducible.
            seeded_sampling=self.engine != "vllm",
            keep_info=self.record_trajectories > 0,
        )

    def start_policy(self, app_name: str, stop_ids: tuple[int, ...]) -> Policy:
        """Start the engine of this configuration under ``app_name``; raises ``ServingError`` when it cannot."""
        from arlarena_rllib.serving import start_policy

        return start_policy(
            self._engine_spec(stop_ids),
            app_name=app_name,
            num_replicas=self.num_replicas,
            num_cpus_per_replica=self.num_cpus_per_replica,
            num_gpus_per_replica=self.num_gpus_per_replica,
            startup_timeout_s=self.startup_timeout_s,
            request_timeout_s=self.request_timeout_s,
            retry_budget_s=self.retry_budget_s,
        )

    def _engine_spec(self, stop_ids: tuple[int, ...] = ()) -> EngineSpec:
        from arlarena_rllib.serving import EngineSpec

        return EngineSpec(
            engine=self.engine,
            model_path=str(self.model_path),
            dtype=self.engine_dtype,
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            seed=self.seed,
            engine_kwargs=dict(self.engine_kwargs),
            eos_token_ids=stop_ids,
        )

    def check_engine(self) -> None:
        """Check the engine without a model or a cluster: its name, packages, dtype and arguments.

        Raises:
            ConfigError: it could not start.
        """
        from arlarena_rllib.serving.startup import check_engine

        try:
            check_engine(self._engine_spec(), self.num_replicas)
        except ServingError as error:
            raise ConfigError(f"serving.{error}") from error

    def get_default_learner_class(self) -> type:
        """Return :class:`~arlarena_rllib.learner.torch_learner.PolicyTorchLearner`."""
        from arlarena_rllib.learner.torch_learner import PolicyTorchLearner

        return PolicyTorchLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the spec of the causal LM module; ``model_path`` decides the architecture and the first weights."""
        from arlarena_rllib.learner.causal_lm_module import CausalLMModule

        critic = "values" in self.objective_spec().needs()
        return RLModuleSpec(module_class=CausalLMModule, model_config={"model_path": self.model_path, "critic": critic})

    def validate(self) -> None:
        """Check every setting, their combinations and the model; all problems are reported together.

        Raises:
            ConfigError: with one line per problem.
        """
        if not self.in_evaluation:  # RLlib derives a copy for evaluation; this configuration was checked before
            self.check_settings()
            self._check_model()
        log_once(
            f"{self.algo_class.__name__}_on_new_api_stack"
        )  # RLlib's advice how to leave it: there is no other here
        super().validate()

    def check_settings(self) -> None:
        """Check all that needs no model yet; what a run does before it builds one.

        Raises:
            ConfigError: with one line per problem.
        """
        problems: list[str] = []
        for key, setting in {**SETTINGS, **RLLIB_SETTINGS}.items():
            _collect(problems, setting.validate, key, getattr(self, key))
        default = type(self)()
        settable = self.known_keys() | INSTEAD_OF_RLLIB_SETTINGS.keys()
        for key in sorted(settable - ALL_SETTINGS.keys() - READ_RLLIB_SETTINGS):
            if not key.startswith("_") and _stored(self, key) != _stored(default, key):
                hint = INSTEAD_OF_RLLIB_SETTINGS.get(key, "leave it at RLlib's default")
                problems.append(f"{key}={_stored(self, key)!r} is set but never read here: {hint}.")
        _collect(problems, self.objective_spec)
        if not problems:
            _collect(problems, self._check_combinations)
        if problems:
            raise ConfigError("\n".join(problems))

    def _check_combinations(self) -> None:
        if self.env is None:
            raise ConfigError("environment.env is not set. Give a Gymnasium id of a text environment.")
        check_environment(self.env)
        if self.group_size < self.least_group_size():
            raise ConfigError(
                f"env_runners.group_size={self.group_size}: method={self.method!r} compares the episodes of a group, "
                "so a group needs at least 2. With a critic (ppo, turn_ppo) or reinforce_pp it may be 1."
            )
        if self.num_replicas == 0 and self.num_env_runners > 0:
            raise ConfigError(
                f"serving.num_replicas=0 runs the engine in the algorithm's process, which "
                f"num_env_runners={self.num_env_runners} remote runners cannot reach. Set one of them differently."
            )
        if self.max_response_tokens >= self.max_model_len:
            raise ConfigError(
                f"env_runners.max_response_tokens={self.max_response_tokens} leaves no room for a prompt within "
                f"serving.max_model_len={self.max_model_len}."
            )
        if self.old_policy == "sampler" and self.objective_spec().mismatch == "active":
            raise ConfigError(
                "training.old_policy='sampler' with mismatch='active': the ratio then starts from the sampler already, "
                "and the correction would count its distance twice. Leave one of them out."
            )
        if not isinstance(self.lr, (int, float)) and (self.lr_warmup_iterations or self.lr_decay_iterations):
            raise ConfigError(
                "training.lr is a schedule of its own, so training.lr_warmup_iterations and lr_decay_iterations "
                "would never be read. Give a number as lr, or leave them out."
            )

    def _check_model(self) -> None:
        from arlarena_rllib.models.load import check_model_dir

        for key in ("model_path", "reference_path"):
            if key == "model_path" or self.reference_path is not None:
                try:
                    check_model_dir(getattr(self, key))
                except ValueError as error:
                    raise ConfigError(f"policy.{key}: {error}") from error


def _strict_section(section: str) -> Callable[..., ARLArenaConfig]:
    """Return RLlib's builder method of ``section`` with this project's check of its keywords."""
    method = getattr(AlgorithmConfig, section)
    names = [name for name in inspect.signature(method).parameters if name != "self"]

    @functools.wraps(method)
    def configure(self: ARLArenaConfig, *values: Any, **keys: Any) -> ARLArenaConfig:
        if len(values) > len(names):
            raise ConfigError(f"section {section!r} takes at most {len(names)} values, got {len(values)}.")
        return self._configure(section, {**dict(zip(names, values, strict=False)), **keys})

    return configure


for _section in set(_RLLIB_SECTIONS) - vars(ARLArenaConfig).keys():
    setattr(ARLArenaConfig, _section, _strict_section(_section))


def check_environment(env: Any) -> None:
    """Raise :class:`ConfigError` when ``env`` is a name that neither Gymnasium nor Tune's registry knows."""
    import gymnasium
    from ray.tune.registry import ENV_CREATOR, _global_registry

    if not isinstance(env, str):
        raise ConfigError(f"environment.env={env!r} must be a text: the Gymnasium id of a text environment.")
    if _global_registry.contains(ENV_CREATOR, env):
        return
    try:
        import env_connectors  # noqa: F401  (registers the shipped ids)

        gymnasium.spec(env) if ":" not in env else gymnasium.envs.registration._find_spec(env)
    except Exception as error:  # a module of somebody else may raise anything
        known = sorted(name for name in gymnasium.registry if name.startswith("arlarena/"))
        raise ConfigError(f"environment.env={env!r} is not registered: {error} Shipped: {', '.join(known)}.") from error


def _stored(config: AlgorithmConfig, key: str) -> Any:
    """Return what was set: some of RLlib's settings are properties that derive their value from others."""
    return vars(config).get(f"_{key}", getattr(config, key) if key in vars(config) else None)


def _collect(problems: list[str], check: Any, *args: Any) -> None:
    try:
        check(*args)
    except ConfigError as error:
        problems.append(str(error))


def _rllib_keys(section: str) -> frozenset[str]:
    """Return the keyword names of RLlib's builder method, including those of the classes it extends."""
    method = getattr(AlgorithmConfig, section, None)
    if method is None:
        return frozenset()
    return frozenset(
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    )


def section_of(key: str) -> str | None:
    """Return the section that ``key`` belongs to, this project's or RLlib's; None for a key that nobody knows."""
    if key in ALL_SETTINGS:
        return ALL_SETTINGS[key].section
    return next((section for section in _RLLIB_SECTIONS if key in _rllib_keys(section)), None)


def _misplaced(key: str, section: str, accepted: Iterable[str]) -> ConfigError:
    home = section_of(key)
    if home is not None:
        return ConfigError(f"{section}.{key} does not exist: {key!r} belongs to {home!r}, write {home}.{key}.")
    own = [name for name, setting in ALL_SETTINGS.items() if setting.section == section]
    return _unknown(key, f"section {section!r}", {*own, *accepted}, fallback=set(ALL_SETTINGS))


def _unknown(key: str, place: str, allowed: Iterable[str], *, fallback: Iterable[str] = ()) -> ConfigError:
    hint = nearest(key, allowed) or nearest(key, fallback)
    return ConfigError(f"{key!r} ({place}) is not a setting.{hint}")
