"""Where a plan can place gateways: the machines of a sky, or what the providers of the configuration offer."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.errors import TradewindError
from tradewind.fleet.calls import CALL_S, InFlight, each_of
from tradewind.fleet.provider import Offer, Provider, Quota
from tradewind.model.hosts import in_region
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.sites import CLOUDS, SSH, Sites

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.fleet.site_catalog import Supply
    from tradewind.model.catalog import Catalog
    from tradewind.sky.running import Sky

__all__ = [
    "Ground",
    "SiteMember",
    "ask_members",
    "ground_of_sites",
    "ground_of_sky",
    "members_of",
    "sky_catalog_of",
    "supplies_of",
]

#: Maximum number of concurrent questions to providers about offers and quotas.
QUESTIONS_AT_ONCE_MAX = 64


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a plan can place gateways: the provider's document, the catalog of its regions, and the most machines in a
    region. `scale` is that of an emulated WAN, 1 elsewhere. `notes` say what could not be asked.
    """

    provider: Mapping[str, Any]
    catalog: Catalog
    machines: int
    scale: float = 1.0
    notes: tuple[str, ...] = ()


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


def _base_catalog(control: JobControl) -> Catalog:
    from tradewind.catalog.load import catalog_folder, load_catalog

    return load_catalog(catalog_folder(control.store.state_dir))


@dataclass(frozen=True, slots=True)
class SiteMember:
    """A provider of the configuration, with the regions that belong to it. Its document lacks what launching needs."""

    name: str
    regions: tuple[str, ...]
    document: Mapping[str, Any]


def members_of(sites: Sites, known_regions: Collection[Region]) -> list[SiteMember]:
    """Return the providers of a configuration. A region with hosts of the user belongs to these, not to its cloud.

    A cloud without a list of regions has all `known_regions` of its provider.
    """
    members, taken = [], set[str]()
    if sites.hosts.hosts:
        members.append(SiteMember(SSH, tuple(sites.hosts.regions), {"kind": SSH, **sites.hosts.document()}))
        taken.update(sites.hosts.regions)
    for cloud in sites.clouds:
        regions = cloud.regions or tuple(str(region) for region in known_regions if region.provider == cloud.kind)
        own = tuple(region for region in regions if region not in taken)
        taken.update(own)
        members.append(SiteMember(cloud.kind, own, {"kind": cloud.kind, **cloud.settings, "programs": []}))
    return [member for member in members if member.regions]


def ground_of_sites(control: JobControl, sites: Sites, needed: Collection[Region] = ()) -> Ground:
    """Return what the providers of a configuration offer, by their answers about types, prices and quotas.

    A provider or region that cannot be asked is left out, with a note, unless it is `needed`.
    Raises UsageError, GatewayError.
    """
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.site_catalog import site_catalog

    base = _base_catalog(control)
    members = members_of(sites, base.places)
    ends = {str(region) for region in needed}
    answers = ask_members(control, members)
    notes, supplies = tuple(_failures(answers, ends)), supplies_of(answers, ends)
    able = [member for member in members if any(Region.parse(region) in supplies for region in member.regions)]
    documents = {member.name: launch_document(member, sites, control.gateway) for member in able}
    catalog = site_catalog(supplies, base, FleetJournal(control.store.state_dir).boot_times())
    return Ground(_joined(able, documents), catalog, _machines_max(sites), notes=notes)


def _machines_max(sites: Sites) -> int:
    """Return the most machines in a region: of the hosts as many as they run, of a cloud the planner's usual limit."""
    from tradewind.engine.planning import MACHINES_PER_REGION

    hosts = sites.hosts
    of_hosts = (sum(host.gateways for host in in_region(hosts.hosts, region)) for region in hosts.regions)
    return max([*of_hosts, *([MACHINES_PER_REGION] if sites.clouds else [])], default=1)


def launch_document(member: SiteMember, sites: Sites, gateway: str) -> dict[str, Any]:
    """Return the document of a provider that launches machines: with programs and home's address. Raises UsageError."""
    from tradewind.engine.programs import home_network, program_documents

    document, how = dict(member.document), CLOUDS.get(member.name)
    if how is not None and how.downloads:
        document["programs"] = program_documents(sites.fleet, gateway)
    if how is not None and how.dialled_from_home and document.get("public_address", True):
        document["home_cidr"] = home_network(sites.fleet)
    return document


def _joined(members: Sequence[SiteMember], documents: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the document of one provider, or of a mixed one over several."""
    if len(members) == 1:
        return documents[members[0].name]
    named = [
        {"name": member.name, "regions": list(member.regions), "provider": documents[member.name]} for member in members
    ]
    return {"kind": "mixed", "members": named}


#: The answer to a question: to a provider about its offers (region None), or about its quota in a region.
Answer = tuple[SiteMember, str | None, Any]


def ask_members(control: JobControl, members: Sequence[SiteMember]) -> list[Answer]:
    """Ask all providers for offers and quotas, concurrently. An answer may be a TradewindError."""
    connected = each_of(members, lambda member: _attempt(lambda: _connected(control, member)))
    questions: list[tuple[SiteMember, str | None, Callable[[], Any]]] = []
    for member, provider in zip(members, connected, strict=True):
        questions += [(member, *asked) for asked in _questions(member, provider)]
    answers = each_of(questions, lambda question: _attempt(question[2]), QUESTIONS_AT_ONCE_MAX)
    return [(member, region, answer) for (member, region, _), answer in zip(questions, answers, strict=True)]


def supplies_of(answers: Sequence[Answer], needed: Collection[str] = ()) -> dict[Region, Supply]:
    """Return what can be rented in each region. Regions without a machine left are in it only if they are needed."""
    from tradewind.fleet.site_catalog import Supply

    offers: dict[str, list[Offer]] = {}
    left: dict[str, int | None] = {}
    for member, region, answer in answers:
        if isinstance(answer, TradewindError):
            left |= dict.fromkeys([region] if region else member.regions, 0)
        elif region is not None:
            left[region] = None if answer is None else answer.left
        else:
            for offer in answer:
                offers.setdefault(offer.region, []).append(offer)
    return {
        Region.parse(region): Supply(tuple(found), left.get(region))
        for region, found in offers.items()
        if left.get(region) != 0 or region in needed
    }


def _failures(answers: Sequence[Answer], needed: Collection[str]) -> Iterator[str]:
    """Yield a note for each provider or region that could not be asked. Raises the error of one that is needed."""
    for member, region, answer in answers:
        if isinstance(answer, TradewindError):
            if {*needed} & ({region} if region else set(member.regions)):
                raise answer
            yield f"the plan does without {region or member.name}: {answer}"


def _questions(
    member: SiteMember, provider: Provider | TradewindError
) -> Iterator[tuple[str | None, Callable[[], tuple[Offer, ...] | Quota | None]]]:
    """Yield the questions to a provider: without a region for its offers, with one for its quota there."""
    if isinstance(provider, TradewindError):
        yield None, lambda: _raise(provider)
        return
    in_flight = InFlight()
    regions = member.regions
    yield None, lambda: in_flight.within(CALL_S, f"{member.name}: list offers", lambda: provider.offers(regions))
    for region in regions:
        yield region, _quota_question(in_flight, member, provider, region)


def _quota_question(
    in_flight: InFlight, member: SiteMember, provider: Provider, region: str
) -> Callable[[], Quota | None]:
    what = f"{member.name}: read the quota of {region}"
    return lambda: in_flight.within(CALL_S, what, lambda: provider.quota(region))


def _connected(control: JobControl, member: SiteMember) -> Provider:
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.providers import make_provider

    return make_provider(member.document, control.gateway, FleetJournal(control.store.state_dir))


def _attempt(call: Callable[[], Any]) -> Any:
    """Return the answer of a call, or its error."""
    try:
        return call()
    except TradewindError as error:
        return error


def _raise(error: TradewindError) -> Any:
    raise error
