"""Whose turn it is: orders worked out by hand, and shares kept from every place on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_connectors import EnvConfigError
from env_connectors.mixture.turns import deal, turn_order, whole_weights


def _letters(turns: list[int] | tuple[int, ...]) -> str:
    return "".join("abcd"[turn] for turn in turns)


def test_turns_of_three_to_one_by_hand() -> None:
    # a is behind by 3/4, then 1/2 (b too: a is first by name), then 1/4 against b's 3/4, then 1 against 0.
    assert _letters(turn_order((3, 1))) == "aaba"
    assert _letters(turn_order((1, 3))) == "babb"
    assert _letters(turn_order((3, 1, 1))) == "abaca"
    assert _letters(turn_order((1, 1, 1))) == "abc"
    assert _letters(turn_order((2,))) == "aa"


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_turns_are_within_one_of_the_share_from_the_start_and_within_two_in_any_window(weights: list[int]) -> None:
    order, bound = turn_order(tuple(weights)), 1 - 1 / (2 * len(weights) - 2)
    assert [order.count(i) for i in range(len(weights))] == weights
    for i, weight in enumerate(weights):
        ahead = [order[:n].count(i) - n * weight / sum(weights) for n in range(len(order) + 1)]
        assert max(map(abs, ahead)) <= bound + 1e-9 < 1
        # A window is a difference of two starts; two members keep within one of their shares in all of them.
        assert max(ahead) - min(ahead) <= 2 * bound + 1e-9


def test_weights_become_the_smallest_whole_numbers() -> None:
    assert whole_weights([6, 2]) == (3, 1)
    assert whole_weights([0.75, 0.25]) == (3, 1)
    assert whole_weights([0.1, 1.5, 2]) == (1, 15, 20)
    with pytest.raises(EnvConfigError, match=r"the weights 0\.333333, 1 .* only after 1333333 turns\. Allowed: 10000"):
        whole_weights([0.333333, 1])


def test_deal_keeps_the_proportion_until_one_has_no_more() -> None:
    # Three to one until b's two are dealt, then what is left of a.
    assert _letters(deal([9, 2], [3, 1])) == "aabaaab" + "aaaa"
    # Without a member from the start: two to one of the others.
    assert _letters(deal([0, 3, 3], [5, 2, 1])) == "bcbbcc"
    assert deal([0, 0], [1, 1]) == []
