"""The retriever service and its client: one protocol, and what goes wrong ends the episode with a reason."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from env_connectors import make_text_env
from env_connectors.errors import EnvConnectorError, RetrieverError
from env_connectors.search_qa import client
from env_connectors.search_qa.client import RetrieverClient
from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.retriever import Bm25Retriever
from env_connectors.search_qa.retriever_server import RequestError, answer, main

_ID = "arlarena/SearchQA-v0"
_START_S = 60


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "env_connectors.search_qa.retriever_server",
        "--world",
        "small_world",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout and server.stdout.readline() == f"3200 documents, POST http://127.0.0.1:{port}/retrieve\n"
        deadline = time.monotonic() + _START_S
        while True:
            assert server.poll() is None and time.monotonic() < deadline, "the service does not start"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as response:
                    assert json.load(response) == {"documents": 3200}
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def _post(url: str, body: bytes) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/retrieve", body), timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_episodes_with_the_service_are_those_without(url: str) -> None:
    settings: dict[str, Any] = {"observation": "compact", "hops": 2}
    here, there = make_text_env(_ID, **settings), make_text_env(_ID, **settings, retriever_url=url)
    assert here.tasks().panel_hash == there.tasks().panel_hash
    for task_id in here.tasks().test[:10]:
        answers = []
        for env in (here, there):
            env.reset(options={"task_id": task_id})
            answers.append(
                [env.step(action) for action in ["<search>\ud800 \x00</search>", *env.gold_actions(task_id)]]
            )
        assert answers[0] == answers[1] and answers[0][-1][4]["success"]


def test_the_service_answers_in_the_form_of_search_r1(url: str) -> None:
    body = {"queries": ["boss of kira stone", "pet of milo frost"], "topk": 2, "return_scores": True}
    status, told = _post(url, json.dumps(body).encode())
    assert status == 200 and [len(found) for found in told["result"]] == [2, 2]
    best = told["result"][0][0]
    assert best.keys() == {"document", "score"} and best["score"] > 0
    assert best["document"]["contents"].startswith('"boss of ') and "\n" in best["document"]["contents"]
    status, plain = _post(url, json.dumps({**body, "return_scores": False}).encode())
    assert plain["result"][0][0] == best["document"]
    assert len(_post(url, b'{"queries": ["boss"]}')[1]["result"][0]) == 3


_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"", "no JSON"), (b"{", "no JSON"), (b"\xff", "no JSON"), (b"[" * 200_000, "no JSON"), (b"[]", "object with queries"),
    (b'{"topk": 3}', "object with queries"), (b'{"queries": ["x"], "k": 1}', "allowed keys: queries, topk, return_scores"),
    (b'{"queries": "x"}', "list of texts"), (b'{"queries": [1]}', "list of texts"), (b'{"queries": []}', "0 queries"),
    (b'{"queries": ["x"], "topk": 0}', "topk=0 is not allowed"), (b'{"queries": ["x"], "topk": 101}', "allowed: 1 to 100"),
    (b'{"queries": ["x"], "topk": true}', "topk=True"), (b'{"queries": ["x"], "topk": "3"}', "topk='3'"),
    (b'{"queries": ["x"], "topk": 1e400}', "topk=inf"), (b'{"queries": ["x"], "return_scores": 1}', "return_scores=1"),
    (json.dumps({"queries": ["x" * 1001]}).encode(), "query 0 has 1001 characters"),
    (json.dumps({"queries": ["x"] * 1025}).encode(), "1025 queries"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), _REFUSED)
def test_requests_that_cannot_be_used_are_refused_with_the_reason(url: str, body: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason.replace("'", ".")):
        answer(body, Bm25Retriever([Document("x", "x")]))
    status, told = _post(url, body)
    assert status == 422 and reason in told["detail"]


def test_a_body_that_is_too_big_is_refused(url: str) -> None:
    try:
        status, told = _post(url, b'{"queries": ["' + b"x" * (17 * 2**20) + b'"]}')
        assert status == 413 and "bytes" in told["detail"]
    except OSError:
        pass  # the service may close while the rest is still being sent
    assert _post(url, b'{"queries": ["boss"]}')[0] == 200


def test_the_command_names_data_that_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.jsonl").write_text('{"title": "x"}\n')
    assert main(["--corpus", str(tmp_path / "c.jsonl")]) == 2
    assert "c.jsonl', line 1: title='x' and text=None" in capsys.readouterr().err


_Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[str, list[int]]]]:
    """Return a maker of services that answer as told, one answer a request and the last one for ever, and count requests."""
    monkeypatch.setattr(client, "_FIRST_PAUSE_S", 0.01)
    servers = []

    def serve(*answers: _Answer) -> tuple[str, list[int]]:
        asked: list[int] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                asked.append(1)
                answers[min(len(asked), len(answers)) - 1](self)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def _say(status: int, body: bytes) -> _Answer:
    def say(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return say


def _drip(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Answer a byte at a time, so that no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        pass


def _hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


_GOOD = _say(200, b'{"result": [[{"document": {"id": 1, "contents": "\\"A\\"\\ntext"}, "score": 1}]]}')


@pytest.mark.parametrize("first", [_say(500, b"x"), _say(503, b"busy"), _say(429, b""), _hang_up])
def test_what_may_pass_is_asked_again(faulty: Callable[..., tuple[str, list[int]]], first: _Answer) -> None:
    url, asked = faulty(first, first, _GOOD)
    (found,) = RetrieverClient(url, timeout_s=5).search("x", 3)
    assert (found.document, found.score, len(asked)) == (Document("A", "text"), 1.0, 3)


@pytest.mark.parametrize(
    ("what", "reason"), [(_say(500, b"boom"), "500: boom"), (_hang_up, ""), (_drip, "not complete after 0.3 s")]
)
def test_tries_are_bounded(faulty: Callable[..., tuple[str, list[int]]], what: _Answer, reason: str) -> None:
    url, asked = faulty(what)
    began = time.monotonic()
    with pytest.raises(RetrieverError, match=rf"the retriever {url}/retrieve did not answer, in 3 tries: .*{reason}"):
        RetrieverClient(url, timeout_s=0.3 if what is _drip else 5.0).search("x", 3)
    assert len(asked) == 3 and time.monotonic() - began < 10


def test_nobody_there_is_an_error_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(RetrieverError, match=r"did not answer, in 1 tries: URLError: .*refused"):
            RetrieverClient(nobody, retries=0).search("x", 3)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"{}", b'{"result": 3}', b'{"result": []}', b'{"result": [[], []]}', b'{"result": ["x"]}',
        b'{"result": [[{"contents": "x"}]]}', b'{"result": [[{"document": {"contents": 3}, "score": 1}]]}',
        b'{"result": [[{"document": {"contents": "x"}, "score": "high"}]]}', b'{"result": [[{"document": null, "score": 1}]]}',
        b'{"result": [[{"document": {"contents": "x"}}]]}', b"\xff\xfe", b"[" * 200_000,
    ],
)  # fmt: skip
def test_malformed_answers_are_errors_and_not_asked_for_again(
    faulty: Callable[..., tuple[str, list[int]]], body: bytes
) -> None:
    url, asked = faulty(_say(200, body))
    with pytest.raises(RetrieverError, match="gave an answer of another form"):
        RetrieverClient(url).search("x", 3)
    assert len(asked) == 1


def test_a_refusal_is_told_with_its_reason(faulty: Callable[..., tuple[str, list[int]]]) -> None:
    url, asked = faulty(_say(422, b'{"detail": "topk=200"}'))
    with pytest.raises(RetrieverError, match=r"refused a search: it answered 422: .*topk=200"):
        RetrieverClient(url).search("x", 3)
    assert len(asked) == 1


def test_an_answer_without_end_is_cut(
    faulty: Callable[..., tuple[str, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_ANSWER_BYTES", 1000)
    url, _ = faulty(_say(200, b"x" * 5000))
    with pytest.raises(RetrieverError, match="answered more than 1000 bytes"):
        RetrieverClient(url).search("x", 3)


def test_more_documents_than_asked_for_are_left_out(faulty: Callable[..., tuple[str, list[int]]]) -> None:
    entry = {"document": {"contents": '"A"\nb'}, "score": 0.5}
    url, _ = faulty(_say(200, json.dumps({"result": [[entry] * 9]}).encode()))
    assert len(RetrieverClient(f"{url}/other/path").search("x", 3)) == 3


def test_a_failing_service_fails_the_step_and_not_the_next_episode(
    faulty: Callable[..., tuple[str, list[int]]],
) -> None:
    url, _ = faulty(_say(200, b"{}"), _say(200, b'{"result": [[]]}'))
    env = make_text_env(_ID, observation="compact", hops=2, retriever_url=url)
    env.reset(seed=0)
    with pytest.raises(EnvConnectorError, match="another form"):
        env.step("<search>x</search>")
    env.reset(seed=0)
    assert "nothing found" in env.step("<search>x</search>")[0]


def test_questions_of_a_file_need_no_corpus_beside_a_service(
    faulty: Callable[..., tuple[str, list[int]]], tmp_path: Path
) -> None:
    lines = [json.dumps({"question": f"Who is {n}?", "answer": str(n)}) for n in range(5)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    url, _ = faulty(_GOOD)
    env = make_text_env(_ID, questions_file=tmp_path / "q.jsonl", retriever_url=url, n_validation=1, n_test=1)
    env.reset(options={"task_id": "000002"})
    assert "Doc 1(Title: A) text" in env.step("<search>x</search>")[0]
