"""Amounts in planning: Gbit/s (1e9 bit/s), GB (1e9 bytes) and USD.

Only the outer layers handle text; a figure without a unit is refused, because ``10`` may be Mbit/s or GB/s.
"""

from __future__ import annotations

import math

from tradewind.errors import UsageError
from tradewind.model.units import format_bytes, parse_bytes, parse_rate

__all__ = [
    "BITS_PER_BYTE",
    "BYTES_PER_GB",
    "GB_PER_GIB",
    "SECONDS_PER_HOUR",
    "format_gbps",
    "format_usd",
    "format_volume",
    "parse_number",
    "parse_rate_gbps",
    "parse_usd",
    "parse_volume_gb",
    "transfer_time_s",
]

BITS_PER_BYTE = 8
BYTES_PER_GB = 1e9
GB_PER_GIB = 2**30 / BYTES_PER_GB
SECONDS_PER_HOUR = 3600.0


def parse_number(text: str) -> float:
    """Return a number in plain digits. Raises ValueError, also for `1_0`, which is a slip and no ten."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def transfer_time_s(volume_gb: float, rate_gbps: float) -> float:
    """Seconds that ``volume_gb`` takes at ``rate_gbps``."""
    return BITS_PER_BYTE * volume_gb / rate_gbps


def parse_rate_gbps(text: str) -> float:
    """Gbit/s in ``12.4Gbit/s`` or ``100MB/s``. Raises UsageError."""
    return parse_rate(text) * BITS_PER_BYTE / BYTES_PER_GB


def parse_volume_gb(text: str) -> float:
    """GB in ``50GB`` or ``1.5TiB``. Raises UsageError, also for zero."""
    volume_bytes = parse_bytes(text)
    if volume_bytes < 1:
        raise UsageError(f"a volume to move must be more than zero, not {text!r}")
    return volume_bytes / BYTES_PER_GB


def parse_usd(text: str) -> float:
    """USD in ``$5.40`` or ``5.40USD``. Raises UsageError, also for zero."""
    stripped = text.strip()
    number = stripped[1:] if stripped.startswith("$") else stripped[:-3] if stripped.upper().endswith("USD") else None
    try:
        amount_usd = parse_number(number) if number is not None else math.nan
    except ValueError:
        amount_usd = math.nan
    if not math.isfinite(amount_usd):
        raise UsageError(f"an amount of money needs a number and a unit, not {text!r}", hint="for example 5.40USD")
    if amount_usd <= 0:
        raise UsageError(f"an amount of money must be more than zero, not {text!r}")
    return amount_usd


def format_gbps(rate_gbps: float, digits: int = 3) -> str:
    """``12.4 Gbit/s``, ``850 Mbit/s``, ``86.6 kbit/s``, ``1,230 Gbit/s``; with more digits what somebody asked for."""
    if rate_gbps == 0 or float(f"{rate_gbps:.{digits}g}") >= 1:
        return f"{_digits(rate_gbps, digits)} Gbit/s"
    if float(f"{rate_gbps * 1e3:.{digits}g}") >= 1:
        return f"{_digits(rate_gbps * 1e3, digits)} Mbit/s"
    return f"{_digits(rate_gbps * 1e6, digits)} kbit/s"


def _digits(figure: float, digits: int) -> str:
    """Return this many significant digits, and all digits before the point; no exponent, no trailing zeros."""
    if abs(figure) >= 10**digits or figure == 0:
        return f"{figure:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(figure))))
    text = f"{figure:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def format_usd(amount_usd: float) -> str:
    """``$5.35``; three digits below a dollar, where cents say little: ``$0.432``, ``$0.0338``, ``$0.000042``."""
    size = abs(amount_usd)
    if size >= 1 or size == 0:
        return f"${amount_usd:,.2f}"
    whole, _, decimals = f"{amount_usd:.{2 - math.floor(math.log10(size))}f}".partition(".")
    return f"${whole}.{decimals.rstrip('0'):0<2}"


def format_volume(volume_gb: float) -> str:
    """``50.0 GB``, ``200 MB``."""
    return format_bytes(volume_gb * BYTES_PER_GB)
