"""The page of recorded episodes: one HTML file with its data inside, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tune_experiments.study_page import PALETTE

_DATA = Path(__file__).parent / "data"
_NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def view_page(
    title: str, facts: Sequence[tuple[str, str]], records: Sequence[Mapping[str, Any]], notes: Sequence[str]
) -> str:
    """Return the page as HTML, for light and dark screens.

    What an environment or a policy wrote stands in one block of JSON and is shown as text only. The page's own script is
    the only one that a browser runs on it: its hash is in the content security policy.

    Args:
        title: Name of the run.
        facts: The few lines on top.
        records: Of `trajectory_record`, each with ``iteration`` and ``trial``, in the order of the list.
        notes: What is missing, above the list.
    """
    script = (_DATA / "view.js").read_text(encoding="utf-8")
    style = PALETTE + (_DATA / "view.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    top = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    told = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape(title)}</h1><dl class="facts">{top}</dl>{told}</header>\n{_BODY}'
        f'<script type="application/json" id="records">{embedded(records)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def embedded(value: Any) -> str:
    """Return JSON that can stand inside of a script element: ASCII, and without a sign that begins or ends markup."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).translate(_NO_MARKUP)


_BODY = """<div class="columns">
<nav aria-label="episodes">
<div class="filters">
<label id="trial-label">trial<select id="trial"></select></label>
<label>iteration<select id="iteration"></select></label>
<label>outcome<select id="outcome"></select></label>
<label>task<input id="task" type="search" placeholder="part of its id or type" autocomplete="off"></label>
</div>
<p id="count" class="note" aria-live="polite"></p>
<div id="list"></div>
</nav>
<main>
<section id="episode"></section>
<div id="turns" class="turns" role="group" aria-label="turns"></div>
<section id="turn" aria-live="polite"></section>
<p class="note">Keys: left and right, a turn; Home and End, the first and last one; up and down, an episode.</p>
<details class="legend"><summary>What the numbers are</summary>
<p><b>advantage</b>: mean over the turn's policy tokens in the loss. <b>ratio</b>: probability of the turn's tokens under
the current policy over that under the old one, when the turn's row was last trained on, before that step; an update of one
step always shows 1. <b>tokens in the loss</b>: of the sampled ones; the prompt is never in it. <b>costs</b>: what the
method takes off the environment's reward, before advantages; a KL in the reward is not listed. <b>trained</b>: the
episode's group was in the update; <b>left out</b>: its group was filtered out, or had too few good episodes;
<b>failed</b>: environment or engine failed.</p></details>
</main>
</div>
<noscript><p>This page shows its data by a script.</p></noscript>
"""
