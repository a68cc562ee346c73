"""The cost of one job so far, line by line: machines, egress and requests of all its runs.

A ledger holds counts. Lines and sums are computed from it, so every reader gets the same figures. It is our count at
list price ("metered"), not an invoice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from tradewind.model.document import Document
from tradewind.model.event import Progress
from tradewind.model.records import dataclass, field, replace
from tradewind.model.requests import KEYS_PER_LIST, ObjectSet, RequestPrices, Requests
from tradewind.model.tier import BillingCount, PriceTier, tier_volumes_gb
from tradewind.model.units import BYTES_PER_GB, format_bytes

__all__ = [
    "OLD_JOB_SOURCE",
    "EdgePrice",
    "JobPrices",
    "Ledger",
    "LedgerLine",
    "MachinePrice",
    "MachineUse",
    "Pieces",
    "RunCount",
    "run_requests",
]

LineKind = Literal["egress", "machine", "requests"]
#: Source of egress lines: the lead multiplies the bytes of each route by the route's price.
EGRESS_SOURCE = "bytes of each route at the plan's price"
OLD_JOB_SOURCE = "estimate of an older version"
#: Relative; sums that differ by less are equal.
ROUNDING = 1e-9
#: A clock that is earlier than a ledger's heartbeat by more than this was set back [s].
CLOCK_BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line. `run` is the number of the run, from 1; a restarted lead is a new run."""

    run: int
    kind: LineKind
    what: str
    quantity: float
    unit: str
    """`s` for machines, `request` for requests, `GB` of 10^9 bytes for egress. Egress on unknown edges, for example of
    retransmitted bytes, is counted in `USD`, at a unit price of 1."""
    unit_usd: float
    source: str
    """Source of the unit price."""

    @property
    def usd(self) -> float:
        """Quantity times unit price."""
        return self.quantity * self.unit_usd


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """Price of one machine of a region."""

    usd_per_s: float
    source: str = ""
    billed_s_min: float = 0.0
    """Minimum billed time of a machine."""
    billed_unit_s: float = 0.0
    """Billed time is rounded up to a multiple of this; 0 for no rounding."""

    def usd(self, lasting_s: float) -> float:
        """Return the cost of a machine for this time."""
        return self.usd_per_s * billed_s(lasting_s, self.billed_s_min, self.billed_unit_s)


def billed_s(lasting_s: float, least_s: float, unit_s: float) -> float:
    """Return the time that a provider bills for a machine that lived for `lasting_s`."""
    if unit_s <= 0:
        return max(lasting_s, least_s)
    return max(math.ceil(lasting_s / unit_s - ROUNDING) * unit_s, least_s)


#: Ends the name of an edge; see `EdgePrice.what`.
STANDARD_EDGE = " (standard tier)"


@dataclass(frozen=True, slots=True)
class EdgePrice:
    """Price of egress from one region to the next."""

    what: str
    """`aws:us-east-1 → gcp:us-east1`; gateways by name if a topology file prices whole routes.

    STANDARD_EDGE follows if the machines that send are of the standard network tier.
    """
    usd_per_gb: float
    """Price in the plan; with tiers, the mean for the plan's volume. The lead uses it."""
    source: str = ""
    tiers: tuple[PriceTier, ...] = ()
    """The list price with its tiers, if any; the ledger's lines use it."""
    account: str = ""
    """The billing count, if the price has tiers."""
    used_gb: float = 0.0
    """Volume of the billing count at the start of the job."""


@dataclass(frozen=True)
class JobPrices(Document):
    """List prices for a job: machines by region, egress by route, and requests at both sides."""

    machines: Mapping[str, MachinePrice] = field(default_factory=dict)
    read: RequestPrices = field(default_factory=RequestPrices)
    read_source: str = ""
    write: RequestPrices = field(default_factory=RequestPrices)
    """Requests to each destination."""
    write_source: str = ""
    routes: Mapping[str, tuple[EdgePrice, ...]] = field(default_factory=dict)
    """Edges with a price, by route as the lead names it: `a → b → c`."""

    @property
    def cost_anything(self) -> bool:
        """True if any price is above zero."""
        machines = any(of.usd_per_s for of in self.machines.values())
        return any(self.routes.values()) or machines or self.read.cost_anything or self.write.cost_anything

    def joined(self, other: JobPrices) -> JobPrices:
        """Return these prices with the machines and routes of another plan added; existing entries stay."""
        machines = {**other.machines, **self.machines}
        return replace(self, machines=machines, routes={**other.routes, **self.routes})


@dataclass(frozen=True, slots=True)
class MachineUse:
    """One machine from launch to end, in Unix time, as its provider reports them.

    Without a report, launch counts from the order, so the start of the machine is charged.
    """

    run: int
    fleet: str
    name: str
    region: str
    launched_s: float
    ended_s: float | None = None
    """End; None while it runs according to its owner."""
    usd_per_s: float = 0.0
    source: str = ""
    billed_s_min: float = 0.0
    billed_unit_s: float = 0.0

    @classmethod
    def of(cls, run: int, fleet: str, name: str, region: str, launched_s: float, price: MachinePrice) -> MachineUse:
        """Return the record of a machine launched now at this price."""
        return cls(run, fleet, name, region, launched_s).at(price)

    def at(self, price: MachinePrice) -> MachineUse:
        """Return the same use at another price."""
        return replace(
            self,
            usd_per_s=price.usd_per_s,
            source=price.source,
            billed_s_min=price.billed_s_min,
            billed_unit_s=price.billed_unit_s,
        )


@dataclass(frozen=True, slots=True)
class RunCount:
    """Egress cost of one run, and its requests to the source and to all destinations together."""

    run: int
    egress_usd: float = 0.0
    read: Requests = field(default_factory=Requests)
    write: Requests = field(default_factory=Requests)
    route_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes sent over each route that arrived; compressed bodies count as they were sent."""
    duplicate_bytes: int = 0
    """Bytes that were sent a second time over another route while the first one did not answer."""


@dataclass(frozen=True)
class Ledger(Document):
    """The counts of a job. `heartbeat_s` is the Unix time of the last write by its owner.

    A machine without an end is charged until now. If its owner died, it is charged until the last possible end of its
    lease, `heartbeat_s` + `alive_s_max`, or until another process ends it and records that.
    """

    prices: JobPrices = field(default_factory=JobPrices)
    predicted_usd: float | None = None
    """Cost in the first plan; None if there was no prediction."""
    machines: tuple[MachineUse, ...] = ()
    runs: tuple[RunCount, ...] = ()
    earlier_usd: float = 0.0
    """Cost of machines as stated by an older version, which kept no ledger."""
    heartbeat_s: float = 0.0
    alive_s_max: float = 0.0

    @property
    def run(self) -> int:
        """Number of the latest run; 0 before the first."""
        return self.runs[-1].run if self.runs else 0

    def end_of(self, use: MachineUse, now_s: float) -> float:
        """Return the time until which a machine is charged."""
        if use.ended_s is not None:
            return use.ended_s
        # It was alive at the heartbeat, even if the clock is earlier now.
        return max(use.launched_s, self.heartbeat_s, min(now_s, self.heartbeat_s + self.alive_s_max))

    def without(self, fleet: str, names: Collection[str]) -> Ledger:
        """Return the ledger without machines that were ordered but not launched: they cost nothing."""
        kept = (use for use in self.machines if use.fleet != fleet or use.name not in names or use.ended_s is not None)
        return replace(self, machines=tuple(kept))

    def ended(self, now_s: float, fleets: Collection[str] | None = None) -> Ledger:
        """Return the ledger with its machines ended, all or those of some fleets.

        If the clock was set back since the heartbeat, nobody knows how long they have run: they are charged until their
        leases must have expired. An infinite `now_s` does the same.
        """
        end_s = math.inf if now_s < self.heartbeat_s - CLOCK_BACK_S else now_s
        machines = tuple(
            replace(use, ended_s=self.end_of(use, end_s)) if fleets is None or use.fleet in fleets else use
            for use in self.machines
        )
        return replace(self, machines=machines)

    def lines(self, now_s: float) -> tuple[LedgerLine, ...]:
        """Return all lines with a cost, by run."""
        lines = []
        if self.earlier_usd:
            lines.append(LedgerLine(0, "machine", "earlier runs", self.earlier_usd, "USD", 1.0, OLD_JOB_SOURCE))
        for use in self.machines:
            lasting_s = billed_s(self.end_of(use, now_s) - use.launched_s, use.billed_s_min, use.billed_unit_s)
            what = f"{use.name} in {use.region}"
            lines.append(LedgerLine(use.run, "machine", what, lasting_s, "s", use.usd_per_s, use.source))
        tiers = _Tiers()
        for count in self.runs:
            lines += _egress_lines(count, self.prices.routes, tiers)
            lines += _request_lines(count.run, "source", count.read, self.prices.read, self.prices.read_source)
            lines += _request_lines(count.run, "destination", count.write, self.prices.write, self.prices.write_source)
        return tuple(sorted((line for line in lines if line.usd), key=lambda line: line.run))

    def sent_gb(self) -> dict[str, float]:
        """Return the volume that arrived over each priced edge, over all runs [GB], by the edge's name."""
        sent_bytes: dict[str, float] = {}
        for count in self.runs:
            for edge, edge_bytes in _edge_bytes(count, self.prices.routes).items():
                sent_bytes[edge.what] = sent_bytes.get(edge.what, 0.0) + edge_bytes
        return {what: count_bytes / BYTES_PER_GB for what, count_bytes in sent_bytes.items()}

    def without_running(self, names: Collection[str]) -> Ledger:
        """Return the ledger without the machines of these names that have not ended."""
        kept = (use for use in self.machines if use.ended_s is not None or use.name not in names)
        return replace(self, machines=tuple(kept))

    def usd_of(self, kind: LineKind, now_s: float) -> float:
        """Return the sum of the lines of one kind."""
        return sum(line.usd for line in self.lines(now_s) if line.kind == kind)

    def total_usd(self, now_s: float) -> float:
        """Return the sum of all lines: the job's cost so far, over all runs."""
        return sum(line.usd for line in self.lines(now_s))


def run_requests(
    progress: Progress,
    destinations: int,
    chunk_bytes: int,
    *,
    moves: bool = False,
    compares: bool = False,
    pieces: float = 0.0,
) -> tuple[Requests, Requests]:
    """Return one run's requests to the source and to all destinations, derived from the lead's counts.

    This is our count, not the stores': parts follow from the mean object size, but are at least `pieces` (see
    `Pieces`); each retry is one more GET and PUT, and a run lists the source once. An object in parts takes a HEAD at
    the source, and one at the destination when it is complete; a resumed job sends a HEAD for each copy of an earlier
    run. A job that `moves` objects sends another HEAD per copy before it deletes the source. One that `compares` lists
    the destinations instead of sending a HEAD per earlier copy; they are assumed to be as large as the source. Keys
    that filters leave out are listed, too, but the lead does not count them: LISTs are then too few.
    """
    read, write = _moved(progress, destinations, chunk_bytes)
    read = replace(read, gets=max(read.gets, math.ceil(pieces / max(1, destinations))))
    write = replace(write, puts=max(write.puts, math.ceil(pieces)))
    retries = max(0, progress.retries)
    listed = progress.objects_total + progress.objects_skipped
    lists = -(-listed // (KEYS_PER_LIST * max(1, destinations)))
    heads = 0 if compares else progress.objects_earlier
    heads += max(0, progress.objects_done - progress.objects_earlier) if moves else 0
    return (
        read + Requests(gets=retries, lists=lists),
        write + Requests(puts=retries, heads=heads, lists=lists * max(1, destinations) if compares else 0),
    )


class Pieces:
    """A lower bound for the parts that one run has written, from how its counts grow.

    Between two lines of progress, a run has written at least a part for each object that it completed, and for each
    chunk of its bytes. The mean size of all objects hides the parts of a large one among many small ones.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._objects = self._bytes = 0
        #: Parts so far, over all destinations.
        self.count = 0.0

    def see(self, progress: Progress) -> None:
        """Take in a line. A late line changes nothing; bytes that were lost count when they have been sent again."""
        objects = max(0, progress.objects_done - progress.objects_earlier)
        volume_bytes = max(0, progress.bytes_done - progress.bytes_earlier)
        if objects < self._objects or volume_bytes < self._bytes:
            return
        self.count += max(objects - self._objects, (volume_bytes - self._bytes) / self._chunk_bytes)
        self._objects, self._bytes = objects, volume_bytes


def _moved(progress: Progress, destinations: int, chunk_bytes: int) -> tuple[Requests, Requests]:
    """Return the requests of this run's own reads and writes. Counts of progress are of objects × destinations."""
    objects = max(0, progress.objects_done - progress.objects_earlier)
    volume_bytes = max(0, progress.bytes_done - progress.bytes_earlier)
    if not (objects or volume_bytes):
        return Requests(), Requests()
    written = ObjectSet(max(1, objects), volume_bytes, chunk_bytes).at_destination()
    copies = max(1, destinations)
    read = ObjectSet(max(1, -(-objects // copies)), volume_bytes / copies, chunk_bytes).at_source()
    # The source gets one HEAD per destination for an object in parts.
    return Requests(gets=read.gets, heads=written.heads), written


class _Tiers:
    """Volume of each billing count so far: each run continues the tiers of earlier runs."""

    def __init__(self) -> None:
        self._seen_gb: dict[BillingCount, float] = {}

    def lines(self, run: int, volumes_gb: Mapping[EdgePrice, float]) -> list[LedgerLine]:
        """Return one line per edge and price tier. All edges of one billing count share its tiers."""
        pieces = {
            count: list(
                self._pieces(count, [edge for edge in volumes_gb if (edge.account, edge.tiers) == count], volumes_gb)
            )
            for count in dict.fromkeys((edge.account, edge.tiers) for edge in volumes_gb if edge.tiers)
        }
        lines = []
        for edge, volume_gb in volumes_gb.items():
            if not edge.tiers:
                lines.append(LedgerLine(run, "egress", edge.what, volume_gb, "GB", edge.usd_per_gb, edge.source))
                continue
            for tier, part in pieces[edge.account, edge.tiers]:
                what = f"{edge.what}, from {tier.from_gb:,.0f} GB" if tier.from_gb else edge.what
                lines.append(LedgerLine(run, "egress", what, volume_gb * part, "GB", tier.usd_per_gb, edge.source))
        return lines

    def _pieces(
        self,
        count: BillingCount,
        edges: Sequence[EdgePrice],
        volumes_gb: Mapping[EdgePrice, float],
    ) -> Iterator[tuple[PriceTier, float]]:
        """Yield the tiers that a run reaches, each with its share of the run's volume."""
        seen_gb = self._seen_gb.get(count, max(edge.used_gb for edge in edges))
        run_gb = math.fsum(volumes_gb[edge] for edge in edges)
        self._seen_gb[count] = seen_gb + run_gb
        for tier, tier_gb in tier_volumes_gb(count[1], run_gb, seen_gb):
            if tier_gb > 0:
                yield tier, tier_gb / run_gb


def _edge_bytes(count: RunCount, routes: Mapping[str, Sequence[EdgePrice]]) -> dict[EdgePrice, float]:
    """Return the volume of each edge that has a price or may have one."""
    sent_bytes: dict[EdgePrice, float] = {}
    for name, route_bytes in count.route_bytes.items():
        for edge in routes.get(name, ()):
            sent_bytes[edge] = sent_bytes.get(edge, 0) + route_bytes
    return sent_bytes


def _egress_lines(count: RunCount, routes: Mapping[str, Sequence[EdgePrice]], tiers: _Tiers) -> list[LedgerLine]:
    """Return one line per edge and tier, and one for the lead's further count: retransmitted bytes.

    The lead counts at the plan's prices, so retransmitted bytes have these prices.
    """
    volumes_gb = {edge: sent / BYTES_PER_GB for edge, sent in _edge_bytes(count, routes).items() if sent}
    other_usd = count.egress_usd - math.fsum(gb * edge.usd_per_gb for edge, gb in volumes_gb.items())
    lines = tiers.lines(count.run, volumes_gb)
    if other_usd < -ROUNDING * count.egress_usd:
        lines, other_usd = [], count.egress_usd  # An earlier run has paid for these bytes.
    if other_usd > ROUNDING * count.egress_usd:
        what = _sent_again(count) if lines else "all routes"
        lines.append(LedgerLine(count.run, "egress", what, other_usd, "USD", 1.0, EGRESS_SOURCE))
    return lines


def _sent_again(count: RunCount) -> str:
    duplicates = f", {format_bytes(count.duplicate_bytes)} as duplicates" if count.duplicate_bytes else ""
    return f"bytes sent again{duplicates}"


def _request_lines(run: int, side: str, requests: Requests, prices: RequestPrices, source: str) -> list[LedgerLine]:
    kinds = (
        ("GET", requests.gets, prices.get_usd_per_1000),
        ("PUT", requests.puts, prices.put_usd_per_1000),
        ("LIST", requests.lists, prices.list_usd_per_1000),
        ("HEAD", requests.heads, prices.head_usd_per_1000),
    )
    return [
        LedgerLine(run, "requests", f"{kind} at the {side}", count, "request", usd / 1000, source)
        for kind, count, usd in kinds
    ]
