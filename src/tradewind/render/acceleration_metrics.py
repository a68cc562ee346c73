"""The state of accelerations in the text format of Prometheus: all figures of `--json` but the lines of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tradewind.model.acceleration import AccelerationState, FlowState

__all__ = ["prometheus_lines"]

BITS_PER_MBIT = 1e6
BITS_PER_BYTE = 8
#: Labels, and the value. A value that is not known has no line.
Sample = tuple[dict[str, str], float | None]


def prometheus_lines(states: list[AccelerationState]) -> Iterator[str]:
    """Yield the metrics of accelerations."""
    yield from _whole(states)
    yield from _flows(states)
    yield from _proxies(states)
    yield from _hops(states)


def _whole(states: Iterable[AccelerationState]) -> Iterator[str]:
    of = [({"acceleration": state.id}, state) for state in states]
    spent = [
        ({**labels, "kind": kind}, usd if state.cost_error is None else None)
        for labels, state in of
        for kind, usd in (("machines", state.machines_usd), ("egress", state.egress_usd))
    ]
    yield from _family("usd", "gauge", spent)
    yield from _family("assumed_seconds", "gauge", [(labels, state.assumed_s) for labels, state in of])
    yield from _family("usd_max", "gauge", [(labels, state.usd_max) for labels, state in of])
    yield from _family("phase", "gauge", [({**labels, "phase": state.phase}, 1) for labels, state in of])
    yield from _family("began_timestamp_seconds", "gauge", [(labels, state.began_unix_s) for labels, state in of])
    yield from _family("updated_timestamp_seconds", "gauge", [(labels, state.updated_unix_s) for labels, state in of])
    yield from _family("ends_timestamp_seconds", "gauge", [(labels, state.ends_unix_s) for labels, state in of])
    supervised = [
        (labels, None if state.supervision is None else int(state.supervision == "working")) for labels, state in of
    ]
    yield from _family("supervised", "gauge", supervised)


def _flows(states: Iterable[AccelerationState]) -> Iterator[str]:
    of = [({"acceleration": state.id, "flow": flow.name}, flow) for state in states for flow in state.flows]
    # The first of the flows that cannot be told apart has the counts of all, so that sums are right.
    counted = [
        ({"acceleration": state.id, "flow": flow.name}, flow)
        for state in states
        for number, flow in enumerate(state.flows)
        if not any(other.name in flow.shared_with for other in state.flows[:number])
    ]
    moved = [
        ({**labels, "direction": way}, count)
        for labels, flow in counted
        for way, count in (("up", flow.bytes_up), ("down", flow.bytes_down))
    ]
    yield from _family("flow_bytes_total", "counter", moved)
    yield from _family("flow_connections_total", "counter", [(labels, flow.connections) for labels, flow in counted])
    yield from _family("flow_failed_total", "counter", [(labels, flow.failed) for labels, flow in counted])
    yield from _family("flow_proxies", "gauge", [(labels, len(flow.through)) for labels, flow in of])
    on_path = [(labels, int(flow.through == flow.planned)) for labels, flow in of]
    yield from _family("flow_on_placed_path", "gauge", on_path)
    yield from _family("flow_bits_per_second", "gauge", [each for labels, flow in of for each in _rates(labels, flow)])
    times = [
        ({**labels, "kind": kind}, seconds)
        for labels, flow in of
        for kind, seconds in (("predicted", flow.predicted_s), ("achieved", flow.achieved_s))
    ]
    yield from _family("flow_completion_seconds", "gauge", times)


def _rates(labels: dict[str, str], flow: FlowState) -> Iterator[Sample]:
    rates_mbps = {
        "predicted": flow.predicted_mbps,
        "achieved": flow.achieved_mbps,
        "predicted_direct": flow.direct_mbps,
        "achieved_direct": flow.achieved_direct_mbps,
    }
    for kind, rate_mbps in rates_mbps.items():
        yield {**labels, "kind": kind}, None if rate_mbps is None else rate_mbps * BITS_PER_MBIT


def _proxies(states: Iterable[AccelerationState]) -> Iterator[str]:
    of = [
        ({"acceleration": state.id, "proxy": proxy.name, "region": proxy.region}, proxy)
        for state in states
        for proxy in state.proxies
    ]
    yield from _family("proxy_healthy", "gauge", [(labels, int(proxy.health == "healthy")) for labels, proxy in of])
    yield from _family("proxy_connections", "gauge", [(labels, proxy.open) for labels, proxy in of])
    moved = [
        ({**labels, "direction": way}, count)
        for labels, proxy in of
        for way, count in (("up", proxy.bytes_up), ("down", proxy.bytes_down))
    ]
    yield from _family("proxy_bytes_total", "counter", moved)
    rates = [(labels, proxy.bytes_per_s * BITS_PER_BYTE) for labels, proxy in of]
    yield from _family("proxy_bits_per_second", "gauge", rates)
    yield from _family("proxy_refused_total", "counter", [(labels, proxy.refused) for labels, proxy in of])
    yield from _family("proxy_egress_usd", "gauge", [(labels, proxy.usd) for labels, proxy in of])
    windows = [
        ({**labels, "direction": way}, size)
        for labels, proxy in of
        for way, size in (("receive", proxy.receive_window_bytes), ("send", proxy.send_window_bytes))
    ]
    yield from _family("proxy_window_max_bytes", "gauge", windows)
    controls = [
        ({**labels, "control": proxy.congestion_control}, 1)
        for labels, proxy in of
        if proxy.congestion_control is not None
    ]
    yield from _family("proxy_congestion_control", "gauge", controls)


def _hops(states: Iterable[AccelerationState]) -> Iterator[str]:
    of = [
        ({"acceleration": state.id, "start": pool.start, "end": pool.end}, pool)
        for state in states
        for pool in state.pools
    ]
    flows = [
        ({**labels, "source": source}, count)
        for labels, pool in of
        for source, count in (("taken", pool.taken), ("missed", pool.missed))
    ]
    yield from _family("hop_flows_total", "counter", flows)
    yield from _family("hop_dead_total", "counter", [(labels, pool.dead) for labels, pool in of])
    yield from _family("hop_ready", "gauge", [(labels, pool.ready) for labels, pool in of])
    times = [
        ({**labels, "source": source}, None if ms is None else ms / 1e3)
        for labels, pool in of
        for source, ms in (("taken", pool.first_byte_ms_taken), ("missed", pool.first_byte_ms_missed))
    ]
    yield from _family("hop_first_byte_seconds", "gauge", times)


def _family(name: str, kind: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> Iterator[str]:
    """Yield the lines of one metric."""
    yield f"# TYPE tradewind_acceleration_{name} {kind}"
    for labels, value in samples:
        if value is not None:
            words = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"tradewind_acceleration_{name}{{{words}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
