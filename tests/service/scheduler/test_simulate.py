"""Properties that hold in simulated scenarios: answers match the scheduler's state, limits hold, shares are fair."""

import copy
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise, permutations
from statistics import median

import pytest

from benchmarks.service.scheduler import SUBMITTED_S, backlog_end_s, build_simulator, fairness_error
from tests.service.scheduler.scenes import GB, direct, job
from tradewind.service.scheduler.bans import Ban
from tradewind.service.scheduler.eta import Eta
from tradewind.service.scheduler.events import (
    BanLifted,
    BanSet,
    JobCancelled,
    JobPaused,
    JobResumed,
    LimitSet,
    LinkRestored,
    RoutesChanged,
    SchedulerEvent,
    StoreDown,
    StoreUp,
    TimePassed,
    WeightSet,
)
from tradewind.service.scheduler.jobs import LINK, STORE_IN, STORE_OUT, TENANT, Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import TUNED, ResourceLimit
from tradewind.service.scheduler.simulate import Simulator
from tradewind.service.scheduler.state import Scheduler
from tradewind.service.scheduler.why import BANNED, LIMITED, OWNED, PAUSED, STORE_IS_DOWN, TURN, WaitCause

STORES = ("cern", "desy", "bnl", "kek")
TENANTS = ("physics", "astro", "climate")


def scenario(seed: int, count: int = 150, *, tunes_links: bool = False) -> Simulator:
    """Return a busy service in which everything happens that the scheduler knows.

    With `tunes_links`, each link begins with one job.
    """
    chance = random.Random(seed)
    simulator = Simulator(direct, failures=0.1, seed=seed, reports=3, tunes_links=tunes_links)
    for source, destination in permutations(STORES, 2) if tunes_links else ():
        simulator.at(0, LinkRestored(f"{source}>{destination}", 1, 16, 16, 0.0))
    for store in STORES:
        simulator.at(0, LimitSet(Resource(STORE_OUT, store), ResourceLimit(active=3, rate_gbps=20)))
        simulator.at(0, LimitSet(Resource(STORE_IN, store), ResourceLimit(active=2)))
    simulator.at(0, LimitSet(Resource(LINK, "cern>desy"), ResourceLimit(rate_gbps=10)))
    simulator.at(0, LimitSet(Resource(TENANT, "climate"), ResourceLimit(active=2)))
    simulator.at(0, WeightSet("astro", 3))
    for number in range(count):
        destination, *sources = chance.sample(STORES, chance.choice((2, 2, 3)))
        simulator.submit([job(
            f"j{number}",
            tenant=chance.choice(TENANTS),
            activity=chance.choice(("production", "user")),
            sources=tuple(sources),
            destination=destination,
            path=f"{chance.randrange(60)}/",
            size_bytes=int(chance.lognormvariate(0, 1) * 20 * GB),
            submitted_s=float(chance.randrange(600)),
            not_before_s=float(chance.choice((0, 0, 0, 700))),
            priority=chance.choice((0, 0, 1)),
            rate_gbps_min=chance.choice((0.0, 0.0, 6.0)),
        )])  # fmt: skip
    events: list[SchedulerEvent] = [
        StoreDown("kek"), StoreUp("kek"), RoutesChanged(),
        BanSet(Ban("a", Resource(LINK, "cern>bnl"), "test")), BanLifted("a"),
        BanSet(Ban("b", Resource(STORE_IN, "desy"), "test", start_s=300, end_s=500, stops_jobs=True)),
    ]  # fmt: skip
    for at, event in enumerate(events):
        simulator.at(100 + 60 * at, event)
    for _ in range(count // 8):
        name, at_s = f"j{chance.randrange(count)}", chance.randrange(800)
        simulator.at(at_s, chance.choice((JobCancelled(name), JobPaused(name))))
        simulator.at(at_s + 200, JobResumed(name))
    return simulator


def removal(job: ServiceJob, cause: WaitCause) -> tuple[float, SchedulerEvent]:
    """Return the event that ends a cause, and its delay or time."""
    if cause.kind == LIMITED:
        assert cause.resource
        if cause.subject == TUNED:
            return 0, LinkRestored(cause.resource.name, 1000, 16, 16, 0.0)
        return 0, LimitSet(cause.resource, ResourceLimit())
    events: dict[str, SchedulerEvent] = {
        BANNED: BanLifted(cause.subject),
        STORE_IS_DOWN: StoreUp(cause.subject),
        OWNED: JobCancelled(cause.subject),
        TURN: JobCancelled(cause.subject),
        PAUSED: JobResumed(job.id),
    }
    return cause.until_s or 0, events.get(cause.kind, TimePassed())


def check_reason(scheduler: Scheduler, job: ServiceJob, now_s: float) -> str:
    """Remove the causes of a job's wait, one after the other. Each must go, and at last the job must start.

    If several routes are blocked, any of their causes may go first.
    """
    other, chance = copy.deepcopy(scheduler), random.Random(job.id)
    first, seen = "", set()
    while reason := other.why(job.id):
        cause = chance.choice(reason.causes)
        first = first or cause.kind
        assert cause not in seen, f"{job.id} still waits: {reason.sentence}"
        seen.add(cause)
        until_s, event = removal(job, cause)
        timed = cause.kind not in (BANNED, LIMITED)
        now_s = max(now_s, until_s) if timed else now_s
        other.handle(now_s, event)
    assert other.phase(job.id) == "running"
    return first


@pytest.mark.parametrize("tunes_links", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_each_reason_is_true(seed: int, tunes_links: bool) -> None:
    simulator = scenario(seed, tunes_links=tunes_links)
    kinds: Counter[str] = Counter()
    for at_s in range(50, 1200, 75):
        simulator.run(at_s)
        waiting = [name for name in simulator.jobs if simulator.scheduler.why(name)]
        for name in random.Random(at_s).sample(waiting, min(6, len(waiting))):
            kinds[check_reason(simulator.scheduler, simulator.jobs[name].job, simulator.now_s)] += 1
    assert len(kinds) >= 4, kinds


@pytest.mark.parametrize("tunes_links", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_limits_and_ownership_hold_at_all_times(seed: int, tunes_links: bool) -> None:
    simulator = scenario(seed, tunes_links=tunes_links)
    limits = simulator.scheduler._admitter.limits

    def observe(now_s: float, changed: list[str]) -> None:
        paths: Counter[tuple[str, str]] = Counter()
        for state in simulator.scheduler._jobs.values():
            if state.grant:
                paths[state.job.destination, state.job.path] += 1
        assert not paths or max(paths.values()) == 1
        for store in STORES:
            for kind in (STORE_IN, STORE_OUT):
                resource = Resource(kind, store)
                assert limits.usage(resource).active <= (limits.limit(resource).active or 0)
                assert limits.usage(resource).rate_gbps <= limits.limit(resource).rate_gbps + 1e-6

    simulator.observe = observe
    simulator.run()
    assert bool(simulator.tunings) == tunes_links
    assert all(seen.ended_s or seen.failed or simulator.scheduler.phase(name) in (None, "paused")
               for name, seen in simulator.jobs.items())  # fmt: skip


REGIONS = ("paris", "rome", "oslo", "bern", "riga")


def over_relays(job: ServiceJob) -> Sequence[Binding]:
    """Bind a job to its planned routes, of which some share hops, or to the direct link."""
    direct = f"{job.sources[0]}>{job.destination}"
    return [Binding(job.sources[0], job.links or (direct,), (), (), job.planned_gbps or 8.0)]


@pytest.mark.parametrize("seed", range(5))
def test_no_link_is_exceeded_on_routes_with_relays(seed: int) -> None:
    """The test counts running jobs from the decisions alone. Each byte of a job may take any of its routes."""
    chance = random.Random(seed)
    simulator = Simulator(over_relays, failures=0.1, seed=seed)
    limits: dict[str, ResourceLimit] = {}
    for start, end in permutations(REGIONS, 2):
        limits[f"{start}>{end}"] = ResourceLimit(
            active=chance.randint(1, 3), rate_gbps=chance.choice((5.0, 10.0, 20.0))
        )
    for name, limit in limits.items():
        simulator.at(0, LimitSet(Resource(LINK, name), limit))
    for number in range(200):
        source, destination, *relays = chance.sample(REGIONS, len(REGIONS))
        routes = [(source, *relays[: chance.randint(0, 2)], destination) for _ in range(chance.randint(0, 3))]
        links = [f"{start}>{end}" for route in routes for start, end in pairwise(route)]
        simulator.submit([job(
            f"j{number}",
            sources=(source,),
            destination=destination,
            path=f"{number}/",
            size_bytes=int(chance.lognormvariate(0, 1) * 20 * GB),
            submitted_s=float(chance.randrange(300)),
            links=tuple(links),
            planned_gbps=chance.uniform(2, 16) if links else 0.0,
        )])  # fmt: skip
    simulator.at(150, BanSet(Ban("a", Resource(LINK, "rome>oslo"), "test", end_s=400, stops_jobs=True)))
    most = 0

    def observe(now_s: float, changed: list[str]) -> None:
        nonlocal most
        active: Counter[str] = Counter()
        rates: defaultdict[str, float] = defaultdict(float)
        for name in simulator.running:
            run = simulator.jobs[name]
            assert run.binding is not None
            for link in set(run.binding.links):
                active[link] += 1
                rates[link] += run.rate_gbps
        for link, count in active.items():
            assert count <= (limits[link].active or 0)
            assert rates[link] <= limits[link].rate_gbps * (1 + 1e-6)
        most = max(most, len(simulator.running))

    simulator.observe = observe
    simulator.run()
    assert most > 5
    assert all(seen.ended_s or seen.failed for seen in simulator.jobs.values())


def etas(seed: int, count: int = 4000, reports: int = 0) -> list[tuple[str, Eta, float, float]]:
    """Return estimates with the phase of the job, the time of the question, and the real end."""
    chance = random.Random(seed)
    simulator = Simulator(direct, failures=0.02, seed=seed, reports=reports)
    for store in STORES:
        simulator.at(0, LimitSet(Resource(STORE_IN, store), ResourceLimit(active=4)))
    now_s, jobs = 0.0, []
    for number in range(count):
        now_s += chance.expovariate(1 / 2.0)
        source, destination = chance.sample(STORES, 2)
        size = int(chance.lognormvariate(0, 1) * 12 * GB)
        jobs.append(job(f"j{number}", sources=(source,), destination=destination, tenant=chance.choice(TENANTS),
                        size_bytes=size, submitted_s=now_s))  # fmt: skip
    simulator.submit(jobs)
    asked = []
    for at_s in range(1000, int(now_s), 20):
        simulator.run(at_s)
        alive = [name for name in simulator.jobs if simulator.scheduler.phase(name)]
        for name in chance.sample(alive, min(2, len(alive))):
            phase = simulator.scheduler.phase(name)
            if eta := simulator.scheduler.eta(name):
                asked.append((phase or "", name, eta, float(at_s)))
    simulator.run()
    return [(phase, eta, at_s, simulator.jobs[name].ended_s or 0.0) for phase, name, eta, at_s in asked]


def share_inside(asked: list[tuple[str, Eta, float, float]]) -> float:
    return sum(eta.earliest_s <= end_s <= eta.latest_s for _, eta, _, end_s in asked) / len(asked)


@pytest.mark.parametrize("seed", range(3))
def test_the_stated_share_of_etas_contains_the_real_end(seed: int) -> None:
    asked = etas(seed)
    assert sum(phase == "queued" for phase, *_ in asked) > 30
    assert share_inside(asked) >= 0.9


def test_etas_of_running_jobs_follow_their_progress() -> None:
    """They contain the end as often, and are narrower."""
    widths = []
    for reports in (0, 4):
        running = [one for one in etas(0, 2000, reports) if one[0] == "running"]
        assert len(running) > 100 and share_inside(running) >= 0.9
        widths.append(median(eta.latest_s - eta.earliest_s for _, eta, _, _ in running))
    assert widths[1] < 0.8 * widths[0], widths


def test_equal_scenarios_have_equal_ends() -> None:
    ends = []
    for _ in range(2):
        simulator = scenario(7)
        simulator.run()
        ends.append({name: seen.ended_s for name, seen in simulator.jobs.items()})
    assert ends[0] == ends[1]


def test_tenants_get_their_shares_while_all_have_a_backlog() -> None:
    simulator = build_simulator(3000, seed=0, stores=3)
    simulator.run()
    assert fairness_error(simulator, SUBMITTED_S, backlog_end_s(simulator)) <= 0.05


@pytest.mark.parametrize("seed", range(3))
def test_ends_are_true_while_operators_close_links(seed: int) -> None:
    """A job behind a ban ends after it; without an end of the ban nobody knows. A later ban is counted, too."""
    chance = random.Random(seed)
    simulator = Simulator(direct, failures=0.02, seed=seed, reports=4)
    for store in STORES:
        simulator.at(0, LimitSet(Resource(STORE_IN, store), ResourceLimit(active=4)))
    bans = {
        ("cern", "desy"): (Ban("drain", Resource(LINK, "cern>desy"), "", start_s=1500, end_s=2600), 1500.0),
        ("kek", "bnl"): (Ban("known", Resource(LINK, "kek>bnl"), "", start_s=2000, end_s=2700, stops_jobs=True), 0.0),
        ("bnl", "cern"): (Ban("endless", Resource(LINK, "bnl>cern"), ""), 1800.0),
    }
    for ban, at_s in bans.values():
        simulator.at(at_s, BanSet(ban))
    simulator.at(2800, BanLifted("endless"))
    now_s, jobs = 0.0, []
    for number in range(1800):
        now_s += chance.expovariate(1 / 2.4)
        source, destination = chance.sample(STORES, 2)
        jobs.append(job(f"j{number}", sources=(source,), destination=destination, tenant=chance.choice(TENANTS),
                        size_bytes=int(chance.lognormvariate(0, 1) * 12 * GB), submitted_s=now_s))  # fmt: skip
    simulator.submit(jobs)
    asked: list[tuple[str, Eta, float]] = []
    behind = unknown = 0
    for at_s in range(1000, 4000, 10):
        simulator.run(at_s)
        scheduler = simulator.scheduler
        for name in chance.sample(sorted(scheduler._jobs), min(6, len(scheduler._jobs))):
            eta, why, one = scheduler.eta(name), scheduler.why(name), simulator.jobs[name].job
            cause = None if why is None else why.causes[0]
            if cause is not None and cause.kind == BANNED:
                assert (eta is None) == (cause.until_s is None) == (cause.subject == "endless")
                if eta is not None and cause.until_s is not None:
                    assert eta.earliest_s >= cause.until_s
                    behind += 1
                unknown += eta is None
            known_s = bans[one.sources[0], one.destination][1] if (one.sources[0], one.destination) in bans else 0.0
            if eta is not None and at_s > known_s:
                asked.append((name, eta, float(at_s)))
    simulator.run()
    closed = {f"{start}>{end}" for start, end in bans}
    inside = {True: [0, 0], False: [0, 0]}
    for name, eta, _ in asked:
        one, end_s = simulator.jobs[name].job, simulator.jobs[name].ended_s
        assert end_s is not None
        counts = inside[f"{one.sources[0]}>{one.destination}" in closed]
        counts[0] += eta.earliest_s <= end_s <= eta.latest_s
        counts[1] += 1
    assert behind > 30 and unknown > 10
    shares = {is_closed: good / count for is_closed, (good, count) in inside.items()}
    assert shares[False] >= 0.88 and shares[True] >= 0.85, (shares, inside)
