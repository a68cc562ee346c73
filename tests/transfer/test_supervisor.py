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

from tradewind.errors import GatewayError
from tradewind.transfer.supervisor import (
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

SEEDS = int(os.environ.get("TRADEWIND_SEEDS", "200"))
"""How many seeds; a longer run sets TRADEWIND_SEEDS."""
TICK_S = 0.5
PROGRESS_S = 0.5
END_S = (RESTARTS_MAX + 1) * (RESTART_END_S + 2000.0)
"""No job of these worlds lasts longer."""


@dataclass(frozen=True)
class Budget:
    """A ceiling, and machines that cost the same all the time."""

    usd: float = float("inf")
    usd_per_s: float = 0.0
    boot_s: float = 0.0

    def spent_usd(self, egress_usd: float, at_s: float) -> float:
        return egress_usd + self.usd_per_s * (self.boot_s + at_s)


def said(generation: int, event: str, **fields: Any) -> LeadSaid:
    document = {"event": event, **fields}
    return LeadSaid(generation, json.dumps(document).encode() + b"\n", document)


def progress(generation: int, elapsed_s: float, cost_usd: float = 0.0) -> LeadSaid:
    return said(generation, "progress", elapsed_s=elapsed_s, cost_usd=cost_usd)


@dataclass
class Lead:
    """A fake lead: it works for some time, then is done, dies, or is silent for good."""

    generation: int
    since_s: float
    ends_s: float
    dies: bool
    drains_after_s: float
    """Infinite for one that never answers a drain."""
    ended: bool = False
    draining: bool = False


@dataclass
class World:
    """One job: a supervisor, fake gateways, and a network that loses, delays and repeats what they say."""

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
        # The end of a connection is always noticed; sometimes late.
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
    """What the machines of the present lead have really cost, without what earlier ones did."""
    return world.usd_per_s * (now_s - world.leads[-1].since_s)


@pytest.mark.parametrize("block", range(10))
def test_every_job_ends_as_it_should_whatever_is_lost(block: int) -> None:
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
            assert world.actions[-1][0] <= world.asked_s + RESTART_END_S + 80, f"{what}: the wish to stop was lost"


@pytest.mark.parametrize("seed", range(200))
def test_the_ceiling_holds_also_when_no_progress_arrives(seed: int) -> None:
    """Without egress the cost is a matter of time alone, so no lost line may delay the stop."""
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
        assert ceiling.spent_usd(0.0, now_s) < ceiling.usd or stopped_s == TICK_S, "it was passed before the stop"
    assert supervisor.over_ceiling
    spent_soon_usd = ceiling.spent_usd(0.0, stopped_s + CEILING_STOP_S + TICK_S)
    assert stopped_s == TICK_S or spent_soon_usd >= ceiling.usd, "too early"


def test_egress_counts_for_the_ceiling_even_if_an_older_report_comes_last() -> None:
    supervisor = Supervisor(Budget(1.0), restartable=True, now_s=0.0)
    assert supervisor.handle(progress(0, 10.0, 0.6), 10.0) == [Publish(progress(0, 10.0, 0.6).line, progress=True)]
    assert supervisor.handle(progress(0, 5.0, 0.3), 11.0) == []
    assert Drain(0) in supervisor.handle(progress(0, 12.0, 1.0), 12.0)


def test_what_a_dead_lead_still_says_changes_nothing() -> None:
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
