"""A placement problem: regions where proxies may run, flows, prices and a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigError
from tradewind.model.flows import CONTROLS, LOSS_MAX, CongestionControl
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["FloatArray", "Flow", "PlacementProblem", "ProxyRegion", "document_of", "problem_from_document"]

FloatArray = NDArray[np.float64]

#: Most regions, flows, and instances of a region. Larger problems are refused: their tables would not fit the memory.
REGIONS_MAX = 200
FLOWS_MAX = 10_000
INSTANCES_MAX = 10_000
#: Largest number of paths of all flows together: 500 flows of 60 regions have 1.8 million.
PATHS_MAX = 20_000_000
#: Numbers beyond these are mistakes, and products of them exceed what a computer can represent.
NUMBER_MIN, NUMBER_MAX = 1e-9, 1e18
#: Most characters of such a number in an error.
SHOWN_CHARS_MAX = 20
#: Linux's default for the receive window, after its overhead [bytes] (CloudPilot, section 4.3).
EDGE_WINDOW_BYTES = 2_875_000.0
#: Window between two proxies [bytes] (CloudPilot, section 4.3).
CLOUD_WINDOW_BYTES = 500_000_000.0
BYTES_PER_GB = 1e9

_KEYS = {
    "regions",
    "rtt_ms",
    "flows",
    "edge_window_bytes",
    "cloud_window_bytes",
    "bytes_per_gb",
    "per_flow_proxy_limit_mbps",
    "budget_cents",
    "slow_start",
    "shared_last_miles",
    "proxy_congestion_control",
}
_REGION_KEYS = {"name", "capacity_mbps", "setup_cents", "egress_cents_per_gb", "max_instances"}
_FLOW_KEYS = {
    "id",
    "size_bytes",
    "src_last_mile_mbps",
    "dst_last_mile_mbps",
    "rtt_direct_ms",
    "rtt_src_to_region_ms",
    "rtt_region_to_dst_ms",
    "src_region",
    "dst_region",
    "src_host",
    "dst_host",
    "loss",
    "congestion_control",
    "window_bytes",
}


@dataclass(frozen=True, slots=True)
class ProxyRegion:
    """A region in which proxies may run."""

    name: str
    capacity_mbps: float
    """Capacity of one instance: the most that its flows may carry together [Mbit/s]."""
    setup_cents: float
    """Price of an instance that is used, however many flows use it [US cents]."""
    egress_cents_per_gb: float
    """Price of the traffic that an instance sends, to another proxy or to a destination."""
    max_instances: int


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A flow from a source to a destination, and its round-trip times [ms]."""

    id: str
    size_bytes: float
    rtt_direct_ms: float
    rtt_to_region_ms: FloatArray
    """From the source to each region."""
    rtt_from_region_ms: FloatArray
    """From each region to the destination."""
    src_last_mile_mbps: float = math.inf
    """Rate at which the source sends; infinite if nothing limits it."""
    dst_last_mile_mbps: float = math.inf
    src_region: str | None = None
    dst_region: str | None = None
    src_host: str | None = None
    """Name of the sending host. With `shared_last_miles`, its flows share the last mile of the source."""
    dst_host: str | None = None
    loss: float = 0.0
    """Part of the packets that the direct path loses, 0 to LOSS_MAX."""
    congestion_control: CongestionControl = "cubic"
    """Congestion control of the source. It matters only with loss."""
    window_bytes: float | None = None
    """Window of connections with an end of the flow; None for that of the problem."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacementProblem:
    """Everything that a placement depends on."""

    regions: tuple[ProxyRegion, ...]
    rtt_ms: FloatArray
    """From region to region."""
    flows: tuple[Flow, ...]
    budget_cents: float
    edge_window_bytes: float = EDGE_WINDOW_BYTES
    """Window of a connection that has a source or a destination at one end."""
    cloud_window_bytes: float = CLOUD_WINDOW_BYTES
    """Window of a connection between two proxies."""
    bytes_per_gb: float = BYTES_PER_GB
    per_flow_proxy_limit_mbps: float = math.inf
    """Most that a proxy forwards of one flow."""
    slow_start: bool = False
    """True if completion times include handshakes and slow start."""
    shared_last_miles: bool = False
    """True if the flows of a host share its last mile."""
    proxy_congestion_control: CongestionControl = "bbr"
    """Congestion control of the proxies. It matters only with loss."""

    def edge_window_of(self, flow: Flow) -> float:
        """Return the window of a flow's connections with a source or a destination at one end [bytes]."""
        return self.edge_window_bytes if flow.window_bytes is None else flow.window_bytes


def problem_from_document(document: Any, place: str) -> PlacementProblem:
    """Return the problem of a JSON document. `place` names it in errors. Raises ConfigError.

    The format is in docs/reference/placement-problem.md.
    """
    table = _object(document, place, _KEYS)
    regions = tuple(
        _region(entry, f"{place}: regions[{number}]")
        for number, entry in enumerate(_array(table, "regions", place, REGIONS_MAX))
    )
    names = [region.name for region in regions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{place}: two regions are called {twice!r}")
    count = len(regions)
    rows = _array(table, "rtt_ms", place, REGIONS_MAX)
    if len(rows) != count:
        raise ConfigError(f"{place}: rtt_ms has {format_count(len(rows), 'row')} for {format_count(count, 'region')}")
    rtt_ms = np.array([_numbers(row, count, f"{place}: rtt_ms[{number}]") for number, row in enumerate(rows)])
    flows = tuple(
        _flow(entry, count, f"{place}: flows[{number}]")
        for number, entry in enumerate(_array(table, "flows", place, FLOWS_MAX))
    )
    ids = {flow.id for flow in flows}
    if len(ids) < len(flows):
        raise ConfigError(f"{place}: the ids of flows must differ")
    shared = _switch(table, "shared_last_miles", place)
    if shared:
        _check_hosts(flows, place)
    if len(flows) * (1 + count * count) > PATHS_MAX:
        raise ConfigError(
            f"{place}: {format_count(len(flows), 'flow')} and {format_count(count, 'region')} have more than "
            f"{PATHS_MAX:,} paths",
            hint="leave out regions that are far from all flows, or divide the flows",
        )
    return PlacementProblem(
        regions,
        rtt_ms.reshape(count, count),
        flows,
        _number(table, "budget_cents", place),
        _number(table, "edge_window_bytes", place, EDGE_WINDOW_BYTES, above_zero=True),
        _number(table, "cloud_window_bytes", place, CLOUD_WINDOW_BYTES, above_zero=True),
        _number(table, "bytes_per_gb", place, BYTES_PER_GB, above_zero=True),
        _limit(table, "per_flow_proxy_limit_mbps", place),
        _switch(table, "slow_start", place),
        shared,
        _control(table, "proxy_congestion_control", place, "bbr"),
    )


def _check_hosts(flows: Sequence[Flow], place: str) -> None:
    """Check that a host has one last mile in each direction. Raises ConfigError."""
    sources = [("src", flow.src_host, flow.src_last_mile_mbps) for flow in flows]
    destinations = [("dst", flow.dst_host, flow.dst_last_mile_mbps) for flow in flows]
    first: dict[tuple[str, str], int] = {}
    for ends in (sources, destinations):
        for number, (side, host, last_mile_mbps) in enumerate(ends):
            if host is None:
                continue
            other = first.setdefault((side, host), number)
            if last_mile_mbps != ends[other][2]:
                raise ConfigError(
                    f"{place}: flows[{number}]: {side}_last_mile_mbps differs from that of flows[{other}], "
                    f"which has the same {side}_host {host!r}",
                    hint="with shared_last_miles, a host has one last mile in each direction",
                )
    if flows and not first:
        raise ConfigError(
            f"{place}: shared_last_miles needs src_host or dst_host of the flows that share a last mile",
            hint='for example "src_host": "a" in each flow of the host',
        )


def document_of(problem: PlacementProblem) -> dict[str, Any]:
    """Return the document of a problem, which `problem_from_document` reads."""
    return {
        "regions": [
            {
                "name": region.name,
                "capacity_mbps": region.capacity_mbps,
                "setup_cents": region.setup_cents,
                "egress_cents_per_gb": region.egress_cents_per_gb,
                "max_instances": region.max_instances,
            }
            for region in problem.regions
        ],
        "rtt_ms": problem.rtt_ms.tolist(),
        "flows": [_flow_document(flow) for flow in problem.flows],
        "edge_window_bytes": problem.edge_window_bytes,
        "cloud_window_bytes": problem.cloud_window_bytes,
        "bytes_per_gb": problem.bytes_per_gb,
        "per_flow_proxy_limit_mbps": _or_null(problem.per_flow_proxy_limit_mbps),
        "slow_start": problem.slow_start,
        **({"shared_last_miles": True} if problem.shared_last_miles else {}),
        **_unless(problem.proxy_congestion_control, "bbr", "proxy_congestion_control"),
        "budget_cents": problem.budget_cents,
    }


def _flow_document(flow: Flow) -> dict[str, Any]:
    document = {
        "id": flow.id,
        "size_bytes": flow.size_bytes,
        "src_last_mile_mbps": _or_null(flow.src_last_mile_mbps),
        "dst_last_mile_mbps": _or_null(flow.dst_last_mile_mbps),
        "rtt_direct_ms": flow.rtt_direct_ms,
        "rtt_src_to_region_ms": flow.rtt_to_region_ms.tolist(),
        "rtt_region_to_dst_ms": flow.rtt_from_region_ms.tolist(),
    }
    optional = {
        "src_region": flow.src_region,
        "dst_region": flow.dst_region,
        "src_host": flow.src_host,
        "dst_host": flow.dst_host,
        "window_bytes": flow.window_bytes,
    }
    document |= {key: value for key, value in optional.items() if value is not None}
    return (
        document
        | ({"loss": flow.loss} if flow.loss else {})
        | _unless(flow.congestion_control, "cubic", "congestion_control")
    )


def _unless(control: CongestionControl, default: CongestionControl, key: str) -> dict[str, Any]:
    return {} if control == default else {key: control}


def _or_null(limit: float) -> float | None:
    return None if math.isinf(limit) else limit


def _region(entry: Any, place: str) -> ProxyRegion:
    table = _object(entry, place, _REGION_KEYS)
    most = table.get("max_instances", 1)
    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= INSTANCES_MAX:
        raise ConfigError(f"{place}: max_instances must be a whole number from 0 to {INSTANCES_MAX}, not {most!r}")
    return ProxyRegion(
        _text(table, "name", place),
        _number(table, "capacity_mbps", place, above_zero=True),
        _number(table, "setup_cents", place),
        _number(table, "egress_cents_per_gb", place),
        most,
    )


def _flow(entry: Any, regions: int, place: str) -> Flow:
    table = _object(entry, place, _FLOW_KEYS)
    last_miles = _limit(table, "src_last_mile_mbps", place), _limit(table, "dst_last_mile_mbps", place)
    rtt_direct_ms, window = _number(table, "rtt_direct_ms", place), table.get("window_bytes")
    if rtt_direct_ms == 0 and math.isinf(min(last_miles)):
        raise ConfigError(
            f"{place}: nothing limits the rate of the direct path",
            hint="give rtt_direct_ms, src_last_mile_mbps or dst_last_mile_mbps",
        )
    return Flow(
        _text(table, "id", place),
        _number(table, "size_bytes", place, above_zero=True),
        rtt_direct_ms,
        _numbers(table.get("rtt_src_to_region_ms"), regions, f"{place}: rtt_src_to_region_ms"),
        _numbers(table.get("rtt_region_to_dst_ms"), regions, f"{place}: rtt_region_to_dst_ms"),
        *last_miles,
        _optional_text(table, "src_region", place),
        _optional_text(table, "dst_region", place),
        _optional_text(table, "src_host", place),
        _optional_text(table, "dst_host", place),
        _loss(table, place),
        _control(table, "congestion_control", place, "cubic"),
        None if window is None else _number(table, "window_bytes", place, above_zero=True),
    )


def _loss(table: Mapping[str, Any], place: str) -> float:
    loss = table.get("loss", 0.0)
    if not _is_number(loss) or not 0 <= loss <= LOSS_MAX:
        raise ConfigError(f"{place}: loss must be a part of all packets, from 0 to {LOSS_MAX:g}, not {loss!r:.80}")
    return float(loss)


def _control(table: Mapping[str, Any], key: str, place: str, default: CongestionControl) -> CongestionControl:
    control: CongestionControl = table.get(key, default)
    if control not in CONTROLS:
        raise ConfigError(f"{place}: {key} must be one of {', '.join(CONTROLS)}, not {control!r:.80}")
    return control


def _object(entry: Any, place: str, keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place} must be a JSON object")
    if unknown := sorted(entry.keys() - keys):
        raise ConfigError(f"{place}: unknown key {unknown[0]!r}", hint=f"known: {', '.join(sorted(keys))}")
    return entry


def _array(table: Mapping[str, Any], key: str, place: str, most: int) -> Sequence[Any]:
    value = table.get(key)
    if not isinstance(value, list):
        raise ConfigError(f"{place}: {key} must be an array")
    if len(value) > most:
        raise ConfigError(
            f"{place}: {key} has {format_count(len(value), 'entry', 'entries')}, at most {most} are possible"
        )
    return value


def _text(table: Mapping[str, Any], key: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{place}: {key} must be text, not {value!r}")
    return value


def _optional_text(table: Mapping[str, Any], key: str, place: str) -> str | None:
    return None if table.get(key) is None else _text(table, key, place)


def _number(
    table: Mapping[str, Any], key: str, place: str, default: float | None = None, *, above_zero: bool = False
) -> float:
    value = table.get(key, default)
    if not _is_number(value) or value < 0 or (above_zero and value == 0):
        least = "more than 0" if above_zero else "0 or more"
        shown = repr(value)
        if _is_out_of_range(value):
            least, shown = f"from {NUMBER_MIN:g} to {NUMBER_MAX:g}", shown[:SHOWN_CHARS_MAX]
        raise ConfigError(f"{place}: {key} must be a number, {least}, not {shown}")
    return float(value)


def _limit(table: Mapping[str, Any], key: str, place: str) -> float:
    """Return a rate that limits a flow; infinite for null and for a missing key."""
    return math.inf if table.get(key) is None else _number(table, key, place, above_zero=True)


def _switch(table: Mapping[str, Any], key: str, place: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{place}: {key} must be true or false, not {value!r}")
    return value


def _numbers(value: Any, count: int, place: str) -> FloatArray:
    if not isinstance(value, list) or len(value) != count:
        raise ConfigError(f"{place} must have one number for each of the {count} regions")
    if not all(_is_number(number) and number >= 0 for number in value):
        raise ConfigError(f"{place}: a round-trip time must be a number of milliseconds, 0 or more")
    return np.array(value, dtype=np.float64)


def _is_number(value: Any) -> bool:
    """Return whether it is a number with which one can calculate: 0, or one from NUMBER_MIN to NUMBER_MAX."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value:
        return False
    return value == 0 or not _is_out_of_range(value)


def _is_out_of_range(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and (0 < value < NUMBER_MIN or abs(value) > NUMBER_MAX)
