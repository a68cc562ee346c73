"""Campaigns on the machines of a sky: their pairs, the links these share, and the table of results."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.catalog.user_files import write_links
from tradewind.errors import UsageError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import make_provider
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.gateway.binary import find_gateway
from tradewind.measure.campaign import Campaign, MeasuredLink, RegionPair, figure_of
from tradewind.measure.probe import ProbeSettings
from tradewind.model.files import state_home
from tradewind.model.region import Region
from tradewind.sky.file import read_sky_file
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

__all__ = ["measure_sky", "sky_campaign", "write_measured"]


def sky_campaign(
    sky_file: str, words: Sequence[str], settings: ProbeSettings, *, state_dir: str | None = None
) -> Campaign:
    """Return the campaign for regions (`aws:us-east-1`) and pairs (`FROM,TO`) of a sky; by default all its regions.

    Raises:
        UsageError: a word is neither a region nor a pair, or the sky does not have the region.
        SkyFileError: the file is not a sky file.
    """
    network = read_sky_file(sky_file)
    catalog = sky_catalog(network, load_catalog(catalog_folder(state_dir)))
    return Campaign(catalog, _pairs(words, network), settings, shared=_shared(network))


def measure_sky(
    campaign: Campaign, sky: Sky, *, state_dir: str | None, gateway: str | None, max_cost_usd: float | None
) -> Iterator[MeasuredLink]:
    """Measure on a running sky, and yield each link as soon as it is known. Errors are those of `Campaign.run`."""
    journal = FleetJournal(state_home(state_dir))
    binary = gateway or find_gateway()
    provider = make_provider({"kind": "sky", "sky": str(sky.folder)}, binary, journal)
    yield from campaign.run(provider, journal, binary, max_cost_usd=max_cost_usd)


def write_measured(path: str, links: Sequence[MeasuredLink], settings: ProbeSettings, sky_file: str) -> None:
    """Write a table for `tradewind catalog import`, dated today. Raises ConfigError."""
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    source = f"tradewind measure, {Path(sky_file).name}"
    write_links(Path(path), [((link.src, link.dst), figure_of(link, settings, date, source)) for link in links])


def _pairs(words: Sequence[str], network: EmulatedNetwork) -> list[RegionPair]:
    """Return all ordered pairs of the named regions, or of the sky, and the pairs named singly. Raises UsageError."""
    known = {machine.region for machine in network.machines}
    linked = {(network.machines[path.src].region, network.machines[path.dst].region) for path in network.paths}
    regions, single = [], []
    for word in words:
        named = [_region(part, known) for part in word.split(",")]
        if len(named) == 1:
            regions.append(named[0])
        elif len(named) == 2 and named[0] != named[1]:
            single.append((named[0], named[1]))
        else:
            raise UsageError(f"{word}: neither REGION nor FROM,TO")
    chosen = list(permutations(dict.fromkeys(regions), 2)) if words else list(permutations(sorted(known), 2))
    return [pair for pair in dict.fromkeys([*chosen, *single]) if pair in linked]


def _region(text: str, known: set[Region]) -> Region:
    try:
        region = Region.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if region not in known:
        raise UsageError(f"the sky has no {region}", hint=f"it has {', '.join(map(str, sorted(known)))}")
    return region


def _shared(network: EmulatedNetwork) -> dict[RegionPair, set[int]]:
    """Return the pipes between the first machines of each pair; other pairs may share them."""
    first = {machine.region: index for index, machine in reversed(list(enumerate(network.machines)))}
    pipes: dict[RegionPair, set[int]] = defaultdict(set)
    for path in network.paths:
        ends = network.machines[path.src].region, network.machines[path.dst].region
        if (path.src, path.dst) == (first[ends[0]], first[ends[1]]):
            pipes[ends].add(path.pipe)
    return pipes
