"""The supervisor's decisions, with seeds: events are lost, late and repeated, leads die, drains and restarts fail."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tradewind.engine.supervisor import (
    CEILING_STOP_S,
    DRAIN_AGAIN_S,
    DRAIN_END_S,
    RESTART_END_S,
    RESTARTS_MAX,
    Action,
    Drain,
    DrainAsked,
    Event,
    Finish,
    LeadEnded,
    LeadSaid,
    Publish,
    Restart,
    Restarted,
    RestartFailed,
    Supervisor,
    Tick,
)
from tradewind.errors import GatewayError

SEEDS = int(os.environ.get("TRADEWIND_SEEDS", "80"))
"""Number of seeds. Set TRADEWIND_SEEDS for a longer run."""
TICK_S = 0.5
PROGRESS_S = 0.5
END_S = (RESTARTS_MAX + 1) * (RESTART_END_S + 2000.0)
"""Longest duration of a job in these worlds."""


@dataclass(frozen=True)
class Budget:
    """A ceiling, with machines of constant cost."""

    usd: float = float("inf")
    usd_per_s: float = 0.0
    boot_s: float = 0.0
    usd_per_gb_max: float = float("inf")
    requests: list[float] = field(default_factory=lambda: [0.0])

    @property
    def requests_usd(self) -> float:
        return self.requests[-1]

    def spent_usd(self, egress_usd: float, at_s: float) -> float:
        return egress_usd + self.requests_usd + self.usd_per_s * (self.boot_s + at_s)


def said(generation: int, event: str, **fields: Any) -> LeadSaid:
    document = {"event": event, **fields}
    return LeadSaid(generation, json.dumps(document).encode() + b"\n", document)


def progress(generation: int, elapsed_s: float, cost_usd: float = 0.0) -> LeadSaid:
    return said(generation, "progress", elapsed_s=elapsed_s, cost_usd=cost_usd)


@dataclass
class Lead:
    """A fake lead: it works for some time, then finishes, dies, or hangs."""

    generation: int
    since_s: float
    ends_s: float
    dies: bool
    drains_after_s: float
    """Infinite if the lead never answers a drain."""
    ended: bool = False
    draining: bool = False


@dataclass
class World:
    """One job: a supervisor, fake gateways, and a network that loses, delays and repeats their events."""

    rng: random.Random
    now_s: float = 0.0
    queue: list[tuple[float, int, Any]] = field(default_factory=list)
    actions: list[tuple[float, Action]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng
        self.numbers = itertools.count()
        self.lost, self.late, self.twice = rng.uniform(0, 0.6), rng.uniform(0, 0.5), rng.uniform(0, 0.3)
        self.usd_per_s = rng.choice([0.0, 0.001, 0.01])
        self.egress_usd_per_s = rng.choice([0.0, 0.001])
        usd = rng.uniform(0.01, 2.0)
        self.budget = rng.choice([Budget(), Budget(usd, self.usd_per_s, rng.uniform(0, 5))])
        self.restartable = rng.random() < 0.9
        self.supervisor = Supervisor(self.budget, restartable=self.restartable, now_s=0.0)
        self.asked_s = rng.uniform(0, 600) if rng.random() < 0.4 else None
        self.leads: list[Lead] = []
        self.finish: Finish | None = None
        self.begin_lead(0)
        self.at(0.0, "tick")
        if self.asked_s is not None:
            self.at(self.asked_s, DrainAsked())

    def at(self, when_s: float, what: Any) -> None:
        heapq.heappush(self.queue, (when_s, next(self.numbers), what))

    def begin_lead(self, generation: int) -> None:
        rng = self.rng
        drains = rng.choice([rng.uniform(0, 6), rng.uniform(0, 60), float("inf")])
        ends_s = self.now_s + rng.uniform(1, 900)
        self.leads.append(Lead(generation, self.now_s, ends_s, rng.random() < 0.5, drains))
        self.at(self.now_s, ("progress", self.leads[-1]))
        self.at(ends_s, ("end", self.leads[-1]))

    def say(self, event: Event, *, may_be_lost: bool = True) -> None:
        if may_be_lost and self.rng.random() < self.lost:
            return
        for _ in range(2 if self.rng.random() < self.twice else 1):
            late_s = self.rng.uniform(0, 30) if self.rng.random() < self.late else 0.0
            self.at(self.now_s + late_s, event)

    def run(self) -> None:
        while self.queue and self.now_s < END_S:
            self.now_s, _, what = heapq.heappop(self.queue)
            if what == "tick":
                if self.finish is None:
                    self.at(self.now_s + TICK_S, "tick")
                self.give(Tick())
            elif isinstance(what, tuple):
                self.live(*what)
            else:
                self.give(what)

    def live(self, what: str, lead: Lead) -> None:
        if lead.ended:
            return
        elapsed_s = self.now_s - lead.since_s
        if what == "progress":
            self.say(progress(lead.generation, elapsed_s, self.egress_usd_per_s * self.now_s))
            self.at(self.now_s + PROGRESS_S, ("progress", lead))
            return
        lead.ended = True
        if not lead.dies:
            self.say(said(lead.generation, "done", outcome="interrupted" if lead.draining else "done"))
        # The end of a connection is always noticed, but sometimes late.
        self.say(LeadEnded(lead.generation, "signal 9"), may_be_lost=False)

    def give(self, event: Event) -> None:
        over = self.finish is not None
        for action in self.supervisor.handle(event, self.now_s):
            assert not over, "an action after the end"
            self.actions.append((self.now_s, action))
            self.carry_out(action)

    def carry_out(self, action: Action) -> None:
        rng, lead = self.rng, self.leads[-1]
        if isinstance(action, Finish):
            assert self.finish is None
            self.finish = action
        elif isinstance(action, Drain) and rng.random() > self.lost:
            if action.generation == lead.generation and not lead.draining and lead.drains_after_s < float("inf"):
                lead.draining = True
                self.at(self.now_s + lead.drains_after_s, ("end", lead))
        elif isinstance(action, Restart):
            kind, lasting_s = rng.random(), rng.uniform(0, 80)
            if kind < 0.1:
                self.say(RestartFailed(action.generation, GatewayError("no machine")))
            elif kind < 0.9:
                self.at(self.now_s + lasting_s, "restarted")

    def give_restarted(self) -> None:
        generation = self.supervisor.generation
        self.begin_lead(generation)
        self.say(Restarted(generation))


def simulate(seed: int) -> World:
    world = World(random.Random(seed))
    give = world.give

    def also_restarted(event: Any) -> None:
        if event == "restarted":
            if world.finish is None:
                world.give_restarted()
        else:
            give(event)

    world.give = also_restarted  # type: ignore[method-assign]
    world.run()
    return world


def machines_usd(world: World, now_s: float) -> float:
    """Return the true cost of the present lead's machines, without those of earlier leads."""
    return world.usd_per_s * (now_s - world.leads[-1].since_s)


@pytest.mark.parametrize("block", range(10))
def test_every_job_ends_correctly_after_any_loss(block: int) -> None:
    for seed in range(block, SEEDS, 10):
        world = simulate(seed)
        what = f"seed {seed}"
        assert world.finish is not None, f"{what}: the job never ended"
        kinds = [action for _, action in world.actions]
        assert sum(isinstance(action, Finish) for action in kinds) == 1, what
        generations = [action.generation for action in kinds if isinstance(action, Restart)]
        assert generations == list(range(1, len(generations) + 1)), what
        assert len(generations) <= (RESTARTS_MAX if world.restartable else 0), what
        drains = [when_s for when_s, action in world.actions if isinstance(action, Drain)]
        restarts = [when_s for when_s, action in world.actions if isinstance(action, Restart)]
        if drains:
            assert not [when_s for when_s in restarts if when_s >= drains[0]], f"{what}: restarted while it drains"
            end_s = world.actions[-1][0]
            assert end_s - drains[0] <= DRAIN_END_S + TICK_S, f"{what}: its drain did not end"
            gaps = [later - earlier for earlier, later in itertools.pairwise(drains)]
            assert all(DRAIN_AGAIN_S <= gap <= DRAIN_AGAIN_S + TICK_S for gap in gaps), what
        if world.asked_s is not None and not drains:
            assert world.actions[-1][0] <= world.asked_s + RESTART_END_S + 80, f"{what}: the request to stop was lost"


@pytest.mark.parametrize("seed", range(200))
def test_the_ceiling_holds_without_progress_reports(seed: int) -> None:
    """Without egress the cost depends only on time, so a lost line must not delay the stop."""
    rng = random.Random(seed)
    ceiling = Budget(rng.uniform(0.05, 1.0), rng.uniform(0.001, 0.02), rng.uniform(0, 2))
    supervisor = Supervisor(ceiling, restartable=True, now_s=0.0)
    lost = rng.choice([0.0, 0.5, 1.0])
    now_s, stopped_s = 0.0, None
    while stopped_s is None:
        now_s += TICK_S
        event: Event = Tick() if rng.random() < lost else progress(0, now_s - rng.uniform(0, 20))
        if any(isinstance(action, Drain) for action in supervisor.handle(event, now_s)):
            stopped_s = now_s
        assert ceiling.spent_usd(0.0, now_s) < ceiling.usd or stopped_s == TICK_S, (
            "the ceiling was exceeded before the stop"
        )
    assert supervisor.over_ceiling
    spent_soon_usd = ceiling.spent_usd(0.0, stopped_s + CEILING_STOP_S + TICK_S)
    assert stopped_s == TICK_S or spent_soon_usd >= ceiling.usd, "too early"


def test_egress_counts_towards_the_ceiling_even_if_an_older_report_arrives_last() -> None:
    supervisor = Supervisor(Budget(1.0), restartable=True, now_s=0.0)
    assert supervisor.handle(progress(0, 10.0, 0.6), 10.0) == [Publish(progress(0, 10.0, 0.6).line, progress=True)]
    assert supervisor.handle(progress(0, 5.0, 0.3), 11.0) == []
    assert Drain(0) in supervisor.handle(progress(0, 12.0, 1.0), 12.0)


def test_late_events_of_a_dead_lead_change_nothing() -> None:
    supervisor = Supervisor(Budget(), restartable=True, now_s=0.0)
    assert supervisor.handle(LeadEnded(0, "signal 9"), 1.0) == [Restart(1, "signal 9")]
    assert supervisor.handle(LeadEnded(0, "signal 9"), 1.0) == []
    assert supervisor.handle(said(0, "done", outcome="done"), 2.0) == []
    assert supervisor.handle(Restarted(1), 3.0) == []
    assert supervisor.handle(Restarted(1), 3.0) == []
    assert supervisor.handle(LeadEnded(0, "signal 9"), 4.0) == []
    done = said(1, "done", outcome="done")
    assert supervisor.handle(done, 5.0) == [Finish(done=done.document), Publish(done.line)]
    assert supervisor.handle(LeadEnded(1, "exit code 0"), 6.0) == []


@pytest.mark.parametrize("seed", range(100))
def test_egress_between_two_reports_does_not_pass_the_ceiling(seed: int) -> None:
    """The lead reports twice a second what it may have sent, and stops sending half a second after a request."""
    rng = random.Random(seed)
    usd_per_s, usd = rng.uniform(0.01, 0.3), rng.uniform(1.0, 2.0)
    supervisor = Supervisor(Budget(usd), restartable=True, now_s=0.0)
    now_s, lost = rng.uniform(0, 0.5), rng.choice([0.0, 0.3])
    while True:
        now_s += PROGRESS_S
        event: Event = Tick() if rng.random() < lost else progress(0, now_s, usd_per_s * now_s)
        if any(isinstance(action, Drain) for action in supervisor.handle(event, now_s)):
            break
    spent_usd = usd_per_s * (now_s + PROGRESS_S)
    assert supervisor.over_ceiling
    assert spent_usd <= usd, "the ceiling was exceeded before the stop"
    # The stop is no earlier than necessary: the latest report may be up to one interval old.
    assert spent_usd >= usd - usd_per_s * (6 * PROGRESS_S if lost else 3 * PROGRESS_S), "too early"


@pytest.mark.parametrize(("objects", "stops"), [(3_000, False), (10_000, True)])
def test_requests_between_two_reports_do_not_pass_the_ceiling(objects: int, stops: bool) -> None:
    """500 objects a second at 0.001 USD each. Objects in flight when the lead drains are still written."""
    budget = Budget(4.0)
    supervisor = Supervisor(budget, restartable=True, now_s=0.0)
    stopped_s = None
    for done in range(0, objects + 1, 250):
        now_s = done / 500
        budget.requests.append(done * 0.001)
        counts = {"listed": True, "objects_total": objects, "objects_done": done}
        actions = supervisor.handle(said(0, "progress", elapsed_s=now_s, cost_usd=0.0, **counts), now_s)
        if stopped_s is None and any(isinstance(action, Drain) for action in actions):
            stopped_s = now_s
    assert (stopped_s is not None) == stops
    if stopped_s is not None:
        assert (stopped_s + 1.5) * 500 * 0.001 <= 4.0


def test_the_rest_of_a_transfer_costs_at_most_its_price() -> None:
    """The estimate for the last bytes of a job does not exceed their price, however fast the earlier ones were."""
    supervisor = Supervisor(Budget(1.001, usd_per_gb_max=0.1), restartable=True, now_s=0.0)
    for now_s, cost_usd, left_bytes in ((1.0, 0.0, 10**10), (2.0, 0.9, 10**9), (3.0, 0.99, 10**7)):
        rest = {"listed": True, "bytes_total": 10**10, "bytes_done": 10**10 - left_bytes}
        said_now = said(0, "progress", elapsed_s=now_s, cost_usd=cost_usd, **rest)
        actions = supervisor.handle(said_now, now_s)
        assert [type(action) for action in actions] == [Publish], f"{now_s}: stopped although the rest may be sent"


@pytest.mark.parametrize("earlier_gb", [0.0, 4.0])
def test_a_burst_within_the_planned_egress_does_not_stop_a_job(earlier_gb: float) -> None:
    """At the start all windows are filled at once, so as much is charged in 0.5 s as later in 5 s."""
    carried_usd = 0.098 * earlier_gb + 0.01
    for mean_usd_per_gb, retries, stopped in ((0.098, 0, False), (None, 0, True), (0.098, 1, True)):
        budget = Budget(1.0, usd_per_gb_max=0.2)
        supervisor = Supervisor(budget, restartable=True, now_s=0.0, mean_usd_per_gb=mean_usd_per_gb)
        earlier_bytes = earlier_gb * 1e9
        counts = {"listed": True, "bytes_total": 10**10, "bytes_done": earlier_bytes, "bytes_earlier": earlier_bytes}
        supervisor.handle(said(0, "progress", elapsed_s=0.5, cost_usd=carried_usd, **counts), 0.5)
        burst = said(0, "progress", elapsed_s=1.0, cost_usd=carried_usd + 0.35, retries=retries, **counts)
        actions = supervisor.handle(burst, 1.0)
        assert any(isinstance(action, Drain) for action in actions) == stopped


def test_a_job_that_does_not_drain_at_its_ceiling_is_ended_there() -> None:
    ceiling = Budget(1.0, usd_per_s=0.01)
    supervisor = Supervisor(ceiling, restartable=True, now_s=0.0)
    now_s = 90.0
    while not (ended := [a for a in supervisor.handle(Tick(), now_s) if isinstance(a, Finish)]):
        now_s += TICK_S
    assert ended[0].at_once
    assert supervisor.over_ceiling
    assert ceiling.spent_usd(0.0, now_s) <= 1.0 + 1e-9
