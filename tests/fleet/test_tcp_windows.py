"""The largest TCP windows of running gateways."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fleet.worlds import World
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.fleet.tcp_windows import TcpWindows, tcp_windows
from tradewind.gateway.binary import find_gateway


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's settings are read from /proc")
def test_a_fleet_reports_the_windows_of_its_machines(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path), find_gateway()
    assert tcp_windows(journal.path("unknown")) == []
    settings = (Path(f"/proc/sys/net/ipv4/{name}").read_text().split()[2] for name in ("tcp_rmem", "tcp_wmem"))
    receive_bytes, send_bytes = map(int, settings)
    fleet = World(journal, make_provider(LOCAL, binary, journal), ("site:a", "site:b"), binary).fleet()
    try:
        found = tcp_windows(journal.path(fleet.id))
        assert found == [TcpWindows(name, receive_bytes, send_bytes) for name in ("sink", "source")]
    finally:
        fleet.close()
    assert tcp_windows(journal.path(fleet.id)) == []
