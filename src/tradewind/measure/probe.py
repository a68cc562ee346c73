"""One probe between two running gateways: throughput, round trip, share of retransmitted segments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tradewind.errors import GatewayError
from tradewind.gateway.client import GatewayClient
from tradewind.model.plan import Deployment
from tradewind.model.records import dataclass

__all__ = ["ProbeResult", "ProbeSettings", "run_probe"]

#: Timeout of a sender after the time at which the receiver should have closed.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Settings of a measurement. The grid's figures are those of one machine pair at 64 connections."""

    connections: int = 64
    warmup_s: float = 4.0
    """Warm-up in which connections reach their rate: tens of round trips."""
    measure_s: float = 5.0

    @property
    def load_s(self) -> float:
        """Return the time in which bytes are sent and charged."""
        return self.warmup_s + self.measure_s


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one probe. `gbps` is the rate of data as in a transfer, without the overhead of TLS and TCP."""

    gbps: float
    rtt_ms: float
    sent_bytes: int
    sent_again: float | None
    """Share of TCP segments that were retransmitted; None if the system does not report it."""


def run_probe(deployment: Deployment, src: str, dst: str, settings: ProbeSettings) -> ProbeResult:
    """Measure from `src` to `dst`, which must be idle and have no program. Raises GatewayError."""
    receiver = GatewayClient.of(deployment, dst)
    sender = GatewayClient.of(deployment, src)
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(receiver.receive_load, src, settings.connections, settings.warmup_s, settings.measure_s)
        try:
            sent = sender.send_load(
                dst, deployment.address(src, dst), settings.connections, settings.load_s + PATIENCE_S
            )
        except GatewayError as error:
            raise GatewayError(f"{src} → {dst}: {error}", hint=error.hint) from error
        received = receiving.result()
    segments, again = sent.get("segments"), sent.get("segments_again")
    return ProbeResult(
        received["bytes"] * 8 / 1e9 / received["seconds"],
        sent["rtt_ms_min"],
        sent["bytes"],
        again / segments if segments else None,
    )
