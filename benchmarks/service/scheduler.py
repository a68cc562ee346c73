"""The scheduler with a virtual clock: fairness against weights, waits, intervals, and time of this program.

1,056 links join 33 stores. Each store and link has limits, so several limits bind at once. All tenants submit equally
many jobs in the first minute, far more than the stores can move. Fairness is measured while all have a backlog.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tradewind.service.scheduler.eta import Eta
from tradewind.service.scheduler.events import LimitSet, WeightSet
from tradewind.service.scheduler.jobs import LINK, STORE_IN, STORE_OUT, Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.simulate import Simulator

__all__ = ["JOBS", "SUBMITTED_S", "WEIGHTS", "backlog_end_s", "build_simulator", "fairness_error", "measure_scheduler"]

JOBS = 100_000
STORES = 33
SUBMITTED_S = 60.0
"""Time in which all jobs are submitted."""
WEIGHTS = {"physics": 4.0, "astro": 2.0, "climate": 1.0, "biology": 1.0}
LINK_GBPS, STORE_ACTIVE, LINK_ACTIVE = 10.0, 10, 2
FAIRNESS_ERROR_MAX = 0.05
"""The aim: how far a tenant's share of the bytes may differ from that of the weights, relative to the latter."""
ASKED_EVERY = 100
"""Events between two questions for an ETA."""


def bind(job: ServiceJob) -> Sequence[Binding]:
    """Bind a job to the direct link from each of its sources."""
    return [Binding(source, (f"{source}>{job.destination}",), (), (), LINK_GBPS) for source in job.sources]


def jobs_of(count: int, stores: Sequence[str], chance: random.Random) -> Iterator[ServiceJob]:
    """Yield jobs with lognormal sizes, equally many of each tenant whatever its weight."""
    tenants = list(WEIGHTS)
    for number in range(count):
        source, destination = chance.sample(stores, 2)
        yield ServiceJob(
            id=f"job{number}",
            tenant=chance.choice(tenants),
            activity=chance.choice(("production", "user")),
            sources=(source,),
            destination=destination,
            path=f"data/{number}/",
            size_bytes=int(chance.lognormvariate(0, 1) * 20e9),
            submitted_s=chance.random() * SUBMITTED_S,
        )


def build_simulator(count: int, seed: int, stores: int = STORES) -> Simulator:
    """Return the simulator of the scenario, with all jobs and limits."""
    simulator = Simulator(bind, failures=0.01, seed=seed, tunes_links=True)
    for tenant, weight in WEIGHTS.items():
        simulator.at(0, WeightSet(tenant, weight))
    names = [f"store{number}" for number in range(stores)]
    for store in names:
        for kind in (STORE_IN, STORE_OUT):
            simulator.at(0, LimitSet(Resource(kind, store), ResourceLimit(active=STORE_ACTIVE)))
        for other in names:
            if other != store:
                limit = ResourceLimit(active=LINK_ACTIVE, rate_gbps=LINK_ACTIVE * LINK_GBPS)
                simulator.at(0, LimitSet(Resource(LINK, f"{store}>{other}"), limit))
    simulator.submit(jobs_of(count, names, random.Random(seed)))
    return simulator


def backlog_end_s(simulator: Simulator) -> float:
    """Return when the tenant with the highest weight had started half of its bytes. All have a backlog until then."""
    tenant = max(WEIGHTS, key=lambda name: WEIGHTS[name])
    starts = sorted(
        (seen.started_s or 0, seen.job.size_bytes) for seen in simulator.jobs.values() if seen.job.tenant == tenant
    )
    left = sum(size for _, size in starts) / 2
    for started_s, size in starts:
        left -= size
        if left <= 0:
            return started_s
    raise ValueError("the simulator has no jobs")


class EtaQuestions:
    """Asks for the ETA of a random job now and then, and counts how often the interval contained its real end."""

    def __init__(self, simulator: Simulator, seed: int) -> None:
        self._simulator, self._chance = simulator, random.Random(seed)
        self._names = list(simulator.jobs)
        self.asked: list[tuple[str, Eta]] = []

    def observe(self, now_s: float, changed: list[str]) -> None:
        """Ask after some of the events."""
        if self._simulator.events % ASKED_EVERY == 0 and now_s > SUBMITTED_S:
            eta = self._simulator.scheduler.eta(name := self._chance.choice(self._names))
            if eta:
                self.asked.append((name, eta))

    def share(self) -> float:
        """Return the share of intervals that contained the real end."""
        ends = [(self._simulator.jobs[name].ended_s or 0, eta) for name, eta in self.asked]
        return statistics.fmean(eta.earliest_s <= end_s <= eta.latest_s for end_s, eta in ends)


def fairness_error(simulator: Simulator, from_s: float, until_s: float) -> float:
    """Return the largest relative difference between a tenant's share of the bytes and its share of the weights.

    Counted are jobs that started between the two times, in seconds.
    """
    served: Counter[str] = Counter()
    for seen in simulator.jobs.values():
        if seen.started_s is not None and from_s <= seen.started_s < until_s:
            served[seen.job.tenant] += seen.job.size_bytes
    total, weights = sum(served.values()), sum(WEIGHTS.values())
    return max(abs(served[tenant] / total / (weight / weights) - 1) for tenant, weight in WEIGHTS.items())


def measure_scheduler(count: int, seed: int) -> tuple[str, bool]:
    """Run the scenario; return its figures as a Markdown table, and whether all jobs ended and the shares were fair."""
    simulator = build_simulator(count, seed)
    questions = EtaQuestions(simulator, seed)
    simulator.observe = questions.observe
    started = time.process_time()
    simulator.run()
    took_s = time.process_time() - started
    ended = [seen for seen in simulator.jobs.values() if seen.ended_s is not None]
    waits = [(seen.started_s or 0) - seen.job.submitted_s for seen in ended]
    error = fairness_error(simulator, SUBMITTED_S, backlog_end_s(simulator))
    lines = [
        "| figure | value |",
        "|---|---:|",
        f"| jobs that ended | {len(ended):,} of {count:,} |",
        f"| links | {STORES * (STORES - 1):,} |",
        f"| events | {simulator.events:,} |",
        f"| CPU time | {took_s:.1f} s |",
        f"| CPU time per event | {took_s / simulator.events * 1e6:.0f} µs |",
        f"| decisions about links that changed something | {sum(len(one.changes) for _, one in simulator.tunings):,} |",
        f"| simulated time | {simulator.now_s / 3600:.1f} h |",
        f"| fairness error against weights (aim: {FAIRNESS_ERROR_MAX:.0%}) | {error:.1%} |",
        f"| wait, median | {statistics.median(waits) / 3600:.2f} h |",
        f"| wait, 99% | {sorted(waits)[int(len(waits) * 0.99)] / 3600:.2f} h |",
        f"| ETA intervals that contained the end | {questions.share():.1%} of {len(questions.asked):,} |",
    ]
    return "\n".join(lines), len(ended) == count and error <= FAIRNESS_ERROR_MAX
