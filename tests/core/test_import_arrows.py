"""Dependencies point one way; read from the source, so that a lazy import counts as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = {"ray", "torch", "transformers", "vllm", "mlflow"}
# The dense retriever is an encoder that an environment asks for; it is imported when one does, by a function.
ALLOWED = {("env_connectors/search_qa/dense.py", "torch"), ("env_connectors/search_qa/dense.py", "transformers")}


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def _files(folder: str) -> list[Path]:
    found = sorted((REPOSITORY / folder).rglob("*.py"))
    assert len(found) >= 5, f"{folder} holds only {len(found)} files: the glob looks in the wrong place"
    return found


def _violations(folder: str, forbidden: set[str]) -> list[str]:
    return [
        f"{file.relative_to(REPOSITORY)} imports {name}"
        for file in _files(folder)
        for name in _imports(file)
        if any(name == f or name.startswith(f + ".") for f in forbidden)
        and (str(file.relative_to(REPOSITORY)), name.split(".")[0]) not in ALLOWED
    ]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("env_connectors", HEAVY | {"arlarena_rllib", "tune_experiments"}),
        ("env_connectors/retrieval", {"env_connectors.webshop", "env_connectors.text_env"}),
        ("arlarena_rllib/objectives", {"ray", "transformers", "vllm", "mlflow", "env_connectors", "tune_experiments"}),
        (
            "arlarena_rllib",
            {
                "tune_experiments", "env_connectors.sokoban", "env_connectors.toy", "env_connectors.webshop",
                "env_connectors.search_qa", "mlflow",
            },
        ),
    ],
)  # fmt: skip
def test_imports_point_one_way(folder: str, forbidden: set[str]) -> None:
    assert _violations(folder, forbidden) == []


def test_objectives_import_only_torch_and_the_standard_library() -> None:
    import sys

    allowed = {"torch", "arlarena_rllib"} | set(sys.stdlib_module_names)
    strangers = {
        name.split(".")[0]
        for file in _files("arlarena_rllib/objectives")
        for name in _imports(file)
        if name.split(".")[0] not in allowed
    }
    assert strangers == set()


def test_env_runner_modules_do_not_import_transformers_at_the_top() -> None:
    """Every EnvRunner process pays for what its modules import."""
    for file in _files("arlarena_rllib/rollout"):
        top = [n for n in ast.parse(file.read_text()).body if isinstance(n, (ast.Import, ast.ImportFrom))]
        names = {a.name for n in top if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in top if isinstance(n, ast.ImportFrom)}
        assert not {n for n in names if n.split(".")[0] in {"transformers", "vllm"}}, file


@pytest.mark.parametrize("file", sorted({file for file, _ in ALLOWED}))
def test_exceptions_import_heavy_packages_only_within_functions(file: str) -> None:
    top = [n for n in ast.parse((REPOSITORY / file).read_text()).body if isinstance(n, (ast.Import, ast.ImportFrom))]
    names = {a.name for n in top if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in top if isinstance(n, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] in HEAVY}
