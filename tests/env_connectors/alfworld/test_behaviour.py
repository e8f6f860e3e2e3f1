"""Shares of actions by kind, counted by hand."""

from env_connectors.alfworld.behaviour import Behaviour


def test_shares_of_an_episode() -> None:
    behaviour = Behaviour()
    for command, text in [
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        ("open fridge 1", "You open the fridge 1."),
        ("take egg 1 from fridge 1", "You pick up the egg 1 from the fridge 1."),
        ("look", "You are facing the fridge 1."),
        ("go to shelf 1", "You arrive at shelf 1."),
        ("go to fridge 1", "You arrive at fridge 1."),
        ("take moon 1 from sky", "Nothing happens."),
        ("cool egg 1 with fridge 1", "You cool the egg 1 using the fridge 1."),
    ]:
        behaviour.note(command, text)
    assert behaviour.shares() == {
        "interaction_frac": 2 / 8,
        "look_frac": 1 / 8,
        "door_frac": 1 / 8,
        "walk_frac": 3 / 8,
        "revisit_frac": 1 / 8,
        "nothing_happens_frac": 1 / 8,
    }
    assert behaviour.visited == ["fridge 1", "shelf 1"]


def test_shares_before_the_first_action_are_zero() -> None:
    assert set(Behaviour().shares().values()) == {0.0}
