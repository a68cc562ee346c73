"""What Tradewind has at the configured places, by tags alone."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tradewind.engine.engine import Engine
from tradewind.engine.everywhere import Everywhere, FoundMachine
from tradewind.engine.ledger import LedgerBook
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Ended, Leftover, Machine, Offer, Refusal
from tradewind.fleet.warm import Keeping, WarmBook, WarmMachine
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.ledger import Ledger, MachinePrice, MachineUse
from tradewind.model.sites import Cloud, Sites

REGION = "aws:us-east-1"


class Provider:
    """One machine that began an hour ago, and the calls about it."""

    warning = None
    settles_s = 0.0

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


def test_the_receipt_has_only_machines_that_ended(
    tmp_path: Path, providers: dict[str, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Refusal("permission", "not authorised", "ec2:TerminateInstances")
    place = everywhere(tmp_path)
    found = machines(place)
    refused_ends = lambda ids, **_: [Ended(one, refusal=refusal) for one in ids]  # noqa: E731
    monkeypatch.setattr(providers["aws"], "terminate", refused_ends)
    for done in (list(place.end(found[1:], [])), list(place.sweep(found))):
        refused = [swept for swept in done if swept.error is not None]
        assert [(swept.what, swept.error.hint) for swept in refused if swept.error is not None] == [
            ("aws", "the missing permission is ec2:TerminateInstances")
        ]
    assert [each.place for swept in done for each in swept.ended] == ["host aws"]


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


def test_a_machine_costs_the_price_of_its_launch_whatever_its_offer_costs_now(
    tmp_path: Path, providers: dict[str, Provider]
) -> None:
    """A fleet that this state folder does not know has only the present price."""
    with Engine(state_dir=str(tmp_path)) as engine:
        sites = Sites(clouds=(Cloud("aws", (REGION,), {}),))
        assert [each.usd for each in machines(engine.fleets.everywhere(sites))] == pytest.approx([36.0], abs=0.1)
        journal = FleetJournal(tmp_path)
        journal.open("f", "a test", {"kind": "aws"}, {"relay-1": REGION})
        WarmBook(journal).keep("f", Keeping(60, time.time() + 60, {"relay-1": WarmMachine(REGION, usd_per_s=0.02)}))
        assert [each.usd for each in machines(engine.fleets.everywhere(sites))] == pytest.approx([72.0], abs=0.1)


def test_a_fleet_whose_provider_has_no_working_connection_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a file of its login has gone, or no socket is free. Nobody knows then which machines run."""

    def fail(*_: object) -> Provider:
        raise OSError("too many open files")

    monkeypatch.setattr("tradewind.engine.fleets.make_provider", fail)
    monkeypatch.setattr("tradewind.fleet.ending.make_provider", fail)
    with Engine(state_dir=str(tmp_path)) as engine:
        FleetJournal(tmp_path).open("f", "a test", {"kind": "aws"}, {"relay-1": REGION})
        (state,) = engine.fleets.states()
        assert state.record.id == "f" and state.alive is None
        (ended,) = engine.fleets.end(["f"])
        assert ended.error is not None and "too many open files" in str(ended.error)


def test_a_machine_of_a_job_costs_the_price_in_its_ledger(tmp_path: Path, providers: dict[str, Provider]) -> None:
    now_s = time.time()
    use = MachineUse.of(1, "f", "relay-1", REGION, now_s - 3600, MachinePrice(0.03, "the plan"))
    with Engine(state_dir=str(tmp_path)) as engine:
        store = engine.control.store
        FleetJournal(tmp_path).open("f", "job j", {"kind": "aws"}, {"relay-1": REGION})
        LedgerBook(store.database, "j", store.path("j")).write(Ledger(machines=(use,), heartbeat_s=now_s))
        sites = Sites(clouds=(Cloud("aws", (REGION,), {}),))
        (found,) = machines(engine.fleets.everywhere(sites))
        assert found.usd == pytest.approx(108.0, abs=0.1) and found.offer is not None
        assert found.offer.price_source == "the plan"


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


def test_a_place_whose_files_or_programs_fail_does_not_hide_the_others(
    tmp_path: Path, providers: dict[str, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example: the private key of a login cannot be read, or a program that gets credentials is not executable."""
    place, words = everywhere(tmp_path), "/home/me/.ssh/id: Permission denied"

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/home/me/.ssh/id")

    for call in ("machines", "leftovers", "terminate"):
        monkeypatch.setattr(providers["ssh"], call, fail)
    found = list(place.found())
    assert [(each[0], str(each[1])) for each in found if isinstance(each, tuple)] == [("host aws", words)]
    (other,) = machines(place)
    assert other.place == "aws"
    assert [(each[0], str(each[1])) for each in place.remains() if isinstance(each, tuple)] == [("host aws", words)]
    failed = FoundMachine("host aws", providers["ssh"].machine, "gone", None, 0.0)
    for done in (list(place.sweep([failed, other])), list(place.end([failed], []))):
        assert {(each.what, str(each.error)) for each in done if each.error is not None} == {("host aws", words)}
    assert providers["aws"].ended == ["aws-1"]
    assert place.known(["f"]) == set()


def test_a_place_that_cannot_be_opened_does_not_hide_the_others(
    tmp_path: Path, providers: dict[str, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(document: Mapping[str, Any], *_: object) -> Provider:
        if document["kind"] == "ssh":
            raise OSError("no space left on device")
        return providers.setdefault("aws", Provider("aws"))

    monkeypatch.setattr("tradewind.engine.everywhere.make_provider", make)
    failed, found = everywhere(tmp_path).found()
    assert not isinstance(failed, FoundMachine) and str(failed[1]) == "no space left on device"
    assert isinstance(found, FoundMachine)
