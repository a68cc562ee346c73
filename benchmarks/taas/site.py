"""A site of the service with several nodes for all applications, and the balancers that spread their bytes over them.

The nodes are the machines of one region, and share their network cards among all applications. Each has its own
wide-area link to each destination, as in `world`. A card carries `NODE_LINKS` of these: one application alone cannot
fill the cards of all nodes, and five fill more than one. The paper does not state the ratio, so it is an assumption.

Two ways are compared. The lead of each application spreads chunks over the nodes, by what each has confirmed. HAProxy
is one address before all nodes: the lead spreads as before, but all bytes pass the balancer. It cannot choose the node
itself, because a hop is bound to one gateway by its certificate.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.taas.world import (
    APPLICATIONS,
    ROUTE_MBPS,
    SERVICE_NODES,
    SERVICE_RTT_MS,
    WIDE_RTT_MS,
    WITHIN_SITE,
    Pools,
    Route,
    topology_of,
)
from testbed.debian import debian_program
from testbed.servers.process import stop_group
from tradewind.engine.launch_spec import LaunchSpec, planned_launch
from tradewind.engine.topology import topology_from_document
from tradewind.fleet.settings import FleetSettings
from tradewind.model.records import replace
from tradewind.sky.file import network_from_document
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

NODE_LINKS = 3
"""Network card of a node relative to a wide-area link."""
BALANCER_RTT_MS = 1.0
"""Between the balancer and the nodes."""
FIRST_PORT, PORTS_PER_APPLICATION = 21_000, 10
"""Data ports of the gateways behind the balancer."""
STARTED_S = 1.0
"""Time for HAProxy to open its ports."""
SETTINGS = """
defaults
  mode tcp
  timeout connect 5s
  timeout client 300s
  timeout server 300s
"""

Regions = dict[str, dict[str, object]]


def site_network(nodes: int) -> EmulatedNetwork:
    """Return all sources, all destinations, and a site with so many nodes in one region."""
    node = f"{ROUTE_MBPS * NODE_LINKS:g}Mbit/s"
    regions: Regions = {"site:service": {"name": "service", "machines": nodes, "egress": node, "ingress": node}}
    links = [*_links("source", ["service"]), *_links("sink", ["service"])]
    return _network(regions, links)


def balanced_network() -> EmulatedNetwork:
    """Return the same with 5 nodes, each in a region of its own, so that its address is known, and a balancer."""
    node = f"{ROUTE_MBPS * NODE_LINKS:g}Mbit/s"
    names = [f"service{number}" for number in range(SERVICE_NODES)]
    regions: Regions = {f"site:{name}": {"name": name, "egress": node, "ingress": node} for name in names}
    links = [*_links("source", ["balancer"]), *_links("sink", names)]
    links += [_link("balancer", name, BALANCER_RTT_MS, WITHIN_SITE) for name in names]
    links += [link for name in names for link in _links("source", [name])]
    return _network({**regions, "site:balancer": {"name": "balancer"}}, links)


def _network(regions: Regions, links: list[dict[str, object]]) -> EmulatedNetwork:
    card = f"{ROUTE_MBPS * WITHIN_SITE:g}Mbit/s"
    ends = [f"{kind}{app}" for kind in ("source", "sink") for app in range(APPLICATIONS)]
    regions |= {f"site:{name}": {"name": name, "egress": card, "ingress": card} for name in ends}
    # The source's host starts and controls the gateway of the destination.
    links += [_link(f"source{app}", f"sink{app}", WIDE_RTT_MS, 1) for app in range(APPLICATIONS)]
    return network_from_document({"regions": regions, "links": links, "shared_by": "pair"}, Path())


def _links(kind: str, others: Sequence[str]) -> Iterator[dict[str, object]]:
    rtt_ms, times = (SERVICE_RTT_MS, WITHIN_SITE) if kind == "source" else (WIDE_RTT_MS, 1)
    for app in range(APPLICATIONS):
        yield from (_link(f"{kind}{app}", other, rtt_ms, times) for other in others)


def _link(a: str, b: str, rtt_ms: float, times: float) -> dict[str, object]:
    return {"between": [f"site:{a}", f"site:{b}"], "rtt_ms": rtt_ms, "rate": f"{ROUTE_MBPS * times:g}Mbit/s"}


def routes_over(app: int, nodes: int) -> list[Route]:
    """Return the routes of an application over so many gateways, which are placed on nodes of the site."""
    return [[f"source{app}", f"service{number}", f"sink{app}"] for number in range(nodes)]


def site_pools(applications: int, nodes: int) -> Pools:
    """Return the wide-area links of each application: all share its pool."""
    return [[(f"service-{node + 1}", f"sink{app}-1") for node in range(nodes)] for app in range(applications)]


def own_node_pools(applications: int, nodes: int) -> Pools:
    """Return each wide-area link as a pool of its own: an application uses one, and which one is not known before."""
    return [[link] for pool in site_pools(applications, nodes) for link in pool]


def balanced_pools(applications: int) -> Pools:
    """Return the wide-area links of each application in the network with a balancer."""
    return [[(f"service{node}-1", f"sink{app}-1") for node in range(SERVICE_NODES)] for app in range(applications)]


def site_launch(sky: Sky, routes: Sequence[Route]) -> LaunchSpec:
    """Return how to run a transfer whose gateways in between are all in the region of the site."""
    document = topology_of(routes, lambda name: "site:service" if name.startswith("service") else f"site:{name}")
    return planned_launch(topology_from_document(document).plan, {"kind": "sky", "sky": str(sky.folder)})


def balanced_launch(sky: Sky, routes: Sequence[Route]) -> LaunchSpec:
    """Return how to run a transfer whose source reaches all nodes at the address of the balancer."""
    plan = topology_from_document(topology_of(routes, lambda name: f"site:{name}")).plan
    source = routes[0][0]
    app, front = int(source.removeprefix("source")), sky.machines["balancer-1"].address
    ports = {route[1]: _port(app, node) for node, route in enumerate(routes)}
    settings = FleetSettings(
        listen={name: f"{sky.machines[f'{name}-1'].address}:{port}" for name, port in ports.items()},
        detours={(source, name): f"{front}:{port}" for name, port in ports.items()},
    )
    return replace(planned_launch(plan, {"kind": "sky", "sky": str(sky.folder)}), settings=settings)


def _port(app: int, node: int) -> int:
    return FIRST_PORT + app * PORTS_PER_APPLICATION + node


@contextmanager
def balancer(sky: Sky) -> Iterator[None]:
    """Run HAProxy in the machine of the balancer. Raises InstallError, RuntimeError."""
    lines = [SETTINGS]
    for app in range(APPLICATIONS):
        for node in range(SERVICE_NODES):
            port, address = _port(app, node), sky.machines[f"service{node}-1"].address
            lines += [f"listen l{port}", f"  bind :{port}", f"  server s {address}:{port}"]
    with tempfile.TemporaryDirectory(prefix="tradewind-bench-") as folder:
        file = Path(folder) / "haproxy.cfg"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = sky.command("balancer-1", [debian_program("haproxy"), "-db", "-f", str(file)])
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            time.sleep(STARTED_S)
            if process.poll() is not None:
                raise RuntimeError(f"HAProxy ended with exit code {process.returncode}")
            yield
        finally:
            stop_group(process)
