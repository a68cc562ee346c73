"""A small sky with prices: two regions, and a relay that is faster and more expensive than the direct path."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

SOURCE, RELAY, SINK = "azure:canadacentral", "azure:westus2", "gcp:asia-northeast1"

WORLD: dict[str, Any] = {
    "scale": 0.01,
    "regions": {
        SOURCE: {"name": "source", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        RELAY: {"name": "relay", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        SINK: {"name": "sink", "egress": "7Gbit/s", "ingress": "16Gbit/s"},
    },
    "links": [
        {"between": [SOURCE, SINK], "rtt_ms": 60, "rate": "5Gbit/s"},
        {"between": [SOURCE, RELAY], "rtt_ms": 20, "rate": "14Gbit/s"},
        {"between": [RELAY, SINK], "rtt_ms": 40, "rate": "10Gbit/s"},
    ],
}
"""Scaled: direct 50 Mbit/s, over the relay 100 Mbit/s."""

OPTIONS = ("--via", "sky", "--src-region", SOURCE, "--dst-region", SINK)


def write_world(folder: Path, **changes: Any) -> Path:
    """Write the sky file."""
    file = folder / "world.json"
    file.write_text(json.dumps({**WORLD, **changes}), encoding="utf-8")
    return file


def write_files(folder: Path, total_bytes: int, each_bytes: int = 1_000_000) -> Path:
    """Write incompressible files."""
    folder.mkdir(parents=True)
    for number in range(total_bytes // each_bytes):
        (folder / f"file-{number:04}").write_bytes(os.urandom(each_bytes))
    return folder


def differences(one: Path, other: Path) -> list[str]:
    """Return the names whose content differs between both sides."""
    names = {path.relative_to(root).as_posix() for root in (one, other) for path in root.rglob("*") if path.is_file()}
    return sorted(
        name
        for name in names
        if not ((one / name).is_file() and (other / name).is_file())
        or (one / name).read_bytes() != (other / name).read_bytes()
    )
