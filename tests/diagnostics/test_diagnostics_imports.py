"""The diagnostics need neither Ray nor a model library, and a learner that measures does not load matplotlib."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "arlarena_rllib" / "diagnostics"
ALLOWED = {"torch", "numpy", "matplotlib", "arlarena_rllib"} | set(sys.stdlib_module_names)


def _imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}


def test_diagnostics_import_objectives_numbers_and_pictures_only() -> None:
    files = sorted(PACKAGE.glob("*.py"))
    assert len(files) >= 8
    names = {name for file in files for name in _imported(file)}
    assert {name for name in names if name.split(".")[0] not in ALLOWED} == set()
    own = {name for name in names if name.startswith("arlarena_rllib")}
    assert all(name.startswith(("arlarena_rllib.objectives", "arlarena_rllib.diagnostics")) for name in own)


def test_measuring_does_not_load_matplotlib() -> None:
    code = "import sys, arlarena_rllib.diagnostics; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parents[1], check=False).returncode == 0
