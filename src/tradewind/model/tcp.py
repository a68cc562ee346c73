"""Limits of the TCP of a host, and measurements of a path to another host."""

from __future__ import annotations

from tradewind.model.records import dataclass

__all__ = ["WINDOW_PART", "Download", "HostTcp", "PathMeasurement", "window_bytes"]

#: The part of a socket buffer that becomes the window: 2.875 MB of 6 MiB (CloudPilot, section 4.3).
WINDOW_PART = 2_875_000 / (6 << 20)


def window_bytes(buffer_bytes: float) -> float:
    """Return the window that a socket buffer of this size allows."""
    return buffer_bytes * WINDOW_PART


@dataclass(frozen=True, slots=True)
class HostTcp:
    """The kernel's settings of this machine."""

    rmem_max_bytes: int
    """Largest receive buffer that grows by itself: the last figure of `tcp_rmem`."""
    wmem_max_bytes: int
    congestion_control: str
    available: tuple[str, ...]
    """Congestion controls that connections may use."""


@dataclass(frozen=True, slots=True)
class Download:
    """A short download, as its receiver sees it."""

    received_bytes: int
    duration_s: float
    """From the first byte to the last."""
    receive_space_bytes: int | None = None
    """Bytes that the application reads in one round trip; the kernel sizes the buffer by them (`tcpi_rcv_space`)."""
    out_of_order: int | None = None
    """Segments that did not arrive in order (`tcpi_rcv_ooopack`): after a loss, all until it is repaired."""
    segments: int | None = None
    """Segments with data that arrived."""

    @property
    def rate_mbps(self) -> float:
        """Mean rate [Mbit/s]."""
        return self.received_bytes * 8e-6 / self.duration_s if self.duration_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PathMeasurement:
    """A path from this machine to an address."""

    address: str
    rtt_ms: float
    """The shortest of several connects."""
    congestion_control: str | None = None
    """Congestion control of this machine's socket."""
    cwnd_segments: int | None = None
    segment_bytes: int | None = None
    peer_window_bytes_max: int | None = None
    """The largest window that the peer can announce, by its window scale."""
    download: Download | None = None
