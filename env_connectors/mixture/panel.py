"""The panel of a mixture: held-out ids dealt out by weight, training drawn by weight, nothing held out trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from env_connectors.errors import PanelError
from env_connectors.mixture.turns import deal, turn_order
from env_connectors.task_panel import SPLITS, Task, TaskPanel, panel_of, short_hash
from env_connectors.text_env import TextEnv

SEPARATOR = ":"
_panels: dict[tuple[tuple[str, int, str], ...], MixturePanel] = {}
_PANELS_KEPT = 8


@dataclass(frozen=True)
class Part:
    """One environment of a mixture.

    Attributes:
        name: what its ids begin with.
        weight: whole number >= 1; its share is weight / sum of weights.
        panel: its own panel, without the tasks that others hold out.
    """

    name: str
    weight: int
    panel: TaskPanel

    def mixed_id(self, task_id: str) -> str:
        """Return the id within the mixture."""
        return f"{self.name}{SEPARATOR}{task_id}"


@dataclass(frozen=True)
class MixturePanel(TaskPanel):
    """Ids '<name>:<id>' of several panels; in every split they are dealt out by weight until a panel has no more.

    A walk gives each environment its share of turns (`turn_order`), and each environment walks its own panel: its n-th
    task is the n-th of the walk that it would take alone with this seed. `panel_hash` depends on the weights too.

    Attributes:
        parts: the environments, ordered by name.
    """

    parts: tuple[Part, ...]

    def draw(self, split: str, cursor: int, count: int, seed: int) -> tuple[list[str], int]:
        """Return what TaskPanel.draw does, with the environments in turn by weight; one without ids is left out."""
        self._drawable(split, cursor, count)
        parts = [part for part in self.parts if part.panel.split(split)]
        period = turn_order(tuple(part.weight for part in parts))
        rounds, at = divmod(cursor, len(period))
        turns = [period[n % len(period)] for n in range(at, at + count)]
        walks = []
        for member, part in enumerate(parts):
            own_cursor = rounds * part.weight + period[:at].count(member)
            drawn, _ = part.panel.draw(split, own_cursor, turns.count(member), seed)
            walks.append(map(part.mixed_id, drawn))
        return [next(walks[member]) for member in turns], cursor + count


def mixture_panel(envs: Mapping[str, TextEnv], weights: Mapping[str, int]) -> MixturePanel:
    """Return the panel of `envs`, by name and with whole weights; built once per process for equal panels and weights.

    No two splits share a content, whatever environment it is in, or a split key within a class of environments: what one
    holds out for the test is left out of the others' validation and training, and validation goes before training.

    Raises:
        PanelError: an environment is left without a training task.
    """
    names = sorted(envs)
    key = tuple((name, weights[name], envs[name].tasks().panel_hash) for name in names)
    panel = _panels.get(key)
    if panel is None:
        panel = _build(names, envs, weights)
        if len(_panels) >= _PANELS_KEPT:
            _panels.clear()
        _panels[key] = panel
    return panel


def _build(names: Sequence[str], envs: Mapping[str, TextEnv], weights: Mapping[str, int]) -> MixturePanel:
    kept = _apart({name: _tasks(envs[name]) for name in names}, envs)
    parts = tuple(Part(name, weights[name], _narrowed(envs[name].tasks(), kept[name])) for name in names)
    for part in parts:
        if not part.panel.train:
            raise PanelError(
                f"env_config.envs.{part.name}: none of its {len(envs[part.name].tasks().train)} training tasks is left; "
                "the others hold them all out. Remedy: one panel_seed for environments that share tasks."
            )
    mixed = panel_of({split: _dealt(parts, {name: kept[name][split] for name in names}, split) for split in SPLITS})
    shares = "".join(f"{part.name} {part.weight}\n" for part in parts)
    return MixturePanel(**{**vars(mixed), "panel_hash": short_hash(mixed.panel_hash + "\n" + shares)}, parts=parts)


def mixed_task(name: str, env: TextEnv, task: Task) -> Task:
    """Return a task of `env` under its id within the mixture; split keys mean something within a class only."""
    return replace(task, task_id=f"{name}{SEPARATOR}{task.task_id}", split_key=f"{type(env).__name__} {task.split_key}")


def _tasks(env: TextEnv) -> dict[str, list[Task]]:
    panel = env.tasks()
    return {split: [env.task(task_id) for task_id in panel.split(split)] for split in SPLITS}


def _apart(tasks: Mapping[str, dict[str, list[Task]]], envs: Mapping[str, TextEnv]) -> dict[str, dict[str, list[Task]]]:
    """Return the tasks without those whose content or split key an earlier one of test, validation, train holds."""
    kept: dict[str, dict[str, list[Task]]] = {name: {} for name in tasks}
    seen: set[str] = set()
    for split in ("test", "validation", "train"):
        found = set()
        for name, own in tasks.items():
            marks = {task.task_id: _marks(name, envs[name], task) for task in own[split]}
            kept[name][split] = [task for task in own[split] if not marks[task.task_id] & seen]
            found |= set().union(*(marks[task.task_id] for task in kept[name][split]))
        seen |= found
    return kept


def _marks(name: str, env: TextEnv, task: Task) -> set[str]:
    return {task.content_hash, mixed_task(name, env, task).split_key}


def _narrowed(panel: TaskPanel, kept: Mapping[str, Sequence[Task]]) -> TaskPanel:
    """Return `panel` with only the `kept` tasks; itself when that is all of them."""
    if all(len(kept[split]) == len(panel.split(split)) for split in SPLITS):
        return panel
    return replace(panel, **vars(panel_of(kept)))


def _dealt(parts: Sequence[Part], tasks: Mapping[str, Sequence[Task]], split: str) -> list[Task]:
    """Return the tasks of a split, under their ids within the mixture, in the order of the deal."""
    rows = [iter(tasks[part.name]) for part in parts]
    order = deal([len(tasks[part.name]) for part in parts], [part.weight for part in parts])
    return [replace(task, task_id=parts[i].mixed_id(task.task_id)) for i in order for task in [next(rows[i])]]
