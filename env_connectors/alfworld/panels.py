"""The panels of a set of games: which ids are trained on, which are held out, in an order that never moves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from env_connectors.alfworld.games import SPLIT_FOLDERS, Game, GameSet
from env_connectors.errors import EnvConfigError
from env_connectors.task_panel import SPLITS, TaskPanel, panel_of

FOLDER_OF = dict(zip(SPLITS, SPLIT_FOLDERS, strict=True))
"""train -> train, validation -> valid_seen (140 official games), test -> valid_unseen (134)."""


def build_alfworld_panel(
    games: GameSet, task_types: Sequence[str], sizes: dict[str, int | None], panel_seed: int
) -> tuple[dict[str, Game], TaskPanel]:
    """Return the games of the panel by id, and the panel.

    Each split is ordered by sha256(panel_seed, id), so the first n ids are a fixed subset with the mix of types of the
    whole, and a smaller subset is a part of a larger one. Content that an earlier split of test, validation, train holds
    is left out of the others.

    Args:
        games: by split folder.
        task_types: those to keep.
        sizes: split -> number of games, None for all of them.
        panel_seed: decides order and subsets.

    Raises:
        EnvConfigError: a size that there are not enough games for, or no game at all.
    """
    seen: set[str] = set()
    kept: dict[str, list[Game]] = {}
    for split in ("test", "validation", "train"):
        folder = FOLDER_OF[split]
        found = [game for game in games.games.get(folder, ()) if game.task_type in task_types]
        found = [game for game in found if game.task.content_hash not in seen]
        found.sort(key=lambda game: hashlib.sha256(f"{panel_seed}:{game.task.task_id}".encode()).digest())
        size = sizes[split]
        if size is not None and size > len(found):
            raise EnvConfigError(
                f"n_{split}={size} is more than there is: {folder} holds {len(found)} games of the types "
                f"{', '.join(task_types)}. Remedy: a smaller number, or None for all."
            )
        kept[split] = found[:size]
        seen |= {game.task.content_hash for game in found}
    if not any(kept.values()):
        raise EnvConfigError(f"there is no game of the types {', '.join(task_types)}. Remedy: other types.")
    by_id = {game.task.task_id: game for split in SPLITS for game in kept[split]}
    return by_id, panel_of({split: [game.task for game in kept[split]] for split in SPLITS})
