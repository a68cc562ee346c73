"""The records of the stand-in: instances, disks, firewall rules, operations."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

__all__ = ["ROOT", "Boot", "Disk", "Guest", "Instance", "Operation", "Refused", "rfc3339"]

ROOT = "https://www.googleapis.com/compute/v1/"
"""Start of the links in answers. The real API has the same, whatever address the client used."""


class Refused(Exception):
    """A request that the API answers with an error."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.retry_after_s = status, reason, message, retry_after_s


class Guest(Protocol):
    """The running inside of an instance."""

    @property
    def address(self) -> str:
        """Its address."""
        ...

    def alive(self) -> bool:
        """Return whether it runs: False once it has shut down."""
        ...

    def console(self) -> str:
        """Return all that it has written to its console."""
        ...

    def press_power_button(self) -> None:
        """Ask it to shut down, and return at once."""
        ...

    def announce_preemption(self) -> None:
        """Let it know that it is preempted, before its power button is pressed."""
        ...

    def pull_plug(self) -> None:
        """End it."""
        ...


Boot = Callable[["Instance"], Guest]


def rfc3339(unix_s: float) -> str:
    """Return a time as the API writes it."""
    return datetime.fromtimestamp(unix_s, timezone.utc).isoformat(timespec="milliseconds")


@dataclass
class Instance:
    """A VM. `given` has the properties with which it was created."""

    name: str
    zone: str
    given: Mapping[str, Any]
    number: int
    created_s: float
    visible_s: float
    """From this time on it is listed."""
    status: str = "PROVISIONING"
    started_s: float | None = None
    stopped_s: float | None = None
    guest: Guest | None = None
    plug_s: float | None = None
    """Time at which a guest that was asked to shut down is ended."""
    deleted: bool = False
    """True if it is deleted once it has stopped."""

    @property
    def path(self) -> str:
        """Its name among all resources of the project."""
        return f"zones/{self.zone}/instances/{self.name}"

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        found: Mapping[str, str] = self.given.get("labels", {})
        return found

    @property
    def scheduling(self) -> Mapping[str, Any]:
        """Its scheduling options."""
        found: Mapping[str, Any] = self.given.get("scheduling", {})
        return found

    @property
    def is_spot(self) -> bool:
        """True for a spot VM."""
        return self.scheduling.get("provisioningModel") == "SPOT"

    @property
    def expires_s(self) -> float | None:
        """Time at which its maximum run duration ends. It counts only while the VM runs."""
        limit = self.scheduling.get("maxRunDuration")
        if limit is None or self.started_s is None or self.status != "RUNNING":
            return None
        return self.started_s + float(limit["seconds"])

    def metadata(self, key: str) -> str | None:
        """Return a value of its metadata."""
        items = self.given.get("metadata", {}).get("items", ())
        return next((item["value"] for item in items if item["key"] == key), None)

    @property
    def addresses(self) -> tuple[str, str | None]:
        """Its internal address, and its external one while it runs. Booted machines have one address for both."""
        ours = f"10.128.0.{self.number}" if self.guest is None else self.guest.address
        public = f"203.0.113.{self.number}" if self.guest is None else self.guest.address
        has_public = bool(self.given["networkInterfaces"][0].get("accessConfigs")) and self.status != "TERMINATED"
        return ours, public if has_public else None

    def document(self, project: str) -> dict[str, Any]:
        """Return it as the API shows it."""
        base = f"{ROOT}projects/{project}/"
        ours, public = self.addresses
        interface = {"name": "nic0", **self.given["networkInterfaces"][0], "networkIP": ours}
        if interface.get("accessConfigs"):
            access = {"name": "External NAT", **interface["accessConfigs"][0]}
            interface["accessConfigs"] = [access if public is None else {**access, "natIP": public}]
        times = {
            "creationTimestamp": self.created_s,
            "lastStartTimestamp": self.started_s,
            "lastStopTimestamp": self.stopped_s,
        }
        return {
            "kind": "compute#instance",
            "id": str(1000 + self.number),
            "name": self.name,
            "zone": f"{base}zones/{self.zone}",
            "machineType": f"{base}zones/{self.zone}/machineTypes/{self.given['machineType']}",
            "status": self.status,
            "labels": dict(self.labels),
            "tags": dict(self.given.get("tags", {})),
            "scheduling": dict(self.scheduling),
            "networkInterfaces": [interface],
            "selfLink": base + self.path,
            **{name: rfc3339(time_s) for name, time_s in times.items() if time_s is not None},
        }


@dataclass
class Disk:
    """A disk. `user` is the path of the instance that has it; None for one that is left over."""

    name: str
    zone: str
    size_gb: int
    labels: Mapping[str, str]
    user: str | None = None

    def document(self, project: str) -> dict[str, Any]:
        """Return it as the API shows it."""
        base = f"{ROOT}projects/{project}/"
        return {
            "kind": "compute#disk",
            "name": self.name,
            "zone": f"{base}zones/{self.zone}",
            "sizeGb": str(self.size_gb),
            "status": "READY",
            "labels": dict(self.labels),
            "users": [] if self.user is None else [base + self.user],
            "selfLink": f"{base}zones/{self.zone}/disks/{self.name}",
        }


@dataclass
class Operation:
    """A change under way. `scope` is `zones/Z`, `regions/R` or `global`."""

    kind: str
    scope: str
    target: str
    begun_s: float
    due_s: float
    finished: Callable[[], bool] = lambda: True
    """Return whether it can be done, from `due_s` on."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Code and message of each error with which it ends."""
    status_code: int = 400
    made: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"operation-{uuid.uuid4()}")
    ended_s: float | None = None

    def document(self, project: str) -> dict[str, Any]:
        """Return it as the API shows it."""
        base = f"{ROOT}projects/{project}/"
        found: dict[str, Any] = {
            "kind": "compute#operation",
            "name": self.name,
            "operationType": self.kind,
            "targetLink": base + self.target,
            "status": "RUNNING" if self.ended_s is None else "DONE",
            "progress": 0 if self.ended_s is None else 100,
            "insertTime": rfc3339(self.begun_s),
            "selfLink": f"{base}{self.scope}/operations/{self.name}",
        }
        what, _, name = self.scope.partition("/")
        if name:
            found[what.removesuffix("s")] = f"{base}{self.scope}"
        if self.ended_s is not None:
            found["endTime"] = rfc3339(self.ended_s)
            if self.made:
                found["instancesBulkInsertOperationMetadata"] = dict(self.made)
            if self.errors:
                found["error"] = {"errors": [{"code": code, "message": words} for code, words in self.errors]}
                found["httpErrorStatusCode"] = self.status_code
        return found
