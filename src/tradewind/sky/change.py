"""Live changes as users type them: `link A B rate=20Mbit/s`, `freeze A`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tradewind.errors import UsageError
from tradewind.model.units import parse_bytes, parse_rate
from tradewind.sky.running import Sky

__all__ = ["apply_change"]

_HINT = "`tradewind sky --help` lists the changes"


def apply_change(sky: Sky, words: Sequence[str]) -> None:
    """Apply one change. Raises UsageError if it cannot be parsed, SkyError if the sky refuses it."""
    what, *rest = words or [""]
    states = {"freeze": sky.freeze, "thaw": sky.thaw, "vanish": sky.vanish, "restore": sky.restore}
    if what in ("link", "path"):
        if len(rest) < 3:
            raise UsageError(f"sky set {what} needs two ends and a change", hint=_HINT)
        sky.set_link(rest[0], rest[1], one_way=what == "path", **_link_options(rest[2:]))
    elif what == "machine":
        if len(rest) < 2:
            raise UsageError("sky set machine needs a machine and a change", hint=_HINT)
        sky.set_machine(rest[0], **_machine_options(rest[1:]))
    elif what in states:
        if len(rest) != 1:
            raise UsageError(f"sky set {what} needs one machine", hint=_HINT)
        states[what](rest[0])
    else:
        raise UsageError(f"sky set: unknown change {what!r}", hint=_HINT)


def _link_options(words: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if word in ("up", "down"):
            options["up"] = word == "up"
        elif key == "rate" and equals:
            options["rate_mbps"] = parse_rate(value) * 8e-6
        elif key == "rtt" and equals:
            options["rtt_ms"] = _milliseconds(value)
        elif key == "loss" and equals:
            options["loss"] = _share(value)
        elif key == "queue" and equals:
            options["queue_bytes"] = parse_bytes(value)
        else:
            raise UsageError(f"sky set: {word!r} is not a property of a link", hint=_HINT)
    return options


def _machine_options(words: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key in ("egress", "ingress") and value:
            options[f"{key}_mbps"] = parse_rate(value) * 8e-6
        elif key == "cc" and value:
            options["congestion_control"] = value
        else:
            raise UsageError(f"sky set: {word!r} is not a property of a machine", hint=_HINT)
    return options


def _milliseconds(text: str) -> float:
    try:
        value = float(text.removesuffix("ms"))
    except ValueError:
        value = -1.0
    if not text.endswith("ms") or not 0 <= value <= 60_000:
        raise UsageError(f"a round trip is written like 80ms, not {text!r}")
    return value


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"a loss is written like 0.1% or 0.001, not {text!r}")
    return share
