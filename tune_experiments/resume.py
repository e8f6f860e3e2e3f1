"""Continuing a run: which parts of its folder are complete, what may have changed since, and Tune's restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ray import tune
from ray.tune import ResumeConfig

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import CheckpointError, ConfigError
from arlarena_rllib.whole_checkpoint import MANIFEST, is_whole, newest_whole
from tune_experiments.prepare import WARM_START_FACTS, base_model
from tune_experiments.run_config import RunConfig

RESOLVED_CONFIG, TRIALS = "config.yaml", "trials"
MAY_CHANGE = (
    *("name", "storage_path", "upload_to", "iterations", "num_cpus"),
    *("report_split", "report_num_tasks", "report_draws"),
)
"""Keys of section ``run`` that a resumed run takes from the command; all else is as in the trial that continues."""


def resumable_base(run: RunConfig, folder: Path) -> Path:
    """Return the model before any training: the one that the run built, or what it was still to build."""
    built = folder / "base"
    is_complete = (built / "tokenizer.json").is_file()  # written last
    return built if run.model.path is None and is_complete else base_model(run, folder)


def finished_start(folder: Path) -> Path | None:
    """Return the cloned start of an earlier call, None when cloning did not come to its end."""
    start = folder / "start"
    return start if (start / WARM_START_FACTS).is_file() else None


def check_unchanged(folder: Path, resolved: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` when a setting of the trial differs from that of the run in ``folder``.

    A run that was stopped before its training began has no settings to keep.
    """
    file = folder / RESOLVED_CONFIG
    if file.is_file() and "began" in (yaml.safe_load(file.read_text()) or {}):
        raise CheckpointError(f"{folder} is the folder of a study: go on with `arlarena sweep ... --resume`.")
    if not can_restore(folder / TRIALS) or not file.is_file():
        return
    before, defaults = yaml.safe_load(file.read_text()), ARLArenaConfig()
    changed = [
        f"{section}.{key}={now!r} was {then!r}"
        for section in {**before, **resolved}
        for key in {**before.get(section, {}), **resolved.get(section, {})}
        if (now := resolved.get(section, {}).get(key)) != (then := before.get(section, {}).get(key))
        and not (section == "run" and key in MAY_CHANGE)
        and not (key not in before.get(section, {}) and now == getattr(defaults, key, None))  # younger than the run
    ]
    if changed:
        raise ConfigError(
            f"--resume continues the trial in {folder} as it was; of its settings only run.iterations may change. "
            f"Different now: {', '.join(changed[:5])}{f' and {len(changed) - 5} more' if len(changed) > 5 else ''}. "
            "Give the same configuration and overrides as before, or start a new run with another run.name."
        )


def can_restore(trials: Path) -> bool:
    """Say whether Tune has written down a trial in ``trials``."""
    return tune.Tuner.can_restore(str(trials)) and any(trials.glob("experiment_state-*.json"))


def refuse_lost_notes(trials: Path) -> None:
    """Raise :class:`CheckpointError` when there are checkpoints in ``trials`` but no notes of Tune about them."""
    whole = [newest for folder in trials.glob("*/") if (newest := newest_whole(folder)) is not None]
    if whole:
        raise CheckpointError(
            f"what Tune wrote about the run in {trials} is gone or cut off, without a copy, so that the run cannot go on. "
            f"Its newest checkpoint, {max(whole, key=lambda path: path.name)}, is whole. Start anew without --resume: the "
            "folder is kept under another name."
        )


def restored_tuner(trials: Path, trainable: type, callbacks: Sequence[tune.Callback], iterations: int) -> tune.Tuner:
    """Return the tuner of ``trials``, whose trial goes on from its newest checkpoint.

    A trial that was stopped early or failed goes on as well; one that has a checkpoint of ``iterations`` does no more.

    Raises:
        CheckpointError: what Tune wrote about the run cannot be read, or its newest checkpoint is gone.
    """
    checkpoints = _checkpoints(tune.Tuner.restore(str(trials), trainable=trainable))
    reached = max((iteration for _, iteration in checkpoints), default=0)
    for path, iteration in checkpoints:
        if not path.is_dir() and iteration == reached:
            raise CheckpointError(f"the newest checkpoint of the run, {path} (iteration {iteration}), is gone.")
        if iteration == reached and (path / MANIFEST).is_file() and not is_whole(path):
            raise CheckpointError(f"files of the newest checkpoint of the run, {path}, are missing or cut off.")
        path.mkdir(exist_ok=True)  # Tune deletes an old one, perhaps again: a kill came before it had noted that
    how = ResumeConfig.ResumeType.SKIP if reached >= iterations else ResumeConfig.ResumeType.RESUME
    tuner = tune.Tuner.restore(
        str(trials),
        trainable=trainable,
        _resume_config=ResumeConfig(finished=how, unfinished=how, errored=how),
    )
    # Else Tune calls copies of the callbacks, pickled when the run began, that nobody in this process holds.
    tuner._local_tuner.get_run_config().callbacks = list(callbacks)
    return tuner


def _checkpoints(tuner: tune.Tuner) -> list[tuple[Path, int]]:
    """Return the checkpoints that Tune knows of, with their iterations."""
    try:
        result = tuner.get_results()[0]
    except (RuntimeError, IndexError) as error:
        raise CheckpointError(f"what Tune wrote about the run cannot be read: {error}") from error
    return [(Path(kept.path), int(metrics["training_iteration"])) for kept, metrics in result.best_checkpoints or []]
