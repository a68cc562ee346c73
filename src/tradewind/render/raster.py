"""SVG to PNG by resvg, the optional extra `plot` (docs/decisions/0012-png.md)."""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tradewind.errors import TradewindError, UsageError
from tradewind.render.style import FONT

__all__ = ["png_of", "require_rasteriser"]

PNG_ZOOM = 2.0
"""Pixels per unit of the drawing, for sharp text on high-resolution screens."""
_BLANK = f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="24" font-family="{FONT}"></svg>'
_PROBE = _BLANK.replace("></svg>", '><text y="18">Ag</text></svg>')


def require_rasteriser() -> None:
    """Raise UsageError if the extra `plot` is not installed; called before planning."""
    if find_spec("resvg_py") is None:
        raise UsageError(
            "PNG needs the optional package resvg-py",
            hint="pip install 'tradewind[plot]', or use a name that ends in .svg",
        )


def png_of(svg: str) -> bytes:
    """Return the drawing as PNG, `PNG_ZOOM` pixels per unit.

    Raises:
        UsageError: the extra `plot` is not installed.
        TradewindError: this machine has none of the drawing's fonts, so all text would be missing.
    """
    require_rasteriser()
    resvg = import_module("resvg_py")
    if not _has_fonts(resvg):
        raise TradewindError(
            "a PNG would have no text: none of the fonts it needs is installed",
            hint="install DejaVu Sans (apt-get install fonts-dejavu-core), or use a name that ends in .svg",
        )
    return bytes(resvg.svg_to_bytes(svg_string=svg, zoom=PNG_ZOOM))


@functools.cache
def _has_fonts(resvg: Any) -> bool:
    """Return whether resvg finds a font; without one it draws no text."""
    return bool(resvg.svg_to_bytes(svg_string=_PROBE) != resvg.svg_to_bytes(svg_string=_BLANK))
