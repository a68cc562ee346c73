"""The provider of a sky keeps the law of providers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.sky import unavailable
from tests.fleet.conformance import ProviderConformance, World, plan_between
from tradewind.errors import GatewayError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.sky import SkyProvider
from tradewind.gateway.binary import find_gateway
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

DOCUMENT = {
    "regions": {"site:a": {"name": "a"}, "site:b": {"name": "b"}},
    "links": [{"between": ["site:a", "site:b"], "rtt_ms": 10, "rate": "100Mbit/s"}],
}


@pytest.fixture(scope="module")
def sky() -> Iterator[Sky]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with Sky.up(network_from_document(DOCUMENT, Path())) as running:
        yield running


class TestSky(ProviderConformance):
    @pytest.fixture
    def world(self, sky: Sky, tmp_path: Path) -> World:
        journal = FleetJournal(tmp_path / "state")
        binary = find_gateway()
        return World(journal, SkyProvider(sky, binary, journal), ("site:a", "site:b"), binary)

    def test_gateways_listen_at_their_machines_addresses(self, world: World, sky: Sky) -> None:
        fleet = world.fleet()
        try:
            data = fleet.deployment().addresses["sink"].data
            assert data is not None and data.startswith(f"{sky.machines['b-1'].address}:")
        finally:
            fleet.close()

    def test_more_machines_than_the_sky_has_are_refused_before_anything_starts(self, world: World) -> None:
        with pytest.raises(GatewayError, match="needs 1 machines in site:c, the sky provider has 0"):
            Fleet(world.provider, world.journal, plan_between("site:a", "site:c"), world.binary, purpose="a test")
        assert list(world.journal.records()) == []
