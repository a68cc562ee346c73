"""From a request to a proposal: who moves the bytes, by which plan, and at what cost.

A sky that was started to count the volume runs until the proposal is started or dropped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import LaunchSpec, guest_launch, local_launch, single_launch, topology_launch
from tradewind.engine.option_values import require_number, require_type, require_word
from tradewind.engine.request import Options, UrlOrPath, Via, place_texts
from tradewind.errors import InfeasibleGoal, SkyUnavailable, TradewindError, UsageError
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.providers import LOCAL
from tradewind.model.event import Progress
from tradewind.model.goal import Deadline, Goal, MinThroughput
from tradewind.model.guest import Guest
from tradewind.model.network_tier import NetworkTierChoice, check_network_tiers
from tradewind.model.plan import Plan, check_routes
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region
from tradewind.model.sites import NO_SITES, Sites
from tradewind.model.store import Access
from tradewind.model.units import format_count, format_usd

if TYPE_CHECKING:
    from tradewind.engine.choice import Sides
    from tradewind.engine.ground import Ground
    from tradewind.engine.warm import WarmGround

__all__ = ["Proposal", "Request", "propose"]

T = TypeVar("T")

#: Interval at which a count of the volume is looked at whose machines may start before its end.
LOOK_S = 1.0


@dataclass(frozen=True)
class Request:
    """A transfer as a user wants it.

    - `source`, `destination`: URLs or paths, one or several; `options`: what to copy and how, see Options
    - `verb`: `cp`, `sync` or `mv`, as job lists show it
    - `topology`: path of a topology file; the gateways in it move the bytes
    - `sky`: path of a sky file; gateways on its machines move the bytes, as planned
    - `via`: `local`: this machine; `sky`: the sky; `fleet`: gateways at `sites`; `auto`: the sky, else the sites, if
      they have machines in the regions of both sides and these are faster than this machine, else this machine.
      None: the sky if one is given, else `auto` if there are sites
    - `sites`: the user's hosts, clouds and clusters, where gateways may run
    - `goal`: goal of the plan. None: the fastest within the ceiling, or at any cost without one
    - `ceiling_usd`, `ceiling_usd_per_gb`: the most that all runs of the job may cost together [USD]; one of them
    - `machines_per_region`: the most machines in each region; None: as many as the sky has
    - `routes_max`: the most routes between gateways, 1 to ROUTES_ASKED_MAX; None: as many as help the goal
    - `replan`: plan again while the job runs, when a route falls clearly short of its planned rate
    - `unasked_usd`: the most that a fleet which `auto` chooses may cost without a ceiling [USD]; None: any amount,
      because the caller confirms it
    - `tier`: network tier of rented machines, where their cloud has both: `premium`, `standard`, or `best`, the better
      one for each machine; None: as configured for each cloud
    - `agreed`: the user has agreed to any cost beforehand. Machines may then start while the source is still being
      listed, if the rest of the list cannot change them
    - `compression_ratio`: expected bytes sent per byte of data, for the prediction of rate and cost; needs
      `options.compress` and machines. A ceiling cannot depend on it
    - `closed_regions`, `closed_links`: where the plan has no machines, and links that it does not use; the regions of
      source and destination are never closed
    - `guest`: the user's host that reads or writes one side with a gateway of its own, for jobs of the transfer service

    Raises UsageError for settings that exclude each other.
    """

    source: UrlOrPath | Sequence[UrlOrPath]
    destination: UrlOrPath | Sequence[UrlOrPath]
    options: Options = field(default_factory=Options)
    verb: str = "cp"
    topology: str | None = None
    sky: str | None = None
    via: Via | None = None
    goal: Goal | None = None
    ceiling_usd: float | None = None
    ceiling_usd_per_gb: float | None = None
    machines_per_region: int | None = None
    replan: bool = False
    compression_ratio: float = 1.0
    sites: Sites = NO_SITES
    unasked_usd: float | None = None
    tier: NetworkTierChoice | None = None
    routes_max: int | None = None
    agreed: bool = False
    closed_regions: Collection[Region] = ()
    closed_links: Collection[tuple[Region, Region]] = ()
    guest: Guest | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for settings that are invalid or exclude each other."""
        _check_values(self)
        _check_ratio(self)
        _check_routes(self)
        if self.tier is not None:
            check_network_tiers(self.tier)
        if self.tier is not None and self.sky is not None:
            raise UsageError("--tier and --sky cannot be combined", hint="machines of a sky have no network tiers")
        if self.moved_by != "local":
            return
        if self.sky is not None or self.replan:
            raise UsageError("--replan needs --via fleet or sky" if self.sky is None else "--sky needs --via sky")
        options = [*_goal_options(self), *(["--max-vms"] if self.machines_per_region else []), *_plan_options(self)]
        if self.topology is not None:
            others = [option for option in options if option != "--max-cost"]
            if others:
                raise UsageError(f"{others[0]} and --topology cannot be combined", hint="leave one of them out")
        elif _goal_options(self) and len(self.destinations) != 1:
            raise UsageError(f"{options[0]} plans for one destination", hint="give one DST, or --topology")

    @property
    def moved_by(self) -> Via:
        """The mover of the bytes: `via`, else the sky if one is given, else `auto` if there are sites, else `local`."""
        if self.via is not None or self.sky is not None:
            return self.via or "sky"
        return "auto" if self.sites and self.topology is None else "local"

    @property
    def destinations(self) -> tuple[str, ...]:
        """All destinations, as text."""
        return place_texts(self.destination)


@dataclass(frozen=True)
class Proposal:
    """A transfer that can be started. `plan` states who moves the bytes, `options` the settings that follow from it.

    `volume_bytes` and `objects` are None where nothing was counted, because no plan depends on them. `notes` report
    choices that Tradewind made for the user.
    """

    id: str
    request: Request
    plan: Plan
    options: Options
    launch: LaunchSpec = field(repr=False)
    volume_bytes: int | None = None
    objects: int | None = None
    notes: tuple[str, ...] = ()
    held: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

    @property
    def cost_usd(self) -> float:
        """Predicted cost [USD]: egress, machines and requests; 0 without a planned overlay."""
        return 0.0 if self.plan.prediction is None else self.plan.prediction.cost_usd

    @property
    def rents_machines(self) -> bool:
        """Return whether it rents machines that cost real money, unlike those of a sky."""
        return self.plan.overlay is not None and self.launch.provider["kind"] not in ("local", "sky")

    @property
    def needs_confirmation(self) -> bool:
        """Return whether it spends money without a ceiling: a user should confirm it before it starts."""
        request = self.request
        bounded = request.ceiling_usd is not None or request.ceiling_usd_per_gb is not None
        if bounded or self.options.dry_run:
            return False
        if self.plan.overlay is None:
            return self.plan.mean_usd_per_gb > 0
        return self.cost_usd > request.sites.fleet.confirm_above_usd

    def __str__(self) -> str:
        if self.plan.overlay is not None:
            return str(self.plan.overlay)
        if self.plan.stations():
            routes = format_count(len(self.plan.routes), "route")
            return f"{routes} by hand, {format_usd(self.plan.mean_usd_per_gb)} per GB"
        return "this machine, no gateways in between"

    def drop(self) -> None:
        """End what was started to make it. Does nothing for a proposal that was started."""
        self.held.close()


def propose(control: JobControl, request: Request, credentials: GivenCredentials | None = None) -> Proposal:
    """Return how a request would be carried out. Lists the source if a plan depends on its volume, with `credentials`
    in place of this machine's if they are given.

    Raises:
        UsageError: regions, a sky or a goal are missing, or contradict each other.
        TradewindError: no plan meets the goal; the sky cannot be started.
    """
    via = request.moved_by
    if request.guest is not None:
        launch = guest_launch(request.guest)
        return Proposal(_new_id(), request, launch.plan, request.options, launch)
    if via == "local":
        return _local(request)
    control.check_filter(request.options.filter)  # Before planning or starting anything.
    if via == "auto" and request.sky is None:
        return _by_choice(control, request, credentials)
    if via == "auto":
        reason = _why_no_sky_plan(request)
        if reason is not None:
            return _local(request, f"--via auto uses this machine: {reason}")
    if request.topology is not None:
        hint = "leave one of them out"
        raise UsageError("--topology and --via cannot be combined: both choose the gateways", hint=hint)
    if via == "fleet" and request.sky is not None:
        raise UsageError("--via fleet and --sky cannot be combined", hint="--via sky uses the sky's machines")
    access = request.options.destination
    if len(request.destinations) != 1 or not isinstance(access, Access):
        raise UsageError(f"--via {via} takes one destination")
    if via == "fleet":
        return _at_sites(control, request, credentials)
    return _in_sky(control, request, access, credentials)


def _in_sky(control: JobControl, request: Request, access: Access, credentials: GivenCredentials | None) -> Proposal:
    """Return a proposal for the machines of a sky; with `auto` for this machine if the sky cannot run here."""
    if request.sky is None:
        raise UsageError("--via sky needs --sky FILE", hint="the format: docs/reference/sky.md")
    from tradewind.engine.ground import ground_of_sky
    from tradewind.engine.placed import placed
    from tradewind.engine.skies import regions_of_sky, sky_of

    file, is_auto = request.sky, request.moved_by == "auto"
    regions = _region(request.options.source, "--src-region"), _region(access, "--dst-region")
    known = regions_of_sky(file)
    for region in map(str, regions):
        if region not in known:
            raise UsageError(f"the sky has no machine in {region}", hint=f"it has some in {', '.join(known)}")
    with ExitStack() as stack:
        try:
            sky = stack.enter_context(sky_of(file, control.store.state_dir))
        except SkyUnavailable as error:
            if not is_auto:
                raise
            return _local(request, f"--via auto uses this machine: {error}")
        ground = ground_of_sky(control, file, sky)
        counted, _ = _counted(control, request, lambda: ground, ground.provider, regions, credentials)
        made = placed(request, counted, ground, regions)
        if is_auto:
            note = f"--via auto uses the sky, which has machines in {regions[0]} and {regions[1]}"
            made = replace(made, notes=(*made.notes, note))
        return replace(made, held=stack.pop_all())


def _at_sites(
    control: JobControl, request: Request, credentials: GivenCredentials | None, sides: Sides | None = None
) -> Proposal:
    """Return a proposal for machines of the configured providers. Asks them while the volume is counted."""
    if not request.sites:
        raise UsageError(
            "--via fleet needs hosts or a cloud in the configuration", hint="docs/guides/fleet.md shows how"
        )
    from tradewind.engine.choice import fleet_sides
    from tradewind.engine.early import may_plan_early, planned_early
    from tradewind.engine.ground import ground_of_sites
    from tradewind.engine.placed import placed
    from tradewind.engine.warm import warm_ground, why_not_warm
    from tradewind.fleet.calls import each_of

    sides = sides or fleet_sides(control, request, credentials)
    regions = sides.required()
    for region in map(str, regions):
        if not request.sites.has(region):
            raise UsageError(f"the configuration has no machine in {region}", hint=f"it has {request.sites.describe()}")

    def rentable() -> Ground | TradewindError:
        try:
            return ground_of_sites(control, request.sites, regions)
        except TradewindError as error:
            return error

    def look() -> tuple[WarmGround | None, Ground | TradewindError]:
        """Ask for warm fleets, and for machines that can be rented, at the same time."""
        warm_fleets = partial(warm_ground, control, request.sites, regions, request.tier)
        asked: tuple[Callable[[], Any], ...] = (warm_fleets, rentable)
        warm, ground = each_of(asked, lambda ask: ask())
        if warm is None and isinstance(ground, TradewindError):
            raise ground
        return warm, ground

    def early(listed: Proposal, found: tuple[WarmGround | None, Ground | TradewindError]) -> Proposal | None:
        warm, ground = found
        if warm is not None or isinstance(ground, TradewindError):
            return None
        return planned_early(control, request, listed, ground, regions)

    may_be_early = may_plan_early(request)
    made, (warm, ground) = _counted(
        control, request, look, LOCAL, regions, credentials, early=early if may_be_early else None
    )
    if made.plan.overlay is not None:
        return made
    on_warm = None if warm is None or warm.why_not else _on_warm_machines(request, made, warm, regions)
    try:
        if isinstance(ground, TradewindError):
            raise ground
        rented = placed(request, made, ground, regions)
    except TradewindError:
        if on_warm is None:
            raise
        return on_warm
    if warm is None:
        return rented
    why_not = warm.why_not
    if on_warm is not None:
        why_not = why_not_warm(request.goal, on_warm.plan, rented.plan)
        if why_not is None:
            return on_warm
    if why_not is None:
        return rented
    return replace(rented, notes=(*rented.notes, f"does not use warm fleet {warm.fleet}: {why_not}"))


def _on_warm_machines(
    request: Request, made: Proposal, warm: WarmGround, regions: tuple[Region, Region]
) -> Proposal | None:
    """Return a proposal for the machines of a warm fleet in both regions; None if they cannot do it."""
    from tradewind.engine.placed import placed

    try:
        made = placed(request, made, warm.ground, regions)
    except InfeasibleGoal:
        return None
    if made.plan.overlay is None:
        return made
    if not warm.lasts(made.plan.overlay.time_s):
        return None
    counts = Counter(gateway.region for gateway in made.plan.machines)
    where = " and ".join(f"{format_count(count, 'warm machine')} in {region}" for region, count in counts.items())
    note = f"uses {where}, of fleet {warm.fleet}"
    return replace(made, launch=replace(made.launch, warm=warm.fleet), notes=(*made.notes, note))


def _by_choice(control: JobControl, request: Request, credentials: GivenCredentials | None) -> Proposal:
    """Return a proposal for the configured providers if they can move the bytes and that pays, else for this machine.

    Raises InfeasibleGoal if no plan meets the user's goal.
    """
    from tradewind.engine.choice import fleet_sides, why_not_fleet, why_not_worth

    is_asked = request.via == "auto"
    reason = why_not_fleet(request)
    if reason is not None:
        # Without --via the usual copy, between folders for example, needs no words about fleets.
        return _local(request, f"--via auto uses this machine: {reason}" if is_asked else None)
    sides = fleet_sides(control, request, credentials)
    reason = sides.why_not(request.sites)
    if reason is None:
        try:
            made = _at_sites(control, request, credentials, sides)
        except TradewindError as error:
            if isinstance(error, InfeasibleGoal) and _goal_options(request):
                raise
            return _local(request, f"--via auto uses this machine: {error}")
        reason, better = why_not_worth(control, request, made)
        if reason is None:
            return replace(made, notes=(*made.notes, f"--via auto uses your machines in {sides}: {better}"))
    return _local(request, f"--via auto uses this machine: {reason}")


def _local(request: Request, note: str | None = None) -> Proposal:
    """Return a proposal for this machine, or for a topology file's gateways on it."""
    launch = local_launch() if request.topology is None else topology_launch(request.topology)
    notes = [] if note is None else [note]
    if request.moved_by == "auto" and request.topology is None:
        notes += [
            "this machine alone moves the bytes, so --deadline chooses no path: a job that ends later has exit code 9"
            if option == "--deadline"
            else f"{option} applies only to a plan, not to a transfer by this machine alone"
            for option in (*_goal_options(request), *_plan_options(request))
        ]
    return Proposal(_new_id(), request, launch.plan, request.options, launch, notes=tuple(notes))


def _why_no_sky_plan(request: Request) -> str | None:
    """Return why a sky cannot move the bytes; None if it can. Raises SkyFileError."""
    assert request.sky is not None
    if request.topology is not None:
        return "--topology sets the routes"
    access = request.options.destination
    if len(request.destinations) != 1 or not isinstance(access, Access):
        return "there are several destinations"
    sides = request.options.source.region, access.region
    if sides[0] is None or sides[1] is None:
        return "the regions of both sides are not set (--src-region, --dst-region)"
    if sides[0] == sides[1]:
        return "both sides are in one region"
    from tradewind.engine.skies import regions_of_sky

    there = regions_of_sky(request.sky)
    missing = next((region for region in sides if region not in there), None)
    return None if missing is None else f"the sky has no machine in {missing}"


def _counted(
    control: JobControl,
    request: Request,
    look: Callable[[], T],
    counter: Mapping[str, Any],
    regions: tuple[Region, Region],
    credentials: GivenCredentials | None,
    early: Callable[[Proposal, T], Proposal | None] | None = None,
) -> tuple[Proposal, T]:
    """Return a proposal with the volume, still without gateways elsewhere, and what `look` returns. The provider
    `counter` runs the count of the volume meanwhile.

    While the count runs, `early` gets a proposal with the volume so far, each time that this has doubled. The count
    ends when it returns one.
    """
    options = request.options
    single = single_launch(str(regions[0]), counter)
    count = control.start(
        request.source,
        request.destination,
        replace(options, dry_run=True),
        single,
        verb=request.verb,
        credentials=credentials,
    )

    def proposed(progress: Progress) -> Proposal:
        volume = progress.bytes_total, progress.objects_total
        return Proposal(_new_id(), request, single.plan, options, single, *volume)

    try:
        found = look()
        seen_bytes = 0
        while early is not None and not count.wait_ended(LOOK_S):
            progress = count.progress
            if progress.bytes_total < 2 * max(1, seen_bytes):
                continue
            seen_bytes = progress.bytes_total
            made = early(proposed(progress), found)
            if made is not None:
                count.kill()
                return made, found
        return proposed(count.wait().progress), found
    finally:
        count.close()


def _check_values(request: Request) -> None:
    """Raise UsageError for a value that a program may pass by mistake."""
    require_type("options", request.options, Options, "Options")
    require_word("via", request.via, get_args(Via))
    require_number("machines_per_region", request.machines_per_region, 1, None, whole=True)
    for name in ("ceiling_usd", "ceiling_usd_per_gb", "unasked_usd"):
        require_number(name, getattr(request, name), 0, None)
    if request.goal is not None and not isinstance(request.goal, Goal):
        raise UsageError(
            f"goal {request.goal!r}: must be a goal of tradewind.model.goal", hint="for example Deadline(1800)"
        )


def _check_ratio(request: Request) -> None:
    """Raise UsageError for a compression ratio that is none, or that nothing may rely on."""
    ratio = request.compression_ratio
    if ratio == 1:
        return
    if not 0 < ratio < 1:
        raise UsageError(f"a compression ratio is above 0 and at most 1, not {ratio:g}", hint="for example 0.6")
    if request.moved_by == "local":
        raise UsageError(
            "--compression-ratio needs --via fleet or sky", hint="`tradewind plan` predicts with a ratio, too"
        )
    if not request.options.compress:
        raise UsageError("--compression-ratio needs --compress", hint="for example --compress zstd")
    if request.ceiling_usd is not None or request.ceiling_usd_per_gb is not None:
        raise UsageError(
            "--compression-ratio and --max-cost cannot be combined",
            hint="a ceiling must hold even if the bytes do not compress; leave one of them out",
        )


def _check_routes(request: Request) -> None:
    """Raise UsageError for a number of routes that no plan has, or that cannot be limited."""
    if request.routes_max is None:
        return
    check_routes(request.routes_max)
    if request.tier == "best":
        raise UsageError("--routes and --tier best cannot be combined", hint="choose premium or standard")
    if request.moved_by == "local" and request.topology is None:
        raise UsageError("--routes needs --via fleet or sky", hint="this machine alone is one route")


def _goal_options(request: Request) -> list[str]:
    """Return the options that set the request's goal, by their names on the command line."""
    ceilings = request.ceiling_usd, request.ceiling_usd_per_gb
    names = ["--max-cost"] if any(ceiling is not None for ceiling in ceilings) else []
    if isinstance(request.goal, MinThroughput):
        names.append("--min-throughput")
    elif request.goal is not None:
        names.append("--deadline" if isinstance(request.goal, Deadline) else "a goal")
    return names


def _plan_options(request: Request) -> list[str]:
    """Return the options that shape a plan, by their names on the command line."""
    return [name for name, value in (("--tier", request.tier), ("--routes", request.routes_max)) if value is not None]


def _region(access: Access, flag: str) -> Region:
    if access.region is None:
        raise UsageError(f"a plan needs the region of both sides: {flag}", hint=f"e.g. {flag} aws:us-east-1")
    try:
        return Region.parse(access.region)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def _new_id() -> str:
    return f"p-{os.urandom(6).hex()}"
