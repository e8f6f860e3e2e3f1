"""What stands beside a cloned model is what it was cloned with."""

from __future__ import annotations

import json
from pathlib import Path

from tune_experiments.prepare import WARM_START_FACTS, warm_start
from tune_experiments.run_config import load_run_config, shipped_config


def test_facts_of_a_clone_hold_the_seed_of_the_run(tiny_model_dir: Path, tmp_path: Path) -> None:
    overrides = ["debugging.seed=3", "warm_start.num_tasks=2", "warm_start.steps=1", "run.num_cpus=1"]
    start = warm_start(load_run_config(shipped_config("quickstart"), overrides), tiny_model_dir, tmp_path)
    facts = json.loads((start.path / WARM_START_FACTS).read_text())
    assert (facts["cloning"]["seed"], facts["cloning"]["steps"]) == (3, 1)
    assert facts["demonstrations"] == len(facts["tasks"]) == 2
