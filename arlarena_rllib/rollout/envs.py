"""Makes the environment of a configuration, in any process."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium

from arlarena_rllib.errors import ArenaError, ConfigError, RolloutError

if TYPE_CHECKING:
    from env_connectors import TextEnv


def make_text_env(env: str, env_config: Mapping[str, Any]) -> gymnasium.Env:
    """Return the environment registered as ``env`` with Tune (``register_env``) or Gymnasium.

    Raises:
        ConfigError: the id is unknown, a keyword is not accepted, or the environment is not a text environment.
    """
    from ray.tune.registry import ENV_CREATOR, _global_registry

    import env_connectors
    from env_connectors.arguments import check_arguments, env_creator

    try:
        if _global_registry.contains(ENV_CREATOR, env):
            made = _global_registry.get(ENV_CREATOR, env)(dict(env_config))
        else:
            check_arguments("env_config", env_creator(env), env_config)
            made = gymnasium.make(env, **env_config)
    except Exception as error:  # a module of somebody else may raise anything
        told = isinstance(error, (gymnasium.error.Error, TypeError, ValueError, env_connectors.EnvConnectorError))
        kind = "" if told else f"{type(error).__name__}: "
        raise ConfigError(f"environment.env={env!r} with env_config={dict(env_config)!r}: {kind}{error}") from error
    if not isinstance(made.unwrapped, env_connectors.TextEnv):
        raise ConfigError(
            f"environment.env={env!r} is a {type(made.unwrapped).__name__}, not a text environment. "
            "Derive it from env_connectors.TextEnv."
        )
    return made


def bare_text_env(env: str, env_config: Mapping[str, Any]) -> TextEnv:
    """Return the text environment itself, without Gymnasium's wrappers: for its panel and its gold actions."""
    return make_text_env(env, env_config).unwrapped  # type: ignore[return-value]  # checked in make_text_env


@contextmanager
def env_faults(env: str, task_id: str) -> Iterator[None]:
    """Turn what the environment raises while ``task_id`` is played outside of a rollout into one message with its place.

    Raises:
        RolloutError: anything that is not an error of this project already.
    """
    from env_connectors import EnvConnectorError

    try:
        yield
    except (ArenaError, EnvConnectorError):
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise RolloutError(
            f"environment {env!r} raised {type(error).__name__}: {error} ({at.filename}, line {at.lineno}) with task "
            f"{task_id!r}. Run `arlarena envs check {env}`."
        ) from error
