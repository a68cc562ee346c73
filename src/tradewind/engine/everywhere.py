"""All that Tradewind has at the configured places, found by its tags: the state folder may be empty or another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from tradewind.errors import GatewayError, TradewindError
from tradewind.fleet.billing import billed_usd, offer_of
from tradewind.fleet.calls import CALL_S, InFlight, each_of
from tradewind.fleet.ending import terminate
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import OwnerState, owner_state
from tradewind.fleet.provider import FLEET_TAG, OWNER_TAG, Leftover, ListIncomplete, Machine, Offer, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.process import STOP_S
from tradewind.model.hosts import SshHosts
from tradewind.model.ledger import MachinePrice
from tradewind.model.records import dataclass, replace
from tradewind.model.sites import CLOUDS, SSH, Sites

__all__ = ["FAILURES", "Everywhere", "FoundLeftover", "FoundMachine", "Swept", "typed_error"]

#: Timeout of listing what is left at a place: lists of several kinds, in each region of a cloud.
LEFTOVERS_S = 120.0
#: Errors of one place, which must not hide the others: also those of its files, programs and connections.
FAILURES = (TradewindError, OSError)


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """A machine, as it was at `seen_unix_s`. `owner` says whether the process that started it still lives; `place` is
    its host or provider, and `offer` has its price, if that is known.
    """

    place: str
    machine: Machine
    owner: OwnerState
    offer: Offer | None
    seen_unix_s: float

    @property
    def fleet(self) -> str:
        """Id of its fleet."""
        return self.machine.tags.get(FLEET_TAG, "unknown")

    @property
    def age_s(self) -> float | None:
        """Time since its launch [s]; None if that is unknown."""
        began_s = self.machine.launched_unix_s
        return None if began_s is None else max(0.0, self.seen_unix_s - began_s)

    @property
    def usd(self) -> float | None:
        """Its cost so far; None if its price or its start is unknown."""
        return None if self.offer is None else billed_usd(self.machine, self.offer, self.seen_unix_s)

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "host": self.place,
            "region": self.machine.region,
            "type": self.machine.type,
            "fleet": self.fleet,
            "machine": self.machine.name,
            "owner": self.owner,
            "launched_unix_s": self.machine.launched_unix_s,
            "usd": self.usd,
        }


@dataclass(frozen=True, slots=True)
class FoundLeftover:
    """Something at a place that belongs to no machine. `is_owned` if the process that made it may still use it."""

    place: str
    leftover: Leftover

    @property
    def is_owned(self) -> bool:
        """True if its owner lives, or may live on another host. A firewall rule, for example, precedes its machines."""
        return not _has_no_owner(self.leftover)

    def __str__(self) -> str:
        return f"{self.place}: {self.leftover.named} {self.leftover.id}"


@dataclass(frozen=True, slots=True)
class Swept:
    """Something that was ended or removed, or why that failed. `ended` are the machines among it, at their end."""

    what: str
    error: TradewindError | None = None
    ended: tuple[FoundMachine, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """A provider that is asked by itself, so that one that does not answer does not hide the others. Names differ."""

    name: str
    provider: Provider | TradewindError

    def connected(self) -> Provider:
        """Return the provider. Raises TradewindError if it cannot be used on this machine."""
        if isinstance(self.provider, TradewindError):
            raise self.provider
        return self.provider


class Everywhere:
    """The hosts and clouds of a configuration. One that cannot be reached is reported, and does not hide the others.

    `launched_at` returns the price at which a machine of a fleet was launched, if that is known. A machine costs this,
    whatever the catalog says since then; others cost the present price of their type.
    """

    def __init__(
        self,
        sites: Sites,
        journal: FleetJournal,
        gateway: str,
        launched_at: Callable[[str, str], MachinePrice | None] = lambda _fleet, _name: None,
    ) -> None:
        self._launched_at = launched_at
        self._places = [_Place(name, _connected(document, gateway, journal)) for name, document in _places(sites)]
        self._in_flight = InFlight()

    def found(self) -> Iterator[FoundMachine | tuple[str, TradewindError]]:
        """Yield the living machines of each place, and the place and the error of asking it if some may be missing.

        All are asked at once.
        """
        for place, (living, error) in zip(self._places, each_of(self._places, self._living), strict=True):
            yield from living
            if error is not None:
                yield place.name, error

    def _living(self, place: _Place) -> tuple[list[FoundMachine], TradewindError | None]:
        """Return the living machines of a place, and why some may be missing."""
        missing: TradewindError | None = None
        try:
            provider = place.connected()
            listed = self._in_flight.within(CALL_S, "list machines", lambda: provider.machines({}))
        except ListIncomplete as error:
            listed, missing = error.found, error
        except FAILURES as error:
            return [], typed_error(error)
        living = [machine for machine in listed if not machine.ended]
        offers = self._offers(provider, {machine.region for machine in living})
        now_s = time.time()
        found = [
            FoundMachine(place.name, machine, owner_state(_owner(machine)), self._offer(machine, offers), now_s)
            for machine in living
        ]
        return found, missing

    def _offer(self, machine: Machine, offers: Sequence[Offer]) -> Offer | None:
        """Return the offer of a machine, at the price of its launch if that is known."""
        offer = offer_of(machine, offers)
        price = self._launched_at(machine.tags.get(FLEET_TAG, ""), machine.name)
        if offer is None or price is None:
            return offer
        return replace(offer, usd_per_s=price.usd_per_s, price_source=price.source)

    def _offers(self, provider: Provider, regions: Collection[str]) -> Sequence[Offer]:
        """Return the offers in regions; none if they cannot be read, because only the cost depends on them."""
        if not regions:
            return ()
        try:
            return self._in_flight.within(CALL_S, "list offers", lambda: tuple(provider.offers(regions)))
        except FAILURES:
            return ()

    def sweep(self, wanted: Sequence[FoundMachine], *, everything: bool = False) -> Iterator[Swept]:
        """End these machines, and remove what else is left of fleets that have no machine any more.

        What belongs to a process that lives, or may live on another host, is removed only with `everything`.
        """
        by_place = {place.name: [found for found in wanted if found.place == place.name] for place in self._places}
        for swept in each_of(self._places, lambda place: self._swept(place, by_place[place.name], everything)):
            yield from swept

    def known(self, fleets: Collection[str]) -> set[str]:
        """Return those fleets that have something at a place now, or have it when lists show every change."""
        seen = set[str]()
        for of_place in each_of(self._places, lambda place: self._fleets_at(place, fleets)):
            seen |= of_place
        return seen & set(fleets)

    def _fleets_at(self, place: _Place, fleets: Collection[str]) -> set[str]:
        try:
            provider = place.connected()
            seen = {one.tags.get(FLEET_TAG, "") for one in self._leftovers(provider)}
            if set(fleets) - seen and provider.settles_s > 0:
                time.sleep(provider.settles_s)
                seen |= {one.tags.get(FLEET_TAG, "") for one in self._leftovers(provider)}
        except FAILURES:
            return set()  # `found` reports why.
        return seen

    def end(
        self, wanted: Sequence[FoundMachine], fleets: Collection[str], without: Collection[str] = ()
    ) -> Iterator[Swept]:
        """End these machines, whoever uses them, and what else these fleets have at all places but some.

        Lists may show a machine late, so they are read a second time.
        """
        by_place = [
            (place, [found for found in wanted if found.place == place.name])
            for place in self._places
            if place.name not in without
        ]
        for ended in each_of(by_place, lambda each: self._ended_fleets(*each, fleets)):
            yield from ended

    def _ended_fleets(self, place: _Place, wanted: Sequence[FoundMachine], fleets: Collection[str]) -> list[Swept]:
        done: list[Swept] = []
        try:
            provider = place.connected()
            if wanted:
                done += self._ended(place.name, provider, wanted)
            if provider.settles_s > 0:
                time.sleep(provider.settles_s)
                (living, error), ended = self._living(place), {found.machine.id for found in wanted}
                late = [found for found in living if found.fleet in fleets and found.machine.id not in ended]
                done += self._ended(place.name, provider, late) if late else []
                if error is not None:
                    raise error
            for one in _unused(self._leftovers(provider)):
                if one.tags.get(FLEET_TAG) in fleets:
                    done.append(self._removed(place.name, provider, one))
        except FAILURES as error:
            done.append(Swept(place.name, typed_error(error)))
        return done

    def _swept(self, place: _Place, wanted: Sequence[FoundMachine], everything: bool) -> list[Swept]:
        done = []
        try:
            provider = place.connected()
            if wanted:
                done += self._ended(place.name, provider, wanted)
            done += self._late(place, provider, everything)
            for one in self._removable(provider, everything):
                done.append(self._removed(place.name, provider, one))
        except FAILURES as error:
            done.append(Swept(place.name, typed_error(error)))
        return done

    def _removable(self, provider: Provider, everything: bool) -> list[Leftover]:
        return [one for one in _unused(self._leftovers(provider)) if everything or _has_no_owner(one)]

    def _late(self, place: _Place, provider: Provider, everything: bool) -> list[Swept]:
        """End machines that lists did not show yet: their command was killed just after it had ordered them.

        Before the machines it has made the rules, groups or networks that remain. Removing only these would hide them.
        """
        fleets = {one.tags[FLEET_TAG] for one in self._removable(provider, everything) if FLEET_TAG in one.tags}
        if not fleets or provider.settles_s <= 0:
            return []
        time.sleep(provider.settles_s)
        living, error = self._living(place)
        late = [found for found in living if found.fleet in fleets and (everything or found.owner == "gone")]
        done = self._ended(place.name, provider, late) if late else []
        return done if error is None else [*done, Swept(place.name, error)]

    def _removed(self, place: str, provider: Provider, one: Leftover) -> Swept:
        """Remove what is left. One that cannot be removed does not keep the others."""
        try:
            terminate(provider, [one.id], 0.0, self._in_flight)
        except FAILURES as error:
            return Swept(place, typed_error(error))
        return Swept(f"{place}: removed a {one.named}")

    def _ended(self, place: str, provider: Provider, wanted: Sequence[FoundMachine]) -> list[Swept]:
        """End machines. Return those that ended, and why others may still run."""
        gone = set[str]()
        error: TradewindError | None = None
        ids = [found.machine.id for found in wanted]
        try:
            terminate(provider, ids, STOP_S, self._in_flight, lambda ended: gone.add(ended.id))
        except FAILURES as failed:
            error = typed_error(failed)
        now_s = time.time()
        ended = tuple(replace(found, seen_unix_s=now_s) for found in wanted if found.machine.id in gone)
        names = ", ".join(f"{found.machine.name} of {found.fleet}" for found in ended)
        done = [Swept(f"{place}: ended {names}", ended=ended)] if ended else []
        return done if error is None else [*done, Swept(place, error)]

    def _leftovers(self, provider: Provider) -> Sequence[Leftover]:
        return self._in_flight.within(LEFTOVERS_S, "list what is left", provider.leftovers)

    def left_of(self, fleets: Collection[str]) -> Iterator[FoundLeftover | tuple[str, TradewindError]]:
        """Yield what is left of these fleets, machines too, or the place and the error of asking it."""
        for place, answer in zip(self._places, each_of(self._places, self._left), strict=True):
            if isinstance(answer, TradewindError):
                yield place.name, answer
            else:
                yield from (FoundLeftover(place.name, one) for one in answer if one.tags.get(FLEET_TAG) in fleets)

    @property
    def names(self) -> list[str]:
        """Names of all places."""
        return [place.name for place in self._places]

    def remains(self) -> Iterator[FoundLeftover | tuple[str, TradewindError]]:
        """Yield what is left and belongs to no machine, or the place and the error of asking it."""
        for place, answer in zip(self._places, each_of(self._places, self._left), strict=True):
            if isinstance(answer, TradewindError):
                yield place.name, answer
            else:
                yield from (FoundLeftover(place.name, one) for one in _unused(answer))

    def _left(self, place: _Place) -> Sequence[Leftover] | TradewindError:
        try:
            return self._leftovers(place.connected())
        except FAILURES as error:
            return typed_error(error)


def _unused(left: Sequence[Leftover]) -> list[Leftover]:
    """Return what belongs to no machine: of its fleet, or of any fleet if fleets share it."""
    alive = {one.tags.get(FLEET_TAG) for one in left if one.kind == "machine"}
    rest = (one for one in left if one.kind != "machine")
    return [one for one in rest if (one.tags[FLEET_TAG] not in alive if FLEET_TAG in one.tags else not alive)]


def _has_no_owner(one: Leftover) -> bool:
    """Return whether nobody can be about to use it: a firewall rule, for example, is there before its machines."""
    return OWNER_TAG not in one.tags or owner_state(one.tags[OWNER_TAG]) == "gone"


def _owner(machine: Machine) -> str:
    return machine.lease.owner if machine.lease else machine.tags.get(OWNER_TAG, "")


def _connected(document: dict[str, Any], gateway: str, journal: FleetJournal) -> Provider | TradewindError:
    try:
        return make_provider(document, gateway, journal)
    except FAILURES as error:
        return typed_error(error)


def typed_error(error: TradewindError | OSError) -> TradewindError:
    """Return an error of FAILURES as one of Tradewind."""
    if isinstance(error, TradewindError):
        return error
    words = error.strerror or " ".join(str(error).split())
    return GatewayError(f"{error.filename}: {words}" if error.filename else words)


def _places(sites: Sites) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and document of each host, and of each cloud, even if hosts have all of its regions by now."""
    for host in sites.hosts.hosts:
        name = f"host {host.name}" if host.name in CLOUDS else host.name
        yield name, {"kind": SSH, **SshHosts((host,), sites.hosts.ssh_config).document()}
    for cloud in sites.clouds:
        yield cloud.kind, {"kind": cloud.kind, "programs": [], **cloud.settings}
