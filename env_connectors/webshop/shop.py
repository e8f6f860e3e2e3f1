"""The shop behind an environment: catalogue, prices, goals and their panel, loaded once per process and data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from env_connectors.arguments import check_flag
from env_connectors.errors import EnvConfigError
from env_connectors.task_panel import Task, TaskSet
from env_connectors.webshop.goals import goal_content, goals_of
from env_connectors.webshop.nouns import noun_finder
from env_connectors.webshop.official import OfficialFiles, official_catalogue
from env_connectors.webshop.oracle import wanted_options
from env_connectors.webshop.products import Catalogue, MemoryCatalogue, price_of
from env_connectors.webshop.reward import Goal, score_purchase
from env_connectors.webshop.synthetic import FORMAT, NUM_PRODUCTS, synthetic_products

GOALS = ("human", "machine")
SPLITS_BY = ("option", "product")
FULL_TEST, FULL_VALIDATION, FULL_GOALS = 500, 1000, 12_087
"""Held-out goals of the original split, and the number of its human goals: smaller sets are split in this proportion."""


@dataclass(frozen=True)
class ShopSettings:
    """What a shop is made of; see WebShopEnv for the meaning of each."""

    files: OfficialFiles | None = None
    num_products: int | None = None
    catalogue_seed: int = 0
    goals: str = "human"
    max_goals: int | None = None
    options_per_product: int | None = None
    only_reachable: bool = False
    price_seed: int = 0
    panel_seed: int = 0
    split_by: str = "option"
    n_validation: int | None = None
    n_test: int | None = None
    nouns: str = "words"
    parity: bool = False

    def __post_init__(self) -> None:
        """Refuse what no shop can be made of."""
        for key, allowed in (("goals", GOALS), ("split_by", SPLITS_BY)):
            if getattr(self, key) not in allowed:
                raise EnvConfigError(f"{key}={getattr(self, key)!r} is not known. Allowed: {', '.join(allowed)}.")
        for key in ("catalogue_seed", "price_seed", "panel_seed"):
            if isinstance(getattr(self, key), bool) or not isinstance(getattr(self, key), int):
                raise EnvConfigError(f"{key}={getattr(self, key)!r} is not allowed. Allowed: whole numbers.")
        for key in ("num_products", "max_goals", "options_per_product"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise EnvConfigError(f"{key}={value!r} is not allowed. Allowed: None or whole numbers from 1.")
        for key in ("n_validation", "n_test"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise EnvConfigError(f"{key}={value!r} is not allowed. Allowed: None or whole numbers from 0.")
        for key in ("only_reachable", "parity"):
            check_flag(key, getattr(self, key))


@dataclass(frozen=True)
class Shop:
    """Catalogue and tasks; shared by all environments of a process with equal settings."""

    catalogue: Catalogue
    task_set: TaskSet


@lru_cache(maxsize=8)
def open_shop(settings: ShopSettings) -> Shop:
    """Return the shop of these settings.

    Raises:
        EnvConfigError: data that cannot be read, or no goal at all.
        PanelError: held-out splits that do not fit.
    """
    catalogue = _catalogue(settings)
    return Shop(catalogue, _task_set(catalogue, settings))


@lru_cache(maxsize=4)
def _synthetic_catalogue(num_products: int, seed: int) -> MemoryCatalogue:
    return MemoryCatalogue(synthetic_products(num_products, seed), f"{FORMAT} {num_products} {seed}")


def _catalogue(settings: ShopSettings) -> Catalogue:
    if settings.files is None:
        return _synthetic_catalogue(settings.num_products or NUM_PRODUCTS, settings.catalogue_seed)
    return official_catalogue(settings.files, settings.num_products)


def _task_set(catalogue: Catalogue, settings: ShopSettings) -> TaskSet:
    goals = list(_goals(catalogue, settings))
    if not goals:
        raise EnvConfigError(
            f"goals={settings.goals!r}: none of {len(catalogue)} products has such an instruction. "
            "Remedy: the other kind of goals, or human_file (for 'human') or attributes_file (for 'machine') that has them."
        )
    keys = split_keys([goal for _, goal in goals], settings.split_by)
    mark = {"catalogue": catalogue.mark, "price_seed": settings.price_seed}
    tasks = [
        Task(task_id, {**mark, **goal_content(goal)}, split_key=key)
        for (task_id, goal), key in zip(goals, keys, strict=True)
    ]
    share = min(1.0, len(tasks) / FULL_GOALS)
    n_test = round(FULL_TEST * share) if settings.n_test is None else settings.n_test
    n_validation = round(FULL_VALIDATION * share) if settings.n_validation is None else settings.n_validation
    return TaskSet.split(
        tasks,
        seed=settings.panel_seed,
        n_validation=n_validation,
        n_test=n_test,
        held_out_per_key=1 if settings.split_by == "product" else None,
    )


def _goals(catalogue: Catalogue, settings: ShopSettings) -> Iterable[tuple[str, Goal]]:
    """Return the goals with their ids, '<asin>/<number>'; with max_goals those of products drawn by the panel's seed."""
    human, count = settings.goals == "human", 0
    nouns = noun_finder(settings.nouns)
    for product in catalogue.requested(human=human, seed=settings.panel_seed, most=settings.max_goals):
        made = goals_of(product, human=human, seed=settings.price_seed, most=settings.options_per_product)
        for number, goal in enumerate(made):
            if not goal.attributes:
                continue
            if settings.only_reachable:
                chosen = tuple(wanted_options(product, goal).values())
                price = price_of(product, settings.price_seed)
                score = score_purchase(product, goal, price, chosen, nouns=nouns, parity=settings.parity)
                if score.score < 1.0:
                    continue
            if count == settings.max_goals:
                return
            count += 1
            yield f"{product.asin}/{number}", goal


def split_keys(goals: list[Goal], split_by: str) -> list[str]:
    """Return for each goal a key that it shares with all goals that must be in the same split.

    Goals are bound together by equal instructions, and by equal products ('product') or equal products with equal options
    ('option'), also through other goals.
    """
    roots: dict[tuple[str, ...], tuple[str, ...]] = {}

    def root(node: tuple[str, ...]) -> tuple[str, ...]:
        while (above := roots.setdefault(node, node)) != node:
            roots[node] = roots[above]
            node = roots[node]
        return node

    nodes = []
    for goal in goals:
        thing = (goal.asin, *(sorted(goal.option_values) if split_by == "option" else ()))
        nodes.append(("bought", *thing))
        one, other = root(nodes[-1]), root(("said", goal.instruction))
        roots[max(one, other)] = min(one, other)
    return ["\n".join(root(node)) for node in nodes]
