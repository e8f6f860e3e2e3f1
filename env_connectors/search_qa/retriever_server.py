"""A retriever service: `python -m env_connectors.search_qa.retriever_server --corpus FILE`, or --world world|small_world.

POST /retrieve with {"queries": [...], "topk": k, "return_scores": bool} answers {"result": [[...], ...]}, for each query its
documents, the best first: {"document": {"id", "contents"}, "score"}, or without scores the documents alone. A request that
cannot be used is answered with 422 and the reason. GET /health answers with the number of documents.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from env_connectors.errors import EnvConnectorError
from env_connectors.search_qa.documents import Found
from env_connectors.search_qa.files import contents_of
from env_connectors.search_qa.retriever import MOST_QUERY_CHARS, MOST_TOPK, Retriever

DEFAULT_TOPK = 3
MOST_QUERIES = 1024
MOST_BODY_BYTES = 16 * 2**20
_KEYS = ("queries", "topk", "return_scores")


class RequestError(EnvConnectorError, ValueError):
    """A request that cannot be answered; the message is the reason."""


def answer(body: bytes, retriever: Retriever) -> dict[str, Any]:
    """Return the answer to the body of a request.

    Raises:
        RequestError: bad JSON, or a value that is not allowed.
    """
    queries, topk, has_scores = _request(body)
    return {"result": [[_shown(hit, has_scores) for hit in retriever.search(query, topk)] for query in queries]}


def _request(body: bytes) -> tuple[list[str], int, bool]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(asked, dict) or "queries" not in asked or not asked.keys() <= set(_KEYS):
        raise RequestError(f"the body must be an object with queries; allowed keys: {', '.join(_KEYS)}")
    queries, topk, has_scores = asked["queries"], asked.get("topk", DEFAULT_TOPK), asked.get("return_scores", False)
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise RequestError("queries must be a list of texts")
    if not 1 <= len(queries) <= MOST_QUERIES:
        raise RequestError(f"there are {len(queries)} queries; allowed: 1 to {MOST_QUERIES}")
    long = next((number for number, query in enumerate(queries) if len(query) > MOST_QUERY_CHARS), None)
    if long is not None:
        raise RequestError(f"query {long} has {len(queries[long])} characters; allowed: {MOST_QUERY_CHARS}")
    if topk is None:
        topk = DEFAULT_TOPK
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= MOST_TOPK:
        raise RequestError(f"topk={topk!r} is not allowed; allowed: 1 to {MOST_TOPK}")
    if not isinstance(has_scores, bool):
        raise RequestError(f"return_scores={has_scores!r} is not allowed; allowed: true, false")
    return queries, topk, has_scores


def _shown(hit: Found, has_scores: bool) -> dict[str, Any]:
    document = {"id": hit.document.title, "contents": contents_of(hit.document)}
    return {"document": document, "score": hit.score} if has_scores else document


def build_app(retriever: Retriever, num_documents: int) -> Any:
    """Return the FastAPI application around a retriever."""
    from fastapi import FastAPI, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import JSONResponse

    app = FastAPI(title="retriever")

    # The parameter's type must be a value for FastAPI, not its name, which only this function knows.
    async def retrieve(request: Any) -> Any:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY_BYTES:
                return JSONResponse({"detail": f"the body has more than {MOST_BODY_BYTES} bytes"}, status_code=413)
        try:
            return JSONResponse(await run_in_threadpool(answer, bytes(body), retriever))
        except RequestError as error:
            return JSONResponse({"detail": str(error)}, status_code=422)

    retrieve.__annotations__ = {"request": Request}
    app.post("/retrieve")(retrieve)

    @app.get("/health")
    def health() -> dict[str, int]:
        return {"documents": num_documents}

    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; return 2 for data that cannot be used."""
    from env_connectors.search_qa.source import SourceSettings, open_corpus, open_retriever

    parser = argparse.ArgumentParser(prog="python -m env_connectors.search_qa.retriever_server", description=__doc__)
    parser.add_argument("--corpus", help="documents: .json, .jsonl, also .gz")
    parser.add_argument("--world", choices=("world", "small_world"), default="world", help="a generated corpus instead")
    parser.add_argument("--num-groups", type=int, help="of the generated corpus")
    parser.add_argument("--seed", type=int, default=0, help="of the generated corpus")
    parser.add_argument("--skip-malformed", action="store_true", help="leave malformed lines out")
    parser.add_argument("--dense-model", help="directory of an encoder, instead of BM25")
    parser.add_argument("--dense-cache-dir", help="where its embeddings are kept")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args(arguments)
    settings = SourceSettings(
        data="files" if chosen.corpus else chosen.world,
        corpus_file=chosen.corpus,
        num_groups=chosen.num_groups,
        seed=chosen.seed,
        skip_malformed=chosen.skip_malformed,
        retriever="dense" if chosen.dense_model else "bm25",
        dense_model=chosen.dense_model,
        dense_cache_dir=chosen.dense_cache_dir,
    )
    try:
        corpus = open_corpus(settings)
        retriever = open_retriever(settings, corpus)
    except EnvConnectorError as error:
        print(error, file=sys.stderr)
        return 2
    import uvicorn

    app = build_app(retriever, len(corpus.documents))
    print(f"{len(corpus.documents)} documents, POST http://{chosen.host}:{chosen.port}/retrieve", flush=True)
    uvicorn.run(app, host=chosen.host, port=chosen.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
