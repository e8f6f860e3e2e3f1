"""WebShop in text: find a product that fits a request, choose its options, and buy it.

Observation   text: what stands on the page, joined by ' [SEP] ' | text_rich: line by line, with marks at what can be clicked and
              what has been | url: the address. Pages and their texts are the original's. | compact: few words, see compact.py.
Action        search[words] on any page; click[x] with x a button, a product's id or an option value of the page, in any case.
              Anything else: nothing happens, action_valid False, the turn counts.
Start         the search page with the request.
Reward/turn   at the purchase, else 0: 10 for a score of 1, else 0 (reward='success'), or the score (reward='score').
Ends          SUCCESS after buying with score 1.0, FAILURE after buying anything else, or truncated after max_turns.
Info          score (0 before the purchase), then its parts r_type, r_att, r_option (None without wanted options), r_price,
              title_score, query_match, category_match, w_att, w_option, w_price; episode_metrics (statistics.py).
Tasks         goals of the catalogue, e.g. 'S31415/0'; in the original's proportions, no request and no product with the same
              options in two splits.
Needs         nothing; nouns='spacy' needs spaCy. Arguments: see WebShopEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from env_connectors.arguments import check_flag
from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.planned_env import PlannedTextEnv
from env_connectors.task_panel import Task
from env_connectors.text_env import StopReason, TextStep
from env_connectors.webshop import oracle, pages
from env_connectors.webshop.compact import compact_brief, compact_text
from env_connectors.webshop.goals import goal_of
from env_connectors.webshop.nouns import noun_finder
from env_connectors.webshop.official import OfficialFiles
from env_connectors.webshop.products import price_of
from env_connectors.webshop.reward import Goal, Score, score_purchase
from env_connectors.webshop.session import Session
from env_connectors.webshop.shop import ShopSettings, open_shop
from env_connectors.webshop.statistics import action_statistics

OBSERVATIONS = ("text", "text_rich", "url", "compact")
REWARDS = ("success", "score")
WIN_REWARD = 10.0
ANY_SEARCH = "search[<your query>]"
_RULES = (
    "You are shopping online. Find a product that fits the instruction, choose the options that it asks for, and buy it "
    "with click[buy now]; you can buy once. search[words] looks for products, on any page. click[x] clicks a button, a "
    "product id or an option value that the page shows. Description and Features of a product tell more about it."
)


class WebShopEnv(PlannedTextEnv):
    """One request in the shop; see the head of this file."""

    metadata = {"render_modes": ["ansi", "html"], "render_fps": 4}  # noqa: RUF012 (gymnasium's own form)

    def __init__(
        self,
        *,
        observation: str = "text",
        reward: str = "success",
        max_turns: int = 15,
        num_products: int | None = None,
        catalogue_seed: int = 0,
        products_file: str | Path | None = None,
        attributes_file: str | Path | None = None,
        human_file: str | Path | None = None,
        cache_dir: str | Path | None = None,
        goals: str = "human",
        max_goals: int | None = None,
        options_per_product: int | None = None,
        only_reachable: bool = False,
        price_seed: int = 0,
        panel_seed: int = 0,
        split_by: str = "option",
        n_validation: int | None = None,
        n_test: int | None = None,
        nouns: str = "words",
        parity: bool = False,
        show_attributes: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Load the shop (once per process).

        Args:
            observation: 'text', 'text_rich', 'url' or 'compact'.
            reward: 'success' (10 or 0) or 'score' (0 to 1).
            max_turns: turn budget of an episode.
            num_products: size of the synthetic catalogue (None: 2500), or the first ones of the products file (None: all).
            catalogue_seed: decides the synthetic catalogue.
            products_file: items_shuffle*.json of the official data; None = the synthetic catalogue.
            attributes_file: items_ins_v2*.json; needed with products_file.
            human_file: items_human_ins.json; needed for human goals of official data.
            cache_dir: see OfficialFiles.
            goals: 'human' (of the synthetic catalogue: in a human's words) or 'machine' (the original's synthetic goals, one
                for each combination of options).
            max_goals: goals to keep, of products drawn by panel_seed; None = all.
            options_per_product: machine goals of a product to keep; None = all.
            only_reachable: leave out goals that buying their own product with its best options does not fulfil.
            price_seed: decides prices between two bounds, and price limits.
            panel_seed: decides which goals are held out.
            split_by: 'option', or 'product' to have no product in two splits (with one goal of each in a held-out one).
            n_validation: goals held out for validation; None = the original's 1000, fewer if there are fewer goals.
            n_test: goals held out for the test; None = the original's 500, fewer if there are fewer goals.
            nouns: 'words' or 'spacy', see nouns.py.
            parity: compare options of machine goals as the original does, see reward.py.
            show_attributes: item pages have a button for the hidden attributes.
            render_mode: None, 'ansi' or 'html'.

        Raises:
            EnvConfigError: an argument or file that cannot be used; the message names it.
            PanelError: fewer goals than the held-out splits need.
        """
        for key, value, allowed in (("observation", observation, OBSERVATIONS), ("reward", reward, REWARDS)):
            if value not in allowed:
                raise EnvConfigError(f"{key}={value!r} is not known. Allowed: {', '.join(allowed)}.")
        check_flag("show_attributes", show_attributes)
        self._nouns = noun_finder(nouns)
        settings = ShopSettings(
            files=_files(products_file, attributes_file, human_file, cache_dir),
            num_products=num_products, catalogue_seed=catalogue_seed, goals=goals, max_goals=max_goals,
            options_per_product=options_per_product, only_reachable=only_reachable, price_seed=price_seed,
            panel_seed=panel_seed, split_by=split_by, n_validation=n_validation, n_test=n_test, nouns=nouns, parity=parity,
        )  # fmt: skip
        shop = open_shop(settings)
        super().__init__(shop.task_set, max_turns=max_turns, render_mode=render_mode)
        self.instructions = _RULES
        self.observation, self.reward = observation, reward
        self._catalogue, self._settings, self._show_attributes = shop.catalogue, settings, show_attributes
        self._goal: Goal | None = None
        self._session: Session | None = None

    def begin(self, task: Task) -> TextStep:
        """Open the shop with the task's request."""
        self._goal = goal_of(task.content)
        self._session = self._visit(self._goal)
        return self._step(self._session, action_valid=True)

    def act(self, action: str) -> TextStep:
        """Search or click."""
        session = self._opened()
        is_valid = session.act(action)
        if session.bought is None:
            return self._step(session, is_valid)
        score = self._score(session)
        session.page = pages.done_page(session.bought.asin, session.options, score.score)
        return self._step(session, is_valid, score)

    def plan(self) -> list[tuple[str, str]]:
        """Return what that shopper thinks and does from here on; [] when the product cannot be found."""
        session = self._opened()
        assert self._goal is not None, "a session has a goal"
        return oracle.plan(session, self._goal)

    def admissible(self) -> list[str]:
        """Return what can be clicked; on the search page the form of a search, which is possible on every page."""
        if self._session is None:
            return []
        words = self._session.page.clickables()
        search = [ANY_SEARCH] if self._session.page.kind == "index" else []
        return [*search, *(f"click[{word}]" for word in words if word != pages.SEARCH.lower())]

    def slips(self) -> list[str]:
        """Return what a hasty shopper does: searches that say too little, any button, the first result or option value."""
        if self._session is None or self._goal is None:
            return []
        if self._session.page.kind == "index":
            return oracle.careless_queries(self._goal)
        return [f"click[{word}]" for word in self._session.page.hasty_clicks()]

    def render(self) -> str | None:  # type: ignore[override]
        """Return the page: as text with render_mode='ansi', as HTML with 'html', else None."""
        if self.render_mode == "html" and self._session is not None:
            return pages.page_html(self._session.page, self._session.options)
        return super().render()

    def draw(self) -> str:
        """Return the page line by line, '' before the first reset."""
        session = self._session
        return "" if session is None else pages.rich_text(session.page, session.options, frozenset(session.visited))

    def _visit(self, goal: Goal) -> Session:
        return Session(self._catalogue, goal.instruction, show_attributes=self._show_attributes)

    def gold_plan(self, task: Task) -> oracle.Plan:
        """Return what a shopper who knows the goal thinks and does from the start."""
        goal = goal_of(task.content)
        planned = oracle.plan(self._visit(goal), goal)
        if not planned:
            raise EnvConfigError(f"task {task.task_id!r} has a product that no search finds: {goal.title[:80]!r}.")
        return planned

    def _score(self, session: Session) -> Score:
        assert session.bought is not None and self._goal is not None, "asked for after a purchase"
        return score_purchase(
            session.bought,
            self._goal,
            price_of(session.bought, self._settings.price_seed),
            tuple(session.options.values()),
            nouns=self._nouns,
            parity=self._settings.parity,
        )

    def _step(self, session: Session, action_valid: bool, score: Score | None = None) -> TextStep:
        reached = 0.0 if score is None else score.score
        is_won = reached == 1.0
        stop = None if score is None else StopReason.SUCCESS if is_won else StopReason.FAILURE
        statistics = action_statistics(session) | {"score": reached}
        return TextStep(
            observation=self._shown(session),
            reward=reached if self.reward == "score" else WIN_REWARD * is_won,
            action_valid=action_valid,
            stop=stop,
            success=is_won,
            anchor=self._anchor(session),
            brief=self._brief(session),
            info={"score": 0.0, **({} if score is None else asdict(score)), "episode_metrics": statistics},
        )

    def _shown(self, session: Session) -> str:
        if self.observation == "text":
            return pages.plain_text(session.page)
        if self.observation == "url":
            return session.url
        if self.observation == "compact":
            return compact_text(session)
        return pages.rich_text(session.page, session.options, frozenset(session.visited))

    def _brief(self, session: Session) -> str:
        if self.observation == "compact":
            return compact_brief(session)
        return pages.plain_text(session.page, with_instruction=False)

    def _anchor(self, session: Session) -> str:
        if self.observation == "compact":  # what is shown: the words of the search only matter for the way back
            return f"{session.page.kind} {hashlib.sha256(compact_text(session).encode()).hexdigest()[:16]}"
        is_told = self.observation == "text_rich" and session.visited
        seen = f" seen {','.join(sorted(session.visited))}" if is_told else ""
        return f"{session.state_key}{seen}"

    def _opened(self) -> Session:
        if self._session is None:
            raise EnvContractError("WebShopEnv is on no page. Remedy: call reset() first.")
        return self._session


def _files(
    products: str | Path | None, attributes: str | Path | None, human: str | Path | None, cache_dir: str | Path | None
) -> OfficialFiles | None:
    others = {"attributes_file": attributes, "human_file": human, "cache_dir": cache_dir}
    for key, value in {"products_file": products, **others}.items():
        if value is not None and (not isinstance(value, (str, Path)) or str(value) == "" or "\0" in str(value)):
            raise EnvConfigError(f"{key}={value!r} is not allowed. Allowed: None or a path.")
    if products is None:
        for key, value in others.items():
            if value is not None:
                raise EnvConfigError(f"{key}={str(value)!r} is read with products_file only. Remedy: products_file.")
        return None
    if attributes is None:
        raise EnvConfigError(f"products_file={str(products)!r} needs attributes_file, as items_ins_v2.json.")
    return OfficialFiles(
        Path(products),
        Path(attributes),
        None if human is None else Path(human),
        None if cache_dir is None else Path(cache_dir),
    )
