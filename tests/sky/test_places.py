"""Jobs that start gateways in a sky at the same time use all machines of a region."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.sky.conftest import Make
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.fleet.provider import LaunchOrder, Lease, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway

MACHINES, EACH = 3, 2
REGION = "site:service"


def test_gateways_are_started_where_the_fewest_run(make_sky: Make, tmp_path: Path) -> None:
    sky = make_sky({REGION: {"name": "service", "machines": MACHINES}}, [])
    document = {"kind": "sky", "sky": str(sky.folder)}
    journal, lease = FleetJournal(tmp_path), Lease(600, here().label)
    providers = [make_provider(document, find_gateway(), journal) for _ in range(MACHINES * EACH)]

    def launch(provider: Provider, job: str) -> tuple[str, str | None]:
        (result,) = provider.launch([LaunchOrder(job, "one", REGION, job, 1, lease, peers=("lead",))])
        assert result.machine is not None, result.refusal
        return result.machine.id, result.machine.zone

    with ThreadPoolExecutor(MACHINES) as pool:
        started = list(pool.map(launch, providers, "abcdef"))
    assert Counter(zone for _, zone in started) == {f"service-{number + 1}": EACH for number in range(MACHINES)}
    for provider, (machine, _) in zip(providers, started, strict=True):
        provider.terminate([machine])
