"""One self-contained HTML page: sections made of words, tables, pictures and code. Nothing is fetched, nothing runs."""

import abc
import base64
import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginax.files import write_text
from marginax.report.style import STYLE
from marginax.report.svg import to_svg

# The browser is told to fetch nothing and to run nothing, whatever found its way into the page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_NUMBER = re.compile(r"[-−+]?[\d.,]+(e[-+]?\d+)?( ?(%|s|±.*|to .*|\[.*\]))?|nan|inf|none|-|")
_PHONE, _DESK = (38, 2.3), (94, 2.7)  # letters beside each other, and those that the edges of a cell take


class AbstractBlock(abc.ABC):
    """A piece of a section."""

    @abc.abstractmethod
    def html(self) -> str:
        """Markup, with everything that came from outside escaped."""


@dataclass(frozen=True)
class Text(AbstractBlock):
    """A paragraph.

    >>> Text("a < b").html()
    '<p>a &lt; b</p>'
    """

    text: str

    def html(self) -> str:
        return f"<p>{html.escape(self.text)}</p>"


@dataclass(frozen=True)
class Items(AbstractBlock):
    """A list of sentences; with `warn`, one that catches the eye."""

    items: tuple[str, ...]
    warn: bool = False

    def html(self) -> str:
        lines = "".join(f"<li>{html.escape(item)}</li>" for item in self.items)
        return f'<div class="warn"><ul>{lines}</ul></div>' if self.warn else f"<ul>{lines}</ul>"


@dataclass(frozen=True)
class Facts(AbstractBlock):
    """Names and what they are.

    >>> Facts({"method": "MAP()"}).html()
    '<dl><dt>method</dt><dd>MAP()</dd></dl>'
    """

    facts: Mapping[str, str]

    def html(self) -> str:
        return (
            f"<dl>{''.join(f'<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>' for k, v in self.facts.items())}</dl>"
        )


@dataclass(frozen=True)
class Card:
    """A number to see first, how well it is known (± or an interval), and what it means."""

    name: str
    value: str
    error: str = ""
    words: str = ""


@dataclass(frozen=True)
class Cards(AbstractBlock):
    """The numbers to see first, side by side."""

    cards: tuple[Card, ...]

    def html(self) -> str:
        return f'<div class="cards">{"".join(map(self._card, self.cards))}</div>'

    @staticmethod
    def _card(card: Card) -> str:
        error = f' <span class="error">{html.escape(card.error)}</span>' if card.error else ""
        words = f'<div class="words">{html.escape(card.words)}</div>' if card.words else ""
        return (
            f'<div class="card"><div class="name">{html.escape(card.name)}</div>'
            f'<div class="value">{html.escape(card.value)}{error}</div>{words}</div>'
        )


@dataclass(frozen=True)
class Table(AbstractBlock):
    """Rows of cells. Where the page is too narrow for them, the cells of a row stand below each other with their names.

    Columns of numbers stand right, but for the first, which says what a row is about.

    >>> Table.of([{"method": "MAP", "rmse": "0.51 ± 0.02"}]).header
    ('method', 'rmse')
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], *, caption: str = "") -> "Table":
        """From rows that name their cells; a cell that a row lacks is empty."""
        header = tuple(dict.fromkeys(name for row in rows for name in row))
        return cls(header, tuple(tuple(str(row.get(name, "")) for name in header) for row in rows), caption)

    def html(self) -> str:
        kinds = ["short", *(self._kind([row[i] for row in self.rows]) for i in range(1, len(self.header)))]
        head = "".join(f'<th class="{k}">{html.escape(c)}</th>' for c, k in zip(self.header, kinds, strict=True))
        body = "".join(
            "<tr>"
            + "".join(
                f'<td class="{kind}" data-name="{html.escape(name)}">{_unbroken(html.escape(cell))}</td>'
                for name, cell, kind in zip(self.header, row, kinds, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        return (
            f'<div class="wide"><table class="{self._room(kinds)}">{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def _room(self, kinds: list[str]) -> str:
        """Where there is room for the columns side by side: everywhere, on wide pages, or nowhere.

        >>> [Table(("a",), ((letters * "x",),))._room(["short"]) for letters in (20, 60, 120)]
        ['', 'stacks', 'stacked']
        """
        needed = 0
        for i, (name, kind) in enumerate(zip(self.header, kinds, strict=True)):
            pieces = [piece for row in self.rows for piece in re.split(r" (?=\[)", row[i])] if kind == "num" else []
            whole = [row[i] for row in self.rows] if kind == "short" else []
            words = [word for row in self.rows for word in row[i].split()] if kind in ("", "long") else []
            longest = max(map(len, [*pieces, *whole, *words, *name.split()]), default=0)
            needed += max(longest, 22 if kind == "long" else 0)
        for (room, edge), found in ((_PHONE, ""), (_DESK, "stacks")):
            if needed + edge * len(kinds) <= room:
                return found
        return "stacked"

    @staticmethod
    def _kind(cells: list[str]) -> str:
        if all(_NUMBER.fullmatch(cell) for cell in cells):
            return "num"
        longest = max(map(len, cells), default=0)
        return "long" if longest > 40 else "short" if longest < 25 else ""


@dataclass(frozen=True)
class Picture(AbstractBlock):
    """A figure of matplotlib, drawn in the colours of the page.

    Attributes:
        figure: of matplotlib.
        label: what it shows, for those who do not see it.
        caption: what to see in it.
    """

    figure: Any
    label: str
    caption: str = ""

    def html(self) -> str:
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>" if self.caption else ""
        svg = to_svg(self.figure, label=self.label)
        return f'<figure><div class="frame">{svg}</div>{caption}</figure>'


@dataclass(frozen=True)
class Bitmap(AbstractBlock):
    """A picture that was drawn already, as the bytes of a PNG file.

    >>> Bitmap(b"png", "a curve").html()
    '<figure><div class="frame"><img alt="a curve" src="data:image/png;base64,cG5n"></div></figure>'

    Attributes:
        content: of the file.
        label: what it shows, for those who do not see it.
        caption: what to see in it; lines are kept.
    """

    content: bytes
    label: str
    caption: str = ""

    def html(self) -> str:
        source = f"data:image/png;base64,{base64.b64encode(self.content).decode()}"
        lines = "<br>".join(html.escape(line) for line in self.caption.splitlines())
        caption = f"<figcaption>{lines}</figcaption>" if lines else ""
        image = f'<img alt="{html.escape(self.label)}" src="{source}">'
        return f'<figure><div class="frame">{image}</div>{caption}</figure>'


@dataclass(frozen=True)
class Gallery(AbstractBlock):
    """Small pictures side by side, as many as there is room for."""

    pictures: tuple[Bitmap, ...]

    def html(self) -> str:
        return f'<div class="gallery">{"".join(each.html() for each in self.pictures)}</div>'


@dataclass(frozen=True)
class Pair(AbstractBlock):
    """Blocks side by side where there is room, else below each other."""

    blocks: tuple[AbstractBlock, ...]

    def html(self) -> str:
        return f'<div class="pair">{"".join(block.html() for block in self.blocks)}</div>'


@dataclass(frozen=True)
class Code(AbstractBlock):
    """Something to copy."""

    text: str

    def html(self) -> str:
        return f"<pre><code>{html.escape(self.text)}</code></pre>"


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    heading: str
    blocks: tuple[AbstractBlock, ...]

    def html(self) -> str:
        """Markup."""
        return f"<section><h2>{html.escape(self.heading)}</h2>{''.join(b.html() for b in self.blocks)}</section>"


def _unbroken(cell: str) -> str:
    r"""A number, its error and its interval keep together; a line may end before the interval.

    >>> _unbroken("0.92 [0.81, 0.97]").split(" ")
    ['0.92', '[0.81,\xa00.97]']
    """
    cell = cell.replace(" ± ", "\xa0±\xa0")
    return re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\xa0"), cell)


def page(title: str, sections: Sequence[Section], *, lead: str = "", top: Sequence[AbstractBlock] = ()) -> str:
    """The whole page as text.

    Args:
        title: at the top, and of the browser's tab.
        sections: in order.
        lead: one or two sentences below the title.
        top: blocks before the first section.

    >>> text = page("Two <methods>", [Section("Scores", (Table.of([{"method": "MAP", "nll": "0.3"}]),))])
    >>> "<title>Two &lt;methods&gt;</title>" in text, "<script" in text
    (True, False)
    """
    from marginax import __version__

    below = f'<p class="lead">{html.escape(lead)}</p>' if lead else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>"
        f"<header><h1>{html.escape(title)}</h1>{below}{''.join(block.html() for block in top)}</header>\n<main>"
        + "\n".join(section.html() for section in sections)
        + f"</main>\n<footer>Written by marginax {html.escape(__version__)}. This file is complete: it needs no "
        "network.</footer></body></html>\n"
    )


def write_page(
    path: str | os.PathLike[str],
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    top: Sequence[AbstractBlock] = (),
) -> Path:
    """Write `page` to a file, and say where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page(title, sections, lead=lead, top=top))
    return path
