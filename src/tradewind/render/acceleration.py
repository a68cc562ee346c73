"""The state of accelerations in words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from tradewind.model.acceleration import LIVING, AccelerationState, FlowState, PoolState, ProxyState
from tradewind.model.units import format_bytes, format_count, format_duration, format_gbps, format_usd

__all__ = ["acceleration_lines", "address_lines", "cost_lines"]


def address_lines(state: AccelerationState) -> Iterator[str]:
    """Yield where applications connect to, one line per flow."""
    width = max((len(flow.name) for flow in state.flows), default=0)
    for flow in state.flows:
        yield f"{flow.name:<{width}}  {_address(flow)}  {_path(flow)}"


def acceleration_lines(state: AccelerationState) -> Iterator[str]:
    """Yield the state: a line for the whole, one per flow, one per proxy, and the errors of the prediction."""
    ceiling = "" if state.usd_max is None else f" of {format_usd(state.usd_max)}"
    reason = f": {state.reason}" if state.reason else ""
    flows, proxies = format_count(len(state.flows), "flow"), format_count(len(state.proxies), "proxy", "proxies")
    yield f"{state.id}  {state.phase}{reason}"
    yield from (f"  {line}" for line in _supervision(state))
    cost = f"{format_usd(state.machines_usd)} machines, {format_usd(state.egress_usd)} egress"
    cost = f"{format_usd(state.usd)}{ceiling} so far: {cost}"
    if state.cost_error is not None:
        cost = f"cost unknown: {state.cost_error}"
    yield f"  {flows} over {proxies}, {cost}"
    if state.assumed_s and state.cost_error is None:
        lasting = format_duration(state.assumed_s)
        yield f"  nobody counted egress for {lasting}: each proxy is assumed to have sent at its last rate"
    yield from (f"  {line}" for flow in state.flows for line in _flow(flow))
    for proxy in state.proxies:
        error = f": {proxy.error}" if proxy.error else ""
        moved = format_bytes(proxy.bytes_up + proxy.bytes_down)
        work = f"{proxy.open} open, {moved} sent, {format_usd(proxy.usd)} egress{_kernel(proxy)}"
        yield f"  proxy {proxy.name}  {proxy.health}{error}, {work}"
    yield from (f"  {_pool(pool)}" for pool in state.pools)
    errors = [flow.error for flow in state.flows if flow.error is not None]
    if errors:
        yield f"  predicted rates were off by {median(errors):.0%} in the median, {max(errors):.0%} at worst"
    if state.phase not in LIVING:
        yield from (f"  {line}" for line in cost_lines(state))
    for fleet in state.fleets if state.phase not in LIVING else ():
        yield f"  fleet {fleet} may still run: `tradewind accelerate down {state.id}` ends it"
    if state.supervision == "gone":
        yield f"  `tradewind accelerate up --resume {state.id}` ends what is left and starts it again"
    if state.wish_error:
        yield f"  the last replan was refused: {state.wish_error}"


def _supervision(state: AccelerationState) -> Iterator[str]:
    """Yield what is wrong with a supervisor that was not killed, and what to do."""
    if state.supervision not in ("stopped", "silent"):
        return
    pid = None if state.process is None else state.process.pid
    who = "its supervisor" if pid is None else f"its supervisor, process {pid},"
    age = format_duration(max(0.0, time.time() - state.updated_unix_s))
    what = "is stopped" if state.supervision == "stopped" else "is running, but reports nothing"
    yield f"{who} {what}; the state below is {age} old, and the machines end with their leases"
    if pid is not None:
        continues = f"`kill -CONT {pid}` continues it. " if state.supervision == "stopped" else ""
        yield f"{continues}`kill -KILL {pid}`, then `tradewind accelerate up --resume {state.id}`, starts it again"


def cost_lines(state: AccelerationState) -> Iterator[str]:
    """Yield one line per machine, with its time and price, and one per proxy, with its egress and price."""
    width = max((len(line.what) for line in state.lines), default=0)
    for line in state.lines:
        count = format_duration(line.quantity) if line.unit == "s" else f"{line.quantity:.4g} {line.unit}"
        price = (
            format_usd(3600 * line.unit_usd) + "/h" if line.unit == "s" else f"{format_usd(line.unit_usd)}/{line.unit}"
        )
        yield f"{line.kind:<7}  {line.what:<{width}}  {count} at {price}: {format_usd(line.usd)}"


def _kernel(proxy: ProxyState) -> str:
    """Return what the kernel of a proxy allows, if it is known."""
    windows = proxy.receive_window_bytes, proxy.send_window_bytes
    if proxy.congestion_control is None or windows[0] is None or windows[1] is None:
        return ""
    receive, send = (format_bytes(round(window)) for window in windows if window is not None)
    return f"; {proxy.congestion_control}, windows up to {receive} received and {send} sent"


def _flow(flow: FlowState) -> Iterator[str]:
    achieved = "nothing sent" if flow.achieved_mbps is None else f"{_rate(flow.achieved_mbps)} achieved"
    moved = format_bytes(flow.bytes_up + flow.bytes_down)
    yield f"{flow.name}  {_address(flow)}  {_path(flow)}"
    failed = f", {flow.failed} failed" if flow.failed else ""
    yield (
        f"  {achieved}, {_rate(flow.predicted_mbps)} predicted, {_rate(flow.direct_mbps)} without proxies; "
        f"{format_count(flow.connections, 'connection')}{failed}, {moved}"
    )
    if flow.predicted_s is not None:
        achieved = "" if flow.achieved_s is None else f", {format_duration(flow.achieved_s)} at the achieved rate"
        yield f"  all transfers of a period take {format_duration(flow.predicted_s)} as predicted{achieved}"
    if flow.shared_with:
        others = ", ".join(flow.shared_with)
        yield f"  path, rates and counts are shared with {others}: their connections cannot be told apart"
    if flow.planned and flow.achieved_direct_mbps is not None:
        yield f"  {_rate(flow.achieved_direct_mbps)} achieved without proxies"
    if flow.reason:
        yield f"  not on its placed path: {flow.reason}"


def _pool(pool: PoolState) -> str:
    """Return the use of the connections that a proxy keeps ready, and what flows gain by them."""
    flows = pool.taken + pool.missed
    died = f", {pool.dead} broke unused" if pool.dead else ""
    line = f"hop {pool.start} → {pool.end}  {pool.taken} of {format_count(flows, 'flow')} took a ready connection{died}"
    taken_ms, missed_ms = pool.first_byte_ms_taken, pool.first_byte_ms_missed
    if taken_ms is None and missed_ms is None:
        return line
    if taken_ms is None or missed_ms is None:
        return f"{line}; first byte after {taken_ms if missed_ms is None else missed_ms:.3g} ms"
    return f"{line}; first byte after {taken_ms:.3g} ms, else {missed_ms:.3g} ms"


def _rate(mbps: float) -> str:
    return format_gbps(mbps / 1e3)


def _address(flow: FlowState) -> str:
    arrow = f" → {flow.target}"
    if flow.way in ("transparent", "run"):
        return f"{flow.way}{arrow}"
    where = "" if flow.region is None else f"at {flow.region} "
    return f"{where}{flow.listen}{arrow}" if flow.way == "forward" else f"{where}{flow.way} {flow.listen}{arrow}"


def _path(flow: FlowState) -> str:
    return f"through {' → '.join(flow.through)}" if flow.through else "direct"
