"""Where a plan can place gateways: the machines of a sky, or what the providers of the configuration offer."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.engine.survey import SiteMember, members_of, survey
from tradewind.errors import TradewindError
from tradewind.model.hosts import in_region
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region
from tradewind.model.sites import CLOUDS, FleetTable, Sites

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.model.catalog import Catalog
    from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
    from tradewind.sky.running import Sky

__all__ = [
    "Ground",
    "fixed_tiers",
    "ground_of_sites",
    "ground_of_sky",
    "prices_now",
    "sky_catalog_of",
    "with_places",
    "with_present_home",
]

#: Addresses that a firewall must not admit silently.
EVERYBODY = "0.0.0.0/0"
#: Key of a document whose `home_cidr` was looked up and not configured.
HOME_FOUND = "home_found"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a plan can place gateways: the provider's document, the catalog of its regions, and the most machines in a
    region. `scale` is that of an emulated WAN, 1 elsewhere. `notes` say what could not be asked. `network_tiers` are
    those of machines that already run, where there is a choice.
    """

    provider: Mapping[str, Any]
    catalog: Catalog
    machines: int
    scale: float = 1.0
    notes: tuple[str, ...] = ()
    network_tiers: Mapping[Region, NetworkTier] = field(default_factory=dict)


def ground_of_sky(control: JobControl, file: str, sky: Sky) -> Ground:
    """Return the machines of a running sky."""
    from tradewind.sky.file import read_sky_file

    provider = {"kind": "sky", "sky": str(sky.folder), "file": os.path.abspath(file)}
    return Ground(provider, sky_catalog_of(control, file), len(sky.machines), read_sky_file(file).scale)


def sky_catalog_of(control: JobControl, file: str) -> Catalog:
    """Return the catalog of a sky file. Raises SkyFileError."""
    from tradewind.fleet.sky_catalog import sky_catalog
    from tradewind.sky.file import read_sky_file

    return sky_catalog(read_sky_file(file), _base_catalog(control))


def with_places(control: JobControl, ground: Ground) -> Ground:
    """Return a ground whose catalog also knows the regions without machines, for the ends of flows."""
    base, catalog = _base_catalog(control), ground.catalog
    links = {**base.grid.links, **catalog.grid.links}
    return replace(
        ground, catalog=replace(catalog, places={**base.places, **catalog.places}, grid=replace(base.grid, links=links))
    )


def prices_now(control: JobControl, catalog: Catalog) -> Catalog:
    """Return a catalog of machines that run already, at the price at which they were started, with the present prices
    of everything else.
    """
    return replace(_base_catalog(control), region_offers=catalog.region_offers)


def _base_catalog(control: JobControl) -> Catalog:
    from tradewind.catalog.load import catalog_folder, load_catalog

    return load_catalog(catalog_folder(control.store.state_dir))


def ground_of_sites(control: JobControl, sites: Sites, needed: Collection[Region] = ()) -> Ground:
    """Return what the providers of a configuration offer, by their answers about types, prices and quotas.

    A provider or region that cannot be asked, or whose machines could not be started, is left out, with a note, unless
    it is `needed`.
    Raises UsageError, GatewayError.
    """
    from tradewind.fleet.boots import BootBook
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.site_catalog import site_catalog
    from tradewind.model.reach import unconnected

    base = _base_catalog(control)
    members = members_of(sites, base.places)
    ends = {str(region) for region in needed}
    found = survey(control, members)
    notes, supplies = list(found.notes(ends)), found.supplies(ends)
    able, documents = list[SiteMember](), dict[str, dict[str, Any]]()
    for member in members:
        regions = [region for region in map(Region.parse, member.regions) if region in supplies]
        if not regions:
            continue
        try:
            documents[member.name] = launch_document(member, sites, control.gateway)
            able.append(member)
        except TradewindError as error:
            if ends & set(member.regions):
                raise
            notes.append(f"the plan does without {member.name}: {error}")
            supplies = {region: supply for region, supply in supplies.items() if region not in regions}
    catalog = site_catalog(supplies, base, BootBook(FleetJournal(control.store.state_dir)).usual())
    catalog = catalog.without_links(unconnected(sites, catalog.places))
    return Ground(_joined(able, documents), catalog, _machines_max(sites), notes=tuple(notes))


def _machines_max(sites: Sites) -> int:
    """Return the most machines in a region: of the hosts as many as they run, of a cloud the planner's usual limit."""
    from tradewind.engine.planning import MACHINES_PER_REGION

    hosts = sites.hosts
    of_hosts = (sum(host.gateways for host in in_region(hosts.hosts, region)) for region in hosts.regions)
    return max([*of_hosts, *([MACHINES_PER_REGION] if sites.clouds else [])], default=1)


def fixed_tiers(sites: Sites, catalog: Catalog, wanted: NetworkTierChoice | None) -> dict[Region, NetworkTier]:
    """Return the network tiers that a plan may not choose as `wanted`, by region; see `Sites.network_tier`."""
    tiers = {region: sites.network_tier(region, wanted) for region in catalog.places}
    return {region: tier for region, tier in tiers.items() if tier is not None}


def launch_document(member: SiteMember, sites: Sites, gateway: str) -> dict[str, Any]:
    """Return the document of a provider that launches machines: with programs and home's address. Raises UsageError."""
    from tradewind.engine.programs import home_network, program_documents

    document, how = dict(member.document), CLOUDS.get(member.name)
    if how is not None and how.downloads:
        document["programs"] = program_documents(sites.fleet, gateway)
    is_own = document.get("home_cidr") not in (None, EVERYBODY)
    if how is None or not how.dialled_from_home or is_own:
        return document
    if document.get("public_address", True):
        document["home_cidr"] = home_network(sites.fleet)
        document[HOME_FOUND] = sites.fleet.home_cidr is None
    elif sites.fleet.home_cidr is not None:
        # Private machines know home by another address than the one that the internet sees: it is not looked up.
        document["home_cidr"] = sites.fleet.home_cidr
    return document


def with_present_home(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of an earlier run with home's present address, where that was not configured.

    This machine may have moved to another network since. Raises UsageError.
    """
    if "members" in document:
        members = [{**member, "provider": with_present_home(member["provider"])} for member in document["members"]]
        return {**document, "members": members}
    if not document.get(HOME_FOUND):
        return document
    from tradewind.engine.programs import home_network

    return {**document, "home_cidr": home_network(FleetTable())}


def _joined(members: Sequence[SiteMember], documents: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the document of one provider, or of a mixed one over several."""
    if len(members) == 1:
        return documents[members[0].name]
    named = [
        {"name": member.name, "regions": list(member.regions), "provider": documents[member.name]} for member in members
    ]
    return {"kind": "mixed", "members": named}
