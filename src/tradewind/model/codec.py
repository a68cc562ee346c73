"""How bytes are compressed between gateways, as a user states it."""

from __future__ import annotations

from tradewind.errors import UsageError

__all__ = ["AUTO", "COMPRESSIONS", "OFF", "ZSTD_LEVEL_MAX", "check_codec", "parse_compression"]

OFF, AUTO = "off", "auto"
#: Highest level of zstd; higher ones take seconds and far more memory for one chunk.
ZSTD_LEVEL_MAX = 9
COMPRESSIONS = f"off, auto, lz4, zstd or zstd:LEVEL (1 to {ZSTD_LEVEL_MAX})"
_SWITCHES = {**dict.fromkeys(("1", "true", "yes", "on"), AUTO), **dict.fromkeys(("0", "false", "no"), OFF)}


def check_codec(codec: str) -> None:
    """Raise UsageError unless a gateway knows this codec: `auto`, `lz4`, `zstd` or `zstd:LEVEL`."""
    name, colon, level = codec.partition(":")
    levels = {str(number) for number in range(1, ZSTD_LEVEL_MAX + 1)}
    if codec not in (AUTO, "lz4", "zstd") and not (name == "zstd" and colon and level in levels):
        raise UsageError(f"compression is {COMPRESSIONS}, not {codec!r}")


def parse_compression(text: str) -> str:
    """Parse `off`, a codec, or a switch: `yes` means `auto`, `no` means `off`. Raises UsageError."""
    lower = text.strip().lower()
    lower = _SWITCHES.get(lower, lower)
    if lower != OFF:
        check_codec(lower)
    return lower
