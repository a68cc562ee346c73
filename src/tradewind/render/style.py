"""Colours, sizes and the basic SVG elements of pictures.

The colours are those of Okabe and Ito, which people with any colour vision can distinguish. Marks also differ in shape,
and routes in their names.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

__all__ = [
    "CHOSEN",
    "FONT",
    "FRONTIER",
    "GRID",
    "INK",
    "LAND",
    "MUTED",
    "OTHER_ROUTES",
    "ROUTES",
    "SEA",
    "WIDTH",
    "text",
]

WIDTH = 1000
ROUTES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
OTHER_ROUTES = "#7f8790"
FRONTIER = "#0072B2"
CHOSEN = "#D55E00"
INK = "#1f2933"
MUTED = "#5f6c7b"
GRID = "#e3e8ee"
SEA = "#f3f7fa"
LAND = "#d9dfe3"
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 13,
    colour: str = INK,
    anchor: str = "start",
    bold: bool = False,
    halo: bool = False,
) -> str:
    """Return a line of text with its baseline at `y`; `halo` makes it readable over lines."""
    weight = ' font-weight="bold"' if bold else ""
    glow = ' paint-order="stroke" stroke="white" stroke-width="3.5" stroke-linejoin="round"' if halo else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    form = f'font-size="{size:g}" fill="{colour}"{where}{weight}{glow}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {form}>{escape(words)}</text>'
