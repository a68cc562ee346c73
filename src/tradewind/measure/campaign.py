"""Measure many links: one machine per region, probes in rounds, their total cost, and a stop at the budget."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tradewind.catalog.ageing import Figure
from tradewind.errors import UsageError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Provider
from tradewind.fleet.settings import FleetSettings
from tradewind.gateway.process import READY_S
from tradewind.measure.probe import ProbeResult, ProbeSettings, run_probe
from tradewind.measure.schedule import rounds
from tradewind.model.catalog import Catalog
from tradewind.model.machine import MachineOffer
from tradewind.model.origin import Origin
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.units import format_count

__all__ = ["REGIONS_MAX", "Campaign", "MeasuredLink", "Quote", "figure_of"]

#: Maximum regions of one campaign: all ordered pairs of them are 870 probes.
REGIONS_MAX = 30
#: Pause after each round in which queues drain before the next round measures round trips.
SETTLE_S = 1.0
#: Reserve of a budget: the maximum time of a round beyond its load, and until its machines have ended. Both are
#: charged.
END_S = 10.0

RegionPair = tuple[Region, Region]


@dataclass(frozen=True, slots=True)
class Quote:
    """Predicted time and cost of a campaign."""

    rounds: tuple[tuple[RegionPair, ...], ...]
    seconds: float
    """Duration of the rounds, without the start of the machines."""
    machines_usd: float
    """Cost of the machines, from launch; part of `usd` and `usd_most`."""
    usd: float
    """Cost at the rates in the catalog."""
    usd_most: float
    """Cost if every link carried the maximum that its machines may send."""


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """One link, and the cost of its measurement."""

    src: Region
    dst: Region
    result: ProbeResult
    usd: float
    """Egress only: the machines serve all links."""


class Campaign:
    """Probes between regions. Construct it, inspect `quote`, then call `run`."""

    def __init__(
        self,
        catalog: Catalog,
        pairs: Iterable[RegionPair],
        settings: ProbeSettings | None = None,
        *,
        shared: Mapping[RegionPair, Iterable[Hashable]] | None = None,
    ) -> None:
        """`shared` names links that several pairs use. Raises UsageError."""
        self.settings = settings or ProbeSettings()
        self._catalog = catalog
        wanted = self.pairs = tuple(pairs)
        self.regions: Sequence[Region] = sorted({region for pair in wanted for region in pair})
        if not wanted:
            raise UsageError("there is nothing to measure", hint="name two regions or more")
        if len(self.regions) > REGIONS_MAX:
            raise UsageError(f"{len(self.regions)} regions at once: at most {REGIONS_MAX}")
        named = {(str(src), str(dst)): (src, dst) for src, dst in wanted}
        links = {(str(src), str(dst)): of for (src, dst), of in (shared or {}).items()}
        self._rounds = tuple(tuple(named[pair] for pair in of) for of in rounds(named, links))
        found = {region: self._offer(region) for region in self.regions}
        self._offers = [offer for offer in found.values() if offer is not None]
        self._boot_s = max((offer.machine.boot_s for offer in self._offers), default=0.0)
        self.unpriced: Sequence[str] = (
            *(f"a machine in {region}" for region, offer in found.items() if offer is None),
            *(f"egress from {src} to {dst}" for src, dst in dict.fromkeys(wanted) if catalog.egress(src, dst) is None),
        )
        """Items without a known price; they count as free."""
        self.machines_usd = 0.0
        """Cost of the machines of `run` so far, from launch to end, at list prices."""

    @property
    def quote(self) -> Quote:
        """Rounds, time and cost."""
        pairs = [pair for of in self._rounds for pair in of]
        believed = {pair: link.gbps if (link := self._catalog.grid.link(*pair)) else self._cap(pair) for pair in pairs}
        seconds = len(self._rounds) * (self.settings.load_s + SETTLE_S)
        machines_usd = self._of_machines_usd(self._boot_s + seconds)
        expected = {pair: self._bytes(min(believed[pair], self._cap(pair))) for pair in pairs}
        return Quote(
            self._rounds,
            seconds,
            machines_usd,
            machines_usd + self._egress_usd(expected),
            self._of_machines_usd(self._boot_s + seconds + END_S) + self._egress_usd(self._most(pairs)),
        )

    def run(
        self,
        provider: Provider,
        journal: FleetJournal,
        binary: str,
        *,
        max_cost_usd: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[MeasuredLink]:
        """Start the machines, measure, and yield each link as soon as it is known.

        Ends before a round that might exceed the budget. If the first round might, nothing is started.
        `clock` gives seconds. Raises GatewayError, and UsageError for a budget if a price is unknown.
        """
        budget_usd = float("inf") if max_cost_usd is None else max_cost_usd
        if max_cost_usd is not None and self.unpriced:
            raise UsageError(
                f"the budget cannot be enforced: no price is known for {self.unpriced[0]}",
                hint="import one with `tradewind catalog import`, or measure without --max-cost",
            )
        sent: dict[RegionPair, float] = {}
        if self._after_round_usd(0, sent, self._boot_s) > budget_usd:
            return
        launched_s = clock()
        settings = FleetSettings(ready_s=min(READY_S, self._affordable_s(budget_usd)), led=False)
        fleet = Fleet(provider, journal, ring_of(self.regions), binary, purpose="measure", settings=settings)
        try:
            deployment = fleet.deployment()
            for number, of in enumerate(self._rounds):
                if self._after_round_usd(number, sent, clock() - launched_s) > budget_usd:
                    return
                if number:
                    time.sleep(SETTLE_S)
                with ThreadPoolExecutor(len(of)) as pool:
                    probes = [
                        pool.submit(run_probe, deployment, self._name(src), self._name(dst), self.settings)
                        for src, dst in of
                    ]
                for pair, probe in zip(of, probes, strict=True):
                    result = probe.result()
                    before_usd, sent[pair] = self._egress_usd(sent), result.sent_bytes
                    yield MeasuredLink(*pair, result, self._egress_usd(sent) - before_usd)
        finally:
            fleet.close()
            self.machines_usd = self._of_machines_usd(clock() - launched_s)

    def _after_round_usd(self, number: int, sent: Mapping[RegionPair, float], elapsed_s: float) -> float:
        """Return the maximum cost of egress and machines up to the end of a round, including ending the machines."""
        end_s = elapsed_s + SETTLE_S + self.settings.load_s + END_S
        return self._egress_usd({**sent, **self._most(self._rounds[number])}) + self._of_machines_usd(end_s)

    def _of_machines_usd(self, lasting_s: float) -> float:
        """Return the cost of all machines for this time: at least their providers' minimum."""
        return sum(offer.usd(lasting_s) for offer in self._offers)

    def _affordable_s(self, budget_usd: float) -> float:
        usd_per_s = sum(offer.usd_per_s for offer in self._offers)
        return budget_usd / usd_per_s if usd_per_s > 0 else float("inf")

    def _name(self, region: Region) -> str:
        return gateway_name(self.regions.index(region))

    def _offer(self, region: Region) -> MachineOffer | None:
        """Return the offer used for a region: on demand, with the highest egress cap, then the cheapest."""
        offers = [offer for offer in self._catalog.machine_offers(region) if not offer.spot]
        return max(offers, key=lambda offer: (offer.machine.egress_gbps, -offer.usd_per_hour), default=None)

    def _cap(self, pair: RegionPair) -> float:
        """Return the maximum that the sending machine may send [Gbit/s]."""
        offer = self._offer(pair[0])
        return offer.machine.egress_gbps if offer else 0.0

    def _bytes(self, gbps: float) -> float:
        return gbps * 1e9 / 8 * self.settings.load_s

    def _most(self, pairs: Iterable[RegionPair]) -> dict[RegionPair, float]:
        """Return the maximum volume that probes can send [bytes]."""
        return {pair: self._bytes(self._cap(pair)) for pair in pairs}

    def _egress_usd(self, sent_bytes: Mapping[RegionPair, float]) -> float:
        """Return the cost of egress: all pairs of one billing account share its tiers."""
        priced = {pair: count / 1e9 for pair, count in sent_bytes.items() if self._catalog.egress(*pair) is not None}
        return sum(charge.usd for charge in self._catalog.egress_charges(priced))


def gateway_name(index: int) -> str:
    """Name of the gateway of a campaign's region."""
    return f"probe-{index + 1}"


def ring_of(regions: Sequence[Region]) -> Plan:
    """Return a plan with one gateway per region that others reach. Its routes define the hops; no program is pushed."""
    names = [gateway_name(index) for index in range(len(regions))]
    gateways = tuple(PlannedGateway(name, str(region)) for name, region in zip(names, regions, strict=True))
    ring = list(itertools.pairwise([*names, names[0]]))
    return Plan(
        gateways,
        tuple(PlannedHop(*pair, 1) for pair in ring),
        tuple(PlannedRoute(pair, 1.0) for pair in ring),
        lead=names[0],
    )


def figure_of(link: MeasuredLink, settings: ProbeSettings, date: str, source: str) -> Figure:
    """Return the figure for the measured layer of the grid, with date and method."""
    again = "" if link.result.sent_again is None else f", {link.result.sent_again:.2%} sent again"
    connections = format_count(settings.connections, "connection")
    method = f"{settings.measure_s:g} s after {settings.warmup_s:g} s, {connections}{again}"
    return Figure(link.result.gbps, Origin("measured", source, date, method), link.result.rtt_ms)
