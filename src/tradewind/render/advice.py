"""Advice for flows in words and as JSON: what costs nothing first, proxies last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tradewind.model.document import to_document
from tradewind.model.records import dataclass
from tradewind.model.units import format_bytes, format_count, format_duration, format_gbps, format_usd
from tradewind.placement.advice import STEADY_S_MIN, TUNED_BUFFER_BYTES, Advice, FlowAdvice, FlowTime

__all__ = ["AdviceReport", "free_lines"]

CENTS_PER_USD, MBITS_PER_GBIT = 100.0, 1e3
COMMANDS = {
    "tcp_rmem": f'sysctl -w net.ipv4.tcp_rmem="4096 131072 {TUNED_BUFFER_BYTES}"',
    "tcp_wmem": f'sysctl -w net.ipv4.tcp_wmem="4096 16384 {TUNED_BUFFER_BYTES}"',
    "bbr": "sysctl -w net.ipv4.tcp_congestion_control=bbr",
}


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """Advice for flows, to be shown."""

    advice: Advice

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        advice = self.advice
        return {
            "flows": [{**to_document(flow), "proxies_gain": flow.proxies_gain} for flow in advice.flows],
            "free": list(self._commands()),
            "proxies_cents": advice.proxies_cents,
            "both_cents": advice.both_cents,
            "host": to_document(advice.host),
            "notes": list(advice.notes),
        }

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        advice = self.advice
        for flow in advice.flows:
            yield from _flow_lines(flow)
        yield from self._total_lines()
        commands = list(self._commands())
        if commands:
            yield "to tune, at both ends, as root:"
            yield from (f"  {command}" for command in commands)
        if advice.host is not None:
            host = advice.host
            receive, send = format_bytes(host.rmem_max_bytes), format_bytes(host.wmem_max_bytes)
            yield f"this machine: tcp_rmem up to {receive}, tcp_wmem up to {send}, {host.congestion_control}"
        for note in advice.notes:
            yield f"note: {note}"

    def _commands(self) -> Iterator[str]:
        """Yield the commands that tune the ends of the flows, without those that this machine does not need."""
        tunings = {flow.tuning for flow in self.advice.flows}
        if tunings & {"larger windows", "larger windows and bbr"}:
            yield COMMANDS["tcp_rmem"]
            yield COMMANDS["tcp_wmem"]
        if tunings & {"bbr", "larger windows and bbr"}:
            yield COMMANDS["bbr"]

    def _total_lines(self) -> Iterator[str]:
        advice = self.advice
        if len(advice.flows) < 2 and advice.proxies_cents is None:
            return
        now_s, tuned_s = sum(flow.now.time_s for flow in advice.flows), sum(flow.tuned.time_s for flow in advice.flows)
        yield f"all flows   {format_duration(now_s)} now"
        yield f"            {format_duration(tuned_s)} with tuned ends, which costs nothing"
        if advice.proxies_cents is not None:
            proxies_s = sum((flow.proxies or flow.now).time_s for flow in advice.flows)
            yield f"            {format_duration(proxies_s)} with proxies alone, for {_usd(advice.proxies_cents)}"
        if advice.both_cents is not None:
            both_s = sum((flow.both or flow.tuned).time_s for flow in advice.flows)
            yield f"            {format_duration(both_s)} with tuned ends and proxies, for {_usd(advice.both_cents)}"


def free_lines(advice: Advice) -> Iterator[str]:
    """Yield one line per flow that tuned ends make faster, and what could not be measured: before proxies are paid."""
    for flow in advice.flows:
        if flow.tuning is not None:
            yield (
                f"{flow.name}: try {flow.tuning} first, which is free: {_times(flow.now, flow.tuned)} "
                "(`tradewind accelerate advise` shows how)"
            )
    yield from advice.notes


def _flow_lines(flow: FlowAdvice) -> Iterator[str]:
    transfers = format_count(round(flow.transfers), "transfer")
    yield f"{flow.name}: {format_bytes(flow.period_bytes)} in {transfers}, {flow.rtt_ms:.0f} ms round trip"
    if flow.measured is not None:
        yield f"  measured  {', '.join(_measured_words(flow))}"
    window = format_bytes(flow.ends.window_bytes)
    yield f"  now       {_words(flow.now)}, limited by {flow.limit} ({flow.ends.congestion_control}, window {window})"
    if flow.tuning is None and flow.loss is not None:
        yield "  free      bbr at the sender, unless the packets are lost because a link is full; no gain is promised"
    elif flow.tuning is None:
        yield "  free      no gain expected from larger windows or bbr"
    else:
        gain = _times(flow.now, flow.tuned)
        yield f"  free      {_words(flow.tuned)} with {flow.tuning}, {gain}, if the path carries it"
    if flow.proxies is not None:
        words = _proxy_words(flow.proxies, flow.proxies_path, flow.proxies_cents)
        yield f"  proxies   {words}, {_times(flow.now, flow.proxies)}"
    if flow.both is not None:
        words = _proxy_words(flow.both, flow.both_path, flow.both_cents)
        yield f"  both      {words}, {_times(flow.tuned, flow.both)} as tuned ends alone"
    yield from _verdict(flow)


def _verdict(flow: FlowAdvice) -> Iterator[str]:
    if flow.proxies is None and flow.both is None:
        return
    if not flow.proxies_gain:
        yield "  advice    proxies gain too little for their cost; tune the ends if you can"
    elif flow.tuning is None:
        yield "  advice    only proxies help"
    else:
        yield "  advice    tune the ends first; proxies are faster still, and help if you cannot change the ends"


def _measured_words(flow: FlowAdvice) -> Iterator[str]:
    measured = flow.measured
    if measured is None:
        return
    yield f"{measured.rtt_ms:.1f} ms to {measured.address}"
    if measured.congestion_control:
        yield f"{measured.congestion_control} here"
    if measured.peer_window_bytes_max is not None:
        yield f"the peer's window is at most {format_bytes(measured.peer_window_bytes_max)}"
    download = measured.download
    if download is None:
        return
    yield f"{format_bytes(download.received_bytes)} at {_rate(download.rate_mbps)}"
    if download.duration_s < STEADY_S_MIN:
        yield "too short to show what limits it"
    if download.out_of_order is not None and download.segments:
        yield f"{download.out_of_order:,} of {format_count(download.segments, 'segment')} out of order"
    if flow.loss is not None:
        yield f"as slow as with a loss of {100 * flow.loss:.2g}%"


def _proxy_words(time: FlowTime, path: tuple[str, ...], cents: float) -> str:
    return f"{_words(time)} over {' → '.join(path)}, {_usd(cents)} of egress"


def _words(time: FlowTime) -> str:
    return f"{format_duration(time.time_s)} at {_rate(time.rate_mbps)}"


def _times(before: FlowTime, after: FlowTime) -> str:
    return f"{before.time_s / after.time_s if after.time_s > 0 else 1:.1f} times as fast"


def _rate(rate_mbps: float) -> str:
    return format_gbps(rate_mbps / MBITS_PER_GBIT)


def _usd(cents: float) -> str:
    return format_usd(cents / CENTS_PER_USD)
