"""An acceleration: flows through split proxies, their machines and their cost, as its supervisor records them."""

from __future__ import annotations

from typing import Any, Literal

from tradewind.model.document import Document, to_document
from tradewind.model.ledger import Ledger, LedgerLine
from tradewind.model.records import dataclass, field, replace

__all__ = [
    "LIVING",
    "AccelerationPhase",
    "AccelerationState",
    "AccelerationWish",
    "FlowState",
    "PoolState",
    "ProxyHealth",
    "ProxyState",
    "Supervision",
    "SupervisorProcess",
]

AccelerationPhase = Literal["starting", "running", "draining", "ended", "failed"]
LIVING: tuple[AccelerationPhase, ...] = ("starting", "running", "draining")
"""Phases in which a supervisor should be there."""
ProxyHealth = Literal["healthy", "unhealthy", "replacing"]
Supervision = Literal["working", "stopped", "silent", "gone"]
"""State of a supervisor: `stopped` by a signal, `silent` if it wrote nothing for long, `gone` if it was killed."""


@dataclass(frozen=True, slots=True)
class SupervisorProcess:
    """The process that supervises an acceleration. `started` is its start in ticks since boot, if known."""

    pid: int
    started: int | None
    pid_namespace: int


@dataclass(frozen=True, slots=True)
class FlowState:
    """One flow: where applications connect to, its path, and its rates [Mbit/s]."""

    name: str
    target: str
    """`HOST:PORT` to which its connections go."""
    listen: str
    """Address at which its connections enter, of this machine or of the host in `region`."""
    way: str
    """`forward`, `socks5`, `connect` or `sni`, by which programs connect; else `transparent` or `run`."""
    planned: tuple[str, ...]
    """Proxies of its placed path, from this machine; empty for the direct path."""
    through: tuple[str, ...]
    """Proxies that new connections take now."""
    predicted_mbps: float
    direct_mbps: float
    """Predicted rate without proxies."""
    achieved_mbps: float | None = None
    """Mean rate of its placed path in the time in which that moved bytes; None before that."""
    achieved_direct_mbps: float | None = None
    """The same of the direct path."""
    bytes_up: int = 0
    bytes_down: int = 0
    connections: int = 0
    reason: str | None = None
    """Why it does not take its placed path."""
    shared_with: tuple[str, ...] = ()
    """Other flows with the same target and listener. They cannot be told apart, so they take the same path, and the
    rates, times and counts are those of all together."""
    predicted_s: float | None = None
    """Predicted time of its transfers in a period."""
    achieved_s: float | None = None
    """Time of the same transfers at the achieved rate; None before it moved bytes."""
    failed: int = 0
    """Connections that were not established, although the destination did not refuse them."""
    region: str | None = None
    """Region of the host on which `listen` is; None for this machine."""

    @property
    def error(self) -> float | None:
        """Relative difference between achieved and predicted rate; None before it moved bytes."""
        if self.achieved_mbps is None or self.predicted_mbps <= 0:
            return None
        return abs(self.achieved_mbps - self.predicted_mbps) / self.predicted_mbps


@dataclass(frozen=True, slots=True)
class ProxyState:
    """One proxy: its region, health, and what it has carried, with the machines that it replaced."""

    name: str
    region: str
    health: ProxyHealth
    open: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    refused: int = 0
    usd: float = 0.0
    """Cost of its egress."""
    bytes_per_s: float = 0.0
    """Rate at which it sends, in both directions."""
    error: str | None = None
    receive_window_bytes: float | None = None
    """Largest window that its kernel allows for what it receives; None if it is not known."""
    send_window_bytes: float | None = None
    """The same for what it sends."""
    congestion_control: str | None = None
    """Congestion control of its connections to other machines."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """The connections that one proxy keeps ready for the next one. Counts are since its machine started."""

    start: str
    end: str
    ready: int = 0
    """Connections that are ready now."""
    taken: int = 0
    """Flows that took one."""
    missed: int = 0
    """Flows that opened theirs."""
    dead: int = 0
    """Connections that broke before a flow took them."""
    first_byte_ms_taken: float | None = None
    """Median time from the client's request to the first byte from its destination, over the latest flows that took a
    ready connection; None before the first."""
    first_byte_ms_missed: float | None = None
    """The same over the latest flows that opened theirs."""


@dataclass(frozen=True, slots=True)
class AccelerationState(Document):
    """The latest state of an acceleration. Times are Unix seconds."""

    id: str
    phase: AccelerationPhase
    began_unix_s: float
    updated_unix_s: float
    flows: tuple[FlowState, ...] = ()
    proxies: tuple[ProxyState, ...] = ()
    machines_usd: float = 0.0
    egress_usd: float = 0.0
    usd_max: float | None = None
    ends_unix_s: float | None = None
    reason: str | None = None
    """Why it ended or failed."""
    wish: int = 0
    """Number of the latest wish that was carried out or refused."""
    wish_error: str | None = None
    """Why the latest wish was refused."""
    ledger: Ledger = field(default_factory=Ledger)
    """Its machines, and the bytes of each proxy as a route of its only run."""
    fleets: tuple[str, ...] = ()
    """Fleets that are recorded for it: their machines may run."""
    sky: str | None = None
    """Absolute path of the sky file in whose emulated WAN it runs; None at configured sites."""
    process: SupervisorProcess | None = None
    """Its latest supervisor."""
    supervision: Supervision | None = None
    """The state of its supervisor, as the reader found it; None after its end."""
    pools: tuple[PoolState, ...] = ()
    """Connections that proxies keep ready, for each hop that had flows."""
    assumed_s: float = 0.0
    """Time for which nobody counted egress, because its supervisor was killed: each proxy is assumed to have sent at
    its last rate."""
    cost_error: str | None = None
    """Why its cost is not known: what is in the ledger may be too little."""

    def at(self, now_unix_s: float) -> AccelerationState:
        """Return the state with the cost at this time: machines are charged until they end."""
        machines_usd = self.ledger.usd_of("machine", now_unix_s)
        return replace(self, machines_usd=machines_usd, egress_usd=self.ledger.usd_of("egress", now_unix_s))

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        """Lines of the ledger at the time of the last write, or until its machines ended."""
        return self.ledger.lines(max(self.updated_unix_s, self.ledger.heartbeat_s))

    def document(self) -> dict[str, Any]:
        """Return the document for `--json`: with the lines of the ledger in place of its counts.

        A cost that is not known is null.
        """
        lines = [{**to_document(line), "usd": line.usd} for line in self.lines]
        unknown = {} if self.cost_error is None else {"machines_usd": None, "egress_usd": None}
        return {**to_document(replace(self, ledger=Ledger())), "ledger": lines, **unknown}

    @property
    def usd(self) -> float:
        """Cost of machines and egress so far."""
        return self.machines_usd + self.egress_usd


@dataclass(frozen=True, slots=True)
class AccelerationWish(Document):
    """A request of another process to the supervisor. A later wish has a larger number."""

    number: int
    down: bool = False
    drain_s: float = 10.0
    """Time in which open connections may end before they are reset."""
    flows: str | None = None
    """Content of another flows file."""
