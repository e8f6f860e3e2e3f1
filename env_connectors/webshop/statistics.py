"""How an agent shops: a few numbers about an episode, for metrics before and after learning."""

from __future__ import annotations

from env_connectors.webshop.session import Session


def action_statistics(session: Session) -> dict[str, float]:
    """Return what was done so far.

    Returns:
        `searches`; `search_refinements`, those after the first; `items_viewed`; `sub_pages`; `next_pages`;
        `pages_seen_again`, pages of the same results turned to twice (a loop of Next and Prev); `option_clicks`; once
        something is bought `options_missing_at_purchase`, kinds of options of it without a choice, and
        `premature_purchase`, 1 if there is any; `invalid_actions`.
    """
    counts = session.counts
    numbers = {
        "searches": counts.searches,
        "search_refinements": max(0, counts.searches - 1),
        "items_viewed": counts.items_viewed,
        "sub_pages": counts.sub_pages,
        "next_pages": counts.next_pages,
        "pages_seen_again": counts.pages_seen_again,
        "option_clicks": counts.options_clicked,
        "invalid_actions": counts.invalid,
        "purchases": int(session.bought is not None),
    }
    if session.bought is not None:
        missing = len({name.lower() for name in session.bought.options} - session.options.keys())
        numbers |= {"options_missing_at_purchase": missing, "premature_purchase": int(missing > 0)}
    return {name: float(number) for name, number in numbers.items()}
