"""What a sky's network means to the planner: its links as a grid, its caps as machines, prices as the clouds have them.

Rates of a sky are those of packets on the wire, and scaled down; time is true. Rates in the catalog are those of data.
Machines are paid by the second of unscaled time, so their price is scaled as the rates are: the plan for a sky is then
the plan for the world that it shows, and its cost is that world's, scaled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.region import Region, RegionInfo
from tradewind.sky.network import EmulatedNetwork, MachineSpec

__all__ = ["data_per_wire", "sky_catalog"]

#: Headers of one packet beside its payload: 20 IP and 32 TCP with timestamps are in the MTU, 38 Ethernet with preamble
#: and gap are not.
IN_PACKET_BYTES, AROUND_PACKET_BYTES = 52, 38
#: A TLS record holds 16 KiB and costs 22 bytes; frames of a chunk cost less than as much again.
TLS_PER_PAYLOAD = 16384 / (16384 + 44)
#: A gateway in a namespace answers within so long.
BOOT_S = 1.0
#: Continent of regions that the catalog does not know; no price list names it, so that only rules for all hold.
NOWHERE = "unknown"


def data_per_wire(mtu_bytes: int) -> float:
    """Bytes of objects per byte on the wire."""
    return (mtu_bytes - IN_PACKET_BYTES) / (mtu_bytes + AROUND_PACKET_BYTES) * TLS_PER_PAYLOAD


def sky_catalog(network: EmulatedNetwork, base: Catalog) -> Catalog:
    """The catalog of a sky.

    Args:
        network: the sky, resolved.
        base: where prices of egress and machines come from. A region that it does not know pays nothing for egress and
            machines, and others pay for the way to it what they pay for the way to the internet.
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
    return Catalog(places, prices, Grid(links), offers={}, region_offers=offers, quotas=counts)


def _links(network: EmulatedNetwork, origin: Origin) -> dict[tuple[Region, Region], Link]:
    """Per pair of regions what one machine pair carries. A pipe that several machines share is shared out to them."""
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
    """One machine of a region: the sky's caps, and the price of the cheapest real one that would have them."""
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
    """A machine's cap for data; without one, all that its links carry together."""
    share = data_per_wire(network.mtu_bytes)
    cap = machine.egress if way == "egress" else machine.ingress
    if cap is not None:
        return cap.rate_bps * share / 1e9
    index = network.machines.index(machine)
    end = "src" if way == "egress" else "dst"
    pipes = {path.pipe for path in network.paths if getattr(path, end) == index}
    return max(1e-6, sum(network.pipes[pipe].rate_bps for pipe in pipes) * share / 1e9)
