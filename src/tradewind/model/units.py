"""Amounts with units: bytes, rates, volumes, durations and money, parsed and printed."""

from __future__ import annotations

import math

from tradewind.errors import UsageError

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

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY_PREFIXES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_DURATION_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def parse_bytes(text: str) -> int:
    """Return the bytes in `16MiB`, `5 GB`, `0B`. Raises UsageError, also for a number other than 0 without a unit."""
    hint = "for example 500KB, 16MiB or 5GB"
    number, unit = _split(text, "a size needs a number and a unit", hint)
    if number == 0 and not unit:
        return 0
    scale = _scale_of(unit[:-1]) if unit[-1:] in ("B", "b") and not unit.lower().endswith("bit") else None
    if scale is None:
        raise UsageError(f"a size needs a number and a unit, not {text!r}", hint=hint)
    return round(number * scale)


def parse_rate(text: str) -> int:
    """Return the bytes per second in `100MB/s`, `800Mbit/s`. Raises UsageError, also for zero."""
    hint = "for example 100MB/s (bytes) or 800Mbit/s (bits)"
    number, unit = _split(text, "a rate needs a number and a unit", hint)
    base, slash, per = unit.partition("/")
    if not slash or per.strip().lower() not in ("s", "sec"):
        raise UsageError(f"a rate needs a unit and /s, not {text!r}", hint=hint)
    base = base.strip()
    bits = base.lower().endswith("bit")
    scale = _scale_of(base[: -3 if bits else -1]) if bits or base.endswith("B") else None
    if scale is None:
        raise UsageError(f"a rate is in B/s or bit/s, not {text!r}", hint=hint)
    rate = round(number * scale / (8 if bits else 1))
    if rate < 1:
        raise UsageError(f"a rate must be at least 1B/s, not {text!r}", hint=hint)
    return rate


def parse_duration_s(text: str) -> float:
    """Return the seconds in `90s`, `15m`, `2h`, `7d`. Raises UsageError."""
    hint = "for example 90s, 15m, 2h or 7d"
    number, unit = _split(text, "a duration needs a number and a unit", hint)
    if unit.lower() not in _DURATION_S:
        raise UsageError(f"a duration needs a unit, not {text!r}", hint=hint)
    return number * _DURATION_S[unit.lower()]


def format_bytes(count: float) -> str:
    """Return `1.25 GB`: decimal units, three digits."""
    if count < 1000:
        return f"{int(count)} B"
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        count /= 1000
        if count < 999.5 or unit == "PB":
            break
    digits = 2 if count < 9.995 else 1 if count < 99.95 else 0
    return f"{count:.{digits}f} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """Return `118 MB/s`."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_duration(seconds: float) -> str:
    """Return `0.4 s`, `3 min 05 s`, `2 h 14 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 object`, `1,200 objects`; `many` is the plural if it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _split(text: str, needed: str, hint: str) -> tuple[float, str]:
    """Return the number and the unit of an amount. Raises UsageError that says what is `needed`."""
    stripped = text.strip()
    if stripped.startswith("-"):
        raise UsageError(f"an amount must be above zero, not {text!r}", hint=hint)
    end = 0
    while end < len(stripped) and (stripped[end].isdigit() or stripped[end] == "."):
        end += 1
    try:
        return float(stripped[:end]), stripped[end:].strip()
    except ValueError:
        raise UsageError(f"{needed}, not {text!r}", hint=hint) from None


def _scale_of(prefix: str) -> int | None:
    lower = prefix.lower()
    return _PREFIXES.get(lower, _BINARY_PREFIXES.get(lower))


BITS_PER_BYTE = 8
BYTES_PER_GB = 1e9
GB_PER_GIB = 2**30 / BYTES_PER_GB
SECONDS_PER_HOUR = 3600.0


def parse_number(text: str) -> float:
    """Return a number in plain digits. Raises ValueError, also for `1_0`, which is a typing error."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def transfer_time_s(volume_gb: float, rate_gbps: float) -> float:
    """Return the seconds for ``volume_gb`` at ``rate_gbps``."""
    return BITS_PER_BYTE * volume_gb / rate_gbps


def parse_rate_gbps(text: str) -> float:
    """Return the Gbit/s in ``12.4Gbit/s`` or ``100MB/s``. Raises UsageError."""
    return parse_rate(text) * BITS_PER_BYTE / BYTES_PER_GB


def parse_volume_gb(text: str) -> float:
    """Return the GB in ``50GB`` or ``1.5TiB``. Raises UsageError, also for zero."""
    volume_bytes = parse_bytes(text)
    if volume_bytes < 1:
        raise UsageError(f"a volume must be more than zero, not {text!r}")
    return volume_bytes / BYTES_PER_GB


def parse_usd(text: str) -> float:
    """Return the USD in ``$5.40`` or ``5.40USD``. Raises UsageError, also for zero."""
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
    """Return ``12.4 Gbit/s``, ``850 Mbit/s``, ``86.6 kbit/s``, ``1,230 Gbit/s``; more digits for a user's figure."""
    if rate_gbps == 0 or float(f"{rate_gbps:.{digits}g}") >= 1:
        return f"{_digits(rate_gbps, digits)} Gbit/s"
    if float(f"{rate_gbps * 1e3:.{digits}g}") >= 1:
        return f"{_digits(rate_gbps * 1e3, digits)} Mbit/s"
    return f"{_digits(rate_gbps * 1e6, digits)} kbit/s"


def _digits(figure: float, digits: int) -> str:
    """Return this many significant digits, but all digits before the point; no exponent, no trailing zeros."""
    if abs(figure) >= 10**digits or figure == 0:
        return f"{figure:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(figure))))
    text = f"{figure:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def format_usd(amount_usd: float) -> str:
    """Return ``$5.35``; three significant digits below a dollar: ``$0.432``, ``$0.0338``, ``$0.000042``."""
    size = abs(amount_usd)
    if size >= 1 or size == 0:
        return f"${amount_usd:,.2f}"
    whole, _, decimals = f"{amount_usd:.{2 - math.floor(math.log10(size))}f}".partition(".")
    return f"${whole}.{decimals.rstrip('0'):0<2}"


def format_volume(volume_gb: float) -> str:
    """Return ``50.0 GB``, ``200 MB``."""
    return format_bytes(volume_gb * BYTES_PER_GB)
