"""The owner of a fleet, and the check whether it still uses the fleet.

The lock decides: the client holds it while it lives, in whatever PID namespace, and the kernel releases it when the
client ends. After a reboot the lock decides nothing: a fleet of this host is then abandoned if its heartbeat is older
than a lease, and a fleet of another host is never ended from here. A process id decides nothing: another PID namespace
has another process with this id, and ids are reused.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tradewind.fleet.running import RunningProcess, find_process
from tradewind.model.digest import sha256_hex
from tradewind.model.records import dataclass

__all__ = [
    "HEARTBEAT_S",
    "HEARTBEAT_STALE_S",
    "Owner",
    "Ownership",
    "here",
    "owner_state",
    "ownership",
    "pid_namespace",
]

#: Interval of a client's heartbeat.
HEARTBEAT_S = 60.0
#: A fleet of an earlier boot of this host is abandoned after this time without a heartbeat. It is as long as a lease.
HEARTBEAT_STALE_S = 900.0
#: Maximum difference of the clocks of two hosts. A warm fleet of another host may be in use until this long after its
#: end by the clock of this one.
CLOCKS_APART_S = 3600.0

Ownership = Literal["in use", "abandoned", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that made a fleet. `host` is a hash of the host's machine id; empty if it has none."""

    host: str
    host_name: str
    boot: str
    pid_namespace: int
    process: RunningProcess

    @property
    def label(self) -> str:
        """Value of a machine's owner tag: host, boot, PID namespace, process id and start, as up to 63 letters, digits
        and `-`.
        """
        boot = sha256_hex(self.boot.encode())[:8]
        process = f"{self.process.pid}-{self.process.started or 0}"
        return f"{self.host or 'unknown'}-{boot}-{self.pid_namespace}-{process}"

    def document(self) -> dict[str, Any]:
        """Return the owner as a JSON object."""
        return {
            "host": self.host,
            "host_name": self.host_name,
            "boot": self.boot,
            "pid_namespace": self.pid_namespace,
            **self.process.document(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Owner:
        """Return the owner in a JSON object. Raises KeyError, TypeError, ValueError."""
        if document["started"] is None and here().process.started is not None:
            raise ValueError("its owner has no start time")
        return cls(
            str(document["host"]),
            str(document["host_name"]),
            str(document["boot"]),
            int(document["pid_namespace"]),
            RunningProcess.from_document(document),
        )


OwnerState = Literal["in use", "gone", "elsewhere", "warm"]


def owner_state(label: str) -> OwnerState:
    """Return what this process can tell from the label of a machine's owner: it lives, is gone, or is on another host.

    Machines of a warm fleet belong to no process.
    An owner of another PID namespace or another boot, which this process cannot see, counts as on another host: its
    transfer may run.
    """
    host, *rest = label.split("-")
    here_host, *here_rest = here().label.split("-")
    if rest[-2:-1] == ["warm"] and rest[-1].isdecimal():
        is_here = (host, rest[:1]) == (here_host, here_rest[:1])
        return "warm" if time.time() < int(rest[-1]) + (0.0 if is_here else CLOCKS_APART_S) else "gone"
    if host != here_host or not here().host or len(rest) != len(here_rest):
        return "elsewhere"
    (boot, namespace, pid, started), (here_boot, here_namespace, _, _) = rest, here_rest
    if not (pid.isdecimal() and started.isdecimal()):
        return "elsewhere"
    if boot != here_boot or namespace != here_namespace:
        return "elsewhere"  # Another host may have the same machine id: that of the image from which both were made.
    return "in use" if RunningProcess(int(pid), int(started)).alive else "gone"


def here() -> Owner:
    """Return this process as an owner."""
    return Owner(_host(), os.uname().nodename, _boot(), pid_namespace(), find_process(os.getpid()))


def ownership(owner: Owner, *, locked: bool, heartbeat_unix_s: float) -> Ownership:
    """Return whether the owner still uses a fleet. `locked` is true if the fleet's lock is held."""
    if locked:
        return "in use"
    if owner.boot and owner.boot == _boot():
        return "abandoned"
    silent = time.time() - heartbeat_unix_s >= HEARTBEAT_STALE_S
    return "abandoned" if owner.host and owner.host == _host() and silent else "elsewhere"


def pid_namespace() -> int:
    """Return the number of this process's PID namespace; 0 on a system without namespaces."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@functools.cache
def _host() -> str:
    """Return a hash of the host's machine id, which itself must not leave the host; empty if it has none."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            found = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            continue
        if found and found != "uninitialized":
            return sha256_hex(f"tradewind {found}".encode())[:16]
    return ""


@functools.cache
def _boot() -> str:
    """Return the id of this boot of the kernel. It is the same in all containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return f"without an id on {os.uname().nodename}"
