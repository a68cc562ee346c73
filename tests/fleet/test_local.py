"""The local provider keeps the law of providers."""

from pathlib import Path

import pytest

from tests.fleet.conformance import ProviderConformance, World
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.local import LocalProvider
from tradewind.gateway.binary import find_gateway


class TestLocal(ProviderConformance):
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        journal = FleetJournal(tmp_path / "state")
        binary = find_gateway()
        return World(journal, LocalProvider(binary, journal), ("site:here", "site:there"), binary)
