"""The TextEnv contract seen from outside: episodes, flags, ends, errors, and the registry of ids."""

import subprocess
import sys

import gymnasium
import pytest

from env_connectors import (
    EnvConfigError,
    StopReason,
    Task,
    TaskNotFoundError,
    TaskSet,
    TextEnv,
    TextStep,
    list_text_envs,
    make_text_env,
    register_text_env,
)
from env_connectors.errors import ActionTypeError, EnvContractError, EpisodeOverError
from env_connectors.text_env import MAX_TEXT_CHARS, FreeText

_TASKS = TaskSet.split([Task(f"count/{n}", {"n": n}) for n in range(3)], seed=0, n_validation=1, n_test=1)


class _CountEnv(TextEnv):
    """Success after n times 'go'; 'fail' fails, 'cut' and 'clash' break the contract."""

    def begin(self, task: Task) -> TextStep:
        self.left = task.content["n"] + 1
        return TextStep(f"{self.left} left", anchor=str(self.left), progress=0.0)

    def act(self, action: str) -> TextStep:
        self.left -= action == "go"
        stops = {"fail": StopReason.FAILURE, "cut": StopReason.MAX_TURNS}
        stop = StopReason.SUCCESS if self.left == 0 else stops.get(action)
        info = {"turn": 7} if action == "clash" else {"left": self.left}
        return TextStep(f"{self.left} left", 1.0, action == "go", stop, self.left == 0, str(self.left), info=info)

    def gold(self, task: Task) -> list[str]:
        return ["go"] * (task.content["n"] + 1)

    def admissible(self) -> list[str]:
        return ["go"]


def _started(max_turns: int = 5, task_id: str = "count/2", **kwargs: str) -> _CountEnv:
    env = _CountEnv(_TASKS, max_turns=max_turns, **kwargs)  # type: ignore[arg-type]
    env.reset(options={"task_id": task_id})
    return env


def test_reset_gives_all_info_values() -> None:
    observation, info = _CountEnv(_TASKS, max_turns=5).reset(options={"task_id": "count/1"})
    assert observation == "2 left"
    assert info == {
        "task_id": "count/1",
        "content_hash": Task("x", {"n": 1}).content_hash,
        "turn": 0,
        "action_valid": True,
        "success": False,
        "stop_reason": None,
        "anchor": "2",
        "brief": "2 left",
        "admissible": ["go"],
        "progress": 0.0,
    }


def test_step_to_success_terminates() -> None:
    env = _started()
    results = [env.step("go") for _ in range(3)]
    assert [result[2] for result in results] == [False, False, True]
    assert not any(result[3] for result in results)
    info = results[-1][4]
    assert (info["stop_reason"], info["success"], info["turn"], info["left"]) == ("success", True, 3, 0)
    assert "progress" not in info


def test_step_to_failure_terminates_without_success() -> None:
    _, _, terminated, truncated, info = _started().step("fail")
    assert (terminated, truncated, info["stop_reason"], info["success"]) == (True, False, "failure", False)


def test_step_at_turn_budget_truncates() -> None:
    env = _started(max_turns=2)
    assert env.step("wait")[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step("wait")
    assert (terminated, truncated, info["stop_reason"], info["action_valid"]) == (False, True, "max_turns", False)


def test_step_that_succeeds_on_the_last_turn_is_success() -> None:
    env = _started(max_turns=1, task_id="count/0")
    assert env.step("go")[2:4] == (True, False)


def test_step_before_reset_says_so() -> None:
    with pytest.raises(EpisodeOverError, match="was never reset; call reset"):
        _CountEnv(_TASKS, max_turns=2).step("go")


def test_step_after_the_end_says_so_until_reset() -> None:
    env = _started(max_turns=1)
    env.step("wait")
    with pytest.raises(gymnasium.error.ResetNeeded, match="ended its episode of 'count/2'"):
        env.step("go")
    env.reset()
    env.step("go")


@pytest.mark.parametrize("action", [None, 3, b"go", ["go"]])
def test_step_with_other_than_text_names_the_type(action: object) -> None:
    with pytest.raises(ActionTypeError, match=type(action).__name__):
        _started().step(action)  # type: ignore[arg-type]


@pytest.mark.parametrize(("action", "named"), [("cut", "MAX_TURNS"), ("clash", r"\['turn'\]")])
def test_step_of_an_env_that_breaks_the_contract_is_refused(action: str, named: str) -> None:
    with pytest.raises(EnvContractError, match=named):
        _started().step(action)


def test_reset_without_task_picks_a_training_task_by_seed() -> None:
    env = make_text_env("arlarena/Guess-v0")
    picked = [env.reset(seed=seed)[1]["task_id"] for seed in range(40)]
    assert picked == [env.reset(seed=seed)[1]["task_id"] for seed in range(40)]
    assert set(picked) <= set(env.tasks().train)
    assert len(set(picked)) > 10


def test_reset_with_unknown_option_names_it() -> None:
    with pytest.raises(EnvConfigError, match="'tsk_id'"):
        _started().reset(options={"tsk_id": "count/1"})


def test_reset_with_unknown_task_keeps_the_message_readable() -> None:
    with pytest.raises(TaskNotFoundError) as caught:
        _started().reset(options={"task_id": "count/9"})
    assert str(caught.value).startswith("task_id='count/9' is not known.")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"max_turns": 0}, "max_turns=0"),
        ({"max_turns": 2.5}, "2.5"),
        ({"max_turns": 2, "render_mode": "human"}, "'human'"),
    ],
)
def test_env_with_bad_argument_names_it(arguments: dict, named: str) -> None:
    with pytest.raises(EnvConfigError, match=named):
        _CountEnv(_TASKS, **arguments)


def test_env_without_tasks_says_how_to_give_them() -> None:
    with pytest.raises(EnvContractError, match="pass task_set"):
        _CountEnv(max_turns=2).reset()


def test_render_gives_the_last_observation_in_ansi_mode_only() -> None:
    env = _started(render_mode="ansi")
    env.step("go")
    assert env.render() == "2 left"
    assert _started().render() is None


def test_gold_thoughts_by_default_name_the_actions() -> None:
    env = _started()
    assert env.gold_actions("count/1") == ["go", "go"]
    assert env.gold_thoughts("count/1") == ["next go", "next go"]


def test_base_hooks_without_author_are_not_implemented() -> None:
    env = TextEnv(_TASKS, max_turns=1)
    task = env.task("count/1")
    for call in (lambda: env.begin(task), lambda: env.act("go"), lambda: env.gold(task), env.admissible):
        with pytest.raises(NotImplementedError):
            call()


def test_free_text_space_holds_any_text_up_to_its_limit() -> None:
    space = FreeText(seed=1)
    assert all(text in space for text in ("", "up", "上 → 📦", "\x00", "x" * MAX_TEXT_CHARS))
    assert not any(value in space for value in ("x" * (MAX_TEXT_CHARS + 1), 3, None, b"up"))
    samples = [space.sample() for _ in range(20)]
    again = FreeText(seed=1)
    assert samples == [again.sample() for _ in range(20)]
    assert all(1 <= len(text) <= 32 and text.isprintable() for text in samples)


def test_free_text_space_with_a_mask_is_refused() -> None:
    with pytest.raises(EnvConfigError, match="neither mask"):
        FreeText().sample(mask=(3, None))


def test_ids_are_registered_by_the_import() -> None:
    assert [name for name in list_text_envs() if name.startswith("arlarena/")] == [
        "arlarena/Guess-v0",
        "arlarena/SearchQA-v0",
        "arlarena/Sokoban-10x10-4-v0",
        "arlarena/Sokoban-6x6-1-v0",
        "arlarena/Sokoban-6x6-2-v0",
        "arlarena/Sokoban-7x7-2-v0",
        "arlarena/TIRMath-v0",
        "arlarena/WebShop-v0",
    ]


def test_register_text_env_twice_alike_is_allowed_and_otherwise_refused() -> None:
    before = list_text_envs()
    register_text_env("arlarena/Guess-v0", "env_connectors.toy.env:GuessEnv")
    assert list_text_envs() == before
    with pytest.raises(EnvConfigError, match=r"'arlarena/Guess-v0' is already registered"):
        register_text_env("arlarena/Guess-v0", "env_connectors.toy.env:GuessEnv", max_turns=3)
    with pytest.raises(EnvConfigError, match="'no_class'"):
        register_text_env("arlarena/New-v0", "no_class")


def test_make_text_env_of_another_kind_is_refused() -> None:
    with pytest.raises(EnvConfigError, match="CartPole"):
        make_text_env("CartPole-v1")


def test_make_text_env_with_mistyped_id_names_the_nearest() -> None:
    with pytest.raises(gymnasium.error.Error, match="Sokoban-6x6-1"):
        make_text_env("arlarena/Sokobann-6x6-1-v0")


def test_import_loads_no_engine_and_gymnasium_make_imports_the_package() -> None:
    code = (
        "import sys, gymnasium, env_connectors\n"
        "heavy = {'gym', 'gym_sokoban', 'ray', 'torch', 'transformers', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "del sys.modules['env_connectors']\n"
        "env = gymnasium.make('env_connectors:arlarena/Sokoban-6x6-1-v0', observation='coords')\n"
        "print(env.reset(options={'task_id': '6x6-1/000004'})[0])\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "walls 3,3 goal 1,4 you 4,2 box 3,2\n"
    assert finished.stderr == ""
