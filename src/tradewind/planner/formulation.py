"""The MILP of one source and one destination; `multicast.py` has that of several.

Columns are F_uv [Gbit/s], one per link, then N_vk, one per machine option (type and network tier). A place uses a
single option: the rows below add up a region's machines, and with mixed strengths that sum would promise more than the
links can fill. A region that may have both network tiers has a pool of machines for each (`FlowNetwork`): each is a
place of its own here, with its own links, and both share the limit of the region. Each function below writes one
family of rows; docs/concepts/planner.md shows equation, function and symbols side by side.
The cost of machine time has a factor (``machine_factor``), which accounts for machines that are paid while they boot.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from tradewind.model.records import dataclass, replace
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.budget import WorkBudget
from tradewind.planner.network import FloatArray, FlowNetwork, IntArray
from tradewind.planner.steiner import Tree

__all__ = [
    "CAPACITY_FAMILIES",
    "STANDARD_POOL",
    "BootWindow",
    "Formulation",
    "RelaxedTrees",
    "RowWriter",
    "Rows",
    "SharedFlows",
    "Subproblem",
    "TreeFlows",
    "build_formulation",
    "pool_name",
    "write_machine_rows",
    "write_store_row",
]

CAPACITY_FAMILIES = (
    "egress cap at",
    "ingress cap at",
    "links out of",
    "links into",
    "object-store read rate at",
    "object-store write rate at",
)
"""Names of the rows for machine capacity, each followed by its region."""
STANDARD_POOL = "#standard"
"""Follows the region in names of rows for its pool of the standard network tier, if it may have both."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Constraint rows as coordinates, with one name per row."""

    names: tuple[str, ...]
    row: IntArray
    column: IntArray
    value: FloatArray
    lower: FloatArray
    upper: FloatArray

    def joined(self, more: Rows) -> Rows:
        """Return these rows followed by ``more``."""
        return Rows(
            self.names + more.names,
            np.concatenate([self.row, more.row + len(self.names)]),
            np.concatenate([self.column, more.column]),
            np.concatenate([self.value, more.value]),
            np.concatenate([self.lower, more.lower]),
            np.concatenate([self.upper, more.upper]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TreeFlows:
    """The best distribution trees for given machines."""

    trees: tuple[tuple[Tree, float], ...]
    """Trees and their rates [Gbit/s]."""
    flow_gbps: FloatArray
    """Sum of the tree rates on each flow column."""
    bound: float
    """Bound for these machines: no trees cost less [USD/s] or, when the rate was maximised, carry more [Gbit/s]."""
    complete: bool
    """True if the trees are optimal; false if the work limit was reached first."""
    duals: FloatArray
    """Per row of the model, then of the rate and, if any, of the ceiling."""


class SharedFlows(Protocol):
    """The part of a model that exists only with several destinations (`multicast.py`)."""

    def rows(self) -> Rows | None:
        """Return the lazily added constraints: those that earlier answers violated."""

    def add_violated(
        self,
        formulation: Formulation,
        subproblem: Subproblem,
        machines: IntArray,
        flow_gbps: FloatArray,
        budget: WorkBudget,
    ) -> bool:
        """Find and keep a row that these flows violate; ``False`` if none was found."""

    def priced(self, egress_usd_per_s: FloatArray, usd_per_gbit: float) -> SharedFlows:
        """Return the same with other prices: per Gbit/s on each shared column, and per Gbit/s of the rate."""

    def relax(self, subproblem: Subproblem, budget: WorkBudget) -> RelaxedTrees:
        """Return a bound, and the machines of the relaxation."""

    def flows(
        self, formulation: Formulation, subproblem: Subproblem, machines: IntArray, budget: WorkBudget
    ) -> TreeFlows | None:
        """Return the best trees for these machines; ``None`` if there are none. Raises SolverLimitReached."""

    def within(self, formulation: Formulation, regions: frozenset[int]) -> tuple[Formulation, IntArray]:
        """Return the model of these regions alone, and which flow columns of the whole model it keeps."""

    def direct(self, formulation: Formulation) -> tuple[Formulation, IntArray]:
        """Return the same for the links from the source to each destination, and no others."""


@dataclass(frozen=True, slots=True)
class BootWindow:
    """Bounds on the price W of all machines [USD/s] in a window of rates [l, u], where their boot is paid too.

    Boot adds βWT to R. The planes l·W + w·T − l·w and u·W + w'·T − u·w' lie under W·T (McCormick); w and w' are the
    lowest and the highest price of the machines in the window. At both ends the higher plane equals W·T.
    """

    per_gbit: float
    """β = boot time / volume [s/Gbit]."""
    machines_usd_per_s_min: float
    machines_usd_per_s_max: float

    def planes(self, rate_min_gbps: float, rate_max_gbps: float) -> tuple[tuple[float, float, float], ...]:
        """Return the coefficients of W and of T, and the constant."""
        least, most = self.machines_usd_per_s_min, self.machines_usd_per_s_max
        return (
            (rate_min_gbps, least, -rate_min_gbps * least),
            (rate_max_gbps, most, -rate_max_gbps * most),
        )


@dataclass(frozen=True, slots=True)
class Subproblem:
    """One question: rate window, objective and, if any, cost ceiling."""

    rate_min_gbps: float
    rate_max_gbps: float
    maximise_rate: bool = False
    """Maximise T; otherwise minimise R − ``usd_per_gbit`` · T, R being the rate of cost [USD/s]."""
    machines_only: bool = False
    """Leave egress out of R."""
    usd_per_gbit: float = 0.0
    """λ of the parametric objective."""
    machine_factor: float = 1.0
    """Weight of machine prices in R; above one where boot time is paid too."""
    ceiling_usd_per_gbit: float | None = None
    """R ≤ ceiling · T."""
    boot: BootWindow | None = None
    """Boot time, if not part of ``machine_factor``: R is then the lowest that is possible in the window."""

    def boot_usd_per_s(self, machines_usd_per_s: float, rate_gbps: float) -> float:
        """Return the minimum that boot adds to R."""
        if self.boot is None:
            return 0.0
        planes = self.boot.planes(self.rate_min_gbps, self.rate_max_gbps)
        return self.boot.per_gbit * max(a * machines_usd_per_s + b * rate_gbps + c for a, b, c in planes)


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedTrees:
    """The answer of a relaxation in which machines may be fractions."""

    bound: float
    """Bound: no plan costs less [USD/s] or moves more [Gbit/s]."""
    feasible: bool
    machines: FloatArray
    """Per option, not whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Formulation:
    """The model without goal and rate bounds, which each solve sets."""

    network: FlowNetwork
    source: int
    sinks: tuple[int, ...]
    links: IntArray
    """Per flow column its link's position in the network: none into the source, none out of a single sink."""
    egress_usd_per_s: FloatArray
    """Per Gbit/s on each flow column."""
    machine_usd_per_s: FloatArray
    """Per machine of each option column."""
    machine_max: FloatArray
    flow_max: FloatArray
    out_of_source: IntArray
    """Flow columns whose sum is the rate T."""
    rows: Rows
    shared: SharedFlows | None = None

    @property
    def sources(self) -> tuple[int, ...]:
        """All pools of the source; `source` is the first."""
        return self.network.pools_of(self.source)

    @property
    def sink_pools(self) -> tuple[int, ...]:
        """All pools of the destinations."""
        return tuple(pool for sink in self.sinks for pool in self.network.pools_of(sink))

    @property
    def sink(self) -> int:
        """The destination, or the first of several."""
        return self.sinks[0]

    @property
    def link_count(self) -> int:
        """Number of flow columns."""
        return len(self.links)

    @property
    def option_count(self) -> int:
        """Number of machine columns."""
        return len(self.machine_usd_per_s)

    @property
    def is_free(self) -> bool:
        """True if neither machines nor egress cost anything, as on a user's own hosts. All plans cost the same then."""
        return not (self.egress_usd_per_s.any() or self.machine_usd_per_s.any())

    @property
    def choices(self) -> tuple[IntArray, ...]:
        """Machine columns of each pool that has several types to choose one from."""
        pools = self.network.pool_of_option
        counts = np.bincount(pools, minlength=len(self.network.regions))
        return tuple(np.flatnonzero(pools == pool) for pool in np.flatnonzero(counts > 1))

    def rows_so_far(self) -> Rows:
        """Return all rows, including lazily added ones."""
        late = self.shared.rows() if self.shared else None
        return self.rows if late is None else self.rows.joined(late)

    def with_machines_only_at(self, machines: IntArray) -> tuple[Formulation, IntArray]:
        """Return the model without the links that these machines cannot serve, and the positions of the links kept."""
        links = self.links
        kept = np.flatnonzero(self.network.served(machines, links))
        column = np.full(self.link_count + self.option_count, -1)
        column[kept] = np.arange(len(kept))
        column[self.link_count :] = len(kept) + np.arange(self.option_count)
        every = self.rows_so_far()
        stays = column[every.column] >= 0
        rows = Rows(
            every.names,
            every.row[stays],
            column[every.column[stays]],
            every.value[stays],
            every.lower,
            every.upper,
        )
        out = column[self.out_of_source]
        small = replace(
            self,
            links=links[kept],
            egress_usd_per_s=self.egress_usd_per_s[kept],
            flow_max=self.flow_max[kept],
            out_of_source=out[out >= 0],
            rows=rows,
            shared=None,
        )
        return small, kept


class RowWriter:
    """Collects rows family by family."""

    def __init__(self, options_at: int) -> None:
        self.options_at = options_at
        """Number of the first machine column."""
        self.names: list[str] = []
        self._row: list[IntArray] = []
        self._column: list[IntArray] = []
        self._value: list[FloatArray] = []
        self._lower: list[float] = []
        self._upper: list[float] = []

    def family(
        self, names: list[str], row: IntArray, column: IntArray, value: FloatArray, lower: float, upper: float
    ) -> None:
        """Add ``len(names)`` rows whose coordinates count from zero."""
        self._row.append(row + len(self.names))
        self._column.append(column)
        self._value.append(value)
        self._lower += [lower] * len(names)
        self._upper += [upper] * len(names)
        self.names += names

    def rows(self) -> Rows:
        """Return all rows so far."""
        return Rows(
            tuple(self.names),
            np.concatenate(self._row).astype(np.int64),
            np.concatenate(self._column).astype(np.int64),
            np.concatenate(self._value),
            np.array(self._lower),
            np.array(self._upper),
        )


def build_formulation(network: FlowNetwork, source: int, sink: int, *, links: IntArray | None = None) -> Formulation:
    """Write the model down.

    Args:
        network: what can be used.
        source: index of the source region.
        sink: index of the destination region.
        links: restricts the overlay to these links (the baselines use it); ``None`` for all.
    """
    sources, behind = network.pools_of(source), network.pools_of(sink)[1:]
    chosen = np.arange(len(network.tail)) if links is None else links
    heads, tails = network.head[chosen], network.tail[chosen]
    # The sink sends nothing, so that its network tier would be a choice between equals.
    chosen = chosen[~np.isin(heads, (*sources, *behind)) & ~np.isin(tails, (sink, *behind))]
    writer = RowWriter(len(chosen))
    _conserve_flow(writer, network, chosen, (*sources, sink, *behind))
    write_machine_rows(writer, network, chosen, sources, (sink,))
    for pool in sources:
        write_store_row(writer, network, np.flatnonzero(network.tail[chosen] == pool), pool, "read")
    write_store_row(writer, network, np.flatnonzero(network.head[chosen] == sink), sink, "write")
    ends = np.minimum(network.machines_max[network.tail[chosen]], network.machines_max[network.head[chosen]])
    machine_max = network.machines_max[network.pool_of_option].astype(np.float64)
    machine_max[np.isin(network.pool_of_option, behind)] = 0.0
    return Formulation(
        network=network,
        source=source,
        sinks=(sink,),
        links=chosen,
        egress_usd_per_s=network.usd_per_gb[chosen] / BITS_PER_BYTE,
        machine_usd_per_s=np.array([o.usd_per_s for o in network.options]),
        machine_max=machine_max,
        flow_max=network.link_gbps[chosen] * ends,
        out_of_source=np.flatnonzero(np.isin(network.tail[chosen], sources)),
        rows=writer.rows(),
    )


def write_machine_rows(
    writer: RowWriter, network: FlowNetwork, links: IntArray, sources: Sequence[int], sinks: Sequence[int] = ()
) -> None:
    """Write the limits of machines for the flows of the first ``len(links)`` columns. ``sinks`` forward nothing."""
    _cap_egress(writer, network, links, sinks)
    _cap_ingress(writer, network, links, sources)
    _share_outgoing_connections(writer, network, links, sinks)
    _share_incoming_connections(writer, network, links, sources)
    _limit_machines(writer, network)


def _conserve_flow(writer: RowWriter, network: FlowNetwork, links: IntArray, ends: Collection[int]) -> None:
    """Σ_u F_uv − Σ_w F_vw = 0 for every relay v (4e)."""
    relays = [v for v in range(len(network.regions)) if v not in ends]
    position = np.full(len(network.regions), -1)
    position[relays] = np.arange(len(relays))
    into, out = position[network.head[links]], position[network.tail[links]]
    columns = np.arange(len(links))
    writer.family(
        [f"conservation at {pool_name(network, v)}" for v in relays],
        np.concatenate([into[into >= 0], out[out >= 0]]),
        np.concatenate([columns[into >= 0], columns[out >= 0]]),
        np.concatenate([np.ones(int((into >= 0).sum())), -np.ones(int((out >= 0).sum()))]),
        0.0,
        0.0,
    )


def pool_name(network: FlowNetwork, pool: int) -> str:
    """Return the name of a pool in names of rows."""
    name = str(network.regions[pool])
    return name + STANDARD_POOL if pool >= network.region_count else name


def _per_pool(
    writer: RowWriter,
    network: FlowNetwork,
    ends: IntArray,
    weight: FloatArray,
    per_machine: FloatArray,
    skip: Collection[int],
    what: str,
) -> None:
    """Σ weight_l F_l over the links that end at v ≤ Σ_k per_machine_k N_vk, for every pool v but those of ``skip``."""
    pools = [v for v in range(len(network.regions)) if v not in skip]
    position = np.full(len(network.regions), -1)
    position[pools] = np.arange(len(pools))
    of_link = position[ends]
    of_option = position[network.pool_of_option]
    keep_link, keep_option = of_link >= 0, of_option >= 0
    writer.family(
        [f"{what} {pool_name(network, v)}" for v in pools],
        np.concatenate([of_link[keep_link], of_option[keep_option]]),
        np.concatenate([np.flatnonzero(keep_link), writer.options_at + np.flatnonzero(keep_option)]),
        np.concatenate([weight[keep_link], -per_machine[keep_option]]),
        -np.inf,
        0.0,
    )


def _cap_egress(writer: RowWriter, network: FlowNetwork, links: IntArray, sinks: Collection[int]) -> None:
    """Σ_w F_vw ≤ Σ_k egress_k N_vk (4g)."""
    caps = np.array([o.egress_gbps for o in network.options])
    _per_pool(writer, network, network.tail[links], np.ones(len(links)), caps, sinks, "egress cap at")


def _cap_ingress(writer: RowWriter, network: FlowNetwork, links: IntArray, sources: Collection[int]) -> None:
    """Σ_u F_uv ≤ Σ_k ingress_k N_vk (4f)."""
    caps = np.array([o.ingress_gbps for o in network.options])
    _per_pool(writer, network, network.head[links], np.ones(len(links)), caps, sources, "ingress cap at")


def _share_outgoing_connections(
    writer: RowWriter, network: FlowNetwork, links: IntArray, sinks: Collection[int]
) -> None:
    """Σ_w F_vw / link_vw ≤ Σ_k N_vk: (4b) and (4h) with M eliminated and the crossed indices set right."""
    ones = np.ones(len(network.options))
    per_gbps = 1 / network.link_gbps[links]
    _per_pool(writer, network, network.tail[links], per_gbps, ones, sinks, "links out of")


def _share_incoming_connections(
    writer: RowWriter, network: FlowNetwork, links: IntArray, sources: Collection[int]
) -> None:
    """Σ_u F_uv / link_uv ≤ Σ_k N_vk: (4b) and (4i) with M eliminated."""
    ones = np.ones(len(network.options))
    per_gbps = 1 / network.link_gbps[links]
    _per_pool(writer, network, network.head[links], per_gbps, ones, sources, "links into")


def _limit_machines(writer: RowWriter, network: FlowNetwork) -> None:
    """Σ_k N_vk ≤ limit_v (4j): a row only for a region with several options; otherwise a column bound.

    The machines of all pools of a region count.
    """
    regions = network.first_pools[network.pool_of_option]
    for v in np.flatnonzero(np.bincount(regions, minlength=len(network.regions)) > 1):
        of_region = np.flatnonzero(regions == v)
        writer.family(
            [f"machine limit at {network.regions[v]}"],
            np.zeros(len(of_region), dtype=np.int64),
            writer.options_at + of_region,
            np.ones(len(of_region)),
            -np.inf,
            float(network.machines_max[v]),
        )


def write_store_row(writer: RowWriter, network: FlowNetwork, flows: IntArray, pool: int, verb: str) -> None:
    """Σ F ≤ Σ_k rate_k N_k over the columns ``flows``, whose sum a pool reads from or writes to its object store.

    Writes nothing if the store's limits are unknown. ``verb`` is ``read`` or ``write``.
    """
    options = np.flatnonzero(network.pool_of_option == pool)
    rates = np.array(
        [network.options[k].read_gbps if verb == "read" else network.options[k].write_gbps for k in options]
    )
    if not np.all(np.isfinite(rates)):
        return
    writer.family(
        [f"object-store {verb} rate at {pool_name(network, pool)}"],
        np.zeros(len(flows) + len(options), dtype=np.int64),
        np.concatenate([flows, writer.options_at + options]),
        np.concatenate([np.ones(len(flows)), -rates]),
        -np.inf,
        0.0,
    )
