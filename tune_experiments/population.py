"""Population-based training for the trials of a study: weak members take over a strong one's checkpoint and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining

from arlarena_rllib.config import ARLArenaConfig

MUTATIONS = "mutations"
EXCHANGES = "exchanges.jsonl"
"""Beside the trials: who (by seed) went on from whose checkpoint, after which iteration, with which settings then."""


class StudyPopulation(PopulationBasedTraining):
    """Tune's population-based training (1711.09846) of trials that a searcher hands out.

    Tune refuses that, because a searcher would learn from settings that change midway; a study's population has one setting
    and no search. A member keeps its own seed, else two would play the same episodes after an exchange.
    """

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Take in a member."""
        super().on_trial_add(SimpleNamespace(search_alg=None), trial)

    def _log_config_on_step(
        self, trial_state: Any, new_state: Any, trial: Trial, trial_to_clone: Trial, new_config: dict[str, Any]
    ) -> None:
        """Note the exchange in one readable line; Tune would write down both whole configurations."""
        names = self._hyperparam_mutations
        line = {
            "iteration": trial.last_result["training_iteration"],
            "member": trial.config["seed"],
            "source": trial_to_clone.config["seed"],
            "before": {name: trial.config[name] for name in names},
            "after": {name: new_config[name] for name in names},
        }
        with (Path(trial.storage.experiment_fs_path) / EXCHANGES).open("a") as file:
            file.write(f"{json.dumps(line)}\n")

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        config, operations = super()._get_new_config(trial, trial_to_clone)
        return {**config, "seed": trial.config["seed"]}, operations


def flat_mutations(given: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return ``training.key -> values`` under the names that a trial's flat settings have."""
    return {key.rpartition(".")[2]: list(values) for key, values in given.items()}


def explicit_values(config: ARLArenaConfig, mutations: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return what a trial begins with for the keys that mutate; a key that is not given has its method's value."""
    spec = config.objective_spec()
    names = flat_mutations(mutations)
    return {name: getattr(spec, name) if getattr(config, name) is None else getattr(config, name) for name in names}
