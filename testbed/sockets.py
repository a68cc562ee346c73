"""TCP connections of running processes, from outside: find them, slow one down, or break it.

The socket is duplicated from its process (`pidfd_getfd`), changed and closed again; the program does not notice. Needs
Linux 5.6 or newer, and root or permission to trace the process.
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
#: Pacing rate that means unlimited.
UNLIMITED = 0xFFFF_FFFF


def process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    tree = [pid]
    for each in tree:
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                tree += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # It ended meanwhile.
    return tree


def connections_to(pids: Sequence[int], address: str, *, but_port: int | None = None) -> list[tuple[int, int]]:
    """Return process and descriptor of each established IPv4 connection from these processes to an address.

    Connections from the local port `but_port` are left out.
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
            with suppress(OSError):  # The descriptor may be closed by now; that of the listing itself always is.
                if (target := os.readlink(entry)).startswith("socket:[") and target[8:-1] in inodes:
                    found.append((pid, int(entry.name)))
    return found


def pace(pid: int, descriptor: int, rate_mbps: float | None) -> None:
    """Limit the rate at which a connection sends [Mbit/s of TCP payload]; None removes the limit. Raises OSError.

    The kernel paces only this connection, as if its path were slow.
    """
    rate_bytes_per_s = UNLIMITED if rate_mbps is None else round(rate_mbps * 1e6 / 8)
    with _borrowed(pid, descriptor) as connection:
        connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=I", rate_bytes_per_s))


def cut(pid: int, descriptor: int) -> None:
    """End a connection for both sides at once, without involving the program. Raises OSError.

    No effect on a connection that the program has closed meanwhile.
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
