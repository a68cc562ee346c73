"""Measures TCP paths from this machine: the round trip of connects, the kernel's figures, and a short download."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tradewind.errors import UsageError
from tradewind.model.records import dataclass
from tradewind.model.tcp import Download, HostTcp, PathMeasurement

if TYPE_CHECKING:
    from http.client import HTTPConnection

__all__ = ["host_tcp", "measure_download", "measure_path"]

CONNECTS = 3
"""Connects whose shortest round trip counts."""
CONNECT_S_MAX = 3.0
DOWNLOAD_S_MAX, DOWNLOAD_BYTES_MAX = 6.0, 512 << 20
"""A download ends at the first of these."""
READ_BYTES = 256 << 10
INFO_BYTES_MAX = 256
WINDOW_BYTES_MAX = 65_535
"""Largest window before it is scaled (RFC 7323)."""
SETTINGS = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True, slots=True)
class _Info:
    """Figures of `struct tcp_info` (include/uapi/linux/tcp.h). An older kernel has fewer, and the others are None."""

    peer_scale: int | None
    segment_bytes: int | None
    cwnd_segments: int | None
    receive_space_bytes: int | None
    segments: int | None
    out_of_order: int | None


def host_tcp() -> HostTcp | None:
    """Return the kernel's settings of this machine; None if it is not Linux."""
    try:
        return HostTcp(
            int((SETTINGS / "tcp_rmem").read_text().split()[2]),
            int((SETTINGS / "tcp_wmem").read_text().split()[2]),
            (SETTINGS / "tcp_congestion_control").read_text().strip(),
            tuple((SETTINGS / "tcp_available_congestion_control").read_text().split()),
        )
    except (OSError, ValueError, IndexError):
        return None


def measure_path(host: str, port: int) -> PathMeasurement:
    """Return what connects to an address show. The address is resolved once. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    best_ms, info, control = float("inf"), None, None
    for _ in range(CONNECTS):
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(CONNECT_S_MAX)
            began_s = time.monotonic()
            connection.connect(address)
            best_ms = min(best_ms, (time.monotonic() - began_s) * 1e3)
            info, control = _info(connection), _control(connection)
    scale = None if info is None else info.peer_scale
    return PathMeasurement(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        best_ms,
        control,
        None if info is None else info.cwnd_segments,
        None if info is None else info.segment_bytes,
        None if scale is None else WINDOW_BYTES_MAX << scale,
    )


def measure_download(url: str) -> Download:
    """Return what a download of a few seconds shows. Raises UsageError for an invalid or refused URL, OSError."""
    from http.client import HTTPException

    parts = urlsplit(url)
    connection = _connection(url)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept-Encoding": "identity", "User-Agent": "tradewind"})
        kept = connection.sock  # A response that ends the connection takes its socket away.
        response = connection.getresponse()
        if response.status != 200:
            raise UsageError(f"{url}: the server answered {response.status} {response.reason}", hint="name a file")
        began_s, received = time.monotonic(), 0
        while received < DOWNLOAD_BYTES_MAX and time.monotonic() - began_s < DOWNLOAD_S_MAX:
            piece = response.read1(READ_BYTES)
            if not piece:
                break
            received += len(piece)
        duration_s = time.monotonic() - began_s
        info = _info(kept)
    except HTTPException as error:
        raise UsageError(f"{url}: not an HTTP server: {type(error).__name__}") from None
    finally:
        connection.close()
    if info is None:
        return Download(received, duration_s)
    return Download(received, duration_s, info.receive_space_bytes, info.out_of_order, info.segments)


def _connection(url: str) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    kind: type[HTTPConnection] | None = {"http": HTTPConnection, "https": HTTPSConnection}.get(parts.scheme)
    try:
        port = parts.port
    except ValueError:
        kind = None
    if kind is None or not parts.hostname:
        raise UsageError(f"{url!r} is not an http or https URL", hint="for example http://files.example.org/large.bin")
    return kind(parts.hostname, port, timeout=CONNECT_S_MAX)


def _control(connection: socket.socket) -> str | None:
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return None
    return connection.getsockopt(socket.IPPROTO_TCP, option, 16).partition(b"\0")[0].decode()


def _info(connection: Any) -> _Info | None:
    """Return the kernel's figures of a connection; None if it has none, or the connection is closed."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or connection is None:
        return None
    try:
        raw: bytes = connection.getsockopt(socket.IPPROTO_TCP, option, INFO_BYTES_MAX)
    except OSError:
        return None
    return _Info(
        raw[6] & 0x0F if len(raw) > 6 else None,
        _word(raw, 16),
        _word(raw, 80),
        _word(raw, 96),
        _word(raw, 152),
        _word(raw, 224),
    )


def _word(raw: bytes, offset: int) -> int | None:
    return struct.unpack_from("=I", raw, offset)[0] if len(raw) >= offset + 4 else None
