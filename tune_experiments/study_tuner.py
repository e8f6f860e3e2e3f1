"""Tune's experiment of one task of a study: a new one, or the one before, restored from what Tune wrote and the journal."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune

from arlarena_rllib.algorithm import ARLArena
from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.diagnostics.metric_names import EVALUATION_SAMPLED
from tune_experiments.kept_notes import repair_notes
from tune_experiments.progress import ProgressDisplay
from tune_experiments.ray_logs import shorten_ray_logs
from tune_experiments.schedulers import PBT, build_scheduler
from tune_experiments.study_config import Study
from tune_experiments.study_results import TRIALS, tune_folders
from tune_experiments.study_retry import drop_without_checkpoint, reopen_in_notes
from tune_experiments.study_searcher import StudySearcher
from tune_experiments.study_stopper import study_stopper

_KEPT_OF_POPULATION = 4
"""A member goes on from a checkpoint that its owner may have left behind by then."""


def study_tuner(
    study: Study,
    base: ARLArenaConfig,
    folder: Path,
    searcher: StudySearcher,
    callbacks: list[tune.Callback],
    *,
    resume: bool,
    progress: ProgressDisplay,
) -> tune.Tuner:
    """Return what runs the trials that ``searcher`` gives.

    Args:
        study: of these trials.
        base: the task's own configuration; trials differ from it in what the searcher says.
        folder: of the task; Tune's experiments are below, ``trials.0`` first.
        searcher: with the journal of the trials so far.
        callbacks: of Tune.
        resume: go on with what is in the folder; trials that cannot go on start anew.
        progress: is told of those.
    """
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
    os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")
    settings, is_population = study.run.run, study.settings.scheduler.get("type") == PBT
    tune_config = tune.TuneConfig(
        search_alg=searcher,
        scheduler=build_scheduler(study.settings.scheduler, metric=EVALUATION_SAMPLED)
        if study.settings.scheduler
        else None,
        num_samples=-1,
        trial_name_creator=partial(_trial_name, searcher),
        trial_dirname_creator=partial(_trial_folder, searcher),
    )
    shorten_ray_logs()
    trials = max(tune_folders(folder), key=_number, default=folder / f"{TRIALS}.0")
    if resume and trials.is_dir():
        repair_notes(folder, trials)
    if resume and (known := _trials_known_to_tune(trials)) is not None:
        for trial_id in drop_without_checkpoint(trials, searcher.journal.running()):
            progress.message(f"the newest checkpoint of trial {searcher.name_of(trial_id)} is gone; it starts anew")
            known.remove(trial_id)
            searcher.journal.lost(trial_id)
        for key in searcher.journal.drop_unknown(known):
            progress.message(f"trial {key} is not in Tune's notes; it starts anew")
        reopen_in_notes(trials, searcher.journal.running())
        # A search that has ended for Tune gives no more trials, so what is left then needs an experiment of its own.
        if searcher.is_over or known.intersection(searcher.journal.running()):
            tuner = tune.Tuner.restore(str(trials), trainable=ARLArena, param_space=base, resume_unfinished=True)
            # Else Tune goes on with copies, pickled when the study began, that nobody in this process holds.
            tuner._local_tuner.get_run_config().callbacks = list(callbacks)
            tuner._local_tuner._tune_config = tune_config
            return tuner
    if resume and (lost := searcher.journal.drop_unfinished()):
        progress.message(f"Tune's notes are missing or cut off; {len(lost)} unfinished trials start anew")
    if resume and trials.is_dir():
        trials = trials.with_name(f"{TRIALS}.{_number(trials) + 1}")
    return tune.Tuner(
        ARLArena,
        param_space=base,
        tune_config=tune_config,
        run_config=tune.RunConfig(
            name=trials.name,
            storage_path=str(folder),
            stop=study_stopper(study),
            callbacks=callbacks,
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=settings.checkpoint_frequency,
                checkpoint_at_end=True,
                num_to_keep=max(settings.checkpoints_kept, _KEPT_OF_POPULATION if is_population else 0),
            ),
            failure_config=tune.FailureConfig(max_failures=settings.max_failures),
        ),
    )


def _number(trials: Path) -> int:
    return int(trials.suffix[1:])


def _trial_name(searcher: StudySearcher, trial: Any) -> str:
    return searcher.name_of(trial.trial_id)


def _trial_folder(searcher: StudySearcher, trial: Any) -> str:
    return f"{searcher.name_of(trial.trial_id)}-{trial.trial_id}"


def _trials_known_to_tune(trials: Path) -> set[str] | None:
    """Return the ids of the trials in Tune's newest notes; None when there are none, or a kill cut them off."""
    if not tune.Tuner.can_restore(str(trials)) or not any(trials.glob("search_gen_state-*.json")):
        return None
    notes = max(trials.glob("experiment_state-*.json"), default=None)
    try:
        state = json.loads(notes.read_text()) if notes else {}
        return {json.loads(trial)["trial_id"] for trial, _ in state["trial_data"]}
    except (ValueError, KeyError, TypeError):
        return None
