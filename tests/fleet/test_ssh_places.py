"""Jobs that start gateways on the same hosts at the same time: each host runs no more than it may, and all get some."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.sshd import local_ssh_server, sshd_unavailable
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.fleet.provider import CallRefused, LaunchOrder, LaunchResult, Lease, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway

REGION = "site:service"
HOSTS, GATEWAYS = 3, 2


@pytest.fixture
def providers(tmp_path: Path) -> Iterator[list[Provider]]:
    """A provider for each of several jobs, with the same hosts."""
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as server:
        with server.config.open("a") as config:
            config.write(f"Host {' '.join(f'node{number}' for number in range(HOSTS))}\n  HostName 127.0.0.1\n")
        hosts = [
            {
                "name": f"node{number}",
                "region": REGION,
                "address": "127.0.0.1",
                "folder": str(tmp_path / f"node{number}"),
                "gateways": GATEWAYS,
            }
            for number in range(HOSTS)
        ]
        document = {"kind": "ssh", "hosts": hosts, "ssh_config": str(server.config)}
        journal = FleetJournal(tmp_path / "state")
        yield [make_provider(document, find_gateway(), journal) for _ in range(HOSTS * GATEWAYS + 1)]
        provider = make_provider(document, find_gateway(), journal)
        with suppress(CallRefused):
            provider.terminate([found.id for found in provider.leftovers()])


def launch(provider: Provider, job: str) -> LaunchResult:
    order = LaunchOrder(job, "one", REGION, job, 1, Lease(600, here().label), peers=("lead",))
    (result,) = provider.launch([order])
    return result


@pytest.mark.slow
def test_jobs_that_start_together_share_the_hosts(providers: list[Provider]) -> None:
    with ThreadPoolExecutor(HOSTS) as pool:
        first = list(pool.map(launch, providers[:HOSTS], "abc"))
        second = list(pool.map(launch, providers[HOSTS:-1], "def"))
    on_hosts = Counter(result.machine.zone for result in (*first, *second) if result.machine is not None)
    assert on_hosts == {f"node{number}": GATEWAYS for number in range(HOSTS)}, [one.refusal for one in second]
    refused = launch(providers[-1], "g").refusal
    assert refused is not None and refused.kind == "quota", refused


def test_half_of_the_machines_come(providers: list[Provider]) -> None:
    """One call orders more gateways than the hosts may run."""
    places = HOSTS * GATEWAYS
    lease = Lease(600, here().label)
    names = [f"m{number}" for number in range(places + 2)]
    orders = [LaunchOrder("f", name, REGION, name, 1, lease, peers=("lead",)) for name in names]
    results = providers[0].launch(orders)
    refusals = [result.refusal for result in results if result.refusal is not None]
    assert len(results) - len(refusals) == places
    assert [refusal.kind for refusal in refusals] == ["quota"] * 2, refusals
