"""The form in which requests and results travel: tuples of plain values, much cheaper to pickle than objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from arlarena_rllib.serving.engines.base import GenerationRequest, GenerationResult

PackedRequests = tuple[bytes, bytes, list[tuple[Any, ...]]]
PackedResults = tuple[bytes, bytes, bytes, bytes, list[tuple[Any, ...]]]


def pack_requests(requests: Iterable[tuple[int, GenerationRequest]]) -> PackedRequests:
    """Return (number, request) pairs as (all prompt ids, prompt lengths, number and parameters)."""
    ids, lengths, rest = array("i"), array("i"), []
    for number, request in requests:
        ids.extend(request.prompt_ids)
        lengths.append(len(request.prompt_ids))
        r = request
        rest.append((number, r.max_tokens, r.temperature, r.seed, tuple(r.stop_token_ids), r.top_p, r.top_k, r.stop))
    return ids.tobytes(), lengths.tobytes(), rest


def unpack_requests(packed: PackedRequests) -> list[tuple[int, GenerationRequest]]:
    """Undo ``pack_requests``."""
    ids, lengths = array("i", packed[0]).tolist(), array("i", packed[1])
    requests, start = [], 0
    for length, (number, *parameters) in zip(lengths, packed[2], strict=True):
        requests.append((number, GenerationRequest(ids[start : start + length], *parameters)))
        start += length
    return requests


def pack_results(results: Iterable[tuple[int, GenerationResult]]) -> PackedResults:
    """Return (number, result) pairs as (ids, log-probs, versions, lengths, number and remaining fields)."""
    ids, logprobs, versions, lengths = array("i"), array("d"), array("q"), array("i")
    rest = []
    for number, result in results:
        ids.extend(result.token_ids)
        logprobs.extend(result.logprobs)
        versions.extend(result.weight_versions)
        lengths.append(len(result.token_ids))
        rest.append((number, result.finish_reason, result.num_cached_tokens, result.error))
    return ids.tobytes(), logprobs.tobytes(), versions.tobytes(), lengths.tobytes(), rest


def unpack_results(packed: PackedResults) -> list[tuple[int, GenerationResult]]:
    """Undo ``pack_results``."""
    ids, logprobs = array("i", packed[0]).tolist(), array("d", packed[1]).tolist()
    versions, lengths = array("q", packed[2]).tolist(), array("i", packed[3])
    results, start = [], 0
    for length, (number, finish_reason, num_cached, error) in zip(lengths, packed[4], strict=True):
        part = slice(start, start + length)
        results.append(
            (number, GenerationResult(ids[part], logprobs[part], finish_reason, versions[part], num_cached, error))
        )
        start += length
    return results
