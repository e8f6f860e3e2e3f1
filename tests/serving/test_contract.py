"""The engine contract: requests, registry, wire format, and what an import costs."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving import EngineSpec, GenerationRequest, GenerationResult, register_engine
from arlarena_rllib.serving.engines import base
from arlarena_rllib.serving.wire import pack_requests, pack_results, unpack_requests, unpack_results

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=20)
REQUESTS = st.builds(
    GenerationRequest,
    prompt_ids=TOKENS,
    max_tokens=st.integers(1, 1000),
    temperature=st.floats(0, 2),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stop_token_ids=st.lists(st.integers(0, 1000), max_size=3).map(tuple),
    top_p=st.floats(0.1, 1.0),
    top_k=st.integers(0, 50),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=2).map(tuple),
)


@st.composite
def results(draw: st.DrawFn) -> GenerationResult:
    token_ids = draw(TOKENS)
    size = len(token_ids)
    return GenerationResult(
        token_ids,
        draw(st.lists(st.floats(-50, 0), min_size=size, max_size=size)),
        draw(st.sampled_from(base.FINISH_REASONS)),
        draw(st.lists(st.integers(0, 2**40), min_size=size, max_size=size)),
        draw(st.integers(0, 100)),
        draw(st.none() | st.text(max_size=10)),
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(REQUESTS, max_size=5))
def test_requests_packed_come_back_equal(requests: list[GenerationRequest]) -> None:
    numbered = list(enumerate(requests, start=5))
    assert unpack_requests(pack_requests(numbered)) == numbered


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), results()), max_size=5))
def test_results_packed_come_back_equal(pairs: list[tuple[int, GenerationResult]]) -> None:
    assert unpack_results(pack_results(pairs)) == pairs


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (GenerationRequest([], 5), "prompt_ids is empty"),
        (GenerationRequest([1] * 100, 5), "prompt has 100 tokens but max_model_len=100"),
        (GenerationRequest([1, 50], 5), "prompt_ids has 50, outside the vocabulary of 50"),
        (GenerationRequest([-1, 1], 5), "prompt_ids has -1"),
        (GenerationRequest([1], 0), "max_tokens=0"),
        (GenerationRequest([1], 5, temperature=-1.0), "temperature=-1.0"),
        (GenerationRequest([1], 5, top_p=0.0), "top_p=0.0"),
        (GenerationRequest([1], 5, top_k=-1), "top_k=-1"),
    ],
)
def test_request_out_of_range_is_named(request_: GenerationRequest, words: str) -> None:
    assert words in (base.check_request(request_, max_model_len=100, vocab_size=50) or "")


def test_engine_unknown_names_nearest_and_all() -> None:
    with pytest.raises(ServingError, match=r"'transfomers' is not known. Nearest: 'transformers'. Allowed: .*vllm"):
        base.find_engine("transfomers")


def test_engine_registered_twice_differently_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ENGINES", dict(base.ENGINES))
    register_engine("mine", "package.module:Mine")
    register_engine("mine", "package.module:Mine")
    with pytest.raises(ServingError, match=r"is taken by package.module:Mine"):
        register_engine("mine", "other:Mine")
    with pytest.raises(ServingError, match="module:Class"):
        register_engine("no-colon", "package.module.Mine")


def test_spec_pickled_is_equal() -> None:
    spec = EngineSpec("vllm", "/models/x", engine_kwargs={"block_size": 32}, eos_token_ids=(1, 2))
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"generation_config.json": '{"eos_token_id": [3, 4]}', "config.json": '{"eos_token_id": 5}'}, (3, 4)),
        ({"generation_config.json": "{}", "config.json": '{"eos_token_id": 5}'}, (5,)),
        ({"config.json": "{}"}, ()),
    ],
)
def test_end_ids_are_those_of_the_model_directory(
    files: dict[str, str], expected: tuple[int, ...], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert EngineSpec("vllm", str(tmp_path)).end_token_ids() == expected
    assert EngineSpec("vllm", str(tmp_path), eos_token_ids=(9,)).end_token_ids() == (9,)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("arlarena_rllib.serving", ("torch", "ray", "transformers", "vllm")),
        ("arlarena_rllib.serving.policy_server", ("torch", "transformers", "vllm")),
        ("arlarena_rllib.serving.engines.vllm_engine", ("torch", "transformers", "vllm")),
    ],
)
def test_import_stays_light(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["transformers_engine", "decoding"])
def test_transformers_engine_does_not_mention_vllm(module: str) -> None:
    source = (Path(base.__file__).parent / f"{module}.py").read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names} | {getattr(node, "module", "") for node in imports}
    assert "torch" in names and not any(name.startswith("vllm") or "vllm_engine" in name for name in names)
