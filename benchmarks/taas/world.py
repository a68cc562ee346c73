"""Two sites in the emulated WAN: applications, users' extra nodes, and the nodes of the service at both sites.

Each node is a region of its own, so a plan can name it. Every pair of nodes has its own link. A wide-area link carries
`ROUTE_MBPS` on average, and its rate is drawn again every half second. Links within a site are ten times as fast (the
paper, section III). Nothing in a sky is congested like the networks between the paper's sites, which bound its Fig. 4.
A pool stands for them: all links to one destination carry at most `AGGREGATE` times one link, also drawn again. It
was chosen for the paper's threefold rate, so that rate is no result.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from tradewind.engine.launch_spec import LaunchSpec, planned_launch
from tradewind.engine.topology import topology_from_document
from tradewind.sky.file import network_from_document
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

ROUTE_MBPS = 2.0
"""Mean rate of a wide-area link, on the wire."""
WITHIN_SITE = 10
"""Rate within a site, and of a node's network card, relative to a wide-area link."""
AGGREGATE, AGGREGATE_SPREAD = 3.2, 0.3
"""Mean rate of the pool of one destination, relative to a wide-area link, and its spread."""
SPREAD = 0.6
"""A wide-area link carries (1 ± this) times its mean rate, drawn evenly."""
REDRAW_S = 0.5
LEAST_MBPS = 0.05
"""Least rate of a link in a crowded pool."""
WIDE_RTT_MS, EXTRA_RTT_MS, SERVICE_RTT_MS = 100.0, 1.0, 2.0
"""Between the sites; to a user's own nodes; to the service's nodes, which are not in the same rack."""
APPLICATIONS = 5
SERVICE_NODES = 5
EXTRA_NODES = 7
TYPES = {"small": 1, "xlarge": 8}
"""Types of machines, with their network card relative to a small one's (the paper, section IV-A)."""
TYPED_EXTRA_NODES = {"small": EXTRA_NODES, "xlarge": 3}
"""Extra nodes by type. The paper's subscription allowed no more than 3 of the larger one."""
CONNECTIONS = 4
"""Connections of each hop."""

Route = list[str]

Pools = Sequence[Sequence[tuple[str, str]]]
"""Links that share a pool, as pairs of machines."""


Links = list[tuple[str, str, float, float]]
"""Two nodes, the round trip between them [ms], and the rate relative to a wide-area link."""


def network() -> EmulatedNetwork:
    """Return both sites, whose nodes are all small."""
    return _network(dict.fromkeys(_nodes(), 1), _links())


def typed_network() -> EmulatedNetwork:
    """Return both sites with a sender, a destination, and extra nodes at the sender's site, of each type."""
    return _network(_typed_nodes(), _typed_links())


def _network(cards: Mapping[str, int], between: Links) -> EmulatedNetwork:
    regions = {}
    for name, times in cards.items():
        card = f"{ROUTE_MBPS * WITHIN_SITE * times:g}Mbit/s"
        regions[f"site:{name}"] = {"name": name, "egress": card, "ingress": card}
    links = [
        {"between": [f"site:{a}", f"site:{b}"], "rtt_ms": rtt_ms, "rate": f"{ROUTE_MBPS * times:g}Mbit/s"}
        for a, b, rtt_ms, times in between
    ]
    return network_from_document({"regions": regions, "links": links, "shared_by": "pair"}, Path())


def _nodes() -> list[str]:
    counts = {
        "source": APPLICATIONS,
        "sink": APPLICATIONS,
        "extra": EXTRA_NODES,
        "service": SERVICE_NODES,
        "remote": SERVICE_NODES,
    }
    return [f"{kind}{number}" for kind, count in counts.items() for number in range(count)]


def _links() -> Links:
    links: Links = []
    for number in range(EXTRA_NODES):
        links.append(("source0", f"extra{number}", EXTRA_RTT_MS, WITHIN_SITE))
        links.append((f"extra{number}", "sink0", WIDE_RTT_MS, 1.0))
    for app in range(APPLICATIONS):
        links.append((f"source{app}", f"sink{app}", WIDE_RTT_MS, 1.0))
        for node in range(SERVICE_NODES):
            links.append((f"source{app}", f"service{node}", SERVICE_RTT_MS, WITHIN_SITE))
            links.append((f"service{node}", f"sink{app}", WIDE_RTT_MS, 1.0))
            links.append((f"source{app}", f"remote{node}", WIDE_RTT_MS, 1.0))
            links.append((f"remote{node}", f"sink{app}", SERVICE_RTT_MS, WITHIN_SITE))
    for node in range(SERVICE_NODES):
        links += [(f"service{node}", f"remote{other}", WIDE_RTT_MS, 1.0) for other in range(SERVICE_NODES)]
    return links


def _typed_nodes() -> dict[str, int]:
    nodes: dict[str, int] = {}
    for kind, times in TYPES.items():
        nodes |= dict.fromkeys((f"{kind}source", f"{kind}sink", *_typed_extra(kind)), times)
    return nodes


def _typed_links() -> Links:
    links: Links = []
    for sender, times in TYPES.items():
        extra = _typed_extra(sender)
        links += [(f"{sender}source", node, EXTRA_RTT_MS, WITHIN_SITE * times) for node in extra]
        for receiver in TYPES:
            links += [(node, f"{receiver}sink", WIDE_RTT_MS, 1.0) for node in (f"{sender}source", *extra)]
    return links


def _typed_extra(kind: str) -> list[str]:
    return [f"{kind}extra{number}" for number in range(TYPED_EXTRA_NODES[kind])]


def typed_routes(sender: str, receiver: str, extra_nodes: int) -> list[Route]:
    """Return the direct route and those over so many extra nodes, which have the sender's type."""
    source, sink = f"{sender}source", f"{receiver}sink"
    return [[source, sink], *([source, node, sink] for node in _typed_extra(sender)[:extra_nodes])]


def end_to_end(app: int = 0) -> list[Route]:
    """Return the direct route of an application."""
    return [[f"source{app}", f"sink{app}"]]


def multi_route(extra_nodes: int) -> list[Route]:
    """Return the routes of a user's own nodes, and the direct one."""
    return end_to_end() + [["source0", f"extra{number}", "sink0"] for number in range(extra_nodes)]


def asymmetric(app: int = 0, nodes: Sequence[int] = range(SERVICE_NODES)) -> list[Route]:
    """Return the routes over the service's nodes at the source's site."""
    return [[f"source{app}", f"service{node}", f"sink{app}"] for node in nodes]


def symmetric(app: int = 0, nodes: Sequence[int] = range(SERVICE_NODES)) -> list[Route]:
    """Return the routes over the service's nodes at both sites; applications use different pairs of them."""
    return [[f"source{app}", f"service{node}", f"remote{(node + app) % SERVICE_NODES}", f"sink{app}"] for node in nodes]


def topology_of(routes: Sequence[Route], region_of: Callable[[str], str]) -> dict[str, Any]:
    """Return a topology file's JSON for these routes, with equal planned shares."""
    gateways = {}
    for route in routes:
        for index, name in enumerate(route):
            role = "source" if index == 0 else "sink" if index == len(route) - 1 else "relay"
            gateways[name] = {"role": role, "region": region_of(name)}
    return {
        "lead": {"region": f"site:{routes[0][0]}"},
        "gateways": gateways,
        "routes": [{"nodes": route, "share": 1 / len(routes)} for route in routes],
        "connections": CONNECTIONS,
    }


def launch(sky: Sky, routes: Sequence[Route]) -> LaunchSpec:
    """Return how to run a transfer over these routes, each node in its own region."""
    document = topology_of(routes, lambda name: f"site:{name}")
    return planned_launch(topology_from_document(document).plan, {"kind": "sky", "sky": str(sky.folder)})


def pools_of(applications: Sequence[Sequence[Route]]) -> Pools:
    """Return the wide-area links of each application."""
    wide = {link[:2] for link in (*_links(), *_typed_links()) if link[2] == WIDE_RTT_MS}
    found = [sorted({pair for route in routes for pair in pairwise(route)} & wide) for routes in applications]
    return [[(f"{src}-1", f"{dst}-1") for src, dst in pool] for pool in found]


class Weather:
    """Draws the rates of the wide-area links of each pool again and again within its block, from a seed."""

    def __init__(self, sky: Sky, pools: Pools, seed: int) -> None:
        self._sky, self._random, self._pools = sky, random.Random(seed), pools
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Weather:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _repeat(self) -> None:
        while True:
            for pool in self._pools:
                for (src, dst), rate_mbps in zip(pool, self._draw(len(pool)), strict=True):
                    self._sky.set_link(src, dst, one_way=True, rate_mbps=rate_mbps)
            if self._ended.wait(REDRAW_S):
                return

    def _draw(self, links: int) -> list[float]:
        """Return the rates of a pool's links, scaled down where their sum exceeds the pool [Mbit/s]."""
        rates = [ROUTE_MBPS * self._random.uniform(1 - SPREAD, 1 + SPREAD) for _ in range(links)]
        pool_mbps = ROUTE_MBPS * AGGREGATE * self._random.uniform(1 - AGGREGATE_SPREAD, 1 + AGGREGATE_SPREAD)
        down = min(1.0, pool_mbps / sum(rates))
        return [max(LEAST_MBPS, rate_mbps * down) for rate_mbps in rates]
