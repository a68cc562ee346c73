"""TCP connections of running processes, from outside: finds them, slows one down, or breaks it.

A socket is borrowed from its process (`pidfd_getfd`), set, and given back; program and network know nothing of it.
Linux 5.6 or newer, and root or the right to trace the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SYS_PIDFD_GETFD = 438
SO_MAX_PACING_RATE = 47
ESTABLISHED = "01"
#: A pacing rate that means none.
UNLIMITED = 0xFFFF_FFFF


def process_tree(pid: int) -> list[int]:
    """A process and all below it."""
    tree = [pid]
    for each in tree:
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                tree += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # It ended between two readings.
    return tree


def connections_to(pids: Sequence[int], address: str, *, but_port: int | None = None) -> list[tuple[int, int]]:
    """Process and descriptor of each established IPv4 connection that one of these processes has to this address.

    Those from the local port `but_port` are left out.
    """
    left_out = f":{but_port or 0:04X}"
    wanted = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}"
    found = []
    for pid in pids:
        try:
            lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
            there = [line for line in lines if line[2].startswith(f"{wanted}:") and line[3] == ESTABLISHED]
            inodes = {line[9] for line in there if not line[1].endswith(left_out)}
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue  # It has ended.
        for entry in descriptors:
            with suppress(OSError):  # It may have been closed since the listing, as that of the listing itself is.
                if (target := os.readlink(entry)).startswith("socket:[") and target[8:-1] in inodes:
                    found.append((pid, int(entry.name)))
    return found


def pace(pid: int, descriptor: int, rate_mbps: float | None) -> None:
    """Lets this connection send so much [Mbit/s of TCP payload] at most; None ends that. Raises OSError.

    The kernel paces it, as if its way were slow, and no other.
    """
    rate_bytes_per_s = UNLIMITED if rate_mbps is None else round(rate_mbps * 1e6 / 8)
    with _borrowed(pid, descriptor) as connection:
        connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=I", rate_bytes_per_s))


def cut(pid: int, descriptor: int) -> None:
    """Ends this connection for both sides, at once and without the program's doing. Raises OSError.

    A connection that the program has closed meanwhile is left alone.
    """
    try:
        connection = _borrowed(pid, descriptor)
    except OSError as error:
        if error.errno in (errno.EBADF, errno.ESRCH):
            return
        raise
    with connection:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise


def _borrowed(pid: int, descriptor: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        borrowed = libc.syscall(SYS_PIDFD_GETFD, process, descriptor, 0)
        if borrowed < 0:
            raise OSError(ctypes.get_errno(), f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(process)
    return socket.socket(fileno=borrowed)
