"""How many jobs a link runs at once, and with how many requests its jobs begin, by goodput and success so far.

The rules are those of a gateway's tuner (crates/gateway, node/tuner.rs), for jobs instead of requests:

- **Start**: twice as many, while jobs wait for the link's turn, until the first sign that the link is full, as in TCP.
- **Increase**: after that by a quarter, at least one, while jobs wait and no failed run lowers the link's success.
- **No gain**: if the goodput has not grown with an increase, it is taken back, and the next try comes later.
- **Decrease**: by half, if runs fail. A tenant whose jobs fail alone decreases nothing: then it is not the link.

Jobs begin with the requests that the gateways of earlier ones have ended with. There is no clock: times are passed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tradewind.model.records import dataclass, field
from tradewind.model.units import format_count

__all__ = [
    "JOBS_MAX",
    "JOBS_START",
    "LINKS_MAX",
    "REQUESTS_MAX",
    "REQUESTS_MIN",
    "REST_S_MAX",
    "SUCCESS_KEPT_S",
    "TUNE_EVERY_S",
    "LinkTuner",
    "RequestStart",
    "TunedLink",
    "Tuning",
]

TUNE_EVERY_S = 15.0
"""Interval between decisions on a link."""
JOBS_START, JOBS_MAX = 16, 1024
"""Jobs that a link runs at first, and at most if no operator limits it."""
GROWTH_FIRST, GROWTH = 2.0, 1.25
"""Factor of an increase until the first sign that the link is full, and after that."""
GAIN_SHARE = 0.2
"""Share of the growth in running jobs by which the goodput must have grown: 20% more for twice as many."""
ROUND_S_MAX = 300.0
"""Longest interval that goodput is measured in: until each running job has reported bytes once on average. With large
parts on a slow link they do so once in minutes."""
SETTLE_S_MAX = 600.0
"""Time after an increase in which as many more jobs must have begun to move bytes; their machines may have to boot."""
REST_S_MIN, REST_S_MAX = 60.0, 3600.0
"""Time without an increase after a decrease. It doubles for each increase in a row that brought nothing."""
GOODPUT_WEIGHT, SUCCESS_WEIGHT, REQUESTS_WEIGHT = 0.5, 0.2, 0.3
"""Weights of the newest interval, and of the newest run, in the moving averages."""
SUCCESS_MIN = 0.7
"""Share of successful runs below which a link runs fewer jobs."""
SUCCESS_KEPT_S = 900.0
"""Time for which the success of a tenant counts that has neither moved bytes nor ended a run since."""
REQUESTS_START, REQUESTS_MIN, REQUESTS_MAX = 16, 4, 64
"""Requests of a gateway to a store that nothing is known about, and bounds of those that jobs begin with: a gateway
tunes itself from there."""
REQUESTS_CHANGE = 0.2
"""Share by which the requests of earlier jobs must differ from the start value before that changes."""
LINKS_MAX, TENANTS_MAX = 10_000, 100
"""Links, and tenants of one link, that are remembered; beyond it those that were used the longest ago are forgotten."""

JOBS, READ, WRITE = "jobs", "read", "write"


class RequestStart(NamedTuple):
    """Requests in flight of each gateway at first, to the source and to a destination."""

    read: int = REQUESTS_START
    write: int = REQUESTS_START


@dataclass(frozen=True)
class Tuning:
    """A decision on a link: `what` is `jobs`, `read` or `write`; `reason` says why in words."""

    what: str
    before: int
    now: int
    reason: str


@dataclass
class TunedLink:
    """Everything known about a link.

    `is_starting` says that nothing has shown yet that the link is full. `goodput_gbps` is the moving average while jobs
    run, and `success` that of each tenant's runs with the time when it was seen last, latest tenant last. `read` and
    `write` are moving averages of the requests that gateways ended with. `trial` has the jobs and the goodput before
    the latest increase, until that has shown its effect; `most_running` is the most jobs that have run since, `begun`
    is how many have begun to move bytes since, and `has_effect` says that these were enough. Since `since_s` jobs have
    moved `moved_bytes` in `reports`. `is_new` says that no such interval has passed with this number of jobs: the
    average begins anew, so that it lags no increase. `is_failing` says that a run which failed since the last decision
    has lowered `success_share`: runs of one tenant do not, while another has more success.
    """

    jobs_max: int = JOBS_START
    start: RequestStart = field(default_factory=RequestStart)
    goodput_gbps: float | None = None
    is_starting: bool = True
    success: dict[str, tuple[float, float]] = field(default_factory=dict)
    read: float = REQUESTS_START
    write: float = REQUESTS_START
    reason: str = ""
    trial: tuple[int, float | None] | None = None
    most_running: int = 0
    begun: int = 0
    has_effect: bool = False
    is_new: bool = False
    changed_s: float = 0.0
    rest_s: float = REST_S_MIN
    rest_until_s: float = 0.0
    since_s: float = 0.0
    moved_bytes: int = 0
    reports: int = 0
    running: int = 0
    ended: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    is_failing: bool = False

    @property
    def success_share(self) -> float:
        """Share of the latest runs that succeeded, of the tenant that has most success."""
        return max((share for share, _ in self.success.values()), default=1.0)


class LinkTuner:
    """All links. The scheduler says what happens on them, and asks for decisions when `next_s` has come."""

    def __init__(self) -> None:
        self._links: dict[str, TunedLink] = {}
        #: Links on which something runs or has ended since their last decision, with the time of the next one.
        self._busy: dict[str, float] = {}
        #: The same in order. An entry with another time than in `_busy` is not valid any more.
        self._queue: list[tuple[float, str]] = []

    def link(self, name: str) -> TunedLink | None:
        """Return what is known about a link; None if nothing is."""
        return self._links.get(name)

    def restore(self, name: str, link: TunedLink) -> None:
        """Remember what an earlier scheduler knew about a link."""
        self._links[name] = link

    def start_of(self, names: Iterable[str]) -> RequestStart:
        """Return the requests with which a job on these links begins: the fewest of any of them."""
        starts = [link.start if (link := self._links.get(name)) else RequestStart() for name in names]
        return RequestStart(min(one.read for one in starts), min(one.write for one in starts))

    def started(self, name: str, now_s: float) -> TunedLink:
        """Count a job that starts on a link, and return the link."""
        link = self._links.pop(name, None) or TunedLink()
        self._links[name] = link  # The last one used is the last to be forgotten.
        if name not in self._busy:
            link.ended, link.failed, link.is_failing = 0, {}, False
            _measure_anew(link, now_s)
            self._set_due(name, now_s + TUNE_EVERY_S)
        link.running += 1
        link.most_running = max(link.most_running, link.running)
        if len(self._links) > LINKS_MAX:
            idle = next((one for one in self._links if one not in self._busy), None)
            if idle is not None:
                del self._links[idle]
        return link

    def moved(self, name: str, tenant: str, moved_bytes: int, now_s: float, *, is_first: bool = False) -> None:
        """Count bytes that a tenant's running job has moved since they were last counted; `is_first` for its first."""
        link = self._links[name]
        link.begun += is_first
        if moved_bytes > 0:
            link.moved_bytes += moved_bytes
            link.reports += 1
            _see_success(link, tenant, None, now_s)

    def ended(
        self,
        name: str,
        tenant: str,
        now_s: float,
        *,
        failure: str | None,
        requests: tuple[float | None, float | None] | None,
    ) -> None:
        """Count a run that has ended by itself: well, or by a `failure`.

        `requests` are those of each of its gateways to the source and to a destination at its end, None if unknown.
        """
        link = self._links[name]
        link.ended += 1
        share_before = link.success_share
        if failure is not None:
            link.failed[failure] = link.failed.get(failure, 0) + 1
        _see_success(link, tenant, 0.0 if failure else 1.0, now_s)
        link.is_failing |= link.success_share < share_before
        read, write = requests or (None, None)
        link.read = link.read if read is None else _average(link.read, read, REQUESTS_WEIGHT)
        link.write = link.write if write is None else _average(link.write, write, REQUESTS_WEIGHT)

    def left(self, name: str) -> None:
        """Note that a job does not run on a link any more, however its run has ended."""
        self._links[name].running -= 1

    def next_s(self) -> float:
        """Return when a decision is due; infinity while no link is used."""
        while self._queue and self._busy.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else math.inf

    def due(self, now_s: float) -> list[str]:
        """Return the links that a decision is due on. Each stays due until `decide` was called."""
        if self.next_s() > now_s:
            return []
        return [name for name, due_s in self._busy.items() if due_s <= now_s]

    def decide(self, name: str, now_s: float, *, is_wanted: bool, most: int | None) -> list[Tuning]:
        """Return the decisions on a link that change something.

        `is_wanted` says that it runs as many jobs as it may, and others wait for it; `most` is the operator's limit.
        """
        link = self._links[name]
        is_measured = _see_goodput(link, now_s)
        _forget_success(link, now_s)
        decisions = [*_jobs(link, now_s, is_measured=is_measured, is_wanted=is_wanted, most=most), *_starts(link)]
        if link.running:
            self._set_due(name, now_s + TUNE_EVERY_S)
        else:
            del self._busy[name]
        return decisions

    def _set_due(self, name: str, due_s: float) -> None:
        self._busy[name] = due_s
        heapq.heappush(self._queue, (due_s, name))


def _average(before: float, newest: float, weight: float) -> float:
    return before + weight * (newest - before)


def _see_success(link: TunedLink, tenant: str, newest: float | None, now_s: float) -> None:
    """Note a run of a tenant that ended well (1) or failed (0), or without `newest` that its jobs move bytes."""
    share, _ = link.success.pop(tenant, (1.0, 0.0))
    link.success[tenant] = share if newest is None else _average(share, newest, SUCCESS_WEIGHT), now_s
    if len(link.success) > TENANTS_MAX:
        del link.success[next(iter(link.success))]


def _forget_success(link: TunedLink, now_s: float) -> None:
    """Forget the success of tenants that do not use the link any more. Their good past must not hide a bad present."""
    for tenant, (_, seen_s) in list(link.success.items()):
        if now_s - seen_s <= SUCCESS_KEPT_S:
            return
        del link.success[tenant]


def _measure_anew(link: TunedLink, now_s: float) -> None:
    link.since_s, link.moved_bytes, link.reports = now_s, 0, 0


def _see_goodput(link: TunedLink, now_s: float) -> bool:
    """End an interval if it is long enough: its bytes become a part of the moving average. Return whether it was."""
    took_s = now_s - link.since_s
    if took_s <= 0 or (link.reports < link.running and took_s < ROUND_S_MAX):
        return False
    gbps = link.moved_bytes * 8e-9 / took_s
    is_first = link.goodput_gbps is None or link.is_new
    link.goodput_gbps = gbps if is_first else _average(link.goodput_gbps or 0.0, gbps, GOODPUT_WEIGHT)
    link.is_new = False
    _measure_anew(link, now_s)
    return True


def _jobs(link: TunedLink, now_s: float, *, is_measured: bool, is_wanted: bool, most: int | None) -> Iterator[Tuning]:
    """Decide how many jobs may run. `is_measured` says that an interval of the goodput ends now."""
    ended, failed, is_failing = link.ended, link.failed, link.is_failing
    link.ended, link.failed, link.is_failing = 0, {}, False
    before, now, why = link.jobs_max, link.jobs_max, ""
    jobs_max = JOBS_MAX if most is None else max(1, min(most, JOBS_MAX))
    gbps = None if link.is_new else link.goodput_gbps
    link.is_starting &= not is_failing
    if before > jobs_max:
        now, why = jobs_max, f"the operator's limit is {most}"
    elif failed and link.success_share < SUCCESS_MIN:
        kinds = ", ".join(sorted(failed))
        now, why = max(1, before // 2), f"{sum(failed.values())} of {format_count(ended, 'run')} failed ({kinds})"
        link.rest_until_s = now_s + link.rest_s
    elif link.trial is not None:
        now, why = _after_increase(link, link.trial, now_s, is_measured=is_measured)
    is_known = link.is_starting or gbps is not None
    is_due = link.trial is None and now_s >= link.rest_until_s
    if now == before and not is_failing and is_wanted and is_known and is_due:
        growth = GROWTH_FIRST if link.is_starting else GROWTH
        now = min(jobs_max, max(before + 1, int(before * growth)))
        why = f"others waited while {before} " + ("ran" if gbps is None else f"moved {gbps:.3g} Gbit/s")
        if now > before:
            link.trial, link.changed_s = (before, gbps), now_s
            link.most_running, link.begun, link.has_effect = link.running, 0, False
    if now < before:
        link.trial = None
    if now != before:
        link.is_new = True
        _measure_anew(link, now_s)
        link.jobs_max, link.reason = now, f"{_change(before, now, 'jobs')}: {why}"
        yield Tuning(JOBS, before, now, link.reason)


def _after_increase(
    link: TunedLink, trial: tuple[int, float | None], now_s: float, *, is_measured: bool
) -> tuple[int, str]:
    """Return the number of jobs after an increase: it stays if the goodput has risen, or while that is not known.

    That is known when as many jobs have begun to move bytes as run in addition, and then the goodput has been measured.
    If it was not known before the increase, it is enough that they move bytes.
    """
    jobs, gbps = trial
    now_gbps, ran = link.goodput_gbps or 0.0, link.most_running
    is_effective = jobs < ran <= jobs + link.begun
    has_risen = is_measured and now_gbps > 0 and now_gbps >= (gbps or 0.0) * (1 + GAIN_SHARE * (ran / jobs - 1))
    if ran > jobs and (has_risen or (is_effective and gbps is None)):
        link.trial, link.rest_s = None, REST_S_MIN
        return link.jobs_max, ""
    if not is_effective and not link.has_effect:
        if now_s - link.changed_s < SETTLE_S_MAX:
            return link.jobs_max, ""
        return jobs, f"no more than {jobs} have moved bytes at once in {SETTLE_S_MAX / 60:.0f} min"
    if not link.has_effect:
        link.has_effect = link.is_new = True
        _measure_anew(link, now_s)
    if not is_measured or link.is_new:
        return link.jobs_max, ""
    why = (
        f"{ran} moved {now_gbps:.3g} Gbit/s, hardly more than the {gbps or 0.0:.3g} of {jobs}; "
        f"the next try is in {link.rest_s / 60:.0f} min"
    )
    link.is_starting = False
    link.rest_until_s = now_s + link.rest_s
    link.rest_s = min(2 * link.rest_s, REST_S_MAX)
    return jobs, why


def _starts(link: TunedLink) -> Iterator[Tuning]:
    """Decide with how many requests the next jobs begin."""
    for what, store, seen in ((READ, "source", link.read), (WRITE, "destination", link.write)):
        before = link.start.read if what == READ else link.start.write
        now = min(REQUESTS_MAX, max(REQUESTS_MIN, round(seen)))
        if abs(now - before) <= REQUESTS_CHANGE * before:
            continue
        link.start = RequestStart(now, link.start.write) if what == READ else RequestStart(link.start.read, now)
        reason = f"{_change(before, now, f'requests to the {store} at first')}: earlier jobs ended with about {now}"
        yield Tuning(what, before, now, reason)


def _change(before: int, now: int, what: str) -> str:
    return f"{before} → {now} {what}"
