"""Asks a retriever service by HTTP, in the form of Search-R1's /retrieve; what goes wrong is named in one error."""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import SplitResult, urlsplit

from env_connectors.errors import EnvConfigError, RetrieverError
from env_connectors.search_qa.documents import Found
from env_connectors.search_qa.files import document_of_contents
from env_connectors.search_qa.retriever import MOST_QUERY_CHARS

TIMEOUT_S = 10.0
RETRIES = 2
MOST_ANSWER_BYTES = 16 * 2**20
_CHUNK = 1 << 16
_FIRST_PAUSE_S = 0.2
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP states after which asking again may help."""


class RetrieverClient:
    """A retriever behind a URL."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, retries: int = RETRIES) -> None:
        """Take where to ask; nothing is asked yet.

        Args:
            url: of the service; without a path, /retrieve is asked.
            timeout_s: most seconds that one try may take, > 0.
            retries: tries after the first one, 0 to 10; before them the client waits 0.2 s, 0.4 s, ...

        Raises:
            EnvConfigError: an argument that cannot be used.
        """
        parts = _address(url)
        if parts is None:
            raise EnvConfigError(
                f"retriever_url={url!r} is no address. Allowed: http://host:port or https://host:port."
            )
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < math.inf:
            raise EnvConfigError(f"retriever_timeout_s={timeout_s!r} is not allowed. Allowed: numbers above 0.")
        if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 10:
            raise EnvConfigError(f"retriever_retries={retries!r} is not allowed. Allowed: 0 to 10.")
        self.url = url if parts.path.strip("/") else f"{url.rstrip('/')}/retrieve"
        self._timeout_s, self._retries = float(timeout_s), retries

    def search(self, query: str, topk: int) -> list[Found]:
        """Return the best documents for a query.

        Raises:
            RetrieverError: no usable answer after all tries, or one that asking again would not better.
        """
        # A lone surrogate is no Unicode text: no service could read it.
        text = query[:MOST_QUERY_CHARS].encode("utf-8", "replace").decode("utf-8")
        body = json.dumps({"queries": [text], "topk": topk, "return_scores": True}).encode()
        reason = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
            try:
                return self._found(self._answer(body), topk)
            except urllib.error.HTTPError as error:
                reason = f"it answered {error.code}: {_start(error)}"
                if error.code not in _PASSING:
                    raise RetrieverError(f"the retriever {self.url} refused a search: {reason}") from error
            except (OSError, http.client.HTTPException) as error:  # urllib's URLError and timeouts are OSErrors
                reason = f"{type(error).__name__}: {error}"
        raise RetrieverError(f"the retriever {self.url} did not answer, in {self._retries + 1} tries: {reason}")

    def _answer(self, body: bytes) -> bytes:
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        deadline = time.monotonic() + self._timeout_s
        parts, size = [], 0
        with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
            while part := response.read1(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > MOST_ANSWER_BYTES:
                    raise RetrieverError(f"the retriever {self.url} answered more than {MOST_ANSWER_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the answer was not complete after {self._timeout_s:g} s")
        return b"".join(parts)

    def _found(self, answer: bytes, topk: int) -> list[Found]:
        try:
            result = json.loads(answer)["result"]
            if len(result) != 1 or not isinstance(result[0], list):
                raise ValueError(f"one list of documents was wanted, it has {len(result)}")
            return [_one(entry) for entry in result[0][:topk]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RetrieverError(
                f"the retriever {self.url} gave an answer of another form ({type(error).__name__}: {error}): "
                f"{answer[:80]!r}. Wanted: {{'result': [[{{'document': {{'contents': ...}}, 'score': ...}}]]}}."
            ) from error


def _one(entry: Any) -> Found:
    contents, score = entry["document"]["contents"], entry["score"]
    if not isinstance(contents, str) or isinstance(score, bool) or not isinstance(score, (int, float)):
        raise ValueError(
            f"a document has contents and score of types {type(contents).__name__}, {type(score).__name__}"
        )
    # Half of a surrogate pair is no character: the agent could not read it.
    return Found(document_of_contents(contents.encode("utf-8", "replace").decode("utf-8")), float(score))


def _address(url: Any) -> SplitResult | None:
    """Return the parts of an address that can be asked, None for anything else."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets of an address, a port that is no number
        return None
    return parts if is_usable else None


def _start(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(300).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return str(error.reason)
