"""The tuner of links in the scheduler: it learns from the scheduler's jobs, and its decisions limit the links."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable

from tradewind.service.scheduler.events import LinkRestored, TuneLink
from tradewind.service.scheduler.job_states import JobState
from tradewind.service.scheduler.jobs import LINK, Binding, Resource
from tradewind.service.scheduler.limits import Limits
from tradewind.service.scheduler.retry import STORE_DOWN
from tradewind.service.scheduler.tuning import LinkTuner, RequestStart, TunedLink

__all__ = ["TunedLinks", "tuned_names"]

#: Failures that say nothing about a link: they come from a store that is down, from machines, or from the request.
NOT_OF_LINKS = (STORE_DOWN, "capacity", "permission", "not-found", "invalid")

#: Part of the name of a link to the host of a user. Each is a link of its own with few jobs, from which nothing is to
#: be learned, and there may be very many.
GUEST = "guest://"


class TunedLinks:
    """Tunes the links of a scheduler with these limits. Without `is_on` it does nothing."""

    def __init__(self, limits: Limits, *, is_on: bool) -> None:
        self._limits, self._tuner = limits, LinkTuner() if is_on else None

    def next_s(self) -> float:
        """Return when `decide` has something to do; infinity if nothing runs."""
        return math.inf if self._tuner is None else self._tuner.next_s()

    def restore(self, event: LinkRestored) -> None:
        """Remember what an earlier scheduler knew of a link."""
        if self._tuner is not None:
            start = RequestStart(event.read_requests, event.write_requests)
            link = TunedLink(event.jobs_max, start, event.goodput_gbps, event.is_starting)
            link.read, link.write = start
            self._tuner.restore(event.link, link)
            self._limits.tune(Resource(LINK, event.link), event.jobs_max)

    def start_of(self, binding: Binding) -> RequestStart | None:
        """Return the requests with which a job with this binding begins; None if nothing is tuned."""
        return self._tuner.start_of(binding.links) if self._tuner is not None and binding.links else None

    def started(self, state: JobState, now_s: float, *, is_known: bool = True) -> None:
        """Count a job that runs from now on. Without `is_known` it has moved an unknown part already."""
        state.counted_bytes, state.is_moving, state.requests = (0 if is_known else None), False, None
        for name in self._names(state):
            assert self._tuner is not None
            link = self._tuner.started(name, now_s)
            self._limits.tune(Resource(LINK, name), link.jobs_max)

    def rerouted(self, state: JobState, binding: Binding, now_s: float) -> None:
        """Count a running job for the links of a new binding, before it is granted."""
        before = self._names(state)
        after = () if self._tuner is None else tuned_names(binding.links)
        for name in (one for one in before if one not in after):
            assert self._tuner is not None
            self._tuner.left(name)
        for name in (one for one in after if one not in before):
            assert self._tuner is not None
            link = self._tuner.started(name, now_s)
            self._limits.tune(Resource(LINK, name), link.jobs_max)
            self._tuner.moved(name, state.job.tenant, 0, now_s, is_first=state.is_moving)

    def progressed(self, state: JobState, moved_bytes: int, now_s: float) -> None:
        """Count what a running job has moved so far.

        A gateway with a rate moves a bundle at once, and then nothing until the rate allows the next one. So no more
        counts than the rate allows in the time.
        """
        self._progressed(state, min(moved_bytes, self._allowed_bytes(state, now_s)), now_s)

    def _allowed_bytes(self, state: JobState, now_s: float) -> int:
        """Return the most bytes that a job may have moved by its rate."""
        grant, gbps = state.grant, state.job.rate_gbps_max
        if grant is not None and self._limits.has_rate_limit(grant.resources):
            gbps = min(gbps, grant.rate_gbps)
        return sys.maxsize if math.isinf(gbps) else int(gbps * 1e9 / 8 * (now_s - state.runs[-1][0]))

    def _progressed(self, state: JobState, moved_bytes: int, now_s: float) -> None:
        names, before = self._names(state), state.counted_bytes
        state.counted_bytes = max(moved_bytes, before or 0)
        newly_bytes = 0 if before is None else state.counted_bytes - before
        is_first = not state.is_moving and moved_bytes > 0
        state.is_moving |= is_first
        for name in names:
            assert self._tuner is not None
            self._tuner.moved(name, state.job.tenant, newly_bytes // len(names), now_s, is_first=is_first)

    def ended(self, state: JobState, moved_bytes: int, failure: str | None, now_s: float) -> None:
        """Count a run that has ended by itself, before `left`."""
        if self._tuner is None or state.grant is None:
            return
        self._progressed(state, moved_bytes, now_s)
        if failure not in NOT_OF_LINKS:
            for name in self._names(state):
                self._tuner.ended(name, state.job.tenant, now_s, failure=failure, requests=state.requests)

    def left(self, state: JobState) -> None:
        """Note that a job does not run any more."""
        for name in self._names(state):
            assert self._tuner is not None
            self._tuner.left(name)

    def decide(self, now_s: float, has_waiting: Callable[[Resource], bool]) -> list[TuneLink]:
        """Decide on the links that are due, and limit them. `has_waiting` says whether jobs wait for a resource."""
        found: list[TuneLink] = []
        for name in [] if self._tuner is None else self._tuner.due(now_s):
            assert self._tuner is not None
            link, resource = self._tuner.link(name), Resource(LINK, name)
            assert link is not None
            is_full = self._limits.usage(resource).active >= link.jobs_max
            most = self._limits.limit(resource).active
            changes = self._tuner.decide(name, now_s, is_wanted=is_full and has_waiting(resource), most=most)
            self._limits.tune(resource, link.jobs_max)
            found.append(
                TuneLink(
                    name,
                    link.jobs_max,
                    link.start.read,
                    link.start.write,
                    link.goodput_gbps or 0.0,
                    link.success_share,
                    tuple(changes),
                    is_starting=link.is_starting,
                )
            )
        return found

    def _names(self, state: JobState) -> tuple[str, ...]:
        if self._tuner is None or state.grant is None:
            return ()
        return tuned_names(state.grant.binding.links)


def tuned_names(links: Iterable[str]) -> tuple[str, ...]:
    """Return the links that are tuned, each once."""
    return tuple(name for name in dict.fromkeys(links) if GUEST not in name)
