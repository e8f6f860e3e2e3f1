"""A document of tables and pictures, written as one HTML file that loads nothing, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class Cell:
    """Text of a table's cell; ``detail`` is small below it, ``tone`` is "", "best", "good", "bad" or "muted"."""

    text: str
    detail: str = ""
    tone: str = ""


Row = Sequence[Cell | str]
_MARKUP = re.compile(r"[\\|*_`\[\]~]")
"""What Markdown takes for more than text."""


@dataclass(frozen=True)
class Table:
    """Rows of cells or text; the last cell of a row that is short goes on to the end.

    Attributes:
        head: names of the columns.
        rows: cells; plain text is a cell too.
        align: a letter per column: "l" and "r" keep to one line, "t" is text that wraps.
        caption: above the table.
        note: below it.
        is_folded: closed until a reader opens it.
    """

    head: Sequence[str]
    rows: Sequence[Row]
    align: str
    caption: str = ""
    note: str = ""
    is_folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with text, tables and a picture (SVG) below it."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    picture: str = ""
    caption: str = ""
    level: int = 2


@dataclass(frozen=True)
class Document:
    """What a report says; ``facts`` are the few lines on top, ``colours`` CSS variables as (light, dark)."""

    title: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    colours: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def to_html(document: Document) -> str:
    """Return the document as a page that is complete in itself, for light and dark screens, without scripts."""
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in document.facts)
    body = "\n".join(_html_section(section) for section in document.sections)
    title = escape(document.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}{_colour_rules(document.colours)}</style>\n</head>\n"
        f'<body>\n<main>\n<h1>{title}</h1>\n<dl class="facts">{facts}</dl>\n{body}\n</main>\n</body>\n</html>\n'
    )


def _colour_rules(colours: Mapping[str, tuple[str, str]]) -> str:
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in colours.items()) for i in (0, 1))
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"


def _html_section(section: Section) -> str:
    parts = [f"<h{section.level}>{escape(section.title)}</h{section.level}>"]
    parts += [f"<p>{escape(text)}</p>" for text in section.text]
    parts += [_html_table(table) for table in section.tables]
    if section.picture:
        parts.append(f"<figure>{section.picture}<figcaption>{escape(section.caption)}</figcaption></figure>")
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _html_table(table: Table) -> str:
    head = "".join(
        f'<th class="{side}">{escape(name)}</th>' for name, side in zip(table.head, table.align, strict=True)
    )
    rows = "\n".join(_html_row(row, table) for row in table.rows)
    html = f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>'
    if table.note:
        html += f'<p class="note">{escape(table.note)}</p>'
    if table.is_folded:
        return f"<details><summary>{escape(table.caption or 'table')}</summary>{html}</details>"
    return (f'<p class="caption">{escape(table.caption)}</p>' if table.caption else "") + html


def _html_row(row: Row, table: Table) -> str:
    cells = [_cell(cell) for cell in row]
    is_short = len(cells) < len(table.head)
    html = []
    for i, cell in enumerate(cells):
        goes_on = is_short and i == len(cells) - 1
        span = f' colspan="{len(table.head) - i}"' if goes_on else ""
        side = "t" if goes_on else table.align[i]
        detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
        html.append(f'<td class="{" ".join(filter(None, (side, cell.tone)))}"{span}>{escape(cell.text)}{detail}</td>')
    mark = ' class="sub"' if is_short else ""
    return f"<tr{mark}>{''.join(html)}</tr>"


def to_markdown(document: Document) -> str:
    """Return the same text and tables; a picture is only named."""
    lines = [f"# {_markdown_text(document.title)}", ""]
    lines += [f"- {_markdown_text(name)}: {_markdown_text(value)}" for name, value in document.facts]
    for section in document.sections:
        lines += ["", f"{'#' * section.level} {_markdown_text(section.title)}"]
        for text in section.text:
            lines += ["", _markdown_text(text)]
        for table in section.tables:
            lines += ["", *_markdown_table(table)]
        if section.picture:
            lines += ["", f"(Picture in report.html: {_markdown_text(section.caption)})"]
    return "\n".join([*lines, ""])


def _markdown_table(table: Table) -> list[str]:
    lines = [f"**{_markdown_text(table.caption)}**", ""] if table.caption else []
    lines.append("| " + " | ".join(map(_markdown_text, table.head)) + " |")
    lines.append("|" + "|".join("--:" if side == "r" else "---" for side in table.align) + "|")
    for row in table.rows:
        cells = [_markdown_cell(_cell(cell)) for cell in row]
        lines.append("| " + " | ".join([*cells, *[""] * (len(table.head) - len(cells))]) + " |")
    return [*lines, "", _markdown_text(table.note)] if table.note else lines


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    text = f"**{text}**" if cell.tone == "best" else text
    return f"{text} ({_markdown_text(cell.detail)})" if cell.detail else text


def _markdown_text(text: str) -> str:
    """Return one line in which nothing is markup that was not meant as such."""
    return _MARKUP.sub(r"\\\g<0>", escape(" ".join(_printable(text).split()), quote=False))


def _printable(text: str) -> str:
    """Return the text without what a terminal would obey, colours in an error say."""
    return "".join(sign if sign.isprintable() or sign.isspace() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


PALETTE = """
:root{color-scheme:light dark;--ink:#1c2024;--soft:#60666d;--line:#d9dde1;--faint:#eef0f2;--page:#ffffff;
--good:#00704f;--bad:#b3400a;--hover:#f6f8f9}
@media (prefers-color-scheme: dark){:root{--ink:#e4e7ea;--soft:#9aa2ab;--line:#363c43;--faint:#24292e;--page:#15181b;
--good:#4fc79b;--bad:#f08a52;--hover:#1c2125}}
"""
"""Colours of light and dark screens, of every page that is written here."""

_STYLE = (
    PALETTE
    + """*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 16px;letter-spacing:-.01em}
h2{font-size:20px;margin:44px 0 8px;padding-top:14px;border-top:1px solid var(--line);letter-spacing:-.01em}
h3{font-size:16px;margin:28px 0 6px}
p{margin:6px 0;max-width:86ch}
.facts{display:flex;flex-wrap:wrap;gap:8px 28px;margin:0}
.facts dt{font-size:12px;color:var(--soft)}
.facts dd{margin:0;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:10px 0 6px}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:5px 18px 5px 0;vertical-align:top;border-bottom:1px solid var(--faint)}
th:last-child,td:last-child{padding-right:4px}
th{font-size:12px;font-weight:600;color:var(--soft);border-bottom:1px solid var(--line);vertical-align:bottom}
.l,.t{text-align:left}
.r{text-align:right}
td.l,td.r{white-space:nowrap}
td.t{overflow-wrap:anywhere;min-width:11em}
tbody tr:hover{background:var(--hover)}
td small{display:block;font-size:12px;color:var(--soft)}
td.best{font-weight:650}
td.best small{font-weight:400}
td.good{color:var(--good)}
td.bad,tr.sub td{color:var(--bad)}
td.muted{color:var(--soft)}
tr.sub td{font-size:12.5px;padding-top:2px}
.caption{font-weight:600;font-size:14px;margin-top:18px}
.note,figcaption{font-size:12.5px;color:var(--soft);max-width:110ch}
figure{margin:12px 0}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figure svg{display:block;width:100%;height:auto}
details{margin:14px 0}
summary{cursor:pointer;font-weight:600;font-size:14px}
@media print{main{max-width:none;padding:0}details{display:block}}
"""
)
