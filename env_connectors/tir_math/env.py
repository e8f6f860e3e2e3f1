"""Mathematics with Python: solve a problem, calling programs on the way, and give the answer.

Observation   the problem; after a program ' Code execution result: ..' (style 'fence') or <interpreter>..</interpreter>
              ('tags'): its output, or the end of its error message, at most max_result_chars characters. It goes on inside
              the agent's own message.
Action        the acting part of a reply, see replies.py: a program, an answer, or neither (a void turn). Case matters.
Start         the problem.
Reward/turn   at the end, else 0: the sum of the parts of `reward` (rewards.py) times their weights; by default 1 for a right
              answer.
Ends          SUCCESS after an answer that is equivalent to the right one, FAILURE after another one or a void turn, or truncated
              after max_turns. In style 'fence' a \\boxed{..} that a program prints, as final_answer(x) does, is an answer.
Info          task_type ('level 2/algebra'), level, tool_status (how the last program ended, '' when none ran), answer_check
              (how the answer was compared, '' before); episode_metrics: tool_calls, tool_errors, void_turns, empty_calls,
              answered, code_chars, answers_given_up (checks that ran out of time), reward_<part>.
Tasks         generated problems of four kinds and levels, e.g. '0/algebra-2/00012', or those of files.
Needs         extra [tir_math]: bubblewrap, sympy, math-verify; namespaces, see docs/sandbox.md. Arguments: TIRMathEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from env_connectors.arguments import check_flag, check_whole, nearest, shown
from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.planned_env import PlannedTextEnv
from env_connectors.reward_parts import RewardParts
from env_connectors.task_panel import Task
from env_connectors.text_env import StopReason, TextStep
from env_connectors.tir_math import oracle, rewards
from env_connectors.tir_math.generated.make import KINDS, LEVELS
from env_connectors.tir_math.judge import TIMEOUT_S, Verdict, process_judge, require_math_verify
from env_connectors.tir_math.panels import GENERATED, Spec, tasks_of
from env_connectors.tir_math.problems import Problem, problem_of
from env_connectors.tir_math.replies import Deed, last_boxed, style_of
from env_connectors.tir_math.results import is_error, result_text, with_final_answer
from env_connectors.tir_math.sandbox import Limits, Session
from env_connectors.tir_math.sandbox.sandbox import PACKAGES
from env_connectors.tir_math.shared_sandbox import SandboxLease, SandboxSettings

OBSERVATIONS = ("text", "compact")
LEAST_RESULT_CHARS = 16
MOST_TASKS = 1_000_000  # to generate them takes minutes
_RULES = "Solve the mathematics problem. You can run Python programs: each is a script of its own that has to print its results."
_LAST = "There is one turn left: give the final answer now.\n"
_EMPTY = "There is no program. {0}"
_HINTS = {
    "fence": "Begin it with ```py on a line of its own, and end it with ```.",
    "tags": "Write it between <code> and </code>.",
}
_WORDS = {"text": ("A program can compute this.", "So the answer is {0}."), "compact": ("run", "done")}
_BRIEF_CHARS = 200
_ANCHOR_CHARS = 64


class TIRMathEnv(PlannedTextEnv):
    """One problem; see the head of this file."""

    def __init__(
        self,
        *,
        data: str | Path | Sequence[str | Path] = GENERATED,
        validation_data: str | Path | Sequence[str | Path] | None = None,
        test_data: str | Path | Sequence[str | Path] | None = None,
        kinds: Sequence[str] | None = None,
        levels: Sequence[int] | None = None,
        style: str = "fence",
        observation: str = "text",
        max_turns: int = 5,
        max_result_chars: int = 512,
        error_lines: int = 3,
        reward: Mapping[str, float] | None = None,
        limits: Mapping[str, Any] | None = None,
        packages: Sequence[str] = PACKAGES,
        unsafe_no_isolation: bool = False,
        check_timeout_s: float = TIMEOUT_S,
        n_train: int | None = None,
        n_validation: int | None = None,
        n_test: int | None = None,
        seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Make or read the problems (once per process); no program runs yet.

        Args:
            data: 'generated', or a file or files to train on (data_files.py).
            validation_data: file or files of the validation split; None = drawn from `data`.
            test_data: file or files of the test split; None = drawn from `data`.
            kinds: of `data` to keep, e.g. ['algebra']; None = all (with 'compact': arithmetic).
            levels: of `data` to keep, 1 to 4 of generated problems; None = all.
            style: 'fence' or 'tags', see replies.py.
            observation: 'text', or 'compact' for tiny models: generated arithmetic in a few words.
            max_turns: turn budget of an episode.
            max_result_chars: of a program's output that are shown, from 16.
            error_lines: of an error message that are shown, counted from its end.
            reward: weights of the parts answer, format, tool_use, and of 'module:function'; None = {answer: 1}.
            limits: of a program, by the names of sandbox.Limits, e.g. {timeout_s: 5}.
            packages: what programs can import besides the standard library.
            unsafe_no_isolation: run programs without namespaces, see docs/sandbox.md; refused for root.
            check_timeout_s: wall clock of one comparison of answers.
            n_train: training tasks; None = 4000 generated ones, or all there are.
            n_validation: validation tasks; None = 200, or a twentieth of `data`, or all of `validation_data`.
            n_test: test tasks; None = 400, or a tenth of `data`, or all of `test_data`.
            seed: decides the generated problems, or which ones of `data` are held out.
            render_mode: None or 'ansi'.

        Raises:
            EnvConfigError: an argument or file that cannot be used; the message names it.
            PanelError: no task is left to train on.
        """
        if observation not in OBSERVATIONS:
            raise EnvConfigError(f"observation={observation!r} is not known. Allowed: {', '.join(OBSERVATIONS)}.")
        is_compact = observation == "compact"
        self._style = style_of(style, compact=is_compact)
        self.reply_form = self._style.form
        self._hint = _EMPTY.format(_HINTS[style])
        check_whole("max_result_chars", max_result_chars, LEAST_RESULT_CHARS)
        check_whole("error_lines", error_lines, 1)
        for name, size, least in (("n_train", n_train, 1), ("n_validation", n_validation, 0), ("n_test", n_test, 0)):
            if size is not None:
                check_whole(name, size, least, MOST_TASKS)
        check_whole("seed", seed)
        check_flag("unsafe_no_isolation", unsafe_no_isolation)
        if (
            isinstance(check_timeout_s, bool)
            or not isinstance(check_timeout_s, (int, float))
            or not 0 < check_timeout_s <= 600
        ):
            raise EnvConfigError(
                f"check_timeout_s={shown(check_timeout_s)} is not allowed. Allowed: seconds up to 600."
            )
        files = _paths("data", data)
        self.data = GENERATED if files == (GENERATED,) else "files"
        spec = Spec(
            data=files,
            validation_data=_paths("validation_data", validation_data),
            test_data=_paths("test_data", test_data),
            kinds=_choices("kinds", kinds, str, KINDS if self.data == GENERATED else None),
            levels=_choices("levels", levels, int, LEVELS if self.data == GENERATED else None),
            n_train=n_train, n_validation=n_validation, n_test=n_test, seed=seed, is_compact=is_compact,
        )  # fmt: skip
        if self.data == GENERATED and (spec.validation_data or spec.test_data):
            raise EnvConfigError("validation_data and test_data are read with files as `data` only.")
        if is_compact:
            spec = _compact(spec, self.data)
        require_math_verify()
        tasks = tasks_of(spec)
        super().__init__(tasks.task_set, max_turns=max_turns, render_mode=render_mode)
        self.dropped = {name: getattr(tasks, name) for name in ("repeated", "in_evaluation", "without_answer")}
        """Problems of `data` that were left out, by reason."""
        self.instructions = _RULES
        self._observation = observation
        self._reward = RewardParts(rewards.DEFAULT if reward is None else reward, rewards.OWN)
        self._max_chars, self._error_lines = max_result_chars, error_lines
        self._lease = SandboxLease(SandboxSettings(_limits(limits), _packages(packages), unsafe_no_isolation))
        self._judge = process_judge(check_timeout_s)
        self._problem: Problem | None = None
        self._session: Session | None = None
        self._forget_episode()

    def begin(self, task: Task) -> TextStep:
        """Show the problem."""
        self._end_session()
        self._lease.start()  # a machine that cannot run programs says so here, not in the midst of an episode
        self._forget_episode()
        self._problem = problem_of(task.content)
        return self._step(self._problem.text, action_valid=True, stop=None)

    def act(self, action: str) -> TextStep:
        """Run the program of an action, or compare its answer."""
        self._playing()
        deed = self._style.read(action)
        self._tool_status, seen = "", ""
        if deed.code is not None:
            seen = self._run(deed.code)
        answer = self._answer_of(deed, seen)
        if answer is not None:
            return self._answered(answer)
        if deed.code is None:
            self._void_turns += 1
            return self._step("neither a program nor an answer", action_valid=False, stop=StopReason.FAILURE)
        shown = self._style.result.format(self._shown)
        if self._observation == "text" and self.turn == self.max_turns - 1:
            shown += _LAST
        return self._step(shown, action_valid=bool(deed.code.strip()), stop=None)

    def plan(self) -> list[tuple[str, str]]:
        """Return what that solver thinks and does from here on; [] when the episode is over."""
        problem = self._playing()
        if self._is_over:
            return []
        is_known = bool(self._outputs) and self._compare(self._outputs[-1]).is_equal
        return oracle.plan(
            problem,
            self._style,
            is_known=is_known,
            turns_left=self.max_turns - self.turn,
            words=_WORDS[self._observation],
        )

    def admissible(self) -> list[str]:
        """Return the right program, or answer, and some wrong ones: a sample, as there is no end of programs.

        The right answer is among them only when something was computed, or nothing can be: before that it would be a guess.
        """
        if self._problem is None or self._answer is not None or self._void_turns:
            return []
        right = [self._style.call.format(self._problem.program)] if self._problem.program else []
        if self._outputs or not right:
            right.append(self._style.answer.format(self._problem.answer))
        return [*right, *oracle.slips(self._problem, self._style, self._outputs)]

    def slips(self) -> list[str]:
        """Return what a hasty student does instead of computing: it says the answer at once.

        It is the right one, as if worked out in the head, since only won episodes are demonstrated. A clone that cannot do
        that has learned to guess, until RL finds that programs pay.
        """
        problem = self._problem
        if problem is None or not problem.program or self._outputs or self._answer is not None or self._void_turns:
            return []
        return [self._style.answer.format(problem.answer)]

    def close(self) -> None:
        """End the episode's session; with the last environment of the process, also sandbox and judge."""
        self._end_session()
        if self._lease.close():
            self._judge.close()
        super().close()

    def _forget_episode(self) -> None:
        self._outputs: list[str] = []
        self._shown = ""
        self._tool_status = ""
        self._answer: str | None = None
        self._is_correct = False
        self._check = ""
        self._tool_calls = self._tool_errors = self._void_turns = self._empty_calls = self._code_chars = 0

    def _run(self, code: str) -> str:
        """Run a program, note what the agent sees of it, and return what it printed."""
        self._code_chars += len(code)
        if not code.strip():
            self._empty_calls += 1
            self._shown = self._hint
            return ""
        self._tool_calls += 1
        if self._session is None:
            self._session = self._lease.session()
        has_final = self._style.ends_on_boxed_output
        result = self._session.run(with_final_answer(code) if has_final else code)
        self._tool_status = result.status.value
        self._tool_errors += is_error(result)
        self._shown = result_text(
            result, code if has_final else "", most_chars=self._max_chars, error_lines=self._error_lines
        )
        self._outputs.append(self._shown)
        return result.stdout

    def _answer_of(self, deed: Deed, printed: str) -> str | None:
        boxed = last_boxed(printed) if self._style.ends_on_boxed_output else None
        return deed.answer if boxed is None else boxed[0]

    def _compare(self, answer: str) -> Verdict:
        """Answers to generated problems have to be worked out: repeating what is asked is equivalent to the answer, too."""
        return self._judge.compare(self._playing().answer, answer, is_strict=self.data == GENERATED)

    def _answered(self, answer: str) -> TextStep:
        verdict = self._compare(answer)
        self._answer, self._is_correct, self._check = answer, verdict.is_equal, verdict.by
        stop = StopReason.SUCCESS if verdict.is_equal else StopReason.FAILURE
        return self._step("correct" if verdict.is_equal else "not correct", action_valid=True, stop=stop)

    def _step(self, observation: str, action_valid: bool, stop: StopReason | None) -> TextStep:
        problem = self._playing()
        counts = {
            "tool_calls": self._tool_calls, "tool_errors": self._tool_errors, "void_turns": self._void_turns,
            "empty_calls": self._empty_calls, "code_chars": self._code_chars,
        }  # fmt: skip
        reward, parts = 0.0, dict.fromkeys((f"reward_{name}" for name in self._reward.names), 0.0)
        if stop is not None or self.turn >= self.max_turns:
            reward, parts = self._reward.total(self._facts(problem, counts))
        metrics = counts | {"answered": self._answer is not None, "answers_given_up": self._check == "timeout"} | parts
        return TextStep(
            observation=observation,
            reward=reward,
            action_valid=action_valid,
            stop=stop,
            success=self._is_correct,
            anchor=self._anchor(),
            brief=observation if len(observation) <= _BRIEF_CHARS else f"{observation[:_BRIEF_CHARS]}...",
            info={
                "task_type": problem.task_type,
                "level": problem.level,
                "tool_status": self._tool_status,
                "answer_check": self._check,
                "episode_metrics": {name: float(value) for name, value in metrics.items()},
            },
        )

    def _facts(self, problem: Problem, counts: Mapping[str, int]) -> dict[str, Any]:
        return {
            **counts,
            "is_correct": self._is_correct,
            "is_answered": self._answer is not None,
            "answer": self._answer,
            "gold": problem.answer,
            "problem": problem.text,
            "kind": problem.kind,
            "level": problem.level,
            "outputs": tuple(self._outputs),
            "turns": self.turn,
            "max_turns": self.max_turns,
        }

    def _anchor(self) -> str:
        """What has been seen so far names the state; long outputs by a hash."""
        if self._answer is not None:
            return f"answered {_shortened(self._answer)}"
        if self._void_turns:
            return "void"
        return " | ".join(["start", *map(_shortened, self._outputs), *["empty"] * self._empty_calls])

    def gold_plan(self, task: Task) -> oracle.Plan:
        """Return the program and the answer, with the thoughts of a solver; of a problem without a program, the answer."""
        words = _WORDS[self._observation]
        return oracle.plan(
            problem_of(task.content), self._style, is_known=False, turns_left=self.max_turns, words=words
        )

    def _playing(self) -> Problem:
        if self._problem is None:
            raise EnvContractError("TIRMathEnv has no problem. Remedy: call reset() first.")
        return self._problem

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _shortened(text: str) -> str:
    return text if len(text) <= _ANCHOR_CHARS else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _paths(name: str, given: str | Path | Sequence[str | Path] | None) -> tuple[str, ...]:
    if given is None and name != "data":
        return ()
    paths: Any = [given] if isinstance(given, (str, Path)) else given
    is_list = isinstance(paths, (list, tuple)) and len(paths) > 0
    if not is_list or not all(isinstance(path, (str, Path)) and str(path) for path in paths):
        allowed = "'generated', a file, or a list of files" if name == "data" else "a file or a list of files"
        raise EnvConfigError(f"{name}={shown(given)} is not allowed. Allowed: {allowed}.")
    if len(paths) > 1 and GENERATED in map(str, paths):
        raise EnvConfigError(f"{name}={given!r} mixes generated problems with files; take one.")
    return tuple(map(str, paths))


def _choices(name: str, given: Sequence[Any] | None, kind: type, allowed: Sequence[Any] | None) -> Any:
    if given is None:
        return None
    is_list = isinstance(given, (list, tuple)) and given and all(type(value) is kind for value in given)
    listed = "" if allowed is None else f" of {', '.join(map(str, allowed))}"
    if not is_list:
        raise EnvConfigError(f"{name}={given!r} is not allowed. Allowed: a list{listed}.")
    for value in given:
        if allowed is not None and value not in allowed:
            raise EnvConfigError(
                f"{name}={given!r}: {value!r} is not known.{nearest(value, map(str, allowed))} Allowed: a list{listed}."
            )
    return tuple(dict.fromkeys(given))


def _compact(spec: Spec, data: str) -> Spec:
    if data != GENERATED or spec.kinds not in (None, ("arithmetic",)):
        raise EnvConfigError("observation='compact' has generated problems of kinds=['arithmetic'] only.")
    return Spec(**{**vars(spec), "kinds": ("arithmetic",)})


def _limits(given: Mapping[str, Any] | None) -> Limits:
    allowed = list(Limits.__dataclass_fields__)
    if not isinstance(given, (Mapping, NoneType)):
        raise EnvConfigError(f"limits={shown(given)} is not allowed. Allowed: values for {', '.join(allowed)}.")
    for name in given or {}:
        if name not in allowed:
            raise EnvConfigError(f"limits.{name} is not known.{nearest(name, allowed)} Allowed: {', '.join(allowed)}.")
    return Limits(**(given or {}))


def _packages(given: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) and name for name in given):
        raise EnvConfigError(f"packages={shown(given)} is not allowed. Allowed: a list of names, e.g. [numpy, sympy].")
    return tuple(given)
