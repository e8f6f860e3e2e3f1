"""What is refused before minutes of work and before a folder is touched: place, store, environment, model, engine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arlarena_rllib.errors import ConfigError, ModelError
from arlarena_rllib.models.build import check_model_config, check_vocab_size
from arlarena_rllib.models.load import check_model_dir, load_tokenizer
from arlarena_rllib.rollout.envs import bare_text_env
from arlarena_rllib.trajectory import WINDOWED
from tune_experiments.cluster import IN_JOB, check_address, check_own_cluster
from tune_experiments.mlflow_store import check_store, resolve_tracking_uri
from tune_experiments.run_config import SPLITS, RunConfig
from tune_experiments.run_folder import check_name
from tune_experiments.study_config import naming

if TYPE_CHECKING:
    from arlarena_rllib.config import ARLArenaConfig
    from env_connectors import TaskPanel, TextEnv
    from tune_experiments.study_config import Study

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PARTS = ("environment", "env_runners", "model", "policy", "serving")
"""Sections that decide what :func:`check_parts` looks at."""


def check_run(run: RunConfig) -> None:
    """Raise :class:`ConfigError` when a run cannot work, as far as that can be known in seconds."""
    check_place(run)
    check_address()
    config = run.checked()
    with _placed(run):
        check_own_cluster(config, run.run.num_cpus)
    check_parts(run)
    check_tracking(run)


def check_study(study: Study) -> None:
    """Raise :class:`ConfigError` when a trial of a study cannot work; all arms, settings and tasks are looked at."""
    check_place(study.run)
    check_address()
    seen: set[str] = set()
    for task in study.tasks:
        for arm in (None, *study.arms):
            for number in range(len(arm.settings) if arm else 1):
                run = study.run_of(task, arm, number)
                with naming(study.name_of(task, arm, number)), _placed(run):
                    check_own_cluster(run.algorithm(""), run.run.num_cpus)
                parts = repr([run.given.get(name) for name in _PARTS])
                if parts not in seen:
                    with naming(study.name_of(task, arm, number)):
                        check_parts(run)
                seen.add(parts)
    check_tracking(study.run)


def check_place(run: RunConfig) -> None:
    """Check where the run goes."""
    check_name(run.run.name)
    path, of_path = (
        run.run.storage_path,
        f"run.storage_path={run.run.storage_path!r} ({run.place_of('run', 'storage_path')})",
    )
    if uri := _URI.match(path):
        remedy = (
            f"Give {path[len('file://') :]}"
            if uri[1] == "file"
            else f"Give a folder, and run.upload_to={path} for a copy of it there"
        )
        raise ConfigError(
            f"{of_path} is a URI, and a run needs a folder: it locks files, appends to them, and reads them back. {remedy}."
        )
    if IN_JOB in os.environ and not Path(path).is_absolute():
        raise ConfigError(
            f"{of_path} is relative, and the working directory of a submitted job is a copy that Ray deletes: give an "
            "absolute path that all nodes see."
        )
    if not path.strip() or not path.isprintable():
        raise ConfigError(f"{of_path} must be one line, the path of a folder.")
    if path.startswith("~"):
        raise ConfigError(f"{of_path} cannot be used: '~' is a folder's name here. Give {os.path.expanduser(path)}.")
    try:
        nearest = next(folder for folder in (Path(path), *Path(path).absolute().parents) if folder.exists())
    except OSError as error:
        raise ConfigError(f"{of_path} cannot be used: {error.strerror}.") from error
    if not nearest.is_dir():
        raise ConfigError(f"{of_path} cannot be used: {nearest} is not a directory.")


def check_parts(run: RunConfig) -> None:
    """Check environment, model and engine; the environment is made and its panel drawn, the model is not loaded."""
    config = run.algorithm("")
    with _placed(run):
        config.check_engine()
        env = bare_text_env(config.env, config.env_config)
        _check_splits(run, config, env.tasks())
        _check_window(run, config, env)
    with _of_key(run, "model", "path"):
        if run.model.path is not None:
            load_tokenizer(run.model.path)
    with _of_key(run, "model", "vocab_size"):
        check_vocab_size(run.model.vocab_size)
    with _of_key(run, "model", "config"):
        if run.model.path is None:
            check_model_config(run.model.config, run.model.vocab_size)
    with _of_key(run, "policy", "reference_path"):
        if config.reference_path is not None:
            check_model_dir(config.reference_path)


def _check_splits(run: RunConfig, config: ARLArenaConfig, panel: TaskPanel) -> None:
    """Refuse a panel without the tasks that are asked for: a mean over none would be the result."""
    wanted = {"the training": "train"}
    if config.evaluation_interval:
        wanted[f"evaluation.evaluation_split={config.evaluation_split!r}"] = config.evaluation_split
    if run.run.report_num_tasks:
        wanted[f"run.report_split={run.run.report_split!r}"] = run.run.report_split
    sizes = {split: len(panel.split(split)) for split in SPLITS}
    for name, split in wanted.items():
        if not sizes[split]:
            words = ", ".join(f"{key} {size}" for key, size in sizes.items())
            raise ConfigError(
                f"{name} ({run.place_of('environment', 'env')}) needs tasks that {config.env} with env_config="
                f"{dict(config.env_config)!r} does not have: its panels are {words}. Choose another split, or none by "
                "evaluation.evaluation_interval=null, run.report_num_tasks=0."
            )


def _check_window(run: RunConfig, config: ARLArenaConfig, env: TextEnv) -> None:
    """Refuse prompts of single turns in which the task cannot be read: later observations do not repeat it.

    So it is where the environment's answers go on in the policy's own message.
    """
    wanted = env.max_turns - 1
    if config.trajectory_mode == WINDOWED and env.reply_form.continues and config.memory_window < wanted:
        raise ConfigError(
            f"env_runners.memory_window={config.memory_window} with trajectory_mode='windowed' "
            f"({run.place_of('environment', 'env')}): {config.env} shows the task in its first observation only, which later "
            f"prompts of up to {env.max_turns} turns would not hold. Remedy: env_runners.trajectory_mode=append, or "
            f"memory_window={wanted}."
        )


def check_tracking(run: RunConfig) -> None:
    """Check that MLflow's store can be opened."""
    check_store(resolve_tracking_uri(None, run.run.storage_path), run.run.experiment)


@contextmanager
def _placed(run: RunConfig) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(run.placed(str(error))) from error


@contextmanager
def _of_key(run: RunConfig, section: str, key: str) -> Iterator[None]:
    """Turn an error of the model into one of the key that names it."""
    try:
        yield
    except ModelError as error:
        raise ConfigError(f"{section}.{key} ({run.place_of(section, key)}): {error}") from error
