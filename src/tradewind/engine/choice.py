"""Decide whether a transfer pays on rented machines: `--via auto` compares the plan with this machine, and says why.

This machine's rate is the one that the configuration states, else the best of its last transfers between stores, else
an assumption that favours this machine: money is spent only where the gain is clear.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tradewind.engine.passage import why_not_by_itself
from tradewind.engine.request import place_texts
from tradewind.engine.sides import Side, find_regions
from tradewind.engine.store_places import store_spec
from tradewind.errors import UsageError
from tradewind.model.event import is_copied_by_store
from tradewind.model.goal import Deadline, Goal, MinThroughput
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.sites import Sites
from tradewind.model.store import Access
from tradewind.model.units import format_duration, format_gbps, format_usd, format_volume, transfer_time_s
from tradewind.model.url import parse_url

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.engine.jobs import JobRecord
    from tradewind.engine.proposal import Proposal, Request
    from tradewind.fleet.given import GivenCredentials

__all__ = ["Sides", "fleet_sides", "home_rate", "why_not_fleet", "why_not_worth"]

#: Machines are rented only if they take at most this part of this machine's time, their start included, or if this
#: machine misses the user's goal.
PAYS_PART = 0.8
#: Rate of this machine between two stores if nothing is known about it [Gbit/s]: more than most networks have.
ASSUMED_HOME_GBPS = 1.0
#: Number of the last jobs from which this machine's rate is learned.
JOBS_MAX = 50
#: Minimum bytes and duration of a job to learn from; in less, connections were still opening.
LEARN_BYTES_MIN, LEARN_S_MIN = 64 << 20, 5.0
#: Times under this are shown as this [s].
SHORTEST_S = 0.1


@dataclass(frozen=True, slots=True)
class Sides:
    """The source and the destination of a transfer, with their regions if these are known."""

    source: Side
    destination: Side

    def required(self) -> tuple[Region, Region]:
        """Return both regions. Raises UsageError if one is unknown."""
        found = []
        for side, flag in ((self.source, "--src-region"), (self.destination, "--dst-region")):
            if side.region is None:
                raise UsageError(
                    f"a plan needs the region of both sides: {flag} ({side.because})",
                    hint=f"e.g. {flag} aws:us-east-1",
                )
            found.append(side.region)
        return found[0], found[1]

    def why_not(self, sites: Sites) -> str | None:
        """Return why no machines can move the bytes; None if the sites have some in the regions of both sides."""
        for side, flag in ((self.source, "--src-region"), (self.destination, "--dst-region")):
            if side.region is None:
                return f"{side.because} ({flag})"
        if self.source.region == self.destination.region:
            return f"both sides are in {self.source.region}"
        for side in (self.source, self.destination):
            if not sites.has(str(side.region)):
                return f"the configuration has no machine in {side.region}"
        return None

    def __str__(self) -> str:
        return f"{self.source.region} and {self.destination.region}"


def why_not_fleet(request: Request) -> str | None:
    """Return why no fleet is possible, as far as that is known from the request alone; None if one may be."""
    if request.topology is not None:
        return "--topology sets the routes"
    if not request.sites:
        return "no sky is given (--sky), and no host or cloud is configured"
    sources = place_texts(request.source)
    if len(request.destinations) != 1 or not isinstance(request.options.destination, Access):
        return "there are several destinations"
    if len(sources) != 1:
        return "there are several sources"
    texts = (*sources, *request.destinations)
    places = [parse_url(text, cwd=os.getcwd()) for text in texts]
    for place, text in zip(places, texts, strict=True):
        if place.kind in ("file", "mem", "pipe", "guest"):
            return f"{text} is on this machine"
    accesses = request.options.source, request.options.destination
    stores = [store_spec(place.root, place, access) for place, access in zip(places, accesses, strict=True)]
    if request.options.server_side_copy and why_not_by_itself(*stores) is None:
        return "the store copies by itself"
    return None


def fleet_sides(control: JobControl, request: Request, credentials: GivenCredentials | None = None) -> Sides:
    """Return the regions of both sides; stores that can say their region are asked, with `credentials` if given.

    Raises UsageError for a place on this machine.
    """
    texts = (place_texts(request.source)[0], request.destinations[0])
    places = [parse_url(text, cwd=os.getcwd()) for text in texts]
    for place, text in zip(places, texts, strict=True):
        if place.kind in ("file", "mem", "pipe", "guest"):
            raise UsageError(
                f"--via fleet moves objects between stores, and {text} is on this machine", hint="use --via local"
            )
    access = request.options.destination
    assert isinstance(access, Access)
    source, destination = find_regions(
        list(zip(places, (request.options.source, access), strict=True)), control.gateway, credentials
    )
    return Sides(source, destination)


def why_not_worth(control: JobControl, request: Request, made: Proposal) -> tuple[str | None, str]:
    """Return why a planned fleet does not pay, or None; and the comparison with this machine, in words."""
    overlay = made.plan.overlay
    if overlay is None or not made.volume_bytes:
        return "there is nothing to move", ""
    gbps, because = home_rate(control, request.sites)
    limit_bytes_per_s = request.options.limit_bytes_per_s
    if limit_bytes_per_s is not None and limit_bytes_per_s * 8e-9 < gbps:
        gbps, because = limit_bytes_per_s * 8e-9, "--limit-rate"
    volume_gb = made.volume_bytes / 1e9
    home_s = transfer_time_s(volume_gb, gbps)
    here = f"this machine takes {format_duration(max(SHORTEST_S, home_s))} at {format_gbps(gbps)} ({because})"
    there = f"{format_duration(overlay.time_s)} with their start, for {format_usd(made.cost_usd)}"
    if overlay.time_s > PAYS_PART * home_s and not _is_missed(request.goal, home_s, gbps):
        return f"machines take {there}, to move {format_volume(volume_gb)}; {here}", ""
    bounded = request.ceiling_usd is not None or request.ceiling_usd_per_gb is not None
    if not bounded and request.unasked_usd is not None and made.cost_usd > request.unasked_usd:
        cost, limit = format_usd(made.cost_usd), format_usd(request.unasked_usd)
        return f"machines cost {cost}, and more than {limit} needs a confirmation (-y, or --max-cost)", ""
    return None, f"{there}; {here}"


def _is_missed(goal: Goal | None, home_s: float, gbps: float) -> bool:
    """Return whether this machine alone misses a goal that a plan meets."""
    if isinstance(goal, Deadline):
        return home_s > goal.seconds
    return isinstance(goal, MinThroughput) and gbps < goal.gbps


def home_rate(control: JobControl, sites: Sites) -> tuple[float, str]:
    """Return the rate of this machine between two stores [Gbit/s], and its origin in words."""
    if sites.fleet.home_gbps is not None:
        return sites.fleet.home_gbps, "home_rate of the configuration"
    learned = [rate for rate in map(_rate_gbps, control.store.latest_done(JOBS_MAX)) if rate is not None]
    if learned:
        return max(learned), "its best rate so far"
    return ASSUMED_HOME_GBPS, "assumed"


def _rate_gbps(job: JobRecord) -> float | None:
    """Return the rate of a job that moved all objects between two stores through this machine, as fast as it could;
    None for others.
    """
    spec, progress = job.document["spec"], job.progress
    urls = (spec["source"]["url"], *(target["store"]["url"] for target in spec["targets"]))
    if job.document["topology"] is not None or any(url.startswith(("file:", "mem:")) for url in urls):
        return None
    if spec.get("rate_limit_bytes_per_s") is not None:
        return None
    if job.summary is None or any(map(is_copied_by_store, job.summary.proofs)):
        return None
    moved_bytes = progress.bytes_done - progress.bytes_earlier
    if moved_bytes < LEARN_BYTES_MIN or progress.elapsed_s < LEARN_S_MIN:
        return None
    return moved_bytes * 8 / 1e9 / progress.elapsed_s
