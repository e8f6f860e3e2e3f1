"""A headless Chromium, driven through its debugging pipe: it opens a page, presses keys, and answers expressions."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

_FLAGS = [
    *("--headless", "--no-sandbox", "--no-zygote", "--single-process", "--disable-gpu", "--in-process-gpu"),
    *("--use-gl=angle", "--use-angle=swiftshader", "--no-first-run", "--remote-debugging-pipe"),
]


class Browser:
    """One page; a context manager."""

    def __init__(self, chromium: str, page: str, profile: Path) -> None:
        """Start the browser at path ``chromium`` and open the URL ``page``."""
        read_by_it, self._to = os.pipe()
        self._from, written_by_it = os.pipe()
        fds = (read_by_it, written_by_it)
        # The pipe's ends are file descriptors 3 and 4, by Chromium's own rule.
        command = [
            "bash",
            "-c",
            f'exec "$0" "$@" 3<&{fds[0]} 4>&{fds[1]}',
            chromium,
            *_FLAGS,
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(command, pass_fds=fds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in fds:
            os.close(fd)
        self._number, self._buffer, self._session = 0, b"", ""
        target = self._call("Target.createTarget", url=page)["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        while self.value("location.href + ' ' + document.readyState") != f"{page} complete":
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key of the keyboard, e.g. ArrowRight."""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "result" in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._from, 65536)
            assert read, "the browser has ended"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
