"""The owner of a fleet, and the check whether it still uses the fleet.

The lock decides: the client holds it for as long as it lives, whatever its PID namespace, and the kernel releases it
with the client. Where the lock cannot tell, because the record comes from another boot of a host, only silence of a
whole lease counts, and only for our own host: a fleet of another host is never ours to end. A process id alone decides
nothing: it means another process in another PID namespace, and another one later.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from tradewind.fleet.running import RunningProcess, find_process

__all__ = ["HEARTBEAT_S", "HEARTBEAT_STALE_S", "Owner", "Ownership", "here", "ownership", "pid_namespace"]

#: Interval of a client's heartbeat.
HEARTBEAT_S = 60.0
#: A fleet of an earlier boot of this host is abandoned after this time without a heartbeat: a lease.
HEARTBEAT_STALE_S = 900.0

Ownership = Literal["in use", "abandoned", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that made a fleet. `host` is a hash of the machine's id, empty if it has none."""

    host: str
    host_name: str
    boot: str
    pid_namespace: int
    process: RunningProcess

    @property
    def label(self) -> str:
        """Host, boot, process id and start as one tag of a machine: up to 63 letters, digits and `-`."""
        boot = sha256(self.boot.encode()).hexdigest()[:8]
        return f"{self.host or 'unknown'}-{boot}-{self.process.pid}-{self.process.started or 0}"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "host": self.host,
            "host_name": self.host_name,
            "boot": self.boot,
            "pid_namespace": self.pid_namespace,
            **self.process.document(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Owner:
        """From JSON. Raises KeyError, TypeError, ValueError."""
        if document["started"] is None and here().process.started is not None:
            raise ValueError("its owner has no start time")
        return cls(
            str(document["host"]),
            str(document["host_name"]),
            str(document["boot"]),
            int(document["pid_namespace"]),
            RunningProcess.from_document(document),
        )


def here() -> Owner:
    """This process."""
    return Owner(_host(), os.uname().nodename, _boot(), pid_namespace(), find_process(os.getpid()))


def ownership(owner: Owner, *, locked: bool, heartbeat_unix_s: float) -> Ownership:
    """Return whether the owner of a fleet still looks after it. `locked` says whether the fleet's lock is held."""
    if locked:
        return "in use"
    if owner.boot and owner.boot == _boot():
        return "abandoned"
    silent = time.time() - heartbeat_unix_s >= HEARTBEAT_STALE_S
    return "abandoned" if owner.host and owner.host == _host() and silent else "elsewhere"


def pid_namespace() -> int:
    """Number of the PID namespace in which our process ids hold; 0 where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@functools.cache
def _host() -> str:
    """The machine's id, hashed: it is meant to stay on the machine."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            found = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if found and found != "uninitialized":
            return sha256(f"tradewind {found}".encode()).hexdigest()[:16]
    return ""


@functools.cache
def _boot() -> str:
    """Differs with each start of a kernel, and is the same in all containers on it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return f"without an id on {os.uname().nodename}"
