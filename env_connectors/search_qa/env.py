"""Search QA: answer a question that takes several documents, found with a search tool.

Observation   the question; after a search '\\n\\n<information>Doc 1(Title: t) text\\n...</information>\\n\\n', the topk best
              documents (compact: `<information> text . text</information>`, without titles and line breaks).
Action        <search>query</search> or <answer>text</answer>, the first such pair of the action. Anything else, also an empty
              query or answer: a short correction, action_valid False, the turn counts.
Start         the question; of the documents nothing is shown.
Reward/turn   0 until the episode ends with an answer or the last turn, then the weighted sum of parts (`reward`).
Ends          SUCCESS after an answer that is an exact match, FAILURE after any other, or truncated after max_turns.
Info          task_type ('2_hop'; of files their `type`), em, f1; episode_metrics: searches, repeated_searches (the same words),
              invalid_actions, em, f1, answered, support_recall (where supports are known), and reward_<part> (0 before the end).
Tasks         questions of a generated closed world, e.g. '017/00312', no fact in two splits; or of the user's files.
Needs         nothing; retriever='dense' needs torch and transformers. Arguments: see SearchQAEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from env_connectors.arguments import check_flag, check_whole, shown
from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.planned_env import PlannedTextEnv
from env_connectors.reward_parts import RewardParts
from env_connectors.search_qa import oracle
from env_connectors.search_qa.answer_score import exact_match, f1
from env_connectors.search_qa.client import RETRIES, TIMEOUT_S, RetrieverClient
from env_connectors.search_qa.documents import Document, compact_results_text, results_text
from env_connectors.search_qa.reply import COMPACT_REPLY, SEARCH, SEARCH_REPLY, Request, read_action
from env_connectors.search_qa.retriever import MOST_TOPK
from env_connectors.search_qa.source import DATA, HOPS, RETRIEVERS, SourceSettings, open_source
from env_connectors.task_panel import Task
from env_connectors.text_env import StopReason, TextStep

OBSERVATIONS = ("text", "compact")
ANSWER_SCORES = ("em", "f1")
_RULES = (
    "Answer the question. A search engine knows documents that the answer can be found in: <search>query</search> shows "
    "the best ones between <information> and </information>. Search as often as you need to, one thing at a time, then "
    "give the answer, a few words without explanation, as <answer>text</answer>."
)
_CORRECTION = (
    "\n\nThat was no usable action. To look something up, write a query between <search> and </search>; to finish, write "
    "the answer between <answer> and </answer>.\n\n"
)
_COMPACT_CORRECTION = " invalid action"
_BRIEF_CHARS = 400
_ANCHOR_CHARS = 80


@dataclass
class _Episode:
    """What has happened so far."""

    task: Task
    found: list[Document] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    queries: list[str] = field(default_factory=list)
    invalid: int = 0
    answer: str | None = None

    @property
    def support_recall(self) -> float | None:
        """Share of the supports that were found, None where they are not known."""
        supports = self.task.content["supports"]
        return sum(title in self.seen for title in supports) / len(supports) if supports else None


class SearchQAEnv(PlannedTextEnv):
    """One question; see the head of this file."""

    def __init__(
        self,
        *,
        data: str | None = None,
        hops: int | Sequence[int] = (2, 3),
        max_turns: int = 4,
        topk: int = 3,
        max_result_chars: int = 2000,
        observation: str = "text",
        reward: Mapping[str, float] | None = None,
        answer_score: str = "em",
        num_groups: int | None = None,
        questions_per_group: int = 40,
        seed: int = 0,
        panel_seed: int = 0,
        n_train: int | None = None,
        n_validation: int | None = None,
        n_test: int | None = None,
        questions_file: str | Path | None = None,
        corpus_file: str | Path | None = None,
        skip_malformed: bool = False,
        retriever: str = "bm25",
        dense_model: str | Path | None = None,
        dense_cache_dir: str | Path | None = None,
        retriever_url: str | None = None,
        retriever_timeout_s: float = TIMEOUT_S,
        retriever_retries: int = RETRIES,
        render_mode: str | None = None,
    ) -> None:
        """Open questions and documents (once per process).

        Args:
            data: 'world' (generated, pages of some sentences), 'small_world' (generated, few words) or 'files'; None = 'files'
                with a questions_file, else 'small_world' for compact observations and 'world' for text.
            hops: documents that a question of a generated world takes: 1 to 4, or several of these numbers.
            max_turns: turn budget, searches and answer together.
            topk: documents that a search shows; at least 3 lets the oracle win every generated task.
            max_result_chars: most characters between the information tags, see documents.py for how it is cut.
            observation: 'text' or 'compact'.
            reward: weight of each part: 'answer' (see answer_score), 'format' (1 if there is an answer and no action was
                invalid), 'retrieval' (share of the supports that were found), or 'module:function' of your own, which gets
                question, answers, answer (None without one), em, f1, queries, titles (found), support_recall (None where not
                known), searches, invalid_actions and turns. None = {'answer': 1}.
            answer_score: what 'answer' is, 'em' or 'f1'.
            num_groups: size of the generated world.
            questions_per_group: of each group, of all numbers of hops together.
            seed: decides the generated world and its questions.
            panel_seed: decides what is held out.
            n_train: training tasks to keep; None = all.
            n_validation: tasks held out for validation; None = a tenth, at most 256.
            n_test: tasks held out for the test; None = a tenth, at most 256.
            questions_file: questions, see files.py.
            corpus_file: documents, see files.py; may be left out with a retriever_url.
            skip_malformed: leave malformed lines of the files out (`skipped` counts them) instead of refusing the file.
            retriever: 'bm25' or 'dense', in this process. Generated questions are those that BM25 can answer in any case.
            dense_model: directory of an encoder for 'dense', see dense.py.
            dense_cache_dir: where its embeddings are kept; None = the user's cache directory.
            retriever_url: a service in the form of Search-R1 that is asked instead of a retriever in this process.
            retriever_timeout_s: most seconds of one try.
            retriever_retries: tries after the first one; then the episode fails with a RetrieverError.
            render_mode: None or 'ansi'.

        Raises:
            EnvConfigError: an argument or file that cannot be used; the message names it.
            PanelError: fewer questions than the held-out splits need.
        """
        usual = "files" if questions_file is not None else "small_world" if observation == "compact" else "world"
        chosen = usual if data is None else data
        for key, value, allowed in (
            ("data", chosen, DATA),
            ("observation", observation, OBSERVATIONS),
            ("answer_score", answer_score, ANSWER_SCORES),
            ("retriever", retriever, RETRIEVERS),
        ):
            if value not in allowed:
                raise EnvConfigError(f"{key}={value!r} is not known. Allowed: {', '.join(allowed)}.")
        check_whole("max_turns", max_turns, 1)
        check_whole("topk", topk, 1, MOST_TOPK)
        check_whole("max_result_chars", max_result_chars, 20, 1_000_000)
        check_whole("questions_per_group", questions_per_group, 1, 1000)
        check_whole("seed", seed)
        check_whole("panel_seed", panel_seed)
        for key, size, least in (
            ("num_groups", num_groups, 1), ("n_train", n_train, 1), ("n_validation", n_validation, 0), ("n_test", n_test, 0),
        ):  # fmt: skip
            if size is not None:
                check_whole(key, size, least)
        check_flag("skip_malformed", skip_malformed)
        paths = {
            "questions_file": questions_file, "corpus_file": corpus_file, "dense_model": dense_model,
            "dense_cache_dir": dense_cache_dir,
        }  # fmt: skip
        for key, path in paths.items():
            if not isinstance(path, (str, Path, NoneType)):
                raise EnvConfigError(f"{key}={shown(path)} is not allowed. Allowed: a path.")
        if chosen != "files" and (questions_file is not None or corpus_file is not None):
            raise EnvConfigError(f"data={chosen!r} reads no questions_file and no corpus_file. Remedy: data='files'.")
        _refuse_unread(
            "data='files'" if chosen == "files" else "generated data",
            {"hops": (hops, (2, 3)), "num_groups": (num_groups, None), "questions_per_group": (questions_per_group, 40),
             "seed": (seed, 0)} if chosen == "files" else {"skip_malformed": (skip_malformed, False)},
        )  # fmt: skip
        if retriever_url is None:
            _refuse_unread(
                "no retriever_url",
                {
                    "retriever_timeout_s": (retriever_timeout_s, TIMEOUT_S),
                    "retriever_retries": (retriever_retries, RETRIES),
                },
            )
        else:
            _refuse_unread("a retriever_url", {"retriever": (retriever, "bm25")})
            # Also here, as the settings must be of types that can be compared.
            RetrieverClient(retriever_url, timeout_s=retriever_timeout_s, retries=retriever_retries)
        settings = SourceSettings(
            data=chosen, hops=_hops(hops, max_turns) if chosen != "files" else (), num_groups=num_groups,
            per_group=questions_per_group, seed=seed, panel_seed=panel_seed, n_train=n_train, n_validation=n_validation,
            n_test=n_test, topk=topk, questions_file=_path(questions_file), corpus_file=_path(corpus_file),
            skip_malformed=skip_malformed, retriever=retriever, dense_model=_path(dense_model),
            dense_cache_dir=_path(dense_cache_dir), retriever_url=retriever_url, timeout_s=retriever_timeout_s,
            retries=retriever_retries,
        )  # fmt: skip
        for key, given in (("dense_model", dense_model), ("dense_cache_dir", dense_cache_dir)):
            if given is not None and (retriever != "dense" or retriever_url is not None):
                raise EnvConfigError(f"{key}={str(given)!r} is read with retriever='dense' and no retriever_url only.")
        own = {
            "answer": lambda facts: facts[answer_score],
            "format": lambda facts: float(facts["answer"] is not None and not facts["invalid_actions"]),
            "retrieval": lambda facts: facts["support_recall"] or 0.0,
        }
        self._reward = RewardParts({"answer": 1.0} if reward is None else reward, own)
        source = open_source(settings)
        super().__init__(source.task_set, max_turns=max_turns, render_mode=render_mode)
        self.instructions = _RULES
        self.reply_form = COMPACT_REPLY if observation == "compact" else SEARCH_REPLY
        self.data = chosen
        self.skipped = source.skipped
        self._retriever, self._topk, self._most_chars = source.retriever, topk, max_result_chars
        self._is_compact = observation == "compact"
        self._episode: _Episode | None = None

    def begin(self, task: Task) -> TextStep:
        """Ask the question."""
        self._episode = _Episode(task)
        question = task.content["question"]
        return self._step(question if self._is_compact else f"Question: {question}")

    def act(self, action: str) -> TextStep:
        """Search or answer.

        Raises:
            RetrieverError: a retriever service does not answer as it should.
        """
        episode = self._playing()
        request = read_action(action)
        if request is None or not request.text:
            episode.invalid += 1
            return self._step(_COMPACT_CORRECTION if self._is_compact else _CORRECTION, action_valid=False)
        return self._search(request) if request.kind == SEARCH else self._answer(request)

    def plan(self) -> list[tuple[str, str]]:
        """Return the searches still missing and the answer; [] after the end, or when the turns left do not suffice."""
        episode = self._playing()
        planned = oracle.plan(
            episode.task.content, episode.seen, has_searched=bool(episode.queries), is_compact=self._is_compact
        )
        is_possible = episode.answer is None and len(planned) <= self.max_turns - self.turn
        return planned if is_possible else []

    def admissible(self) -> list[str]:
        """Return some searches for what is in sight and some answers that are; any other text is allowed as well."""
        if self._episode is None or self._episode.answer is not None:
            return []
        content = self._episode.task.content
        return oracle.choices(content, self._episode.found, self.plan(), is_compact=self._is_compact)

    def gold_plan(self, task: Task) -> oracle.Plan:
        """Return the searches of all hops and the answer, with what is sought at each."""
        return oracle.plan(task.content, (), has_searched=False, is_compact=self._is_compact)

    def _playing(self) -> _Episode:
        if self._episode is None:
            raise EnvContractError("SearchQAEnv has no question. Remedy: call reset() first.")
        return self._episode

    def _search(self, request: Request) -> TextStep:
        episode = self._playing()
        episode.found = [hit.document for hit in self._retriever.search(request.text, self._topk)]
        episode.queries.append(" ".join(request.text.lower().split()))
        episode.seen.update(document.title for document in episode.found)
        return self._step(self._results(self._most_chars), brief=self._results(_BRIEF_CHARS).strip())

    def _results(self, most_chars: int) -> str:
        show = compact_results_text if self._is_compact else results_text
        return show(self._playing().found, most_chars)

    def _answer(self, request: Request) -> TextStep:
        episode = self._playing()
        episode.answer = request.text
        is_right = exact_match(request.text, episode.task.content["answers"]) == 1.0
        return self._step("done", stop=StopReason.SUCCESS if is_right else StopReason.FAILURE)

    def _step(
        self, observation: str, *, action_valid: bool = True, stop: StopReason | None = None, brief: str | None = None
    ) -> TextStep:
        episode = self._playing()
        facts = self._facts(episode)
        is_last = stop is not None or self.turn >= self.max_turns
        nothing = dict.fromkeys((f"reward_{name}" for name in self._reward.names), 0.0)  # episodes may end before, too
        reward, parts = self._reward.total(facts) if is_last else (0.0, nothing)
        scores = {"em": facts["em"], "f1": facts["f1"]}
        recall = {} if facts["support_recall"] is None else {"support_recall": facts["support_recall"]}
        metrics = {
            "searches": float(facts["searches"]),
            "repeated_searches": float(len(episode.queries) - len(set(episode.queries))),
            "invalid_actions": float(episode.invalid),
            "answered": float(episode.answer is not None),
            **scores,
            **recall,
            **parts,
        }
        kind = episode.task.content["kind"]
        return TextStep(
            observation=observation,
            reward=reward,
            action_valid=action_valid,
            stop=stop,
            success=stop is StopReason.SUCCESS,
            anchor=self._anchor(episode),
            brief=brief,
            info={**scores, **({"task_type": kind} if kind else {}), "episode_metrics": metrics},
        )

    def _facts(self, episode: _Episode) -> dict[str, Any]:
        content = episode.task.content
        answer = "" if episode.answer is None else episode.answer
        return {
            "question": content["question"],
            "answers": list(content["answers"]),
            "answer": episode.answer,
            "em": 0.0 if episode.answer is None else exact_match(answer, content["answers"]),
            "f1": 0.0 if episode.answer is None else f1(answer, content["answers"]),
            "queries": list(episode.queries),
            "titles": sorted(episode.seen),
            "support_recall": episode.support_recall,
            "searches": len(episode.queries),
            "invalid_actions": episode.invalid,
            "turns": self.turn,
        }

    def _anchor(self, episode: _Episode) -> str:
        shown = self._results(self._most_chars).strip() if episode.queries else "nothing searched"
        return f"{episode.task.content['question'][:_ANCHOR_CHARS]} | {shown}"


def _refuse_unread(where: str, given: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuse an argument that is not its default where nothing reads it."""
    for key, (value, default) in given.items():
        if value != default:
            raise EnvConfigError(f"{key}={shown(value)} is not read with {where}. Remedy: leave it out.")


def _hops(hops: Any, max_turns: int) -> tuple[int, ...]:
    """Return the numbers of hops in order; a question must leave a turn for its answer."""
    wanted = [hops] if isinstance(hops, int) else hops
    is_list = isinstance(wanted, Sequence) and not isinstance(wanted, str) and len(wanted) > 0
    if not is_list or any(isinstance(count, bool) or count not in HOPS for count in wanted):
        raise EnvConfigError(f"hops={hops!r} is not allowed. Allowed: {', '.join(map(str, HOPS))}, or a list of these.")
    if max(wanted) >= max_turns:
        raise EnvConfigError(
            f"max_turns={max_turns} is too few for hops={hops!r}: each hop takes a search, and the answer a turn more. "
            f"Remedy: max_turns={max(wanted) + 1} or fewer hops."
        )
    return tuple(sorted(set(wanted)))


def _path(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
