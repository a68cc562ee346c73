"""The behaviour of the stand-in: instances that start, run out of time and are deleted, operations that take a while.

Time is the host's, plus what `forward` has added: a test need not wait for a lease of hours.
"""

from __future__ import annotations

import ipaddress
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from testbed.clouds.gcp.records import ROOT, Boot, Disk, Instance, Operation, Refused, rfc3339

__all__ = ["IMAGES", "MACHINE_TYPES", "Cloud"]

REGIONS = {"us-central1": ("a", "b", "c", "f"), "us-east4": ("a", "b", "c"), "europe-west4": ("a", "b", "c")}
MACHINE_TYPES = {"n2-standard-4": 4, "n2-standard-8": 8, "n2-standard-32": 32, "e2-medium": 2}
DEBIAN = "projects/debian-cloud/global/images/family/"
IMAGES = (f"{DEBIAN}debian-12", f"{DEBIAN}debian-13")
QUOTAS = {"INSTANCES": 24.0, "CPUS": 72.0, "N2_CPUS": 200.0, "IN_USE_ADDRESSES": 24.0, "PREEMPTIBLE_CPUS": 0.0}
METADATA_BYTES_MAX = 256 * 1024
LABELS_MAX = 64
RUN_S_MIN, RUN_S_MAX = 30, 120 * 86_400
SOFT_OFF_S, SPOT_SOFT_OFF_S = 120.0, 30.0
"""Time that a guest has to shut down before its VM stops."""
TICK_S = 0.05
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[-_a-z0-9]{0,63}")


@dataclass
class Cloud:
    """One project. Its fields may be changed at any time."""

    project: str = "test-project"
    boot: Boot | None = None
    """Starts the inside of an instance; without it instances run until they are ended from outside."""
    operation_s: float = 0.05
    """Time that an operation takes at least."""
    lag_s: float = 0.0
    """Time until a new instance is listed."""
    unreachable: set[str] = field(default_factory=set)
    """Zones that lists leave out, with a warning."""
    sold_out: set[str] = field(default_factory=set)
    """Zones, or pairs `ZONE/TYPE`, without capacity."""
    quotas: dict[str, dict[str, float]] = field(default_factory=lambda: {name: dict(QUOTAS) for name in REGIONS})
    networks: set[str] = field(default_factory=lambda: {"global/networks/default"})
    subnets: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=lambda: set(IMAGES))
    stuck_firewalls: int = 0
    """Number of requests to delete a firewall rule that are refused, because it is being changed."""

    def __post_init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.disks: dict[str, Disk] = {}
        self.firewalls: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, Operation] = {}
        self._requests: dict[str, str] = {}
        self._forward_s, self._count = 0.0, 0
        self._changing = threading.RLock()
        self._stopped = threading.Event()
        threading.Thread(target=self._tick, name="compute engine", daemon=True).start()

    # Time

    def now(self) -> float:
        """Return the cloud's time [Unix s]."""
        return time.time() + self._forward_s

    def forward(self, seconds: float) -> None:
        """Let this time pass at once."""
        with self._changing:
            self._forward_s += seconds
        self._advance()

    def close(self) -> None:
        """End all guests."""
        self._stopped.set()
        with self._changing:
            for instance in self.instances.values():
                if instance.guest is not None:
                    instance.guest.pull_plug()

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            self._advance()

    def _advance(self) -> None:
        with self._changing:
            for instance in list(self.instances.values()):
                self._advance_instance(instance)
            for operation in list(self.operations.values()):
                if operation.ended_s is None and self.now() >= operation.due_s and operation.finished():
                    operation.ended_s = self.now()

    def _advance_instance(self, instance: Instance) -> None:
        now_s, guest = self.now(), instance.guest
        if instance.expires_s is not None and now_s >= instance.expires_s:
            self._begin_stop(instance, delete=instance.scheduling["instanceTerminationAction"] == "DELETE")
        if instance.status == "RUNNING" and guest is not None and not guest.alive():
            instance.status, instance.stopped_s = "TERMINATED", now_s  # Its disk remains, and is billed.
        if instance.status == "STOPPING":
            ended = guest is None or not guest.alive()
            if not ended and guest is not None and now_s >= (instance.plug_s or 0.0):
                guest.pull_plug()
                ended = True
            if ended:
                instance.status, instance.stopped_s = "TERMINATED", now_s
        if instance.status == "TERMINATED" and instance.deleted:
            del self.instances[instance.path]
            for name, disk in list(self.disks.items()):
                if disk.user == instance.path:
                    del self.disks[name]  # All our disks are deleted automatically.

    def _begin_stop(self, instance: Instance, *, delete: bool) -> None:
        instance.deleted = instance.deleted or delete
        if instance.status in ("STOPPING", "TERMINATED"):
            return
        instance.status = "STOPPING"
        instance.plug_s = self.now() + (SPOT_SOFT_OFF_S if instance.is_spot else SOFT_OFF_S)
        if instance.guest is not None:
            instance.guest.press_power_button()

    def preempt(self, name: str) -> None:
        """Reclaim a spot VM: its guest has SPOT_SOFT_OFF_S to shut down."""
        with self._changing:
            (instance,) = (one for one in self.instances.values() if one.name == name)
            if instance.guest is not None:
                instance.guest.announce_preemption()
            self._begin_stop(instance, delete=instance.scheduling.get("instanceTerminationAction") == "DELETE")

    def is_quiet(self) -> bool:
        """Return whether all operations have ended."""
        self._advance()
        with self._changing:
            return all(operation.ended_s is not None for operation in self.operations.values())

    def running(self) -> list[str]:
        """Return the paths of the instances whose time is billed."""
        self._advance()
        with self._changing:
            return sorted(path for path, one in self.instances.items() if one.status == "RUNNING")

    def billed(self) -> list[str]:
        """Return the paths of all that costs money, and of all clutter."""
        self._advance()
        with self._changing:
            disks = [f"zones/{disk.zone}/disks/{disk.name}" for disk in self.disks.values() if disk.user is None]
            return sorted([*self.instances, *disks, *(f"global/firewalls/{name}" for name in self.firewalls)])

    # Operations

    def begin(
        self, kind: str, scope: str, target: str, request_id: str | None, finished: Callable[[], bool] = lambda: True
    ) -> Operation:
        """Begin an operation."""
        now_s = self.now()
        operation = Operation(kind, scope, target, now_s, now_s + self.operation_s, finished)
        self.operations[operation.name] = operation
        if request_id is not None:
            self._requests[request_id] = operation.name
        return operation

    def repeated(self, request_id: str | None) -> Operation | None:
        """Return the operation of an earlier request with this id."""
        if request_id is None:
            return None
        try:
            zero = uuid.UUID(request_id).int == 0
        except ValueError:
            zero = True
        if zero:
            raise Refused(400, "invalid", f"Invalid value for field 'requestId': '{request_id}'")
        return self.operations.get(self._requests.get(request_id, ""))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep others from changing anything."""
        with self._changing:
            yield

    # Instances

    def bulk_insert(self, region: str, body: Mapping[str, Any], request_id: str | None) -> Operation:
        """Create instances of one kind, in zones that have room."""
        properties = body.get("instanceProperties", {})
        names = list(body.get("perInstanceProperties", {}))
        if "namePattern" in body or len(names) != int(body.get("count", 0)):
            raise Refused(400, "invalid", "Invalid value for field 'resource.count': names do not match the count.")
        self._check(region, names, properties)
        operation = self.begin("bulkInsert", f"regions/{region}", f"regions/{region}", request_id)
        zones = self._zones(region, body.get("locationPolicy", {}))
        free = [zone for zone in zones if not {zone, f"{zone}/{properties['machineType']}"} & self.sold_out]
        if (short := self._quota_exceeded(region, properties, len(names))) is not None:
            operation.errors.append(("QUOTA_EXCEEDED", short))
            operation.status_code = 403
        elif not free:
            words = "The zone does not have enough resources available to fulfill the request. Try a different zone."
            operation.errors += [
                ("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count of 1 VMs could not be created."),
                ("ZONE_RESOURCE_POOL_EXHAUSTED", words),
            ]
            operation.status_code = 503
        elif taken := next((name for name in names if f"zones/{free[0]}/instances/{name}" in self.instances), None):
            words = f"The resource 'projects/{self.project}/zones/{free[0]}/instances/{taken}' already exists"
            operation.errors.append(("RESOURCE_ALREADY_EXISTS", words))
            operation.status_code = 409
        else:
            made = [self._insert(name, free[0], properties) for name in names]
            operation.finished = lambda: all(one.status != "PROVISIONING" for one in made)
            operation.made = {
                "perLocationStatus": {
                    f"zones/{free[0]}": {"status": "DONE", "targetVmCount": len(made), "createdVmCount": len(made)}
                }
            }
        return operation

    def _zones(self, region: str, policy: Mapping[str, Any]) -> list[str]:
        zones = [f"{region}-{letter}" for letter in REGIONS[region]]
        given = policy.get("locations", {})
        if unknown := [name for name in given if name.removeprefix("zones/") not in zones]:
            raise Refused(400, "invalid", f"Invalid value for field 'resource.locationPolicy': '{unknown[0]}'")
        return [zone for zone in zones if given.get(f"zones/{zone}", {}).get("preference") != "DENY"]

    def _check(self, region: str, names: Sequence[str], given: Mapping[str, Any]) -> None:
        """Raise Refused for properties that the API refuses at once."""
        for name in names:
            if not _NAME.fullmatch(name):
                raise Refused(400, "invalid", f"Invalid value for field 'resource.name': '{name}'. {_NAME.pattern}")
        labels = given.get("labels", {})
        for key, value in labels.items():
            if not _LABEL.fullmatch(value) or not key or not _LABEL.fullmatch(key):
                raise Refused(400, "invalid", f"Invalid value for field 'labels': '{key}={value}'.")
        if len(labels) > LABELS_MAX:
            raise Refused(400, "invalid", f"There are more than {LABELS_MAX} labels.")
        if given.get("machineType") not in MACHINE_TYPES:
            words = f"Invalid value for field 'resource.instanceProperties.machineType': '{given.get('machineType')}'."
            raise Refused(400, "invalid", f"{words} Machine type specified does not exist.")
        for item in given.get("metadata", {}).get("items", ()):
            if len(item["value"].encode()) > METADATA_BYTES_MAX:
                words = f"Value for field 'metadata.items[].value' is too large: maximum size {METADATA_BYTES_MAX}"
                raise Refused(413, "uploadTooLarge", words)
        for disk in given.get("disks", ()):
            image = disk["initializeParams"]["sourceImage"]
            if image not in self.images:
                words = "The referenced image resource cannot be found."
                field_name = "resource.instanceProperties.disks[0].initializeParams.sourceImage"
                raise Refused(400, "invalid", f"Invalid value for field '{field_name}': '{image}'. {words}")
        self._check_network(region, given)
        self._check_scheduling(given.get("scheduling", {}))

    def _check_network(self, region: str, given: Mapping[str, Any]) -> None:
        (interface,) = given["networkInterfaces"]
        network, subnet = interface.get("network"), interface.get("subnetwork")
        if network not in self.networks:
            raise Refused(404, "notFound", f"The resource 'projects/{self.project}/{network}' was not found")
        if subnet is not None and subnet not in self.subnets:
            raise Refused(404, "notFound", f"The resource 'projects/{self.project}/{subnet}' was not found")

    def _check_scheduling(self, scheduling: Mapping[str, Any]) -> None:
        spot = scheduling.get("provisioningModel") == "SPOT"
        limit = scheduling.get("maxRunDuration")
        field_name = "Invalid value for field 'resource.instanceProperties.scheduling"
        if limit is not None and not RUN_S_MIN <= int(limit["seconds"]) <= RUN_S_MAX:
            raise Refused(400, "invalid", f"{field_name}.maxRunDuration': '{limit['seconds']}'.")
        if limit is not None and "instanceTerminationAction" not in scheduling:
            raise Refused(400, "invalid", f"{field_name}.instanceTerminationAction': it is required.")
        if "instanceTerminationAction" in scheduling and limit is None and not spot:
            raise Refused(400, "invalid", f"{field_name}.instanceTerminationAction': it needs a time limit.")
        if spot and (scheduling.get("automaticRestart", True) or scheduling.get("onHostMaintenance") == "MIGRATE"):
            raise Refused(400, "invalid", f"{field_name}.automaticRestart': a spot VM cannot be restarted.")

    def usage(self, region: str) -> dict[str, float]:
        """Return the use of each quota of a region."""
        used = dict.fromkeys(self.quotas[region], 0.0)
        for instance in self.instances.values():
            if instance.zone.rpartition("-")[0] == region:
                for metric, count in _demand(instance.given).items():
                    used[metric] = used.get(metric, 0.0) + count
        return used

    def _quota_exceeded(self, region: str, given: Mapping[str, Any], count: int) -> str | None:
        used = self.usage(region)
        for metric, each in _demand(given).items():
            limit = self.quotas[region].get(metric, 0.0)
            if used.get(metric, 0.0) + each * count > limit:
                return f"Quota '{metric}' exceeded.  Limit: {limit} in region {region}."
        return None

    def _insert(self, name: str, zone: str, given: Mapping[str, Any]) -> Instance:
        self._count += 1
        now_s = self.now()
        instance = Instance(name, zone, given, self._count, now_s, now_s + self.lag_s)
        self.instances[instance.path] = instance
        for number, disk in enumerate(given["disks"]):
            parameters = disk["initializeParams"]
            disk_name = name if number == 0 else f"{name}-{number}"
            size_gb = int(parameters.get("diskSizeGb", 10))
            self.disks[f"{zone}/{disk_name}"] = Disk(
                disk_name, zone, size_gb, parameters.get("labels", {}), instance.path if disk["autoDelete"] else None
            )
        threading.Thread(target=self._start, args=(instance,), name=f"start {name}", daemon=True).start()
        return instance

    def _start(self, instance: Instance) -> None:
        guest = None if self.boot is None else self.boot(instance)
        with self._changing:
            instance.guest = guest
            if self._stopped.is_set() and guest is not None:
                guest.pull_plug()
            if instance.status == "PROVISIONING":
                instance.status, instance.started_s = "RUNNING", self.now()
            elif guest is not None:
                guest.pull_plug()

    def delete_instance(self, zone: str, name: str, request_id: str | None) -> Operation:
        """Delete an instance: its guest shuts down first."""
        path = f"zones/{zone}/instances/{name}"
        if path not in self.instances:
            raise Refused(404, "notFound", f"The resource 'projects/{self.project}/{path}' was not found")
        self._begin_stop(self.instances[path], delete=True)
        return self.begin("delete", f"zones/{zone}", path, request_id, lambda: path not in self.instances)

    def leave_disk(self, name: str, zone: str, labels: Mapping[str, str]) -> None:
        """Make a disk that belongs to no instance."""
        with self._changing:
            self.disks[f"{zone}/{name}"] = Disk(name, zone, 10, labels)

    def delete_disk(self, zone: str, name: str, request_id: str | None) -> Operation:
        """Delete a disk that no instance uses."""
        disk = self.disks.get(f"{zone}/{name}")
        if disk is None:
            raise Refused(404, "notFound", f"The resource 'zones/{zone}/disks/{name}' was not found")
        if disk.user is not None:
            words = f"The disk resource '{name}' is already being used by '{disk.user}'"
            raise Refused(400, "resourceInUseByAnotherResource", words)
        del self.disks[f"{zone}/{name}"]
        return self.begin("delete", f"zones/{zone}", f"zones/{zone}/disks/{name}", request_id)

    # Networks

    def insert_firewall(self, body: Mapping[str, Any], request_id: str | None) -> Operation:
        """Create a firewall rule."""
        name, network = body.get("name", ""), body.get("network", "global/networks/default")
        if not _NAME.fullmatch(name):
            raise Refused(400, "invalid", f"Invalid value for field 'resource.name': '{name}'.")
        if network not in self.networks:
            raise Refused(404, "notFound", f"The resource 'projects/{self.project}/{network}' was not found")
        if name in self.firewalls:
            words = f"The resource 'projects/{self.project}/global/firewalls/{name}' already exists"
            raise Refused(409, "alreadyExists", words)
        self._check_ranges(body)
        base = f"{ROOT}projects/{self.project}/"
        self.firewalls[name] = {
            **body,
            "kind": "compute#firewall",
            "network": base + network,
            "creationTimestamp": rfc3339(self.now()),
            "selfLink": f"{base}global/firewalls/{name}",
        }
        return self.begin("insert", "global", f"global/firewalls/{name}", request_id)

    def patch_firewall(self, name: str, body: Mapping[str, Any], request_id: str | None) -> Operation:
        """Change a firewall rule."""
        rule = self._firewall(name)
        self._check_ranges({**rule, **body})
        rule.update(body)
        return self.begin("patch", "global", f"global/firewalls/{name}", request_id)

    def delete_firewall(self, name: str, request_id: str | None) -> Operation:
        """Delete a firewall rule."""
        self._firewall(name)
        if self.stuck_firewalls > 0:
            self.stuck_firewalls -= 1
            raise Refused(400, "resourceNotReady", f"The resource 'global/firewalls/{name}' is not ready")
        del self.firewalls[name]
        return self.begin("delete", "global", f"global/firewalls/{name}", request_id)

    def _firewall(self, name: str) -> dict[str, Any]:
        if name not in self.firewalls:
            words = f"The resource 'projects/{self.project}/global/firewalls/{name}' was not found"
            raise Refused(404, "notFound", words)
        return self.firewalls[name]

    def _check_ranges(self, rule: Mapping[str, Any]) -> None:
        versions = set()
        for text in rule.get("sourceRanges", ()):
            try:
                versions.add(ipaddress.ip_network(text).version)
            except ValueError:
                words = f"Invalid value for field 'resource.sourceRanges': '{text}'. Invalid IPCidrRange."
                raise Refused(400, "invalid", words) from None
        if len(versions) > 1:
            raise Refused(400, "invalid", "IPv4 and IPv6 ranges cannot be mixed in one firewall rule.")

    def allows(self, source: str, name: str, port: int) -> bool:
        """Return whether the rules let an address open a TCP connection to a port of an instance."""
        with self._changing:
            (target,) = (one for one in self.instances.values() if one.name == name)
            ours = {tag for one in self.instances.values() if source in one.addresses[:1] for tag in _tags(one.given)}
            return any(
                {str(port)} & {each for allow in rule["allowed"] for each in allow.get("ports", ())}
                and set(rule.get("targetTags", ())) & set(_tags(target.given))
                and (
                    ours & set(rule.get("sourceTags", ()))
                    or any(
                        ipaddress.ip_address(source) in ipaddress.ip_network(each)
                        for each in rule.get("sourceRanges", ())
                    )
                )
                for rule in self.firewalls.values()
            )


def _tags(given: Mapping[str, Any]) -> list[str]:
    found: list[str] = given.get("tags", {}).get("items", [])
    return found


def _demand(given: Mapping[str, Any]) -> dict[str, float]:
    """Return how much of each quota an instance needs."""
    cpus = float(MACHINE_TYPES[given["machineType"]])
    metric = "N2_CPUS" if given["machineType"].startswith("n2-") else "CPUS"
    addresses = float(bool(given["networkInterfaces"][0].get("accessConfigs")))
    return {"INSTANCES": 1.0, metric: cpus, "IN_USE_ADDRESSES": addresses}
