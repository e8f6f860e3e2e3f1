"""What a run or a study refuses in its first seconds: nothing of it is found out after the cloning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import ray

from arlarena_rllib.errors import ConfigError
from env_connectors import TextEnv, make_text_env
from tune_experiments.early_checks import check_run, check_study
from tune_experiments.run_config import load_run_config
from tune_experiments.study_config import load_study

HEAD = """
run: {storage_path: STORAGE}
environment: {env: arlarena/Guess-v0}
evaluation: {evaluation_interval: 2}
serving: {engine: transformers}
"""


def written(folder: Path, text: str = "") -> Path:
    file = folder / "run.yaml"
    file.write_text(HEAD.replace("STORAGE", str(folder / "runs")) + text)
    return file


WRONG = [
    ("serving.engine", "vlm", r"serving\.engine='vlm' is not known\. Nearest: 'vllm'\. Allowed: .*transformers, vllm"),
    (
        "serving.engine_dtype",
        "float7",
        r"serving\.engine_dtype='float7' is not known to engine='transformers'.*bfloat16",
    ),
    ("serving.engine_kwargs", "{devic: cpu}", r"serving\.engine_kwargs\.devic is not known to .* Nearest: 'device'"),
    ("model.config", "{hiden_size: 8}", r"model\.config \(.*\): model\.config\.hiden_size is not a field of 'qwen3'"),
    ("model.config", "{hidden_size: -8}", r"model\.config \(.*\): .* makes no model"),
    (
        "model.config",
        "{num_attention_heads: 3}",
        r"model\.config \(.*\): .* num_attention_heads=3 is not a multiple of num_key_value_heads=2",
    ),
    ("model.vocab_size", "100", r"model\.vocab_size \(.*\): vocab_size=100 is too small"),
    ("model.path", "/nope", r"model\.path \(.*\): model path '/nope' is not a directory"),
    ("policy.reference_path", "/nope", r"policy\.reference_path \(.*\): model path '/nope' is not a directory"),
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG)
def test_run_that_cannot_work_is_refused_with_its_place(tmp_path: Path, key: str, value: str, message: str) -> None:
    run = load_run_config(written(tmp_path), [f"{key}={value}"])
    with pytest.raises(ConfigError, match=rf"^{message}") as caught:
        check_run(run)
    assert "override" in str(caught.value)


@pytest.mark.parametrize(("key", "value", "message"), WRONG)
def test_study_looks_at_every_arm_setting_and_task(tmp_path: Path, key: str, value: str, message: str) -> None:
    of_arm = (
        f"study: {{arms: {{good: {{}}, bad: {{training.lr: 1e-3, {key}: {value}}}}}, "
        "tasks: {one: {}, two: {env_runners.groups_per_iteration: 5}}}"
    )
    with pytest.raises(ConfigError, match=rf"^study\.arms\.bad, study\.tasks\.one: {message}"):
        check_study(load_study(written(tmp_path, of_arm)))
    of_grid = f"study: {{arms: {{bad: {{grid: [{{{key}: {value}}}]}}}}}}"
    with pytest.raises(ConfigError, match=rf"^study\.arms\.bad with .*: {message}"):
        check_study(load_study(written(tmp_path, of_grid)))


def test_environment_of_a_task_is_made_with_its_arguments(tmp_path: Path) -> None:
    text = "study:\n  arms: [grpo]\n  tasks:\n    one: {}\n    two:\n      environment.env_config: {max_turn: 3}\n"
    message = r"^study\.tasks\.two: environment\.env='arlarena/Guess-v0' .*max_turn'.*run\.yaml, line 11"
    with pytest.raises(ConfigError, match=message):
        check_study(load_study(written(tmp_path, text)))


@pytest.mark.parametrize(
    ("env", "config", "message"),
    [
        (
            "Guess-v0",
            "{max_turn: 3}",
            r"env_config\.max_turn=3 is not an argument of GuessEnv\. Nearest: 'max_turns'\. Allowed: ",
        ),
        (
            "Mixture-v0",
            "{env: {}}",
            r"env_config\.env=\{\} is not an argument of MixtureEnv\. Nearest: 'envs'\. Allowed: envs, ",
        ),
    ],
)
def test_unknown_argument_of_the_environment_is_named_with_the_allowed_ones(
    tmp_path: Path, env: str, config: str, message: str
) -> None:
    overrides = [f"environment.env=arlarena/{env}", f"environment.env_config={config}"]
    with pytest.raises(ConfigError, match=message):
        check_run(load_run_config(written(tmp_path), overrides))


def test_engine_that_needs_a_replica_is_refused_without_one(tmp_path: Path) -> None:
    run = load_run_config(written(tmp_path), ["serving.engine=vllm", "serving.num_replicas=0"])
    with pytest.raises(ConfigError, match=r"serving\.engine='vllm' cannot run inside the driver process: set num_repl"):
        check_run(run)
    run = load_run_config(written(tmp_path), ["serving.engine=vllm", "serving.engine_kwargs={seed: 3}"])
    with pytest.raises(ConfigError, match=r"serving\.engine_kwargs\.seed cannot be set: use the setting seed itself"):
        check_run(run)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "s3://bucket/runs",
            r"run\.storage_path='s3://bucket/runs' \(.*\) is a URI, .* "
            r"Give a folder, and run\.upload_to=s3://bucket/runs for a copy of it there\.$",
        ),
        ("file:///shared/runs", r"is a URI, .* Give /shared/runs\.$"),
        (
            "'~/runs'",
            r"run\.storage_path='~/runs' \(.*\) cannot be used: '~' is a folder's name here\. Give /.*/runs\.$",
        ),
        ("'  '", r"must be one line, the path of a folder\.$"),
        ('"/tmp/a\\0b"', r"must be one line, the path of a folder\.$"),
        ("/tmp/" + "a" * 300, r"cannot be used: File name too long\.$"),
        ("FOLDER/run.yaml/deeper", r"cannot be used: .*run\.yaml is not a directory\.$"),
    ],
)
def test_storage_that_is_no_folder_is_refused(tmp_path: Path, path: str, message: str) -> None:
    file = written(tmp_path, "study: {arms: [grpo]}")
    overrides = [f"run.storage_path={path.replace('FOLDER', str(tmp_path))}"]
    with pytest.raises(ConfigError, match=message):
        check_study(load_study(file, overrides))
    file.write_text(HEAD)
    with pytest.raises(ConfigError, match=message):
        check_run(load_run_config(file, overrides))


def test_run_and_study_that_work_pass_and_leave_nothing(tmp_path: Path) -> None:
    check_run(load_run_config(written(tmp_path)))
    check_study(load_study(written(tmp_path, "study: {arms: [grpo, gspo]}")))
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_run_that_this_machine_has_no_room_for_is_refused_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test's cluster may be there
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    message = r"needs .* GPUs .* and the cluster has 0"
    with pytest.raises(ConfigError, match=message):
        check_run(load_run_config(written(tmp_path), ["learners.num_gpus_per_learner=1"]))
    with pytest.raises(ConfigError, match=message):
        check_study(load_study(written(tmp_path, "study: {arms: [gspo]}"), ["learners.num_gpus_per_learner=1"]))
    with pytest.raises(ConfigError, match=r"needs 6 CPUs .* has 2\. Raise run\.num_cpus"):
        overrides = ["env_runners.num_env_runners=4", "env_runners.num_cpus_per_env_runner=1", "run.num_cpus=2"]
        check_run(load_run_config(written(tmp_path), overrides))


def test_split_without_tasks_is_refused_before_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean over no task would be the result."""
    panel = replace(make_text_env("arlarena/Guess-v0").tasks(), test=())
    monkeypatch.setattr(TextEnv, "tasks", lambda env: panel)
    overrides = ["run.report_num_tasks=4", "evaluation.evaluation_interval=2"]
    with pytest.raises(
        ConfigError, match=r"run\.report_split='test' .* its panels are train 48, validation 8, test 0\."
    ):
        check_run(load_run_config(written(tmp_path), overrides))
    check_run(
        load_run_config(
            written(tmp_path), [*overrides, "run.report_split=validation", "evaluation.evaluation_split=train"]
        )
    )
    with pytest.raises(ConfigError, match=r"evaluation\.evaluation_split='test' .* needs tasks"):
        check_run(
            load_run_config(
                written(tmp_path), ["run.report_num_tasks=0", overrides[1], "evaluation.evaluation_split=test"]
            )
        )


@pytest.mark.parametrize(
    ("window", "mode", "is_refused"),
    [(0, "windowed", True), (2, "windowed", True), (3, "windowed", False), (0, "append", False)],
)
def test_prompts_that_would_not_hold_the_task_are_refused(
    tmp_path: Path, window: int, mode: str, is_refused: bool
) -> None:
    settings = [
        "environment.env=arlarena/SearchQA-v0", "environment.env_config={data: small_world, num_groups: 20}",
        f"env_runners.memory_window={window}", f"env_runners.trajectory_mode={mode}",
    ]  # fmt: skip
    run = load_run_config(written(tmp_path), settings)
    if not is_refused:
        check_run(run)
        return
    with pytest.raises(ConfigError, match=rf"^env_runners\.memory_window={window} with .* or memory_window=3"):
        check_run(run)
