"""How many jobs a link runs: it rises with goodput, falls on errors, and stays within its bounds."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.service.scheduler.scenes import GB, direct, job, limited, started, submit
from tradewind.model.event import Progress
from tradewind.service.scheduler.events import (
    JobRestored,
    LimitSet,
    LinkRestored,
    RunEnded,
    RunFailed,
    RunProgressed,
    TimePassed,
    TuneLink,
)
from tradewind.service.scheduler.jobs import LINK, STORE_IN, Binding, Resource, ServiceJob
from tradewind.service.scheduler.limits import ResourceLimit
from tradewind.service.scheduler.simulate import Simulator
from tradewind.service.scheduler.state import Scheduler
from tradewind.service.scheduler.tuning import (
    JOBS_MAX,
    JOBS_START,
    LINKS_MAX,
    REQUESTS_MAX,
    REQUESTS_MIN,
    REST_S_MAX,
    SUCCESS_KEPT_S,
    TUNE_EVERY_S,
    LinkTuner,
    RequestStart,
    TunedLink,
)
from tradewind.service.scheduling_rows import progressed

ANY_LINK = "cern>lab"


class BusyLink:
    """A link for which jobs always wait. It moves as much as `gbps_of` says for a number of jobs.

    A job moves its first bytes `boot_s` after its start.
    """

    def __init__(self, gbps_of: Callable[[int], float], boot_s: float = 0.0) -> None:
        self.tuner, self.gbps_of, self.boot_s, self.now_s = LinkTuner(), gbps_of, boot_s, 0.0
        self.link = self.tuner.started(ANY_LINK, 0.0)
        self.started_s: list[float] = [0.0]
        self.moving = 0
        self.reasons: list[str] = []

    def interval(self, *, tenants: Sequence[str] = "a", failure: str | None = None, most: int | None = None) -> int:
        """Let an interval pass in which a run of each tenant ends; return how many jobs may run then."""
        while self.link.running < self.link.jobs_max:
            self.tuner.started(ANY_LINK, self.now_s)
            self.started_s.append(self.now_s)
        while self.link.running > self.link.jobs_max:
            self.tuner.left(ANY_LINK)
            self.started_s.pop()
        self.now_s += TUNE_EVERY_S
        before, self.moving = self.moving, sum(one + self.boot_s < self.now_s for one in self.started_s)
        for _ in range(before, self.moving):
            self.tuner.moved(ANY_LINK, tenants[0], 0, self.now_s, is_first=True)
        moved_bytes = round(self.gbps_of(self.moving) * 1e9 / 8 * TUNE_EVERY_S)
        for _ in range(self.moving):
            self.tuner.moved(ANY_LINK, tenants[0], moved_bytes // self.moving, self.now_s)
        for tenant in tenants:
            self.tuner.ended(ANY_LINK, tenant, self.now_s, failure=failure, requests=None)
        assert self.tuner.due(self.now_s) == [ANY_LINK]
        changes = self.tuner.decide(ANY_LINK, self.now_s, is_wanted=True, most=most)
        self.reasons += [change.reason for change in changes]
        return self.link.jobs_max


def test_it_doubles_with_the_goodput_up_to_the_bound() -> None:
    busy = BusyLink(lambda jobs: 0.1 * jobs)
    assert [busy.interval(most=200) for _ in range(6)] == [32, 64, 128, 200, 200, 200]
    assert busy.reasons[0] == "16 → 32 jobs: others waited while 16 moved 1.6 Gbit/s"
    assert busy.link.is_starting, "an operator's limit does not show that a link is full"


def test_it_doubles_until_the_first_sign_that_the_link_is_full() -> None:
    busy = BusyLink(lambda jobs: min(0.1 * jobs, 3.0))
    assert [busy.interval() for _ in range(4)] == [32, 64, 64, 32]
    assert busy.reasons[-1] == "64 → 32 jobs: 64 moved 3 Gbit/s, hardly more than the 3 of 32; the next try is in 1 min"
    assert [busy.interval() for _ in range(4)] == [32, 32, 32, 40], "from here by a quarter"


def test_a_failed_run_ends_the_doubling() -> None:
    busy = BusyLink(lambda jobs: 0.1 * jobs)
    assert [busy.interval(), busy.interval(failure="throttled")] == [32, 32]
    assert [busy.interval() for _ in range(3)] == [40, 50, 62]


def test_an_increase_is_judged_when_its_jobs_move_bytes() -> None:
    """Machines of a cloud boot for a minute or two: until then the goodput cannot rise."""
    busy = BusyLink(lambda jobs: 0.1 * jobs, boot_s=100.0)
    seen = [busy.interval() for _ in range(40)]
    assert seen == sorted(seen) and seen[-1] >= 128
    stuck = BusyLink(lambda jobs: 0.1 * min(jobs, 16), boot_s=0.0)
    stuck.interval()
    stuck.boot_s = 1e9
    seen = [stuck.interval() for _ in range(41)]
    assert seen == [32] * 39 + [16, 32], "it is taken back in the end, and tried again without a pause"
    assert stuck.reasons[1] == "32 → 16 jobs: no more than 16 have moved bytes at once in 10 min"


def test_few_more_jobs_must_raise_the_goodput_a_little() -> None:
    """17 of 32 jobs run. A link is not full because nobody else wants to use it."""
    tuner = LinkTuner()
    for _ in range(JOBS_START):
        link = tuner.started(ANY_LINK, 0.0)
    tuner.moved(ANY_LINK, "a", 16 * GB, 0.0)
    tuner.decide(ANY_LINK, 15.0, is_wanted=True, most=None)
    tuner.started(ANY_LINK, 15.0)
    tuner.moved(ANY_LINK, "a", 17 * GB, 30.0, is_first=True)
    assert tuner.decide(ANY_LINK, 30.0, is_wanted=False, most=None) == []
    assert link.trial is None and link.is_starting and link.jobs_max == 2 * JOBS_START


def test_it_finds_the_number_that_fills_the_link() -> None:
    busy = BusyLink(lambda jobs: min(0.1 * jobs, 3.0))
    seen = [busy.interval() for _ in range(400)]
    # Each try ends after a few intervals, and the pauses between tries grow to an hour.
    assert min(seen[50:]) >= 30 and max(seen[50:]) <= 50, seen
    assert busy.link.rest_s <= REST_S_MAX
    assert any("hardly more than the" in reason and "the next try is in 4 min" in reason for reason in busy.reasons)


def test_it_falls_while_runs_fail_and_rises_again() -> None:
    busy = BusyLink(lambda jobs: 0.1 * jobs)
    failing = [busy.interval(failure="transient") for _ in range(8)]
    assert failing == sorted(failing, reverse=True) and failing[-1] == 1
    assert busy.reasons[0] == "16 → 8 jobs: 1 of 1 run failed (transient)"
    better = [busy.interval() for _ in range(40)]
    assert better == sorted(better) and better[-1] > JOBS_START


def test_a_tenant_whose_jobs_fail_does_not_keep_a_link_from_running_more() -> None:
    busy = BusyLink(lambda jobs: 0.1 * jobs)
    for _ in range(10):
        busy.interval(failure="transient")
    assert busy.link.jobs_max == 1
    for _ in range(30):
        busy.tuner.ended(ANY_LINK, "a", busy.now_s, failure="transient", requests=None)
        busy.interval(tenants="b")
    assert busy.link.jobs_max > JOBS_START


def test_a_tenant_that_fails_alone_slows_no_other() -> None:
    busy = BusyLink(lambda _: 1.0)
    busy.tuner.ended(ANY_LINK, "well", busy.now_s, failure=None, requests=None)
    for _ in range(10):
        busy.interval(failure="transient")
    assert busy.link.jobs_max == JOBS_START
    busy.interval(tenants="a", failure="transient")
    for _ in range(4):
        busy.interval(tenants=("well", "a"), failure="throttled")
    assert busy.link.jobs_max < JOBS_START


def test_a_success_of_long_ago_does_not_hide_that_all_runs_fail() -> None:
    busy = BusyLink(lambda _: 1.0)
    busy.tuner.ended(ANY_LINK, "gone", busy.now_s, failure=None, requests=None)
    while busy.now_s < SUCCESS_KEPT_S:
        busy.interval(failure="transient")
    assert busy.link.jobs_max == JOBS_START
    busy.interval(failure="transient")
    assert busy.link.jobs_max < JOBS_START and busy.link.success_share < 0.1


def test_a_tenant_whose_long_job_moves_bytes_has_success() -> None:
    busy = BusyLink(lambda _: 1.0)
    busy.tuner.ended(ANY_LINK, "long", 0.0, failure=None, requests=None)
    for _ in range(100):
        busy.tuner.moved(ANY_LINK, "long", 1, busy.now_s)
        busy.interval(failure="transient")
    assert busy.link.jobs_max == JOBS_START and busy.link.success_share == 1.0


@settings(max_examples=200, deadline=None)
@given(
    some.lists(
        some.tuples(
            some.floats(0, 100), some.sampled_from([None, "transient", "throttled"]), some.booleans(),
            some.one_of(some.none(), some.integers(0, 50)),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_it_stays_within_its_bounds(steps: list[tuple[float, str | None, bool, int | None]]) -> None:
    tuner, now_s = LinkTuner(), 0.0
    link = tuner.started(ANY_LINK, now_s)
    for gbps, failure, is_wanted, most in steps:
        now_s += TUNE_EVERY_S
        tuner.moved(ANY_LINK, "a", int(gbps * 1e9), now_s)
        requests = (gbps, 2 * gbps)
        tuner.ended(ANY_LINK, "a", now_s, failure=failure, requests=requests)
        before, share = link.jobs_max, link.success_share
        changes = [one for one in tuner.decide(ANY_LINK, now_s, is_wanted=is_wanted, most=most) if one.what == "jobs"]
        assert 1 <= link.jobs_max <= (JOBS_MAX if most is None else max(1, most))
        assert all(REQUESTS_MIN <= start <= REQUESTS_MAX for start in link.start)
        assert 0.0 <= link.success_share <= 1.0 and (link.goodput_gbps or 0.0) >= 0.0
        # Each change has its reason, and nothing changes without one.
        assert [(one.before, one.now) for one in changes] == (
            [(before, link.jobs_max)] if before != link.jobs_max else []
        )
        assert all(one.reason.startswith(f"{before} → {link.jobs_max} jobs: ") for one in changes)
        if failure:
            assert link.jobs_max <= before
            assert link.jobs_max < before or share >= 0.7 or before == 1
        if not is_wanted:
            assert link.jobs_max <= before


def test_jobs_begin_with_the_requests_that_earlier_ones_ended_with() -> None:
    tuner = LinkTuner()
    tuner.started(ANY_LINK, 0.0)
    assert tuner.start_of([ANY_LINK, "unknown"]) == RequestStart()
    for _ in range(20):
        tuner.ended(ANY_LINK, "a", 0.0, failure=None, requests=(40.0, None))
    (change,) = tuner.decide(ANY_LINK, TUNE_EVERY_S, is_wanted=False, most=None)
    assert change.reason == "16 → 40 requests to the source at first: earlier jobs ended with about 40"
    assert tuner.start_of([ANY_LINK]) == RequestStart(read=40)
    tuner.ended(ANY_LINK, "a", 0.0, failure=None, requests=(41.0, 16.0))
    assert tuner.decide(ANY_LINK, 2 * TUNE_EVERY_S, is_wanted=False, most=None) == []


def tuned(decisions: list[object]) -> list[TuneLink]:
    return [one for one in decisions if isinstance(one, TuneLink)]


def many(count: int, **changes: object) -> list[ServiceJob]:
    return [job(f"j{number:03}", **changes) for number in range(count)]


def test_the_scheduler_runs_no_more_jobs_than_the_link_is_tuned_for() -> None:
    scheduler = Scheduler(direct, tunes_links=True)
    running = submit(scheduler, *many(40))
    assert len(running) == JOBS_START
    why = scheduler.why("j030")
    assert why is not None
    assert why.sentence == ("The limit of link cern>lab is reached: active jobs, as its goodput and errors allow.")
    for name in running:
        scheduler.handle(10.0, RunProgressed(name, GB // 10))
    assert scheduler.next_wakeup_s() == TUNE_EVERY_S
    decisions = scheduler.handle(TUNE_EVERY_S, TimePassed())
    (one,) = tuned([*decisions])
    assert (one.jobs_max, one.success, one.is_starting) == (32, 1.0, True)
    assert one.goodput_gbps == pytest.approx(16 * 0.8 / 15)
    assert len(started(decisions)) == 16, "those that waited start at once"
    assert scheduler.why("j035") is not None


def test_jobs_with_a_rate_of_their_own_do_not_look_like_a_full_link() -> None:
    """Their gateways send a bundle at once, and then nothing until their rate allows the next one."""
    scheduler = Scheduler(direct, tunes_links=True)
    started_s = dict.fromkeys(submit(scheduler, *many(100, rate_gbps_max=160e-6)), 0.0)
    for now_s in range(2, 62, 2):
        for name, since_s in list(started_s.items()):
            moved_bytes = 1_300_000 * (1 + int((now_s - since_s) / 65))
            begun = started(scheduler.handle(now_s, RunProgressed(name, moved_bytes)))
            started_s |= dict.fromkeys(begun, float(now_s))
    assert len(started_s) == 100


def test_an_increase_is_judged_when_each_job_has_reported_bytes() -> None:
    """Jobs with large parts on a slow link report bytes once a minute."""
    scheduler = Scheduler(direct, tunes_links=True)
    seen = dict.fromkeys(submit(scheduler, *many(200, size_bytes=1000 * GB)), 0.0)
    for now_s in range(2, 400, 2):
        for number, (name, since_s) in enumerate(list(seen.items())):
            moved_bytes = GB * int((now_s - since_s + number % 8) / 60)
            begun = started(scheduler.handle(now_s, RunProgressed(name, moved_bytes)))
            seen |= dict.fromkeys(begun, float(now_s))
    assert len(seen) >= 64


def test_the_operators_limit_holds_and_other_links_do_not_count() -> None:
    scheduler = Scheduler(direct, tunes_links=True)
    limited(scheduler, LINK, ANY_LINK, ResourceLimit(active=5))
    running = submit(scheduler, *many(20))
    assert len(running) == 5
    assert len(submit(scheduler, *[job(f"d{n}", destination="desy") for n in range(8)])) == 8
    one = next(one for one in tuned([*scheduler.handle(TUNE_EVERY_S, TimePassed())]) if one.link == ANY_LINK)
    assert one.jobs_max == 5
    assert [change.reason for change in one.changes] == ["16 → 5 jobs: the operator's limit is 5"]


def test_links_to_hosts_of_users_are_not_tuned() -> None:
    scheduler = Scheduler(direct, tunes_links=True)
    assert len(submit(scheduler, *many(40, destination="guest://laptop"))) == 40
    assert scheduler.next_wakeup_s() == float("inf")


def test_runs_of_the_scheduler_count_with_their_bytes_failures_and_requests() -> None:
    scheduler = Scheduler(direct, tunes_links=True)
    first, second, third, fourth = submit(scheduler, *many(4))
    scheduler.handle(1.0, RunProgressed(first, GB // 2, requests=(64.0, 8.0)))
    scheduler.handle(2.0, RunEnded(first, moved_bytes=2 * GB))  # It was larger than was known.
    scheduler.handle(3.0, RunFailed(second, "transient", GB // 4))
    scheduler.handle(3.0, RunFailed(third, "store-down", 0))
    (one,) = tuned([*scheduler.handle(TUNE_EVERY_S, TimePassed())])
    assert one.goodput_gbps == pytest.approx((2 + 0.25) * 8 / TUNE_EVERY_S)
    assert one.success == pytest.approx(0.8), "a store that is down does not count"
    assert (one.read_requests, one.write_requests) == (30, 16), "30% of the way from 16 to 64"
    decisions = submit(scheduler, job("next"), now_s=20.0)
    assert decisions == ["next"]
    scheduler.handle(25.0, RunEnded(fourth))
    assert scheduler.next_wakeup_s() == 2 * TUNE_EVERY_S


def test_a_later_scheduler_continues_with_what_is_known_and_ends_in_silence() -> None:
    scheduler = Scheduler(direct, tunes_links=True)
    scheduler.handle(0.0, LinkRestored(ANY_LINK, 2, 40, 10, 1.5))
    binding = Binding("cern", (ANY_LINK,), (), (), 8.0)
    scheduler.handle(0.0, JobRestored(job("old"), {}, binding=binding, rate_gbps=8.0))
    assert submit(scheduler, *many(3)) == ["j000"]
    scheduler.handle(5.0, RunProgressed("old", 900_000_000))  # Most of it was moved under the earlier scheduler.
    scheduler.handle(10.0, RunProgressed("old", 1_000_000_000))
    scheduler.handle(11.0, RunEnded("old", moved_bytes=GB))
    scheduler.handle(12.0, RunProgressed("j000", 100_000_000))
    (one,) = tuned([*scheduler.handle(TUNE_EVERY_S, TimePassed())])
    assert one.goodput_gbps == pytest.approx(1.5 + 0.5 * (1.6 / TUNE_EVERY_S - 1.5))
    for name in ("j000", "j001", "j002"):
        scheduler.handle(20.0, RunEnded(name))
    scheduler.handle(2 * TUNE_EVERY_S, TimePassed())
    assert scheduler.next_wakeup_s() == float("inf"), "an idle link needs no decisions"


@pytest.mark.parametrize("seed", range(3))
def test_a_simulated_service_tunes_its_links(seed: int) -> None:
    """More jobs than the link may run at first, of which some fail: all end, and the bounds hold throughout."""
    simulator = Simulator(direct, failures=0.05, seed=seed, reports=4, tunes_links=True)
    simulator.at(0, LimitSet(Resource(STORE_IN, "lab"), ResourceLimit(active=64)))
    limits = simulator.scheduler._admitter.limits
    simulator.submit(many(300, tenant="physics", size_bytes=30 * GB))

    def observe(now_s: float, changed: list[str]) -> None:
        assert limits.usage(Resource(LINK, ANY_LINK)).active <= 64

    simulator.observe = observe
    simulator.run()
    assert all(seen.ended_s for seen in simulator.jobs.values())
    numbers = [one.jobs_max for _, one in simulator.tunings]
    assert max(numbers) > JOBS_START
    assert all(after <= 2 * before for before, after in pairwise([JOBS_START, *numbers]))


def test_more_bytes_than_there_are_stop_no_scheduler() -> None:
    """The host of a user may state any counts."""
    scheduler = Scheduler(direct, tunes_links=True)
    (one,) = submit(scheduler, job("one"))
    said = progressed(one, Progress(bytes_done=5, bytes_total=0, listed=True), 0)
    assert said.left_bytes == 0 and scheduler.handle(1.0, said) == []


def test_links_are_forgotten_beyond_the_most() -> None:
    tuner = LinkTuner()
    for number in range(LINKS_MAX + 5):
        tuner.started(f"{number}", 0.0)
        tuner.left(f"{number}")
        tuner.decide(f"{number}", TUNE_EVERY_S, is_wanted=False, most=None)
    assert tuner.link("0") is None
    assert isinstance(tuner.link(f"{LINKS_MAX}"), TunedLink)
