"""The engine's process: `python -m env_connectors.alfworld.worker FD PARENT` answers requests on a socket until it closes.

One request at a time, (name, arguments); the answer is ('ok', value), ('need', key) when the text of a game is wanted, or
('error', message). The process ends when the other side closes the socket or dies, also in the midst of a request.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from env_connectors.alfworld.engine import Episode, GameTable

GAMES_KEPT = 32
_WATCH_S = 1.0
Answer = tuple[str, Any]


class Worker:
    """The episodes of this process by number, and the games they play."""

    def __init__(self) -> None:
        from env_connectors.alfworld.engine import GameTable

        self._games: GameTable = GameTable(GAMES_KEPT)
        self._episodes: dict[int, Episode] = {}

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Answer:
        """Return the answer to a request."""
        return getattr(self, f"_do_{name}")(*arguments)

    def _do_begin(self, number: int, key: str, text: Any = None) -> Answer:
        from env_connectors.alfworld.engine import Episode, LoadedGame

        self._episodes.pop(number, None)
        game = self._games.get(key)
        if game is None:
            if text is None:
                return "need", key
            game = LoadedGame(text.problem, text.sentence, text.goal)
            self._games.put(key, game)
        episode = self._episodes[number] = Episode(game)
        return "ok", episode.view

    def _do_step(self, number: int, command: str) -> Answer:
        return "ok", self._episodes[number].step(command)

    def _do_house(self, number: int) -> Answer:
        return "ok", self._episodes[number].house()

    def _do_forget(self, *numbers: int) -> Answer:
        for number in numbers:
            self._episodes.pop(number, None)
        return "ok", len(self._episodes)


def serve(connection: Connection) -> None:
    """Answer requests until the other side is gone."""
    try:
        worker = Worker()
    except Exception as error:  # noqa: BLE001 - the other side tells it to the user in one line
        connection.send(("error", f"{type(error).__name__}: {error}"))
        return
    connection.send(("ok", os.getpid()))
    with contextlib.suppress(EOFError, OSError):
        while True:
            name, arguments = connection.recv()
            try:
                answer = worker.answer(name, arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the translator exits on a broken problem
                answer = "error", f"{type(error).__name__}: {error}"
            connection.send(answer)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, even while the engine computes."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


def main() -> None:
    """Serve the socket whose number is given."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent closes the socket
    parent = int(sys.argv[2])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
