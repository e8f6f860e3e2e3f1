"""What the documentation shows is run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.config import ALL_SETTINGS
from arlarena_rllib.objectives import AXES
from arlarena_rllib.presets import METHODS
from tune_experiments.run_config import load_run_config, shipped_config

REPOSITORY = Path(__file__).resolve().parents[2]


def _blocks(file: str, language: str) -> list[str]:
    text = (REPOSITORY / file).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize(("block", "name"), enumerate(["parity", "prices"]))
def test_environment_of_the_guide_conforms(
    block: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from env_connectors.check_env import check_text_env

    (tmp_path / f"{name}.py").write_text(_blocks("docs/your_own_env.md", "python")[block])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    check_text_env(f"{name}:mine/{name.capitalize()}-v0", episodes=2)
    sys.modules.pop(name, None)


@pytest.mark.parametrize("file", ["README.md", "docs/your_own_env.md"])
def test_train_commands_of_the_documentation_are_valid(file: str) -> None:
    commands = [
        shlex.split(line, comments=True)
        for block in _blocks(file, "bash")
        for line in block.replace("\\\n", " ").splitlines()
        if "arlarena train" in line
    ]
    assert len(commands) >= 2
    for words in commands:
        start = words.index("train")
        overrides = [w for w in words[start + 2 :] if "=" in w]
        run = load_run_config(shipped_config(words[start + 1]), overrides)
        if "mine/" not in str(run.sections["environment"]["env"]):
            run.algorithm("").check_settings()


def test_python_example_of_the_readme_is_a_valid_configuration() -> None:
    code = _blocks("README.md", "python")[0].split("algo = ")[0]
    names: dict[str, object] = {}
    exec(code, names)
    names["config"].check_settings()  # type: ignore[attr-defined]


def test_method_of_the_guide_is_short_and_passes_its_own_test(tmp_path: Path) -> None:
    method, test = _blocks("docs/new_method.md", "python")
    assert len(method.splitlines()) <= 20
    (tmp_path / "topr.py").write_text(method)
    (tmp_path / "test_topr.py").write_text(test)
    done = _python(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)], path=tmp_path)
    assert "2 passed" in done


def test_invariants_cover_the_method_of_the_guide_by_its_command(tmp_path: Path) -> None:
    """In a process of its own, so that the method is in no registry of the other tests."""
    (tmp_path / "topr.py").write_text(_blocks("docs/new_method.md", "python")[0])
    (command,) = [line for line in _blocks("docs/new_method.md", "bash")[0].splitlines() if line]
    path, python, *words = shlex.split(command)
    assert (path, python) == ("PYTHONPATH=.", "python")
    done = _python([*words, "-p", "no:cacheprovider"], path=tmp_path)
    passed = re.search(r"(\d+) passed", done)
    assert passed and int(passed.group(1)) >= 100


def test_papers_page_has_every_preset_with_its_settings() -> None:
    lines = [line for line in (REPOSITORY / "docs/papers.md").read_text().splitlines() if re.match(r"\|.* x ", line)]
    documented = {}
    for line in lines:
        _, _, name, settings, _, _, _ = (cell.strip() for cell in line.split("|"))
        axes, *params = settings.split(";")
        documented[name.strip("`")] = (tuple(axes.split(" x ")), set(re.findall(r"`([^`]+)`", "".join(params))))
    expected = {
        name: (tuple(getattr(m, axis) for axis in AXES), {f"{key}={value}" for key, value in m.params.items()})
        for name, m in METHODS.items()
    }
    assert documented == expected


@pytest.mark.parametrize(
    "file", ["README.md", *(f"docs/{p}.md" for p in ("papers", "concepts", "collapse", "new_method"))]
)
def test_settings_that_a_page_names_exist_where_it_says(file: str) -> None:
    """`section.key`, and `key=value` without a section."""
    text, known = (REPOSITORY / file).read_text(), ARLArenaConfig.known_keys()
    of_section = re.findall(r"`(training|reporting|env_runners|serving|policy)\.(\w+)", text)
    bare = re.findall(r"`([a-z]\w*)=[^`=]+`", text)
    assert len(of_section) + len(bare) >= 2
    assert [key for key in (*bare, *(key for _, key in of_section)) if key not in known] == []
    assert [f"{s}.{k}" for s, k in of_section if k in ALL_SETTINGS and ALL_SETTINGS[k].section != s] == []


def _python(arguments: list[str], *, path: Path) -> str:
    """Run Python in the repository with ``path`` first among the modules; return its output if it succeeded."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), str(REPOSITORY)])}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout
