"""Where the jobs of the service run: on the server's own machine, or on machines of the operator's providers.

The operator's rules bound every job; a job may narrow them. Nothing is rented without a ceiling. The rules are applied
when a job is submitted, and again when it starts: source, route and machines are chosen only then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tradewind.engine.proposal import Request
from tradewind.errors import UsageError
from tradewind.fleet.given import GivenCredentials
from tradewind.model.codec import AUTO, OFF
from tradewind.model.goal import Deadline, Goal, MinThroughput
from tradewind.model.records import dataclass, replace
from tradewind.model.sites import NO_SITES, TABLES, Sites, read_sites
from tradewind.model.store import Access
from tradewind.model.url import parse_url

__all__ = ["HERE_ONLY", "JobVia", "MachineRules", "counted_here", "placed_request", "sites_of_file"]

#: Where a job runs: on machines if that is faster, on machines only, or on the server's own machine.
JobVia = Literal["auto", "fleet", "here"]
UNUSED = "this job rents no machines"


@dataclass(frozen=True)
class MachineRules:
    """The operator's rules for machines of jobs.

    - `via`: where jobs run that do not say it. With `here`, no job uses machines
    - `usd_max`: the most that one job may cost over all its runs [USD]; None: each job needs a ceiling of its own
    - `machines_max`: the most machines of one job in each region; None: as many as quotas and the planner allow
    - `shares_keys`: machines get the keys of stores as they are, where they would get limited credentials
    - `sites`: the providers, as the configuration has them
    """

    via: JobVia = "here"
    usd_max: float | None = None
    machines_max: int | None = None
    shares_keys: bool = False
    sites: Sites = NO_SITES

    def via_of(self, document: Mapping[str, Any]) -> JobVia:
        """Return where a job runs. Raises UsageError if the operator does not allow that, or it has no ceiling."""
        asked: JobVia | None = document.get("via")
        if document.get("guest") is not None:
            return self._via_of_guest(document, asked)
        if self.via == "here":
            if asked not in (None, "here"):
                raise UsageError(f"via {asked}: the operator rents no machines for jobs", hint="leave out `via`")
            self._refuse_unused(document, UNUSED)
            return "here"
        via = asked or self.via
        if via == "here":
            self._refuse_unused(document, UNUSED)
            return via
        why_not = _why_here(document)
        if why_not is not None and asked == "fleet":
            raise UsageError(f"via fleet: {why_not}", hint='set `via` to "here"')
        if why_not is not None:
            _refuse_route_options(document, why_not)
        if why_not is None and self.usd_of(document) is None:
            raise UsageError(
                "a job that may rent machines needs a ceiling", hint='set `max_cost_usd`, or `via` to "here"'
            )
        return via if why_not is None else "here"

    def _via_of_guest(self, document: Mapping[str, Any], asked: JobVia | None) -> JobVia:
        """Return `here`: routes join the guest to this machine, with compression and deduplication."""
        if asked not in (None, "auto", "here"):
            raise UsageError(f"via {asked}: a guest is joined to the server's own machine", hint="leave out `via`")
        self._refuse_unused({**document, "routes": None, "compression": OFF, "deduplication": False}, UNUSED)
        return "here"

    def usd_of(self, document: Mapping[str, Any]) -> float | None:
        """Return the ceiling of a job [USD]: its own, at most the operator's; None without any."""
        limits = [usd for usd in (document.get("max_cost_usd"), self.usd_max) if usd is not None]
        return min(limits, default=None)

    def machines_usd_of(self, document: Mapping[str, Any]) -> float | None:
        """Return the most that machines of a job may cost over all its runs [USD]; None if it rents none."""
        try:
            via = self.via_of(document)
        except UsageError:  # It will fail when it starts.
            return None
        return None if via == "here" else self.usd_of(document)

    def machines_of(self, document: Mapping[str, Any]) -> int | None:
        """Return the most machines of a job in each region: its own limit, at most the operator's; None without any."""
        limits = [count for count in (document.get("max_vms"), self.machines_max) if count is not None]
        return min(limits, default=None)

    def _refuse_unused(self, document: Mapping[str, Any], why: str) -> None:
        for name in ("max_cost_usd", "max_vms"):
            if document.get(name) is not None:
                raise UsageError(f"{name}: {why}", hint=f"leave out `{name}`")
        _refuse_route_options(document, why)


def _refuse_route_options(document: Mapping[str, Any], why: str) -> None:
    """Raise UsageError for a goal, or options of routes between machines, in a job that has none.

    `auto` compresses where that helps, so it is allowed everywhere.
    """
    for name in ("deadline_s", "min_throughput_gbps"):
        if document.get(name) is not None:
            raise UsageError(f"{name}: {why}", hint=f"leave out `{name}`: only machines are planned for a goal")
    if document.get("routes") not in (None, 1):
        raise UsageError(
            f"routes: {why}", hint="leave out `routes`, or ask for 1: the server's own machine is one route"
        )
    if document.get("compression", OFF) not in (OFF, AUTO):
        raise UsageError(f"compression: {why}", hint="leave out `compression`: bytes are compressed between machines")
    if document.get("deduplication", False):
        hint = "leave out `deduplication`: it is between machines, and the server's own machine is one"
        raise UsageError(f"deduplication: {why}", hint=hint)


def _goal_of(document: Mapping[str, Any]) -> Goal | None:
    """Return the goal of a job's plan; None for the fastest within its ceiling."""
    if document.get("deadline_s") is not None:
        return Deadline(document["deadline_s"])
    rate_gbps = document.get("min_throughput_gbps")
    return None if rate_gbps is None else MinThroughput(rate_gbps)


HERE_ONLY = MachineRules()
"""Jobs run on the server's own machine."""


def placed_request(
    request: Request, document: Mapping[str, Any], rules: MachineRules, credentials: GivenCredentials | None = None
) -> Request:
    """Return a request of the engine with the machines that a job may use. `credentials` are its connections'.

    Raises UsageError, also for a job that must use machines, but whose connections' keys they may not get.
    """
    via = rules.via_of(document)
    if via == "here":
        return request
    place = None if rules.shares_keys or credentials is None else _unlimited_place(request, credentials)
    goal = _goal_of(document)
    if place is not None and via == "auto" and goal is None:
        return request
    if place is not None:
        what = "via fleet" if goal is None else "a goal needs machines"
        raise UsageError(
            f"{what}: the keys of the connection to {place} cannot be limited to this job, "
            "and the operator does not share them with machines",
            hint='set `via` to "here"; `tradewind serve --share-keys` shares them',
        )
    options = request.options
    if rules.shares_keys:
        ends = options.destination
        options = replace(
            options,
            source=replace(options.source, lending="whole"),
            destination=replace(ends, lending="whole")
            if isinstance(ends, Access)
            else tuple(replace(end, lending="whole") for end in ends),
        )
    return replace(
        request,
        options=options,
        via=via,
        sites=rules.sites,
        goal=goal,
        ceiling_usd=rules.usd_of(document),
        machines_per_region=rules.machines_of(document),
        routes_max=document.get("routes"),
    )


def counted_here(request: Request) -> Request:
    """Return the request of a dry run on the server's own machine, which only counts."""
    options = replace(request.options, dry_run=True)
    bounded = replace(request, goal=None, ceiling_usd=None, machines_per_region=None, routes_max=None, guest=None)
    return replace(bounded, options=options, via=None, sites=NO_SITES)


def sites_of_file(path: str) -> Sites:
    """Return the providers of a configuration file. Raises UsageError without any, ConfigError."""
    from tradewind.model.files import read_user_file
    from tradewind.model.toml import parse_toml

    try:
        tables = parse_toml(read_user_file(path), path)
    except FileNotFoundError:
        tables = {}
    found = read_sites({name: tables[name] for name in TABLES if name in tables}, path)
    if not found:
        raise UsageError("--via needs hosts or a cloud in the configuration", hint="docs/guides/fleet.md shows how")
    return found


def _unlimited_place(request: Request, credentials: GivenCredentials) -> str | None:
    """Return a place of a connection whose keys cannot be limited to one job; None without one.

    Those are compatible servers, R2, signatures of Azure, and temporary keys of AWS.
    """
    ends = request.options.destination
    assert isinstance(ends, Access)
    for text, access in ((str(request.source), request.options.source), (request.destinations[0], ends)):
        place = parse_url(text, cwd="/")
        key = None if access.profile is None else credentials.aws.get(access.profile)
        is_temporary = key is not None and key.token is not None
        if place.kind == "az":
            if credentials.azure_key is None:
                return place.root
        elif access.endpoint is not None or place.kind == "r2" or is_temporary:
            return place.root
    return None


def _why_here(document: Mapping[str, Any]) -> str | None:
    """Return why a job can only run on the server's own machine, as far as its places say; None if it may not."""
    if len(document["destination"]) > 1:
        return "machines copy to one destination"
    local = next((place for place in (document["source"], *document["destination"]) if place.startswith("/")), None)
    return None if local is None else f"machines copy between stores, and {local} is a local path"
