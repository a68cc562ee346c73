"""Skies for tests, which are skipped with a reason without root or a TUN device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.sky import unavailable
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky, find_emulator

Make = Callable[..., Sky]


@pytest.fixture
def make_sky() -> Iterator[Make]:
    """Starts skies: `make_sky(regions, links, **rest)`. All are stopped at the end of the test."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    skies: list[Sky] = []

    def make(regions: dict[str, Any], links: list[dict[str, Any]], folder: Path | None = None, **rest: Any) -> Sky:
        document = {"regions": regions, "links": links, **rest}
        skies.append(Sky.up(network_from_document(document, Path()), folder=folder))
        return skies[-1]

    yield make
    for sky in skies:
        sky.down()


@pytest.fixture
def pair(make_sky: Make) -> Sky:
    """Two machines, a-1 and b-1, 20 ms and 100 Mbit/s apart."""
    return make_sky(
        {"site:a": {"name": "a"}, "site:b": {"name": "b"}},
        [{"between": ["site:a", "site:b"], "rtt_ms": 20, "rate": "100Mbit/s"}],
    )


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The command with the emulator and its own home. At the end none of its processes may live."""
    if reason := unavailable():
        pytest.skip(reason)
    made = Command(tmp_path / "home")
    made.environment["TRADEWIND_WAN"] = find_emulator()
    yield made
    made.wait_until_alone()
