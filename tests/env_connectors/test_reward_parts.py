"""Parts of a reward that a user writes: what is wrong with one is told with its name, never paid."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.reward_parts import RewardParts

_OWN = {"answer": lambda facts: 1.0}


def raises(facts: Any) -> float:
    """Fail as a typo in a user's function does."""
    return facts["anwser"]


def gives(facts: Any) -> Any:
    """Return what the test wants."""
    return facts["value"]


def keywords(**facts: Any) -> float:
    """Take what a user may expect, and nothing else."""
    return 0.0


@pytest.mark.parametrize(
    "value", [None, "1", b"1", "", [], [1.0], {}, math.nan, -math.inf, np.float32("nan"), 10**400, 1j, np.zeros(2), object()]
)  # fmt: skip
def test_a_part_that_is_no_finite_number_is_named(value: Any) -> None:
    with pytest.raises(EnvContractError, match=r"the reward part 'gives' gave .+; a part is a finite number"):
        RewardParts({f"{__name__}:gives": 0.0}, _OWN).total({"value": value})


def test_numbers_of_other_kinds_are_paid() -> None:
    parts = RewardParts({f"{__name__}:gives": 2.0}, _OWN)
    assert [parts.total({"value": value})[0] for value in (True, 1, np.float32(0.5), np.int64(3))] == [
        2.0,
        2.0,
        1.0,
        6.0,
    ]


def test_a_part_that_raises_is_named_with_its_error() -> None:
    with pytest.raises(EnvContractError, match=r"the reward part 'raises' raised KeyError: 'anwser'"):
        RewardParts({f"{__name__}:raises": 1.0}, _OWN).total({})


def test_finite_parts_whose_sum_is_not_are_refused() -> None:
    with pytest.raises(EnvContractError, match=r"the reward inf is not finite; its parts are \{'reward_gives'"):
        RewardParts({f"{__name__}:gives": 1e308}, _OWN).total({"value": 1e308})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({f"{__name__}:gives": math.nan}, "gives=nan must be a finite number"), ({"answer": True}, "answer=True must"),
        ({"answer": 10**5000}, "answer=a int too long to be shown must"), ({"answer": "1"}, "answer='1' must"),
        ({}, "must name at least one part"), (["answer"], r"reward=\['answer'\] must name"), ("answer", "reward='answer' must"),
        ({"no_such_module:f": 1.0}, "'no_such_module:f' cannot be imported: No module"),
        ({".relative:f": 1.0}, "'.relative:f' cannot be imported: TypeError"), ({":f": 1.0}, "':f' cannot be imported"),
        ({f"{__name__}:nothing": 1.0}, "has no attribute 'nothing'"), ({"math:pi": 1.0}, "'math:pi' is a float, not a function"),
        ({f"{__name__}:keywords": 1.0}, "keywords' cannot be called with one mapping, the facts.*too many positional"),
        ({7: 1.0}, "'7' is no part of the reward"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_used_are_named(weights: Any, message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        RewardParts(weights, _OWN)


@pytest.mark.parametrize(
    ("text", "kind"), [("def f(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("x", "NameError")]
)
def test_a_module_that_raises_while_it_is_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: str
) -> None:
    name = f"broken_{kind.lower()}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvConfigError, match=rf"reward\.{name}:f=1\.0: '{name}:f' cannot be imported: {kind}: "):
        RewardParts({f"{name}:f": 1.0}, _OWN)
