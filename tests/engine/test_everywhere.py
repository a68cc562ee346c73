"""What Tradewind has at the configured places, by tags alone."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tradewind.engine.everywhere import Everywhere, FoundMachine
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Ended, Leftover, Machine, Offer, Refusal
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.sites import Cloud, Sites

REGION = "aws:us-east-1"


class Provider:
    """One machine that began an hour ago, and the calls about it."""

    warning = None

    def __init__(self, kind: str) -> None:
        began_s = time.time() - 3600
        self.machine = Machine(
            f"{kind}-1", "relay-1", REGION, launched_unix_s=began_s, running_unix_s=began_s, tags={FLEET_TAG: "f"}
        )
        self.ended: list[str] = []

    def machines(self, _: Mapping[str, str]) -> tuple[Machine, ...]:
        return () if self.ended else (self.machine,)

    def offers(self, _: Collection[str]) -> tuple[Offer, ...]:
        return (Offer(REGION, "any", usd_per_s=0.01),)

    def terminate(self, ids: Collection[str], *, grace_s: float) -> list[Ended]:
        self.ended += ids
        return [Ended(each) for each in ids]

    def leftovers(self) -> Sequence[Leftover]:
        return ()


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Provider]:
    """Return the provider of each kind, which is made when it is first asked for."""
    made: dict[str, Provider] = {}

    def make(document: Mapping[str, Any], *_: object) -> Provider:
        return made.setdefault(document["kind"], Provider(document["kind"]))

    monkeypatch.setattr("tradewind.engine.everywhere.make_provider", make)
    return made


def everywhere(folder: Path) -> Everywhere:
    """Return a host with the name of a cloud, and this cloud, whose only region the host has."""
    sites = Sites(SshHosts((SshHost("aws", REGION, "h"),)), (Cloud("aws", (REGION,), {}),))
    return Everywhere(sites, FleetJournal(str(folder)), "gateway")


def machines(place: Everywhere) -> list[FoundMachine]:
    return [found for found in place.found() if isinstance(found, FoundMachine)]


def test_each_place_ends_its_own_machines_even_if_a_host_is_called_like_a_cloud(
    tmp_path: Path, providers: dict[str, Provider]
) -> None:
    place = everywhere(tmp_path)
    found = machines(place)
    assert [(each.place, each.machine.id) for each in found] == [("host aws", "ssh-1"), ("aws", "aws-1")]
    assert all(swept.error is None for swept in place.sweep(found))
    assert {kind: provider.ended for kind, provider in providers.items()} == {"ssh": ["ssh-1"], "aws": ["aws-1"]}
    assert machines(place) == []


def test_the_receipt_has_the_cost_until_the_end(
    tmp_path: Path, providers: dict[str, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may have thought about the question for an hour since the machines were listed."""
    place = everywhere(tmp_path)
    found = machines(place)
    assert [each.usd for each in found] == pytest.approx([36.0, 36.0], abs=0.1)
    later_s = time.time() + 3600
    monkeypatch.setattr("tradewind.engine.everywhere.time.time", lambda: later_s)
    ended = [each for swept in place.sweep(found) for each in swept.ended]
    assert [each.usd for each in ended] == pytest.approx([72.0, 72.0], abs=0.1)
    assert [each.age_s for each in ended] == pytest.approx([7200.0, 7200.0], abs=10)


def test_machines_are_found_and_ended_even_if_their_prices_cannot_be_read(
    tmp_path: Path, providers: dict[str, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> tuple[Offer, ...]:
        raise CallRefused(Refusal("permission", "not allowed", "pricing:GetProducts"))

    monkeypatch.setattr(Provider, "offers", refuse)
    place = everywhere(tmp_path)
    found = machines(place)
    assert [(each.place, each.usd) for each in found] == [("host aws", None), ("aws", None)]
    assert all(swept.error is None for swept in place.sweep(found))
    assert machines(place) == []
