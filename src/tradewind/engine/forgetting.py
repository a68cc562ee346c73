"""Remove the record of a fleet that cannot be read, once nothing of the fleet can be found.

Nothing is ended here: the record may be a copy, and the fleet that of a command that runs. `fleet sweep` ends machines
by their tags.
"""

from __future__ import annotations

from tradewind.engine.everywhere import Everywhere
from tradewind.errors import GatewayError, UsageError
from tradewind.fleet.ending import UNLISTED_S
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import ownership
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.model.files import require_own
from tradewind.model.sites import Sites
from tradewind.model.units import format_count, format_duration

__all__ = ["forget_fleet"]

#: Kinds of providers whose machines are processes of this host.
KINDS_HERE = ("local", "sky")
HERE = "this host"


def forget_fleet(fleet_id: str, journal: FleetJournal, sites: Sites, gateway: str) -> list[str]:
    """Remove the record of a fleet that cannot be read. Return the places that have nothing of the fleet.

    Raises UsageError if the record can be read, belongs to a fleet in use, or names regions that `sites` do not have;
    GatewayError if a place has something of the fleet, may have it, or cannot be asked; ConfigError if the folder is
    another user's.
    """
    if not any(one.id == fleet_id and one.has_record for one in journal.unreadable()):
        journal.load(fleet_id)
        raise UsageError(
            f"the record of fleet {fleet_id} can be read",
            hint=f"`tradewind fleet down {fleet_id}` ends it and removes its record",
        )
    if (folder := journal.path(fleet_id)).exists():
        require_own(folder)
    if not journal.claim(fleet_id):
        raise UsageError(f"fleet {fleet_id} is in use by another process", hint="stop its command first")
    try:
        _refuse_other_places(fleet_id, journal, sites)
        _refuse_processes(fleet_id, journal, gateway)
        places = [HERE, *_places_without(fleet_id, journal, sites, gateway)]
        journal.close(fleet_id)
    finally:
        journal.give_back(fleet_id)
    return places


def _refuse_other_places(fleet_id: str, journal: FleetJournal, sites: Sites) -> None:
    """Raise UsageError if the fleet may have had machines where the configuration has no place to ask."""
    legible = journal.legible(fleet_id)
    if legible.kind in KINDS_HERE:
        owner = legible.owner
        if owner is not None and ownership(owner, locked=False, heartbeat_unix_s=0.0) == "elsewhere":
            raise UsageError(
                f"the machines of fleet {fleet_id} were processes of host {owner.host_name or 'unknown'}",
                hint="run this again there",
            )
        return
    if not sites:
        raise UsageError(
            f"nobody can say whether machines of fleet {fleet_id} run: the configuration has no places to ask",
            hint="add the hosts, clusters and clouds that it may have used",
        )
    if others := sorted(region for region in legible.regions if not sites.has(region)):
        raise UsageError(
            f"fleet {fleet_id} had machines in {', '.join(others)}, which the configuration does not have",
            hint="add the host, cluster or cloud that it used, so that it can be asked",
        )


def _refuse_processes(fleet_id: str, journal: FleetJournal, gateway: str) -> None:
    """Raise GatewayError if processes of the fleet run on this host."""
    running = make_provider(LOCAL, gateway, journal).machines({FLEET_TAG: fleet_id})
    if count := sum(not machine.ended for machine in running):
        raise GatewayError(
            f"{format_count(count, 'machine')} of fleet {fleet_id} still run{'s' if count == 1 else ''} on this host",
            hint="wait until the leases expire, at most 15 min, and run this again",
        )


def _places_without(fleet_id: str, journal: FleetJournal, sites: Sites, gateway: str) -> list[str]:
    """Return the names of all places. Raises GatewayError if one has something of the fleet, or may have it."""
    if not sites:
        return []
    if young := journal.may_be_unlisted(fleet_id, UNLISTED_S):
        raise GatewayError(
            f"{min(young)} of fleet {fleet_id} is younger than {format_duration(UNLISTED_S)}, so lists may not show it",
            hint="run this again later",
        )
    everywhere = Everywhere(sites, journal, gateway)
    known = everywhere.known([fleet_id])
    left = []
    for one in everywhere.left_of([fleet_id]):
        if isinstance(one, tuple):
            place, error = one
            raise GatewayError(f"{place} does not report what is left: {error}", hint=error.hint)
        left.append(str(one))
    if left or known:
        raise GatewayError(
            f"fleet {fleet_id} is not gone: {left[0] if left else 'a place has something of it'}",
            hint="`tradewind fleet sweep` ends machines whose command is gone, and `tradewind fleet sweep --all` all",
        )
    return everywhere.names
