"""What runs inside stands on the standard library alone: the sandbox holds nothing else of the project."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from env_connectors.tir_math.sandbox import bwrap

_FILES = sorted(bwrap.INSIDE.glob("*.py"))


def test_inside_imports_the_standard_library_and_itself() -> None:
    assert len(_FILES) >= 7
    allowed = set(sys.stdlib_module_names) | {"numpy", "sympy"}  # these two inside functions, when they are wanted
    for file in _FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, file
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 or (node.module or "").split(".")[0] in allowed, file


def test_fork_server_is_importable_without_the_project(tmp_path: Path) -> None:
    (tmp_path / "inside").symlink_to(bwrap.INSIDE)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import inside.zygote; print('env_connectors' in sys.modules)"
    line = [sys.executable, "-I", "-S", "-B", "-c", code, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert done.stdout == "False\n"
