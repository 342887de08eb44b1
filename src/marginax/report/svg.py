"""Figures of matplotlib as SVG inside a page: lines and letters in the page's own colours and type."""

import hashlib
import io
import re
from typing import Any

from marginax._extras import require

_COLOURS = {"#000000": "currentColor", "#ffffff": "var(--card)", "#0072b2": "var(--blue)", "#1f77b4": "var(--blue)"}
_COLOUR = re.compile("|".join(_COLOURS))
_HEAD = re.compile(r"<svg\b[^>]*\bviewBox=\"0 0 ([\d.]+) ([\d.]+)\"[^>]*>")
_IDS = re.compile(r"(\bid=\"|url\(#|href=\"#)")


def to_svg(figure: Any, *, label: str) -> str:
    """An SVG element for an HTML page. Black becomes the colour of the text, white that of the background.

    Blues become one that is brighter on dark pages.

    Args:
        figure: of matplotlib.
        label: what it shows, for those who do not see it.

    >>> from matplotlib.figure import Figure
    >>> figure = Figure(figsize=(3.0, 2.0))
    >>> _ = figure.subplots().plot([1, 2], color="black")
    >>> svg = to_svg(figure, label="A line that <rises>")
    >>> "currentColor" in svg, "#000000" in svg, 'aria-label="A line that &lt;rises&gt;"' in svg
    (True, False, True)
    """
    import html

    matplotlib = require("matplotlib")

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "marginax"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>", "", text, count=1, flags=re.DOTALL)  # it would hold for the whole page
    text = _COLOUR.sub(lambda found: _COLOURS[found[0]], text)
    name = "p" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = _IDS.sub(rf"\g<1>{name}-", text)  # figures share names, and a page has them once
    head = _HEAD.search(text)
    assert head is not None, "matplotlib writes a view box"
    width, height = float(head[1]), float(head[2])
    pixels = round(width * 96 / 72)
    style = f"max-width: {1.25 * pixels:.0f}px"
    opening = (
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width:g} {height:g}" style="{style}; '
        'stroke-linejoin: round" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return text[: head.start()] + opening + text[head.end() :].strip()
