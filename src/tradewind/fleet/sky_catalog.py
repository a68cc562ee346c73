"""The catalog of a sky: its links as a grid, its caps as machine types, and the prices of the real clouds.

The rates of a sky are scaled down and count packets on the wire; the rates in a catalog count data. Time is not scaled.
Machine prices per second are scaled like the rates. The plan for a sky is then the same as for the real world that it
emulates, and its cost is the real cost, scaled.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.records import replace
from tradewind.model.region import Region, RegionInfo
from tradewind.sky.network import EmulatedNetwork, MachineSpec

__all__ = ["data_per_wire", "sky_catalog"]

#: Overhead of one packet: 20 bytes of IP and 32 of TCP with timestamps are inside the MTU; 38 of Ethernet, with
#: preamble and gap, are outside.
IN_PACKET_BYTES, AROUND_PACKET_BYTES = 52, 38
#: Share of data in a TLS stream: the overhead of a 16 KiB record is 22 bytes; the frames of chunks add less than that.
TLS_PER_PAYLOAD = 16384 / (16384 + 44)
#: Maximum time until a gateway in a namespace answers.
BOOT_S = 1.0
#: Continent of regions that the catalog does not know. No price list names it, so only rules for all regions apply.
NOWHERE = "unknown"


def data_per_wire(mtu_bytes: int) -> float:
    """Return the bytes of objects per byte on the wire."""
    return (mtu_bytes - IN_PACKET_BYTES) / (mtu_bytes + AROUND_PACKET_BYTES) * TLS_PER_PAYLOAD


def sky_catalog(network: EmulatedNetwork, base: Catalog) -> Catalog:
    """Return the catalog of a sky.

    Args:
        network: the sky, resolved.
        base: source of the prices of egress and machines. In a region that it does not know, egress and machines are
            free. Egress from other regions to it costs as much as egress to the internet.
    """
    origin = Origin("imported", "the sky file", "")
    regions = sorted({machine.region for machine in network.machines})
    places = {
        region: base.places.get(region) or RegionInfo(region, region.name, 0.0, 0.0, NOWHERE) for region in regions
    }
    links = _links(network, origin)
    prices = base.prices
    free = EgressPrice((PriceTier(0.0, 0.0),), Origin("assumed", "no price list names this region", ""))
    for pair in links:
        if prices.egress(places[pair[0]], places[pair[1]]) is None:
            prices = replace(prices, pairs={**prices.pairs, pair: free})
    offers = {region: (_offer(network, region, base, origin),) for region in regions}
    counts = Counter(machine.region for machine in network.machines)
    catalog = Catalog(places, prices, Grid(links), offers={}, region_offers=offers, quotas=counts)
    return catalog.without_links(_unconnected(network))


def _unconnected(network: EmulatedNetwork) -> dict[tuple[Region, Region], str]:
    """Return the pairs of regions that both have a machine that accepts no connections, with the reason."""
    closed = {machine.region for machine in network.machines if not machine.inbound}
    return dict.fromkeys(itertools.permutations(closed, 2), "both have `inbound = false` in the sky file")


def _links(network: EmulatedNetwork, origin: Origin) -> dict[tuple[Region, Region], Link]:
    """Return the throughput of one machine pair, by pair of regions. Machines on a shared pipe get equal shares."""
    share = data_per_wire(network.mtu_bytes)
    users: dict[int, set[int]] = defaultdict(set)
    for path in network.paths:
        users[path.pipe].add(path.src)
    gbps: dict[tuple[Region, Region], float] = {}
    delay_us: dict[tuple[Region, Region], int] = {}
    for path in network.paths:
        pair = network.machines[path.src].region, network.machines[path.dst].region
        if pair[0] != pair[1]:
            rate_gbps = network.pipes[path.pipe].rate_bps * share / 1e9 / len(users[path.pipe])
            gbps[pair] = min(rate_gbps, gbps.get(pair, rate_gbps))
            delay_us[pair] = max(path.delay_us, delay_us.get(pair, 0))
    return {
        (src, dst): Link(rate, origin, (delay_us[src, dst] + delay_us.get((dst, src), delay_us[src, dst])) / 1e3)
        for (src, dst), rate in gbps.items()
    }


def _offer(network: EmulatedNetwork, region: Region, base: Catalog, origin: Origin) -> MachineOffer:
    """Return the offer of a region: the sky's caps, and the price of the cheapest real machine with these caps."""
    there = [machine for machine in network.machines if machine.region == region]
    egress = min(_cap_gbps(network, machine, "egress") for machine in there)
    ingress = min(_cap_gbps(network, machine, "ingress") for machine in there)
    real = sorted(
        (offer for offer in base.machine_offers(region) if not offer.spot), key=lambda offer: offer.usd_per_hour
    )
    wanted = egress / network.scale / data_per_wire(network.mtu_bytes)
    able = [offer for offer in real if offer.machine.egress_gbps >= wanted * (1 - 1e-9)] or real[-1:]
    name, vcpus = (able[0].machine.name, able[0].machine.vcpus) if able else ("sky", 1)
    usd_per_hour = able[0].usd_per_hour * network.scale if able else 0.0
    machine = MachineType(region.provider, name, vcpus, max(egress, ingress), egress, ingress, BOOT_S, origin)
    return MachineOffer(machine, usd_per_hour, spot=False, origin=able[0].origin if able else origin)


def _cap_gbps(network: EmulatedNetwork, machine: MachineSpec, way: str) -> float:
    """Return a machine's cap on data [Gbit/s]; without a cap, the sum of its links."""
    share = data_per_wire(network.mtu_bytes)
    cap = machine.egress if way == "egress" else machine.ingress
    if cap is not None:
        return cap.rate_bps * share / 1e9
    index = network.machines.index(machine)
    end = "src" if way == "egress" else "dst"
    pipes = {path.pipe for path in network.paths if getattr(path, end) == index}
    return max(1e-6, sum(network.pipes[pipe].rate_bps for pipe in pipes) * share / 1e9)
