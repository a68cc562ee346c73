"""Processes of this host that listen at an address in the network of another process. Linux, as root."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from tradewind.errors import UsageError

__all__ = ["listeners_at"]

PROC = Path("/proc")
#: State of a listening socket in /proc/net/tcp.
LISTEN = "0A"
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def listeners_at(address: str, pid: int) -> list[int]:
    """Return the processes that listen at `HOST:PORT` in the network of process `pid`; none if that is another host's.

    Raises UsageError if one listens there, but is in a PID namespace that this process cannot see.
    """
    host, _, port = address.rpartition(":")
    try:
        wanted = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return []  # A name: gateways dial addresses of machines.
    if not _is_local(wanted, pid):
        return []
    sockets = {
        f"socket:[{inode}]" for found, at, inode in _listening(pid) if at == int(port) and _serves(found, wanted)
    }
    if not sockets:
        return []
    owners = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit() and sockets & _open_in(entry)]
    if not owners:
        raise UsageError(
            f'way_in "transparent": the proxy at {address} shares the network of this machine, and its process is not'
            " visible",
            hint="its own connections would be redirected to it; run it on another host, or use another way in",
        )
    return owners


def _serves(found: IpAddress, wanted: IpAddress) -> bool:
    return found == wanted or (found.is_unspecified and found.version in (6, wanted.version))


def _is_local(wanted: IpAddress, pid: int) -> bool:
    """Return whether an address is one of the network of a process."""
    if wanted.is_loopback:
        return True
    if wanted.version == 6:
        lines = (PROC / str(pid) / "net" / "if_inet6").read_text(encoding="ascii").splitlines()
        return any(int(line.split()[0], 16) == int(wanted) for line in lines)
    lines = (PROC / str(pid) / "net" / "fib_trie").read_text(encoding="ascii").splitlines()
    return any(
        line.split()[-1] == str(wanted) and following.split() == ["/32", "host", "LOCAL"]
        for line, following in pairwise(lines)
    )


def _listening(pid: int) -> Iterator[tuple[IpAddress, int, str]]:
    """Yield address, port and inode of each listening socket in the network of a process."""
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # Without IPv6 there is no tcp6.
            for line in (PROC / str(pid) / "net" / name).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    host, _, port = fields[1].partition(":")
                    yield _address(host), int(port, 16), fields[9]


def _address(text: str) -> IpAddress:
    """Return an address of /proc/net/tcp: words of 32 bits in the byte order of the machine."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    return getattr(found, "ipv4_mapped", None) or found


def _open_in(process: Path) -> set[str]:
    """Return what the descriptors of a process are."""
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return set()
    found = set()
    for name in names:
        with suppress(OSError):
            found.add(os.readlink(process / "fd" / name))
    return found
