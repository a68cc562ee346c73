"""The course of one acceleration as a pure state machine: events and the time in, actions out. No I/O, no threads.

It carries out one change at a time: a replan, or the replacement of a dead machine. Each of its steps ends with a
`Finished`. Ticks arrive meanwhile, so the ceiling, `--for` and `down` end it within any step.
`engine.acceleration_life` carries out the actions.
"""

from __future__ import annotations

import math
from typing import Literal

from tradewind.acceleration.wiring import is_entrance, kind_of
from tradewind.model.acceleration import AccelerationWish
from tradewind.model.records import dataclass

__all__ = [
    "BLOCKED_REPLACEMENTS_MAX",
    "BLOCKED_S",
    "DEAD_PAUSE_MAX_S",
    "DEAD_PAUSE_S",
    "DRAIN_S",
    "HOME_LOOKS_MAX",
    "LEAVE_S",
    "LIVING_EVERY_S",
    "RESERVE_S",
    "Action",
    "Answer",
    "Ask",
    "Close",
    "Course",
    "DrainHome",
    "DrainProxies",
    "EndAsked",
    "Event",
    "Finished",
    "Grow",
    "Leaving",
    "Looked",
    "Place",
    "Replace",
    "Rewire",
    "Say",
    "Shrink",
    "SwitchPaths",
]

#: Time in which connections may end when the ceiling, `--for` or a replan ends them.
DRAIN_S = 10.0
#: Time until machines have ended.
END_S = 20.0
#: Reserve before the ceiling: a drain, and the end of the machines.
RESERVE_S = DRAIN_S + END_S
#: Interval at which the provider is asked for dead machines while a proxy is unhealthy.
LIVING_EVERY_S = 5.0
#: Time after which a proxy that answers, but to which its neighbours cannot connect, gets another machine. It doubles
#: with each such machine. After the last one the proxy stays as it is: the network may be at fault.
BLOCKED_S, BLOCKED_REPLACEMENTS_MAX = 30.0, 3
#: A proxy's first dead machine is replaced at once, the second one in a row after this pause. The pause doubles up to
#: the maximum, so that machines which end as soon as they start cost little. Twice the maximum without a death ends the
#: row.
DEAD_PAUSE_S, DEAD_PAUSE_MAX_S = 30.0, 3600.0
#: A proxy whose machine the cloud takes back gets another one when its connections have ended, at the latest this long
#: before the machine works no more: its gateway drains by itself then.
LEAVE_S = 5.0
#: Consecutive looks at the proxy of this machine that may fail while its process lives: a busy host answers late.
HOME_LOOKS_MAX = 12

Step = Literal["steady", "placing", "growing", "switching", "draining", "shrinking", "asking", "replacing", "ending"]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A proxy whose machine the cloud takes back: the time for which it still works, and whether nothing is open."""

    name: str
    left_s: float
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at everything. `left_s` is the time that the ceiling leaves, `home` why the proxy at home did not answer.

    `unhealthy` are the proxies that get no new connections, and `blocked` those of them that answer, but to which their
    neighbours cannot connect. `drained` is true if no connection is open at home. The cloud takes back `leaving`.
    """

    left_s: float
    is_over: bool = False
    wish: AccelerationWish | None = None
    home: str | None = None
    home_lives: bool = True
    drained: bool = False
    unhealthy: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    leaving: tuple[Leaving, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The present step has ended; `error` says why it failed. `names` are the dead of an `Ask`."""

    error: str | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndAsked:
    """The user interrupted the supervisor."""

    drain_s: float
    reason: str


Event = Looked | Finished | EndAsked


@dataclass(frozen=True, slots=True)
class Place:
    """Place flows again: those of another file's content, or the present ones."""

    text: str | None


@dataclass(frozen=True, slots=True)
class Grow:
    """Start the machines of the new placement."""


@dataclass(frozen=True, slots=True)
class SwitchPaths:
    """Wire the new placement; if that fails, the former one again."""


@dataclass(frozen=True, slots=True)
class DrainProxies:
    """DrainProxies the proxies that the new placement does not use."""

    drain_s: float


@dataclass(frozen=True, slots=True)
class Shrink:
    """End the machines that the present placement does not use."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the provider which of these machines have ended."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """Start a machine in place of a dead one, of one that nothing can connect to, or of one that leaves."""

    name: str
    is_alive: bool = False
    """False for a dead one, which is asked for nothing any more."""


@dataclass(frozen=True, slots=True)
class Rewire:
    """Give a new machine its program, and new connections their path."""

    name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Record that a wish was carried out, or why not."""

    number: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """Show a line."""

    line: str


@dataclass(frozen=True, slots=True)
class DrainHome:
    """Accept no connections, and let open ones end within this time."""

    drain_s: float
    reason: str | None


@dataclass(frozen=True, slots=True)
class Close:
    """End everything. `failure` says why it failed; None if it ended as wanted."""

    failure: str | None = None


Action = Place | Grow | SwitchPaths | DrainProxies | Shrink | Ask | Replace | Rewire | Answer | Say | DrainHome | Close


class Course:
    """The decisions of one supervisor."""

    def __init__(self, now_s: float, wish: int = 0) -> None:
        """`wish` is the number of the latest wish of a former supervisor."""
        self.step: Step = "steady"
        self.wish = wish
        """Number of the latest wish that was begun."""
        self.replacing: str | None = None
        """Proxy whose machine is being replaced."""
        self._error: str | None = None
        self._asked_s, self._until_s = now_s - LIVING_EVERY_S, now_s
        self._home_failures = 0
        #: Time since which a proxy is blocked, and the machines that it got for that, by name.
        self._blocked_s: dict[str, float] = {}
        self._unblocked: dict[str, int] = {}
        #: For each proxy whose machine died or was taken back: how many did in a row, and when that was found last.
        self._deaths: dict[str, tuple[int, float]] = {}

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Return what to do, in order. `now_s` counts seconds."""
        if isinstance(event, Finished):
            return self._finished(event)
        if isinstance(event, EndAsked):
            if self.step != "ending":
                return self._end(event.drain_s, event.reason, now_s)
            self._until_s = min(self._until_s, now_s + event.drain_s)
            return []
        return self._tick(event, now_s)

    def _tick(self, tick: Looked, now_s: float) -> list[Action]:
        self._blocked_s = {name: self._blocked_s.get(name, now_s) for name in tick.blocked}
        self._home_failures = 0 if tick.home is None else self._home_failures + 1
        is_gone = tick.home is not None and (not tick.home_lives or self._home_failures >= HOME_LOOKS_MAX)
        if self.step == "ending":
            is_due = tick.drained or is_gone or now_s >= self._until_s or tick.left_s <= END_S
            return [Close()] if is_due else []
        if is_gone:
            return [Close(f"the split proxy of this machine is gone: {tick.home}")]
        wish = tick.wish if tick.wish is not None and tick.wish.number > self.wish else None
        if wish is not None and wish.down:
            self.wish = wish.number
            return [Answer(wish.number), *self._end(wish.drain_s, None, now_s)]
        if tick.is_over:
            return self._end(DRAIN_S, "its time is over", now_s)
        if tick.left_s <= RESERVE_S:
            return self._end(DRAIN_S, "the ceiling is close", now_s)
        if self.step != "steady":
            return []
        if wish is not None:
            self.wish, self.step, self._error = wish.number, "placing", None
            return [Place(wish.flows)]
        for leaving in tick.leaving:
            is_due = leaving.is_drained or leaving.left_s <= LEAVE_S
            if is_due and now_s >= self._replaceable_s(leaving.name):
                self.step, self.replacing = "replacing", leaving.name
                self._note_death(leaving.name, now_s)
                line = f"proxy {leaving.name} gets another machine: the cloud takes its present one back"
                return [Say(line), Replace(leaving.name, is_alive=True)]
        if (name := self._blocked_for_long(now_s)) is not None:
            self.step, self.replacing = "replacing", name
            self._unblocked[name] = self._unblocked.get(name, 0) + 1
            line = f"proxy {name} gets another machine: nothing can connect to its present one"
            return [Say(line), Replace(name, is_alive=True)]
        replaceable = tuple(name for name in tick.unhealthy if now_s >= self._replaceable_s(name))
        if replaceable and now_s - self._asked_s >= LIVING_EVERY_S:
            self._asked_s, self.step = now_s, "asking"
            return [Ask(replaceable)]
        return []

    def _replaceable_s(self, name: str) -> float:
        """Return when a machine of the proxy may be replaced if it is dead, or about to be."""
        deaths, at_s = self._deaths.get(name, (0, 0.0))
        return at_s + _pause_s(deaths) if deaths else -math.inf

    def _note_death(self, name: str, now_s: float) -> None:
        deaths, at_s = self._deaths.get(name, (0, now_s))
        is_in_row = now_s - at_s < 2.0 * DEAD_PAUSE_MAX_S
        self._deaths[name] = deaths + 1 if is_in_row else 1, now_s

    def _blocked_for_long(self, now_s: float) -> str | None:
        """Return a proxy whose machine is to be replaced because nothing can connect to it."""
        for name, since_s in self._blocked_s.items():
            replaced = self._unblocked.get(name, 0)
            if replaced < BLOCKED_REPLACEMENTS_MAX and now_s - since_s >= BLOCKED_S * 2**replaced:
                return name
        return None

    def _finished(self, done: Finished) -> list[Action]:
        if self.step in ("asking", "replacing"):
            return self._replacement(done)
        if self.step in ("placing", "growing") and done.error is not None:
            return self._answer(done.error)  # A fleet that cannot grow ends the new machines itself.
        if self.step == "switching" and done.error is not None:
            self.step, self._error = "shrinking", done.error
            return [Shrink()]
        if self.step == "shrinking":
            late: list[Action] = [] if done.error is None else [Say(f"machines were not ended: {done.error}")]
            return [*late, *self._answer(self._error)]
        following: dict[Step, tuple[Step, Action]] = {
            "placing": ("growing", Grow()),
            "growing": ("switching", SwitchPaths()),
            "switching": ("draining", DrainProxies(DRAIN_S)),
            "draining": ("shrinking", Shrink()),
        }
        if self.step not in following:
            return []  # It ends; the result of a step that was under way does not matter.
        self.step, action = following[self.step]
        return [action]

    def _replacement(self, done: Finished) -> list[Action]:
        if self.step == "asking" and done.names and done.error is None:
            self.step, self.replacing = "replacing", done.names[0]
            self._note_death(done.names[0], self._asked_s)
            return [Replace(done.names[0])]
        name, self.replacing, self.step = self.replacing, None, "steady"
        if name is None:
            return []
        self._blocked_s.pop(name, None)
        if done.error is not None:
            return [Say(f"{kind_of(name)} {name} was not replaced: {done.error}")]
        line = f"{kind_of(name)} {name} has a new {'gateway' if is_entrance(name) else 'machine'}"
        deaths, _ = self._deaths.get(name, (0, 0.0))
        if deaths > 1:
            line += f"; if it ends, too, the next one starts after {_pause_s(deaths):.0f} s at the earliest"
        return [Rewire(name), Say(line)]

    def _answer(self, error: str | None) -> list[Action]:
        self.step = "steady"
        return [Answer(self.wish, error)]

    def _end(self, drain_s: float, reason: str | None, now_s: float) -> list[Action]:
        self.step, self.replacing, self._until_s = "ending", None, now_s + drain_s
        return [DrainHome(drain_s, reason)]


def _pause_s(deaths: int) -> float:
    """Return the pause between the last of so many deaths in a row and the replacement of the next dead machine."""
    return min(DEAD_PAUSE_S * 2.0 ** (deaths - 1), DEAD_PAUSE_MAX_S)
