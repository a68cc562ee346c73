"""Networks for booted machines: a private one of this host, or a bridge that it has already.

The private network is a bridge in a network namespace of its own. This host and each machine are joined to it by a pair
of virtual devices. The namespace lives in a child process: when that ends for any reason, all devices vanish.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from typing import Protocol

from testbed.servers.process import guarded
from tradewind.model.records import dataclass

__all__ = ["HostBridge", "Lan", "MachineNetwork", "Place", "lan_unavailable"]

#: Networks 10.LEAST.0.0/24 to 10.MOST.255.0/24 are tried, from one that depends on the process.
LEAST, MOST = 201, 250
#: Most machines of a network.
MACHINES_MAX = 240


@dataclass(frozen=True, slots=True)
class Place:
    """Where a machine is attached."""

    name: str
    address: str


class MachineNetwork(Protocol):
    """A network in which machines can be booted."""

    def place(self, region: str) -> Place:
        """Return a free place for a machine of a region. Raises RuntimeError if there is none."""
        ...

    def attach(self, place: Place, pid: int) -> None:
        """Join the network namespace of a process to the network at this place."""
        ...

    def release(self, place: Place) -> None:
        """Free a place, whose machine has ended."""
        ...


def lan_unavailable() -> str | None:
    """Return why no machine can be booted here, or None."""
    return None if os.geteuid() == 0 else "booting machines needs root"


class Lan:
    """A private network of this host. Use it as a context manager. `address` is this host's own in it."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None
        self._free: list[int] = []
        self._prefix = ""
        self.address = ""

    def __enter__(self) -> Lan:
        """Make the network."""
        self._holder = subprocess.Popen(
            guarded(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]), stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        number = next(self._numbers)
        device = f"twl{os.getpid()}n{number}"
        try:
            self._join_host(device, os.getpid() * 7 + number)
        except BaseException:
            self.__exit__()
            raise
        self._free = list(range(MACHINES_MAX + 1, 1, -1))
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the network. Its machines must have ended."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            if self._holder.stdout is not None:
                self._holder.stdout.close()

    def _join_host(self, device: str, number: int) -> None:
        """Make the bridge and join this host to it, with a network that no other route uses."""
        holder = self._pid
        _ip("link", "add", device, "type", "veth", "peer", "name", "host", "netns", str(holder))
        self._inside("link", "add", "lan", "type", "bridge")
        self._inside("link", "set", "lan", "up")
        self._inside("link", "set", "host", "master", "lan", "up")
        networks = (MOST - LEAST + 1) * 256
        for attempt in range(networks):
            chosen = (number + attempt) % networks
            self._prefix = f"10.{LEAST + chosen // 256}.{chosen % 256}."
            if not _ip("route", "show", "root", f"{self._prefix}0/24"):
                break
        self.address = f"{self._prefix}1"
        _ip("address", "add", f"{self.address}/24", "dev", device)
        _ip("link", "set", device, "up")

    def place(self, region: str) -> Place:
        """Return a free place."""
        if not self._free:
            raise RuntimeError("the network has no free address")
        number = self._free.pop()
        return Place(f"m{number}", f"{self._prefix}{number}")

    def attach(self, place: Place, pid: int) -> None:
        """Join a machine to the network."""
        self._inside("link", "add", place.name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._inside("link", "set", place.name, "master", "lan", "up")
        _set_up_machine(pid, f"{place.address}/24", self.address)

    def release(self, place: Place) -> None:
        """Free a place. The machine's devices have vanished with it."""
        self._free.insert(0, int(place.name.removeprefix("m")))

    @property
    def prefix(self) -> str:
        """The first three numbers of its addresses, with a final dot."""
        return self._prefix

    @property
    def netns(self) -> str:
        """The path of the namespace of its bridge `lan`. A server there can have an address for machines only."""
        return f"/proc/{self._pid}/ns/net"

    @property
    def _pid(self) -> int:
        assert self._holder is not None
        return self._holder.pid

    def _inside(self, *words: str) -> None:
        _run("nsenter", f"--net=/proc/{self._pid}/ns/net", "ip", *words)


class HostBridge:
    """Machines on a bridge of this host that exists already, such as that of a Kubernetes lab.

    `address` is this host's own there, in a network of /16; machines get addresses that begin with `prefix`.
    """

    def __init__(self, bridge: str, address: str, prefix: str) -> None:
        self._bridge, self.address, self._prefix = bridge, address, prefix
        self._free = list(range(MACHINES_MAX, 0, -1))

    def place(self, region: str) -> Place:
        """Return a free place."""
        if not self._free:
            raise RuntimeError("the network has no free address")
        number = self._free.pop()
        return Place(f"twb{os.getpid()}m{number}", f"{self._prefix}{number}")

    def attach(self, place: Place, pid: int) -> None:
        """Join a machine to the bridge."""
        _ip("link", "add", place.name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", place.name, "master", self._bridge, "up")
        _set_up_machine(pid, f"{place.address}/16", self.address)

    def release(self, place: Place) -> None:
        """Free a place. The machine's devices have vanished with it."""
        self._free.insert(0, int(place.address.removeprefix(self._prefix)))


def _set_up_machine(pid: int, address: str, router: str) -> None:
    """Give the device of a machine its address, with a default route."""
    for words in (
        ("address", "add", address, "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
        ("route", "add", "default", "via", router),
    ):
        _run("nsenter", f"--net=/proc/{pid}/ns/net", "ip", *words)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
