"""The environments that the guide to one's own shows are complete, and keep the contract."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from env_connectors import make_text_env
from env_connectors.check_env import check_text_env

_GUIDE = Path(__file__).parents[2] / "docs" / "your_own_env.md"
_BLOCKS = re.findall(r"```python\n(\"\"\"(\w+)\.py: .*?)```", _GUIDE.read_text(), re.DOTALL)


def test_the_guide_shows_both_environments() -> None:
    assert [name for _, name in _BLOCKS] == ["parity", "prices"]


@pytest.mark.parametrize(("code", "name"), _BLOCKS, ids=[name for _, name in _BLOCKS])
def test_environment_of_the_guide_conforms(
    code: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(name)
    env_id = f"mine/{name.capitalize()}-v0"
    check_text_env(env_id, fresh_process=False)
    env = make_text_env(env_id)
    task_id = env.tasks().test[0]
    env.reset(options={"task_id": task_id})
    assert [env.step(action)[1] for action in env.gold_actions(task_id)][-1] > 0
