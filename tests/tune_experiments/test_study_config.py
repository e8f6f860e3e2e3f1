"""A study is read strictly: every trial of it is checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from arlarena_rllib.errors import ConfigError
from arlarena_rllib.presets import METHODS
from tune_experiments.method_grids import grid_of
from tune_experiments.run_config import load_run_config
from tune_experiments.study_config import STUDIES, Study, load_study, shipped_study

PRODUCT = ", ".join(f"training.key{number}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for number in range(10))
HEAD = """
environment: {env: arlarena/Guess-v0}
evaluation: {evaluation_interval: 2}
"""


def study(folder: Path, text: str, head: str = HEAD) -> Study:
    file = folder / "study.yaml"
    file.write_text(head + text)
    return load_study(file)


def test_methods_by_name_get_their_own_grid(tmp_path: Path) -> None:
    found = study(tmp_path, "study: {arms: [grpo, gspo]}")
    assert [arm.name for arm in found.arms] == ["grpo", "gspo"]
    assert found.arm("gspo").settings[1] == {"training.clip_low": 3e-2, "training.clip_high": 4e-2}
    run = found.run_of("task", found.arm("gspo"), 1, seed=7)
    config = run.algorithm("")
    assert (config.method, config.clip_low, config.seed) == ("gspo", 3e-2, 7)
    assert found.run_of("task", found.arm("gspo")).algorithm("").clip_low is None


def test_grids_are_products_or_lists(tmp_path: Path) -> None:
    text = """
study:
  arms:
    product: {training.method: gspo, grid: {training.clip_low: [1e-3, 1e-2], training.kl_coef: [0.0, 0.05]}}
    listed: {training.method: sapo, training.lr: 1e-5, grid: [{training.tau_pos: 2.0}]}
    plain: {training.method: grpo}
"""
    found = study(tmp_path, text)
    assert found.arm("product").settings == (
        {},
        {"training.clip_low": 1e-3, "training.kl_coef": 0.0},
        {"training.clip_low": 1e-3, "training.kl_coef": 0.05},
        {"training.clip_low": 1e-2, "training.kl_coef": 0.0},
        {"training.clip_low": 1e-2, "training.kl_coef": 0.05},
    )
    assert found.arm("listed").settings == ({}, {"training.tau_pos": 2.0})
    assert found.run_of("task", found.arm("listed"), 1).algorithm("").lr == 1e-5
    assert found.arm("plain").settings == ({},)


def test_tasks_lay_their_settings_over_the_file(tmp_path: Path) -> None:
    text = """
study:
  arms: [grpo]
  tasks:
    short: {environment.env_config: {max_turns: 3}}
    small: {environment.env: arlarena/Sokoban-6x6-1-v0, env_runners.group_size: 4}
"""
    found = study(tmp_path, text)
    assert found.run_of("short").env == "arlarena/Guess-v0"
    small = found.run_of("small", found.arm("grpo"))
    assert (small.env, small.algorithm("").group_size) == ("arlarena/Sokoban-6x6-1-v0", 4)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_grid_that_it_reads(tmp_path: Path, method: str) -> None:
    assert grid_of(method)
    study(tmp_path, f"study: {{arms: [{method}], max_settings: 100}}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study: {}", r"study\.arms .* must name at least one arm"),
        ("study: {arms: [grpo, grpo]}", r"names a method twice"),
        ("study: {arms: [grop]}", r"study\.arms\.grop: method='grop' is not known\. Nearest: 'grpo'"),
        (
            "study: {arms: [grpo], seed: 1}",
            r"study\.seed \(study\.yaml, line 4\) is not a setting\. Nearest: 'search_seed'",
        ),
        ("study: {arms: [grpo], confirm_seeds: [1, 1]}", r"study\.confirm_seeds=\[1, 1\] .* different whole numbers"),
        ("study: {arms: [grpo], confirm_seeds: []}", r"study\.confirm_seeds=\[\] .* at least one"),
        ("study: {arms: {.b: {training.method: grpo}}}", r"study\.arms\.\.b .* no '\.' first"),
        ("study: {arms: [grpo], tasks: {..: {}}}", r"study\.tasks\.\.\. .* no '\.' first"),
        ("study: {arms: [grpo], tasks: {study.json: {}}}", r"study\.tasks\.study\.json .* none of config\.yaml"),
        (
            "study: {arms: {a: {training.method: grpo, evaluation.evaluation_split: test}}}",
            r"study\.arms\.a: evaluation\.evaluation_split='test' and run\.report_split='test'",
        ),
        ("study: {arms: [grpo], confirm_seeds: [0]}", r"study\.search_seed=0 is among study\.confirm_seeds=\[0\]"),
        ("study: {arms: [grpo], max_settings: 0}", r"study\.max_settings=0 .* must be a whole number from 1"),
        (
            "study: {arms: [grpo], stability: {threshold: 0}}",
            r"study\.stability\.threshold=0 .*must be a number in \(0, 0\.25\]",
        ),
        ("study: {arms: [grpo], stability: {threshold: 0.5}}", r"study\.stability\.threshold=0\.5"),
        (
            "study: {arms: [grpo], stability: {tail_frac: 0.5}}",
            r"study\.stability\.tail_frac .* Nearest: 'tail_fraction'",
        ),
        (
            "study: {arms: [grpo], stability: {metric: evaluation/env_runners/sample}}",
            r"study\.stability\.metric='evaluation/env_runners/sample' \(study\.yaml, line 4\) .* Nearest: 'sampled'\. Allowed: ",
        ),
        (
            "study: {arms: [grpo], stability: {metric: learner/entropy}}",
            r"metric='learner/entropy' .* is short for learners/default_policy/entropy",
        ),
        (
            "study: {arms: [grpo], stability: {metric: prompts/retrieval_accuracy}}",
            r"metric='prompts/retrieval_accuracy' needs reporting\.prompt_dependence_interval",
        ),
        ("study: {arms: [grpo], scheduler: {type: ashaa}}", r"study\.scheduler\.type='ashaa' .*line 4"),
        (
            "study: {arms: {a: {training.method: gspo, grid: {training.tau_pos: [2.0]}}}}",
            r"study\.arms\.a with training\.tau_pos=2\.0: .*tau_pos",
        ),
        (
            "study: {arms: {a: {training.method: grpo}, b: {training.method: grpo}}}",
            r"study\.arms\.b is the same configuration as study\.arms\.a",
        ),
        (
            "study: {arms: {a: {training.method: gspo, grid: [{training.clip_low: 1e-3}, {training.clip_low: 1e-3}]}}}",
            r"study\.arms\.a with training\.clip_low=0\.001 is the same configuration",
        ),
        ("study: {arms: {a: {method: grpo}}}", r"study\.arms\.a\.method .* is not of the form section\.key"),
        ("study: {arms: {a: {debugging.seed: 3}}}", r"study\.arms\.a\.debugging\.seed .* is the study's"),
        ("study: {arms: {a: {training.lrr: 3}}}", r"study\.arms\.a: 'lrr'.*Nearest: 'lr'"),
        (
            "study: {arms: {a: {training.method: grpo, grid: {training.kl_coef: 1}}}}",
            r"grid\.training\.kl_coef=1 .* a list",
        ),
        (
            "study: {arms: [grpo], stop_on_collapse: [sucess]}",
            r"study\.stop_on_collapse=\['sucess'\] .* a list of .*success",
        ),
        (
            "study: {arms: {a: {training.method: gspo, grid: {}}}}",
            r"study\.arms\.a\.grid=\{\} \(study\.yaml, line 4\) must be 'auto'.* Leave it out",
        ),
        (
            "study: {arms: {a: {training.method: gspo, grid: {training.method: [grpo, sapo]}}}}",
            r"study\.arms\.a\.grid \(study\.yaml, line 4\) varies training\.method: .* Make an arm of each",
        ),
        (
            "study: {arms: {a: {training.method: gspo, grids: {training.kl_coef: [0, 1]}}}}",
            r"study\.arms\.a\.grids .* is not of the form section\.key\. Nearest: 'grid'",
        ),
        (
            "study: {arms: [gspo]}\nscheduler: {type: asha}",
            r"'scheduler' .* key of section study: write study\.scheduler",
        ),
        ("study: {arms: [null]}", r"study\.arms=\[None\] \(study\.yaml, line 4\): None is not the name of a method"),
        (
            "study: {arms: [grpo], tasks: {a: {}, b: {}}}",
            r"study\.tasks\.b \(study\.yaml, line 4\) is the same as .*\.a",
        ),
        (
            f"study: {{arms: {{a: {{training.method: gspo, grid: {{{PRODUCT}}}}}}}}}",
            r"study\.arms\.a\.grid \(study\.yaml, line 4\) has 10,000,000,000 settings; at most 1,000 are allowed",
        ),
        (
            "study: {arms: {a: {training.method: gspo, training.lr: [1e-4, 3e-4]}}}",
            r"study\.arms\.a: .*lr=\[.* schedule",
        ),
        ("study: {arms: {'a b': {}}}", r"the name of an arm has up to 64 letters"),
        ("study: {arms: [grpo], tasks: {t: {environment.env: nowhere-v0}}}", r"nowhere-v0"),
    ],
)
def test_mistake_in_a_study_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(tmp_path, text)


def test_study_without_evaluation_has_nothing_to_choose_by(tmp_path: Path) -> None:
    head = "environment: {env: arlarena/Guess-v0}\nevaluation: {evaluation_interval: null}\n"
    with pytest.raises(ConfigError, match=r"evaluation\.evaluation_interval=None with .* chosen by"):
        study(tmp_path, "study: {arms: [grpo]}", head)


def test_choosing_and_reporting_on_the_same_tasks_is_refused(tmp_path: Path) -> None:
    head = HEAD + "run: {report_split: validation}\n"
    with pytest.raises(
        ConfigError, match=r"evaluation\.evaluation_split='validation' and run\.report_split='validation'"
    ):
        study(tmp_path, "study: {arms: [grpo]}", head)


def test_run_without_a_study_and_study_as_a_run_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no section 'study'.*arlarena train"):
        study(tmp_path, "")
    file = tmp_path / "s.yaml"
    file.write_text("study: {arms: [grpo]}")
    with pytest.raises(ConfigError, match=r"'study' .*`arlarena sweep`"):
        load_run_config(file)


@pytest.mark.parametrize("file", sorted(STUDIES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_study_loads_in_every_size(file: Path) -> None:
    sizes = load_study(file).settings.base
    assert "cpu" in sizes
    for size in sizes:
        found = load_study(file, size=size)
        assert found.run.run.name == file.stem and len(found.arms) >= 3


def test_wrong_value_is_placed_where_the_study_gives_it_and_names_arm_setting_and_task(tmp_path: Path) -> None:
    """`training.lr` stands in line 15 of the base as well."""
    text = """
study:
  base: {cpu: sokoban_cpu}
  arms:
    good: {training.method: grpo}
    wrong:
      training.method: gspo
      training.lr: 1e-3
      grid:
        - {training.lr: -1}
  tasks:
    easy: {}
    short:
      training.num_minibatches: 0
"""
    with pytest.raises(
        ConfigError, match=r"^study\.tasks\.short: training\.num_minibatches=0 .*\(in study\.yaml, line 14\)$"
    ):
        study(tmp_path, text, "")
    text = text.replace("num_minibatches: 0", "num_minibatches: 2")
    with pytest.raises(
        ConfigError,
        match=r"^study\.arms\.wrong with training\.lr=-1, study\.tasks\.easy: training\.lr=-1 .*\(in study\.yaml, line 9\)$",
    ):
        study(tmp_path, text, "")
    with pytest.raises(
        ConfigError, match=r"^study\.arms\.wrong, study\.tasks\.easy: training\.lr=-2 .*\(in study\.yaml, line 8\)$"
    ):
        study(tmp_path, text.replace("1e-3", "-2"), "")


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("methods", r"study\.base\.cpu='methods' \(study\.yaml, line 3\) is a study itself; it must be a run conf"),
        (str(STUDIES / "methods.yaml"), r"methods\.yaml' \(study\.yaml, line 3\) is a study itself; it must be"),
        (
            "nowhere.yaml",
            r"study\.base\.cpu='nowhere\.yaml' \(study\.yaml, line 3\): .* is not a file\. Shipped: .*sokoban_cpu",
        ),
    ],
)
def test_base_that_is_no_run_configuration_is_refused(tmp_path: Path, base: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(tmp_path, f"study:\n  arms: [grpo]\n  base: {{cpu: {base}}}", "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", r"^study 'nope' is not a file\. Shipped: advantages, .*testbed\.$"),
        ("quickstart", r"It is a run configuration: use `arlarena train`"),
    ],
)
def test_missing_study_lists_the_shipped_studies(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(shipped_study(name))
    with pytest.raises(
        ConfigError, match=r"^configuration 'methods' is not a file\. It is a study: use `arlarena sweep`"
    ):
        load_run_config("methods")


def test_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--size='tpu' is not among study\.base .*cpu, gpu"):
        load_study(STUDIES / "methods.yaml", size="tpu")


PBT = "{type: pbt, perturbation_interval: 4, mutations: {training.lr: [1e-4, 2e-4], training.clip_low: [1e-3, 3e-3]}}"
ONE_ARM = "a: {training.method: gspo}"
SCHEDULES = "[1e-3, [[0, 1e-3], [9, 1e-4]]], training.lr_warmup_iterations: [0, 5]"
"""Each value goes with the other's default, not each with each."""


def test_population_is_one_arm_whose_members_mutate_what_its_method_reads(tmp_path: Path) -> None:
    found = study(tmp_path, f"study: {{arms: {{{ONE_ARM}}}, scheduler: {PBT}}}")
    assert found.settings.scheduler["mutations"]["training.clip_low"] == [1e-3, 3e-3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"arms: {{{ONE_ARM}, b: {{training.method: grpo}}}}, scheduler: {PBT}",
            r"type='pbt' .* needs one arm without",
        ),
        (f"arms: [gspo], scheduler: {PBT}", r"type='pbt' .* needs one arm without a grid"),
        (f"arms: {{{ONE_ARM}}}, confirm_seeds: [1], scheduler: {PBT}", r"needs two or more study\.confirm_seeds"),
        (f"arms: {{{ONE_ARM}}}, max_concurrent: 1, scheduler: {PBT}", r"goes without study\.max_concurrent"),
        (
            f"arms: {{{ONE_ARM}}}, scheduler: {PBT.replace('training.clip_low', 'training.tau_pos')}",
            r"study\.scheduler\.mutations\.training\.tau_pos=0\.001 .*tau_pos",
        ),
        (
            f"arms: {{{ONE_ARM}}}, scheduler: {PBT.replace('interval: 4', 'interval: 20')}",
            r"would exchange nothing: its first exchange is after iteration 20, and run\.iterations=20",
        ),
        (
            f"arms: {{{ONE_ARM}}}, scheduler: {PBT.replace('[1e-4, 2e-4], training.clip_low: [1e-3, 3e-3]', SCHEDULES)}",
            r"mutations\.training\.lr=\[\[0, 0\.001\], \[9, 0\.0001\]\], training\.lr_warmup_iterations=5 .* schedule of its own",
        ),
        (f"arms: {{{ONE_ARM}}}, scheduler: {PBT.replace('1e-4', '-1.0')}", r"mutations\.training\.lr=-1\.0 .*lr"),
    ],
)
def test_population_that_cannot_exchange_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(tmp_path, f"study: {{{text}}}")
