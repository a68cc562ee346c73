"""Advice for TCP flows: measures from this machine where it can, plans proxies, and compares both with free tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from tradewind.engine.flows import direct_rtt_ms, problem_document, proxy_regions
from tradewind.engine.tcp_probe import host_tcp, measure_download, measure_path
from tradewind.errors import ConfigError, GatewayError, UsageError
from tradewind.model.flows import HERE, CongestionControl, FlowEnd, FlowsFile, Sizes, WantedFlow, parse_address
from tradewind.model.records import replace
from tradewind.model.tcp import WINDOW_PART, HostTcp, PathMeasurement, window_bytes
from tradewind.placement.advice import Advice, Ends, advice_of, tuned, with_tcp_rates
from tradewind.placement.place import place
from tradewind.placement.problem import problem_from_document

if TYPE_CHECKING:
    from tradewind.model.catalog import Catalog
    from tradewind.model.sites import Sites

__all__ = ["advise_address", "advise_flows"]

#: Most addresses that are measured, and how many at the same time.
ADDRESSES_MAX, AT_ONCE_MAX = 50, 8
CONTROLS: tuple[str, ...] = get_args(CongestionControl)
#: Size of the flow for which an address is judged.
EXAMPLE_BYTES = 1_000_000_000
DAY_S = 86_400.0
PORTS = {"http": 80, "https": 443}


def advise_address(text: str) -> Advice:
    """Return advice for 1 GB from `HOST:PORT`, or from an http or https URL, of which a part is downloaded.

    Raises UsageError for an invalid address, GatewayError if it cannot be reached.
    """
    host, port = _address(text)
    try:
        measured = measure_path(host, port)
        if "://" in text:
            measured = replace(measured, download=measure_download(text))
    except OSError as error:
        why = error.strerror or str(error)
        raise GatewayError(f"{text} cannot be reached: {why}", hint="check the address, and firewalls") from None
    source = FlowEnd(measured.address, (host, port))
    flow = WantedFlow(text, source, FlowEnd(HERE), (Sizes(EXAMPLE_BYTES, 1),), 1.0, measured.rtt_ms)
    flows = FlowsFile(0.0, DAY_S, (flow,))
    tcp = host_tcp()
    problem = problem_from_document(_without_regions(flow), text)
    advice = advice_of((flow,), {text: _ends(flow, flows, tcp)}, problem, None, None, {text: measured})
    note = "proxies are not compared: a flows file says where they may run (--flows FILE)"
    return replace(advice, host=tcp, notes=(note,))


def advise_flows(
    flows: FlowsFile, place_name: str, catalog: Catalog, sites: Sites | None, algorithm: str, time_limit_s: float | None
) -> Advice:
    """Return advice for a flows file; arguments and errors are those of `Engine.advise`."""
    found, notes = _measured(flows.flows)
    measured = {name: path for name, path in found.items() if isinstance(path, PathMeasurement)}
    known = tuple(_with_round_trip(flow, measured) for flow in flows.flows)
    flows = replace(flows, flows=known)
    for flow in known:
        if isinstance(why := found.get(flow.name), str):
            _require_round_trip(flow, why, catalog, place_name)
    try:
        regions: Sequence[Any] = proxy_regions(flows, catalog, sites, place_name)
    except ConfigError as error:
        if flows.regions:
            raise
        regions = ()
        notes = [*notes, f"proxies are not compared: {error}"]
    problem = problem_from_document(problem_document(flows, catalog, regions, place_name), place_name)
    tcp = host_tcp()
    ends = {flow.name: _ends(flow, flows, tcp) for flow in known}
    plan = tuned_plan = None
    if regions:
        now, later = list(ends.values()), [tuned(each) for each in ends.values()]
        plan = place(with_tcp_rates(problem, known, now), algorithm, time_limit_s)
        tuned_plan = place(with_tcp_rates(problem, known, later), algorithm, time_limit_s)
    advice = advice_of(known, ends, problem, plan, tuned_plan, measured, are_ready=flows.pool > 0)
    notes += [
        f"{flow.name} needs more time than the period has, even with tuned ends: run several transfers at once"
        for flow in advice.flows
        if flow.tuned.time_s > flows.period_s
    ]
    is_here = any(flow.source.is_here or flow.destination.is_here for flow in known)
    return replace(advice, host=tcp if is_here else None, notes=tuple(notes))


def _address(text: str) -> tuple[str, int]:
    if "://" in text:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port or PORTS.get(parts.scheme)
        except ValueError:
            host = port = None
    else:
        host, port = parse_address(text)
    if host is None or port is None:
        raise UsageError(f"{text!r} has no port", hint="for example files.example.org:443, or an http URL")
    return host, port


def _without_regions(flow: WantedFlow) -> dict[str, Any]:
    """Return the problem of one flow without proxies."""
    entry = {
        "id": flow.name,
        "size_bytes": flow.period_bytes,
        "rtt_direct_ms": flow.rtt_ms,
        "rtt_src_to_region_ms": [],
        "rtt_region_to_dst_ms": [],
    }
    return {"regions": [], "rtt_ms": [], "flows": [entry], "budget_cents": 0}


def _measured(flows: Sequence[WantedFlow]) -> tuple[dict[str, PathMeasurement | str], list[str]]:
    """Measure the paths between this machine and the addresses of flows.

    Returns the measurement of each flow that was tried, or why it failed, and notes for the user.
    """
    from concurrent.futures import ThreadPoolExecutor

    address_of = {flow.name: address for flow in flows if (address := _far_end(flow)) is not None}
    addresses = list(dict.fromkeys(address_of.values()))
    notes = []
    if len(addresses) > ADDRESSES_MAX:
        notes.append(f"only the first {ADDRESSES_MAX} of {len(addresses):,} addresses are measured")
        addresses = addresses[:ADDRESSES_MAX]
    with ThreadPoolExecutor(AT_ONCE_MAX) as pool:
        found = dict(zip(addresses, pool.map(_path_or_error, addresses), strict=True))
    for (host, port), result in found.items():
        if isinstance(result, str):
            notes.append(f"{host}:{port} cannot be reached, so it is not measured: {result}")
    return {name: found[address] for name, address in address_of.items() if address in found}, notes


def _require_round_trip(flow: WantedFlow, why: str, catalog: Catalog, place_name: str) -> None:
    """Raise GatewayError if only a measurement could tell the round trip of a flow, and it failed."""
    try:
        direct_rtt_ms(flow, catalog, place_name)
    except ConfigError as error:
        far = flow.destination if flow.source.is_here else flow.source
        raise GatewayError(
            f"{place_name}: flow {flow.name}: {far.text} cannot be reached: {why}",
            hint=f"start it, check the address and firewalls, or {error.hint}",
        ) from None


def _far_end(flow: WantedFlow) -> tuple[str, int] | None:
    """Return the address at the other end of a flow of this machine, if it has a port."""
    for end, other in ((flow.source, flow.destination), (flow.destination, flow.source)):
        if end.is_here and other.address is not None and other.address[1] is not None:
            return other.address[0], other.address[1]
    return None


def _path_or_error(address: tuple[str, int]) -> PathMeasurement | str:
    try:
        return measure_path(*address)
    except OSError as error:
        return error.strerror or str(error)


def _with_round_trip(flow: WantedFlow, measured: Mapping[str, PathMeasurement]) -> WantedFlow:
    """Return the flow with its measured round trip, unless the file states one."""
    path = measured.get(flow.name)
    return flow if path is None or flow.rtt_ms is not None else replace(flow, rtt_ms=path.rtt_ms)


def _ends(flow: WantedFlow, flows: FlowsFile, tcp: HostTcp | None) -> Ends:
    """Return the window and the congestion control of a flow: the file's, else this machine's, else Linux's default.

    The buffer of the receiver decides, except if this machine sends and its own is smaller.
    """
    usual = window_bytes(6 << 20)
    window, control = float(flows.window_bytes or usual), flow.congestion_control
    if tcp is not None and flows.window_bytes is None and flow.destination.is_here:
        window = tcp.rmem_max_bytes * WINDOW_PART
    if tcp is not None and flow.source.is_here:
        if flows.window_bytes is None:
            window = min(usual, tcp.wmem_max_bytes * WINDOW_PART)
        if flow.loss == 0 and tcp.congestion_control in CONTROLS:
            control = tcp.congestion_control  # type: ignore[assignment]
    return Ends(window, control)
