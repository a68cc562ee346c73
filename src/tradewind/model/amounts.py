"""Amounts that planning speaks in: Gbit/s (1e9 bit/s), GB (1e9 bytes) and USD.

Only the edges see text; a figure without a unit is refused, because ``10`` may be Mbit/s or GB/s.
"""

from __future__ import annotations

import math

from tradewind.errors import UsageError
from tradewind.model.units import format_bytes, parse_bytes, parse_rate

__all__ = [
    "BITS_PER_BYTE",
    "BYTES_PER_GB",
    "SECONDS_PER_HOUR",
    "format_gbps",
    "format_usd",
    "format_volume",
    "parse_rate_gbps",
    "parse_usd",
    "parse_volume_gb",
    "transfer_time_s",
]

BITS_PER_BYTE = 8
BYTES_PER_GB = 1e9
SECONDS_PER_HOUR = 3600.0


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
        amount_usd = float(number) if number is not None else math.nan
    except ValueError:
        amount_usd = math.nan
    if not math.isfinite(amount_usd):
        raise UsageError(f"an amount of money needs a number and a unit, not {text!r}", hint="for example 5.40USD")
    if amount_usd <= 0:
        raise UsageError(f"an amount of money must be more than zero, not {text!r}")
    return amount_usd


def format_gbps(rate_gbps: float) -> str:
    """``12.4 Gbit/s``, ``850 Mbit/s``."""
    if rate_gbps >= 1 or rate_gbps == 0:
        return f"{rate_gbps:.4g} Gbit/s"
    return f"{rate_gbps * 1e3:.3g} Mbit/s"


def format_usd(amount_usd: float) -> str:
    """``$5.35``; more digits below ten cents, where cents say nothing: ``$0.0123``, ``$0.000042``."""
    size = abs(amount_usd)
    if size >= 0.1 or size == 0:
        return f"${amount_usd:,.2f}"
    decimals = 4 if size >= 1e-3 else 1 - math.floor(math.log10(size))
    return f"${amount_usd:.{decimals}f}"


def format_volume(volume_gb: float) -> str:
    """``50.0 GB``, ``200 MB``."""
    return format_bytes(volume_gb * BYTES_PER_GB)
