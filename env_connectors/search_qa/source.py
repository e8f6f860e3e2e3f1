"""Where questions and documents come from: a generated world, or the user's files; opened once per process."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from env_connectors.errors import EnvConfigError
from env_connectors.search_qa.answer_score import normalise
from env_connectors.search_qa.client import RETRIES, TIMEOUT_S, RetrieverClient
from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.facts import World
from env_connectors.search_qa.files import UserQuestion, read_corpus, read_questions
from env_connectors.search_qa.generated import CHECKED_TOPK, questions, task_of
from env_connectors.search_qa.retriever import Bm25Retriever, Retriever
from env_connectors.search_qa.small_world import small_world
from env_connectors.search_qa.world import world
from env_connectors.task_panel import Task, TaskSet, build_panel, panel_of

WORLDS = {"world": world, "small_world": small_world}
DATA = (*WORLDS, "files")
RETRIEVERS = ("bm25", "dense")
HOPS = (1, 2, 3, 4)
_DEFAULT_SHARE = 0.1  # of the user's questions, for each held-out split
_MOST_DEFAULT = 256
_HELD_OUT_PER_GROUP = 32
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceSettings:
    """What decides questions and documents; the fields are the arguments of SearchQAEnv."""

    data: str
    hops: tuple[int, ...] = (2, 3)
    num_groups: int | None = None
    per_group: int = 40
    seed: int = 0
    panel_seed: int = 0
    n_train: int | None = None
    n_validation: int | None = None
    n_test: int | None = None
    topk: int = CHECKED_TOPK
    questions_file: str | None = None
    corpus_file: str | None = None
    skip_malformed: bool = False
    retriever: str = "bm25"
    dense_model: str | None = None
    dense_cache_dir: str | None = None
    retriever_url: str | None = None
    timeout_s: float = TIMEOUT_S
    retries: int = RETRIES


@dataclass(frozen=True)
class Corpus:
    """Documents and the retriever in them.

    Attributes:
        documents: all of them.
        retriever: BM25 over them.
        mark: names the contents.
        world: that they are of, None for files.
        skipped: malformed entries of the file that were left out.
    """

    documents: Sequence[Document]
    retriever: Bm25Retriever
    mark: str
    world: World | None = None
    skipped: int = 0


@dataclass(frozen=True)
class Source:
    """Retriever and tasks; shared by all environments of a process with equal settings."""

    retriever: Retriever
    task_set: TaskSet
    skipped: dict[str, int]


def open_corpus(settings: SourceSettings) -> Corpus:
    """Return the corpus of these settings.

    Raises:
        EnvConfigError: data that cannot be read, or settings that contradict each other.
    """
    if settings.data in WORLDS:
        return _generated_corpus(settings.data, settings.num_groups, settings.seed)
    if settings.corpus_file is None:
        raise EnvConfigError("data='files' needs corpus_file (or a retriever_url).")
    return _corpus_of_file(settings.corpus_file, settings.skip_malformed)


@lru_cache(maxsize=4)
def _generated_corpus(name: str, num_groups: int | None, seed: int) -> Corpus:
    make = WORLDS[name]
    made = make(seed=seed) if num_groups is None else make(num_groups, seed)
    return Corpus(made.documents, Bm25Retriever(made.documents), made.mark, made)


@lru_cache(maxsize=2)
def _corpus_of_file(path: str, skip_malformed: bool) -> Corpus:
    read = read_corpus(path, skip_malformed=skip_malformed)
    _tell_skipped("corpus_file", path, read.skipped)
    return Corpus(read.entries, Bm25Retriever(read.entries), f"file {read.mark}", skipped=read.skipped)


def open_retriever(settings: SourceSettings, corpus: Corpus) -> Retriever:
    """Return the retriever of these settings in this process.

    Raises:
        EnvConfigError: an encoder that cannot be used.
    """
    if settings.retriever == "bm25":
        return corpus.retriever
    if settings.dense_model is None:
        raise EnvConfigError("retriever='dense' needs dense_model, the directory of an encoder.")
    return _dense(corpus.mark, settings.dense_model, settings.dense_cache_dir, _Documents(corpus.documents))


class _Documents:
    """Documents as an argument of a cached function: all are equal, as the mark beside them tells them apart."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Documents)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=2)
def _dense(mark: str, model: str, cache_dir: str | None, corpus: _Documents) -> Retriever:
    # Not at the top: it is the one module here that needs torch, and most never ask for it.
    from env_connectors.search_qa.dense import DenseRetriever

    return DenseRetriever(corpus.documents, mark, Path(model), None if cache_dir is None else Path(cache_dir))


@lru_cache(maxsize=8)
def open_source(settings: SourceSettings) -> Source:
    """Return the source of these settings.

    Raises:
        EnvConfigError: data that cannot be read, or settings that contradict each other.
        PanelError: held-out splits that do not fit.
    """
    client = (
        RetrieverClient(settings.retriever_url, timeout_s=settings.timeout_s, retries=settings.retries)
        if settings.retriever_url is not None
        else None
    )
    if settings.data in WORLDS:
        corpus = open_corpus(settings)
        return Source(client or open_retriever(settings, corpus), _generated_tasks(settings, corpus), {})
    if settings.questions_file is None:
        raise EnvConfigError("data='files' needs questions_file.")
    read = read_questions(settings.questions_file, skip_malformed=settings.skip_malformed)
    _tell_skipped("questions_file", settings.questions_file, read.skipped)
    skipped = {"questions_file": read.skipped}
    if settings.corpus_file is None and client is not None:
        return Source(client, _user_tasks(settings, read.entries, "service"), skipped)
    corpus = open_corpus(settings)
    skipped["corpus_file"] = corpus.skipped
    return Source(client or open_retriever(settings, corpus), _user_tasks(settings, read.entries, corpus.mark), skipped)


def _tell_skipped(key: str, path: str, count: int) -> None:
    if count:
        _log.warning("%s=%r: %d malformed entries are left out (skip_malformed)", key, path, count)


def _generated_tasks(settings: SourceSettings, corpus: Corpus) -> TaskSet:
    made = corpus.world
    assert made is not None, "a generated corpus has its world"
    # The panel is that of the three best documents also where more are shown: topk above 3 changes no task.
    drawn = questions(
        made,
        corpus.retriever,
        hops=settings.hops,
        per_group=settings.per_group,
        seed=settings.seed,
        topk=min(settings.topk, CHECKED_TOPK),
    )
    tasks = [task_of(question, made, number) for number, question in enumerate(drawn)]
    return _split(tasks, settings, held_out_per_key=_HELD_OUT_PER_GROUP)


def _user_tasks(settings: SourceSettings, entries: Iterable[UserQuestion], mark: str) -> TaskSet:
    found = list(entries)
    tasks = [
        Task(
            f"{entry.number:06d}",
            {
                "question": entry.text, "answers": list(entry.answers), "supports": list(entry.supports), "hops": [],
                "kind": entry.kind, "corpus": mark,
            },
            split_key=key,
        )
        for entry, key in zip(found, split_keys(found), strict=True)
    ]  # fmt: skip
    return _split(tasks, settings, held_out_per_key=None)


def split_keys(entries: Sequence[UserQuestion]) -> list[str]:
    """Return for each question a key that it shares with all that must be in its split.

    Bound together, also through others, are equal questions (normalised) and equal sets of supports.
    """
    roots: dict[str, str] = {}

    def root(node: str) -> str:
        while (above := roots.setdefault(node, node)) != node:
            roots[node] = roots[above]
            node = roots[node]
        return node

    nodes = []
    for entry in entries:
        nodes.append(f"asks {normalise(entry.text) or entry.text}")
        if entry.supports:
            one, other = root(nodes[-1]), root("needs " + "\n".join(sorted(entry.supports)))
            roots[max(one, other)] = min(one, other)
    return [root(node) for node in nodes]


def _split(tasks: list[Task], settings: SourceSettings, held_out_per_key: int | None) -> TaskSet:
    usual = min(_MOST_DEFAULT, int(_DEFAULT_SHARE * len(tasks)))
    panel = build_panel(
        tasks,
        seed=settings.panel_seed,
        n_validation=usual if settings.n_validation is None else settings.n_validation,
        n_test=usual if settings.n_test is None else settings.n_test,
        held_out_per_key=held_out_per_key,
    )
    if settings.n_train is not None:
        by_id = {task.task_id: task for task in tasks}
        kept = {name: [by_id[i] for i in panel.split(name)] for name in ("train", "validation", "test")}
        panel = panel_of({**kept, "train": kept["train"][: settings.n_train]})
    return TaskSet(tasks, panel)
