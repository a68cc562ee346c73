"""Amounts as people type and read them. GB is 1e9 bytes, GiB is 2^30; a rate is in bits only with the unit `bit`."""

from __future__ import annotations

from tradewind.errors import UsageError

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY_PREFIXES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_DURATION_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def parse_bytes(text: str) -> int:
    """Bytes in `16MiB`, `5 GB`, `0B`. A number without a unit is refused, save 0. Raises UsageError."""
    number, unit = _split(text)
    if number == 0 and not unit:
        return 0
    scale = _scale_of(unit[:-1]) if unit[-1:] in ("B", "b") and not unit.lower().endswith("bit") else None
    if scale is None:
        raise UsageError(f"a size needs a number and a unit, not {text!r}", hint="for example 500KB, 16MiB or 5GB")
    return round(number * scale)


def parse_rate(text: str) -> int:
    """Bytes per second in `100MB/s`, `800Mbit/s`. Raises UsageError, also for zero."""
    hint = "for example 100MB/s (bytes) or 800Mbit/s (bits)"
    number, unit = _split(text)
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
    """Seconds in `90s`, `15m`, `2h`, `7d`. Raises UsageError."""
    number, unit = _split(text)
    if unit.lower() not in _DURATION_S:
        raise UsageError(f"a duration needs a unit, not {text!r}", hint="for example 90s, 15m, 2h or 7d")
    return number * _DURATION_S[unit.lower()]


def format_bytes(count: float) -> str:
    """`1.25 GB`: decimal units, three digits."""
    if count < 1000:
        return f"{int(count)} B"
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        count /= 1000
        if count < 999.5 or unit == "PB":
            break
    digits = 2 if count < 9.995 else 1 if count < 99.95 else 0
    return f"{count:.{digits}f} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """`118 MB/s`."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_duration(seconds: float) -> str:
    """`0.4 s`, `3 min 05 s`, `2 h 14 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_count(number: int, one: str, many: str | None = None) -> str:
    """`1 object`, `1,200 objects`; `many` where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _split(text: str) -> tuple[float, str]:
    stripped = text.strip()
    if stripped.startswith("-"):
        raise UsageError(f"an amount must be above zero, not {text!r}")
    end = 0
    while end < len(stripped) and (stripped[end].isdigit() or stripped[end] == "."):
        end += 1
    try:
        return float(stripped[:end]), stripped[end:].strip()
    except ValueError:
        raise UsageError(f"expected a number with a unit, not {text!r}") from None


def _scale_of(prefix: str) -> int | None:
    lower = prefix.lower()
    return _PREFIXES.get(lower, _BINARY_PREFIXES.get(lower))
