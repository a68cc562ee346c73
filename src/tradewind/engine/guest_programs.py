"""The program of a guest's gateway: what the service asks for, as far as this host agrees.

The service does not control this gateway. It proposes a program, and the client on this host makes the real one: store,
keys and role are those that the user has named, whatever the proposal says. Only these parts of a proposal are used:
routes, the other gateways' addresses, the run's key, and settings of the transfer such as the size of chunks. The
gateways are at the address of the owner. With several routes, each may have another one, but none in a private network
that the owner is not in: the service must not look into the network of this host.
"""

from __future__ import annotations

from typing import Any, Literal

from tradewind.engine.guest_networks import require_known_hosts
from tradewind.engine.store_places import directory_place, object_place
from tradewind.errors import GatewayError
from tradewind.model.guest import GUEST
from tradewind.model.job import JobSpec, ObjectSelection, PrefixSelection, Target
from tradewind.model.program import GatewayLimits, KeyScope, ObjectScope, PrefixScope, Program
from tradewind.model.records import dataclass, replace
from tradewind.model.store import Access, StoreSpec
from tradewind.model.url import parse_url

__all__ = ["GuestPlace", "guest_program"]


@dataclass(frozen=True)
class GuestPlace:
    """Data that the user lends to a job: one file, or everything below a folder, to read (`source`) or to write.

    `path` is absolute. It is the folder of a single file that is received; `name` is the file's.
    """

    side: Literal["source", "destination"]
    path: str
    name: str
    is_folder: bool

    def document(self) -> dict[str, Any]:
        """Return the place as JSON."""
        return {"side": self.side, "path": self.path, "name": self.name, "is_folder": self.is_folder}

    @property
    def url(self) -> str:
        """The place as the service knows it: without the path."""
        return f"guest://{self.name}/" if self.is_folder else f"guest://{self.name}"

    def read(self) -> tuple[StoreSpec, ObjectSelection | PrefixSelection]:
        """Return the store and the objects of a source."""
        place = parse_url(self.path + ("/" if self.is_folder else ""), cwd="/")
        if self.is_folder:
            store, prefix = directory_place(place, Access())
            return store, PrefixSelection(prefix)
        store, key = object_place(place, Access())
        return store, ObjectSelection(key)

    def written(self) -> tuple[StoreSpec, KeyScope]:
        """Return the store of a destination, and the keys that may be written there."""
        store, prefix = directory_place(parse_url(f"{self.path.rstrip('/')}/", cwd="/"), Access())
        return store, PrefixScope(prefix) if self.is_folder else ObjectScope(self.name)


def guest_program(
    proposed: Any, place: GuestPlace, owner: str, *, state_dir: str, is_begun: bool, routes_max: int = 1
) -> Program:
    """Return the program that this host's gateway gets. `owner` is the address of the fleet's owner, `host:port`.

    The lead of a source keeps its journal in `state_dir`; `is_begun` says that it has one there already. The user
    allows `routes_max` routes.
    Raises GatewayError for a proposal with another role, another place, or gateways at another address.
    """
    try:
        wanted = Program.from_document(proposed)
    except (ValueError, TypeError) as error:
        raise GatewayError(f"the service proposes a program that is not valid: {error}") from None
    if wanted.node != GUEST:
        raise GatewayError(f"the service proposes the program of gateway {wanted.node}, which is not this one")
    dialled = [*(hop.address or "" for hop in wanted.hops), *(dial.address for dial in wanted.dials)]
    require_known_hosts(dialled, owner, routes_max)
    own = Program(
        wanted.job_id,
        GUEST,
        wanted.routes,
        wanted.hops,
        wanted.dials,
        seal_key_hex=wanted.seal_key_hex,
        limits=_within_own_memory(wanted.limits),
    )
    if place.side == "destination":
        return _sink(wanted, own, place)
    return _source(wanted, own, place, state_dir, is_begun=is_begun)


def _within_own_memory(wanted: GatewayLimits) -> GatewayLimits:
    """Return the proposed limits with no more memory than a gateway uses by default."""
    own = GatewayLimits()
    return replace(
        wanted,
        memory_bytes=min(wanted.memory_bytes, own.memory_bytes),
        dedup_window_bytes=min(wanted.dedup_window_bytes, own.dedup_window_bytes),
    )


def _source(wanted: Program, own: Program, place: GuestPlace, state_dir: str, *, is_begun: bool) -> Program:
    job = wanted.lead
    if job is None or wanted.sinks or len(job.targets) != 1:
        raise GatewayError("the service asks this host to do more than send", hint="nothing was sent")
    store, selection = place.read()
    if _shape(job.selection) != _shape(selection):
        raise GatewayError("the service asks for other data than what this host sends", hint="nothing was sent")
    # The destination is not visible from here: only its gateway looks at it.
    target = Target(StoreSpec("mem:"), job.targets[0].key)
    lead = JobSpec(
        source=store,
        selection=selection,
        targets=(target,),
        verify=job.verify,
        server_side_copy=False,
        chunk_bytes=job.chunk_bytes,
        deduplicate=job.deduplicate,
        compress=job.compress,
        codec=job.codec,
        ceiling_bytes=job.ceiling_bytes,
        rate_limit_bytes_per_s=job.rate_limit_bytes_per_s,
        stall_s=job.stall_s,
        state_dir=state_dir,
        resume=is_begun,
    )
    return replace(own, lead=lead, source=store)


def _sink(wanted: Program, own: Program, place: GuestPlace) -> Program:
    if wanted.lead is not None or wanted.source is not None or len(wanted.sinks) != 1:
        raise GatewayError("the service asks this host to do more than receive", hint="nothing was received")
    store, keys = place.written()
    if wanted.writes != (keys,):
        raise GatewayError("the service asks to write other names than this host receives", hint="nothing was received")
    return replace(own, sinks=(store,), writes=(keys,))


def _shape(selection: Any) -> tuple[str, str]:
    """Return what a selection has in common here and at the service, which does not know the folder."""
    if isinstance(selection, ObjectSelection):
        return "object", selection.key
    return type(selection).__name__, ""
