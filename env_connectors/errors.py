"""Error vocabulary of the environment side; every class takes one readable message and can be pickled."""

from __future__ import annotations

import gymnasium.error


class EnvConnectorError(Exception):
    """Base of everything that env_connectors raises on purpose."""


class TaskNotFoundError(EnvConnectorError, KeyError):
    """A task id that the environment does not hold."""

    def __str__(self) -> str:
        """Return the plain message (KeyError would show its repr)."""
        return Exception.__str__(self)


class EnvConfigError(EnvConnectorError, ValueError):
    """A constructor argument, reset option or data file that cannot be used."""


class PanelError(EnvConnectorError, ValueError):
    """A task panel that cannot be built or drawn from as asked."""


class EnvContractError(EnvConnectorError, RuntimeError):
    """An environment class that breaks the TextEnv contract while running."""


class EnvCheckError(EnvConnectorError, AssertionError):
    """A finding of check_text_env: names the environment, the check and what was seen."""


class EpisodeOverError(EnvConnectorError, gymnasium.error.ResetNeeded):
    """step was called before reset or after the end of the episode."""


class ActionTypeError(EnvConnectorError, TypeError):
    """An action that is not a string."""


class AnswerCheckError(EnvConnectorError, RuntimeError):
    """The process that compares answers cannot be started; the episode cannot be judged."""


class RetrieverError(EnvConnectorError, RuntimeError):
    """A retriever service that does not answer, or not as it should; the episode cannot go on."""
