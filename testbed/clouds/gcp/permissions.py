"""The permissions that each method needs, as the reference of the API lists them for the requests that we send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["needed"]

Body = Mapping[str, Any]


def _create(body: Body) -> Iterator[str]:
    """Yield what creating instances needs: more than `create`, depending on what they are created with."""
    made = body.get("instanceProperties", body)
    yield "compute.instances.create"
    for disk in made.get("disks", ()):
        if "initializeParams" in disk:
            yield "compute.disks.create"
            if disk["initializeParams"].get("labels"):
                yield "compute.disks.setLabels"
    for interface in made.get("networkInterfaces", ()):
        yield "compute.subnetworks.use"
        if interface.get("accessConfigs"):
            yield "compute.subnetworks.useExternalIp"
    if made.get("metadata"):
        yield "compute.instances.setMetadata"
    if made.get("labels"):
        yield "compute.instances.setLabels"
    if made.get("tags"):
        yield "compute.instances.setTags"
    if made.get("serviceAccounts"):
        yield "compute.instances.setServiceAccount"
        yield "iam.serviceAccounts.actAs"


_RULES: Mapping[str, Callable[[Body], Iterator[str]]] = {
    "regionInstances.bulkInsert": _create,
    "instances.bulkInsert": _create,
    "instances.insert": _create,
}
_LISTS: Mapping[str, tuple[str, ...]] = {
    "firewalls.insert": ("compute.firewalls.create", "compute.networks.updatePolicy"),
    "firewalls.patch": ("compute.firewalls.get", "compute.firewalls.update", "compute.networks.updatePolicy"),
    "firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "instances.aggregatedList": ("compute.instances.list",),
    "disks.aggregatedList": ("compute.disks.list",),
    "images.getFromFamily": ("compute.images.getFromFamily",),
    "projects.get": ("compute.projects.get",),
}


def needed(method: str, body: Body) -> list[str]:
    """Return the permissions for a request of `method`, such as `instances.delete`."""
    if method in _RULES:
        return list(_RULES[method](body))
    return list(_LISTS.get(method, (f"compute.{method}",)))
