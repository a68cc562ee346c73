"""Addresses at which flows enter in a Kubernetes cluster: the name of a Service, and its port. No I/O.

The Service leads to the pod of the flows' gateway. Programs in the cluster connect to its name, which stays the same if
the pod is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["listening_at", "service_port_of", "service_ports"]

#: A name that Kubernetes accepts for a Service.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
#: First port that a program without privileges may listen on. Services of lower ports lead to one higher by SHIFT.
UNPRIVILEGED, SHIFT = 1024, 20_000


def service_port_of(listen: str) -> tuple[str, int] | None:
    """Return the name and the port of the Service at which a flow enters; None if it enters at an address."""
    name, _, port = listen.rpartition(":")
    return (name, int(port)) if _NAME.fullmatch(name) else None


def listening_at(listen: str) -> str:
    """Return the address at which a gateway listens for the connections to `listen`."""
    found = service_port_of(listen)
    return listen if found is None else f"0.0.0.0:{_pod_port(found[1])}"


def service_ports(listens: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the Services at which connections enter: the port of the pod, by the Service's port, by its name."""
    services: dict[str, dict[int, int]] = {}
    for listen in listens:
        if (found := service_port_of(listen)) is not None:
            name, port = found
            services.setdefault(name, {})[port] = _pod_port(port)
    return services


def _pod_port(port: int) -> int:
    return port if port >= UNPRIVILEGED else port + SHIFT
