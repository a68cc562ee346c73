"""The scheduler with a virtual clock: fairness against weights, waits, intervals, and time of this program.

1,056 links join 33 stores. Each store and link has limits, so several limits bind at once. All jobs are submitted in
the first hour, which is far more than the stores can move: tenants have a backlog until the first of them runs out.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tradewind.service.scheduler.events import LimitSet, WeightSet
from tradewind.service.scheduler.jobs import LINK, STORE_IN, STORE_OUT, Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.simulate import Simulator

__all__ = ["JOBS", "WEIGHTS", "build_simulator", "fairness_error", "measure_scheduler"]

JOBS = 100_000
STORES = [f"store{number}" for number in range(33)]
WEIGHTS = {"physics": 4.0, "astro": 2.0, "climate": 1.0, "biology": 1.0}
LINK_GBPS, STORE_ACTIVE, LINK_ACTIVE = 10.0, 40, 4


def bind(job: ServiceJob) -> Sequence[Binding]:
    """Bind a job to the direct link from each of its sources."""
    return [Binding(source, (f"{source}>{job.destination}",), (), (), LINK_GBPS) for source in job.sources]


def jobs_of(count: int, chance: random.Random) -> Iterator[ServiceJob]:
    """Yield jobs with lognormal sizes. A tenant submits as many as its weight says, so backlogs end together."""
    tenants, weights = list(WEIGHTS), list(WEIGHTS.values())
    for number in range(count):
        source, destination = chance.sample(STORES, 2)
        yield ServiceJob(
            id=f"job{number}",
            tenant=chance.choices(tenants, weights)[0],
            activity=chance.choice(("production", "user")),
            sources=(source,),
            destination=destination,
            path=f"data/{number}/",
            size_bytes=int(chance.lognormvariate(0, 1) * 20e9),
            submitted_s=chance.random() * 3600,
        )


def build_simulator(count: int, seed: int) -> Simulator:
    """Return the simulator of the scenario, with all jobs and limits."""
    simulator = Simulator(bind, failures=0.01, seed=seed)
    for tenant, weight in WEIGHTS.items():
        simulator.at(0, WeightSet(tenant, weight))
    for store in STORES:
        for kind in (STORE_IN, STORE_OUT):
            simulator.at(0, LimitSet(Resource(kind, store), ResourceLimit(active=STORE_ACTIVE)))
        for other in STORES:
            if other != store:
                limit = ResourceLimit(active=LINK_ACTIVE, rate_gbps=LINK_ACTIVE * LINK_GBPS)
                simulator.at(0, LimitSet(Resource(LINK, f"{store}>{other}"), limit))
    simulator.submit(jobs_of(count, random.Random(seed)))
    return simulator


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


def measure_scheduler(count: int, seed: int) -> str:
    """Run the scenario and return its figures as a Markdown table."""
    simulator = build_simulator(count, seed)
    started = time.process_time()
    simulator.run()
    took_s = time.process_time() - started
    ended = [seen for seen in simulator.jobs.values() if seen.ended_s is not None]
    waits = [(seen.started_s or 0) - seen.job.submitted_s for seen in ended]
    half_s = statistics.median(seen.started_s or 0 for seen in ended)
    lines = [
        "| figure | value |",
        "|---|---:|",
        f"| jobs that ended | {len(ended):,} of {count:,} |",
        f"| links | {len(STORES) * (len(STORES) - 1):,} |",
        f"| events | {simulator.events:,} |",
        f"| CPU time | {took_s:.1f} s |",
        f"| CPU time per event | {took_s / simulator.events * 1e6:.0f} µs |",
        f"| simulated time | {simulator.now_s / 3600:.1f} h |",
        f"| fairness error, first half of the jobs | {fairness_error(simulator, 3600, half_s):.1%} |",
        f"| wait, median | {statistics.median(waits) / 3600:.2f} h |",
        f"| wait, 99% | {sorted(waits)[int(len(waits) * 0.99)] / 3600:.2f} h |",
    ]
    return "\n".join(lines)
