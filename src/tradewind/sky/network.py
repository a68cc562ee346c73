"""The emulator's input: every number resolved, rates already scaled. The same document `crates/wan` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.model.records import dataclass
from tradewind.model.region import Region

__all__ = ["EmulatedNetwork", "MachineSpec", "Path", "Pipe"]


@dataclass(frozen=True, slots=True)
class Pipe:
    """A queue that sends packets one after another at `rate_bps` [bit/s on the wire], and holds up to `queue_bytes`."""

    rate_bps: int
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """One network namespace. `egress` and `ingress` cap its traffic to and from all others together."""

    name: str
    region: Region
    address: str
    congestion_control: str
    egress: Pipe | None = None
    ingress: Pipe | None = None
    inbound: bool = True
    """False if machines of other regions cannot open TCP connections to it."""


@dataclass(frozen=True, slots=True)
class Path:
    """The path in one direction from one machine to another: indices into the machines and pipes of `EmulatedNetwork`.

    Paths may share a pipe; `delay_us` is for one direction, `loss` the share of packets lost at random.
    """

    src: int
    dst: int
    pipe: int
    delay_us: int
    loss: float


@dataclass(frozen=True, slots=True)
class EmulatedNetwork:
    """A whole sky. Pairs of machines without a path cannot reach each other. `scale` has been applied to all rates."""

    machines: tuple[MachineSpec, ...]
    pipes: tuple[Pipe, ...]
    paths: tuple[Path, ...]
    mtu_bytes: int
    seed: int
    scale: float

    def document(self) -> Mapping[str, Any]:
        """Return the JSON for the emulator."""
        return {
            "mtu_bytes": self.mtu_bytes,
            "seed": self.seed,
            "machines": [
                {
                    "name": machine.name,
                    "region": str(machine.region),
                    "address": machine.address,
                    "congestion_control": machine.congestion_control,
                    "egress": _pipe(machine.egress),
                    "ingress": _pipe(machine.ingress),
                    "inbound": machine.inbound,
                }
                for machine in self.machines
            ],
            "pipes": [_pipe(pipe) for pipe in self.pipes],
            "paths": [
                {"src": path.src, "dst": path.dst, "pipe": path.pipe, "delay_us": path.delay_us, "loss": path.loss}
                for path in self.paths
            ],
        }


def _pipe(pipe: Pipe | None) -> dict[str, int] | None:
    return None if pipe is None else {"rate_bps": pipe.rate_bps, "queue_bytes": pipe.queue_bytes}
