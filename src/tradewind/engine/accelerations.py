"""Accelerations: a folder for each in the state folder's `accelerations`, with the state that its supervisor writes.

The supervisor holds the lock of `lock` while it lives, so the lock decides whether an acceleration runs, not the state.
Other processes write `wish.json`; the supervisor carries it out and answers in its state.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tradewind.engine.acceleration_remains import end_remains, with_remains
from tradewind.engine.acceleration_supervision import supervision_of
from tradewind.errors import ConfigError, GatewayLost, JobBusy, JobNotFound, JobUnreadable, TradewindError, UsageError
from tradewind.model.acceleration import LIVING, AccelerationState, AccelerationWish, Supervision
from tradewind.model.document import read_json, to_document
from tradewind.model.files import open_private, private_folder, read_user_file
from tradewind.model.locks import FileLock, is_locked
from tradewind.model.records import dataclass, replace
from tradewind.state.digest import with_digest, without_digest

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl

__all__ = ["FLOWS_FILE", "Accelerations", "TakenOver", "flows_text"]

T = TypeVar("T")
FOLDER = "accelerations"
STATE_FILE, WISH_FILE, LOCK_FILE, FLOWS_FILE = "state.json", "wish.json", "lock", "flows.toml"
#: Held by a process that records a wish.
WISH_LOCK = "wish.lock"
#: Interval at which the answer to a wish is looked for.
LOOK_EVERY_S = 0.1
#: Timeout of a wish, beside the time to drain: machines are started or ended meanwhile.
WISH_S_MAX = 600.0
#: Maximum wait for another command that records a wish, which takes it milliseconds.
WISHING_S_MAX = 10.0
GONE = "its supervisor was killed"


@dataclass(frozen=True, slots=True)
class TakenOver:
    """An acceleration whose supervisor was killed, and whose machines have ended: this process may supervise it."""

    state: AccelerationState
    flows: str
    """Content of its flows file."""
    lock: FileLock
    wish: int
    """Number of the latest wish for the former supervisor. Its senders have seen that this supervisor ended."""


class Accelerations:
    """The accelerations of one state folder."""

    def __init__(self, control: JobControl) -> None:
        self._control = control
        self.folder = Path(control.store.state_dir) / FOLDER
        #: Accelerations of killed supervisors that this process holds.
        self._held: set[str] = set()

    def make(self, acceleration_id: str, flows: str) -> Path:
        """Make the folder of a new acceleration, with a copy of its flows file."""
        folder = private_folder(self.folder / acceleration_id)
        _write(folder / FLOWS_FILE, flows)
        return folder

    @contextmanager
    def changing_flows(self, acceleration_id: str, flows: str) -> Iterator[None]:
        """Record other flows after the block, unless that raises. Raises OSError before it if the disk is full."""
        path = self.folder / acceleration_id / FLOWS_FILE
        beside = _write_beside(path, flows)
        try:
            yield
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def flows(self, acceleration_id: str) -> str:
        """Return the recorded content of its flows file. Raises ConfigError."""
        return flows_text(str(self.folder / acceleration_id / FLOWS_FILE))

    def hold(self, acceleration_id: str) -> FileLock:
        """Acquire the supervisor's lock. Raises JobBusy if another process has it."""
        lock = FileLock.take(self.folder / acceleration_id / LOCK_FILE)
        if lock is None:
            raise JobBusy(f"another process runs acceleration {acceleration_id}")
        return lock

    def is_supervised(self, acceleration_id: str) -> bool:
        """Return whether a living process holds the acceleration. Raises JobUnreadable if its lock is damaged."""
        path = self.folder / acceleration_id / LOCK_FILE
        try:
            return is_locked(path)
        except OSError as error:
            raise JobUnreadable(
                f"{path}: {error.strerror}",
                hint=f"if no supervisor runs, remove it, then `tradewind accelerate down {acceleration_id}`",
            ) from error

    def write(self, state: AccelerationState) -> None:
        """Replace the recorded state in one step."""
        _write(self.folder / state.id / STATE_FILE, json.dumps(with_digest(to_document(state), STATE_FILE)))

    def wish(self, acceleration_id: str) -> AccelerationWish | None:
        """Return the latest wish of another process, if there is one."""
        try:
            return _read(self.folder / acceleration_id / WISH_FILE, AccelerationWish.from_document)
        except FileNotFoundError:
            return None

    def state(self, acceleration_id: str) -> AccelerationState:
        """Return the recorded state. Raises JobNotFound, JobUnreadable."""
        if not acceleration_id or acceleration_id != os.path.basename(acceleration_id):
            raise UsageError(f"{acceleration_id!r} is not the id of an acceleration")
        try:
            state = self._recorded(acceleration_id)
        except FileNotFoundError:
            raise JobNotFound(
                f"no acceleration {acceleration_id}", hint="`tradewind accelerate status` lists them"
            ) from None
        supervision = self._supervision(state)
        if supervision == "gone":
            # It may have ended between both looks.
            state = self._recorded(acceleration_id)
            supervision = self._supervision(state)
        seen_unix_s = None
        if supervision == "gone":
            seen_unix_s = state.updated_unix_s
            state = replace(state, phase="failed", reason=GONE, updated_unix_s=time.time())
        return with_remains(self._control, replace(state, supervision=supervision), seen_unix_s)

    def states(self, report: Callable[[JobUnreadable], object] = lambda _error: None) -> Iterator[AccelerationState]:
        """Yield all readable accelerations, oldest first, and report the damaged ones."""
        found = []
        with suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                try:
                    found.append(self.state(name))
                except JobNotFound:
                    pass
                except JobUnreadable as error:
                    report(error)
        yield from sorted(found, key=lambda state: state.began_unix_s)

    def one(self, acceleration_id: str | None) -> AccelerationState:
        """Return an acceleration by id, or the only one that has not ended.

        Raises UsageError, JobNotFound, and JobUnreadable for a damaged state, without an id only if no other runs.
        """
        if acceleration_id is not None:
            return self.state(acceleration_id)
        damaged: list[JobUnreadable] = []
        living = [state for state in self.states(damaged.append) if state.fleets or self.is_supervised(state.id)]
        if len(living) == 1:
            return living[0]
        if not living and damaged:
            raise damaged[0]
        if not living:
            raise JobNotFound("no acceleration is running", hint="start one with `tradewind accelerate up`")
        raise UsageError(
            f"{len(living)} accelerations are running", hint=f"name one: {', '.join(each.id for each in living)}"
        )

    def down(self, acceleration_id: str | None, drain_s: float) -> AccelerationState:
        """Drain an acceleration, by default the only one that runs, and end its machines; return its last state.

        If its supervisor was killed, what is left of it is ended here, also if its recorded state is damaged. Raises
        GatewayError, JobNotFound.
        """
        acceleration_id = self.one(None).id if acceleration_id is None else acceleration_id
        if self.is_supervised(acceleration_id):
            # A damaged state is whole again when the supervisor has written it.
            state = self.state(acceleration_id)
            number = self._put(state, AccelerationWish(0, down=True, drain_s=drain_s))
            return self._await(acceleration_id, lambda now: now.wish >= number and now.phase not in LIVING, drain_s)
        self._state_or_remains(acceleration_id)  # Raises JobNotFound before a lock is made for it.
        with self._holding(acceleration_id):
            # Another process may have resumed it before this one had the lock, and so have started machines.
            state = end_remains(self._control, self._state_or_remains(acceleration_id))
            if state.phase != "ended":
                state = replace(state, phase="ended", reason=state.reason or GONE)
            state = replace(state, supervision=None)
            self.write(state)
        return state

    @contextmanager
    def _holding(self, acceleration_id: str) -> Iterator[FileLock]:
        """Hold an acceleration whose supervisor was killed within the block. Raises JobBusy."""
        lock = self.hold(acceleration_id)
        self._held.add(acceleration_id)
        try:
            yield lock
        finally:
            self._held.discard(acceleration_id)
            lock.release()

    @contextmanager
    def taken_over(self, acceleration_id: str) -> Iterator[TakenOver]:
        """Take over an acceleration whose supervisor was killed: end all its machines, and hold it for the block.

        If a machine cannot be ended, the block does not run, so no machine runs twice. Raises JobBusy if its supervisor
        lives, UsageError if it has ended, and the error of a failed end.
        """
        self._require_resumable(self.state(acceleration_id))
        with self._holding(acceleration_id) as lock:
            # Later wishes are for this process: it holds the lock from now on.
            wish = self._last_number(self._recorded(acceleration_id))
            # Another process may have ended or resumed it before this one had the lock.
            state = replace(self.state(acceleration_id), supervision=None)
            self._require_resumable(state)
            reason = GONE if state.phase in LIVING else state.reason
            state = replace(end_remains(self._control, state), phase="failed", reason=reason)
            self.write(state)
            flows = self.flows(acceleration_id)
            yield TakenOver(state, flows, lock, wish)

    def way_of_run(self, acceleration_id: str | None) -> tuple[str, list[str]]:
        """Return the URL of the proxy for `accelerate run`, and the destinations of the flows whose way in is `run`.

        Raises UsageError if the acceleration does not run or has no such flow, JobNotFound.
        """
        state = self.one(acceleration_id)
        flows = [flow for flow in state.flows if flow.way == "run"]
        if not flows:
            raise UsageError(
                f'acceleration {state.id} has no flow with way_in = "run"',
                hint="add one to its flows file and `tradewind accelerate replan`, or name a proxy with --through",
            )
        if state.phase != "running":
            raise UsageError(
                f"acceleration {state.id} is not running: it is {state.phase}",
                hint=f"`tradewind accelerate status {state.id}` shows it",
            )
        return f"socks5h://{flows[0].listen}", list(dict.fromkeys(flow.target for flow in flows))

    def _require_resumable(self, state: AccelerationState) -> None:
        if state.supervision not in (None, "gone"):
            raise JobBusy(
                f"the supervisor of acceleration {state.id} {_LIVES.get(state.supervision, 'lives')}",
                hint=_stopped_hint(state),
            )
        if state.phase == "ended":
            raise UsageError(
                f"acceleration {state.id} has ended", hint="start a new one with `tradewind accelerate up --flows FILE`"
            )
        if state.cost_error is not None and state.usd_max is not None:
            raise UsageError(
                f"the cost of acceleration {state.id} is unknown, so its ceiling cannot be kept: {state.cost_error}",
                hint=f"`tradewind accelerate down {state.id}` ends what is left",
            )
        if state.ends_unix_s is not None and state.ends_unix_s <= time.time():
            raise UsageError(
                f"the time of acceleration {state.id} is over",
                hint=f"`tradewind accelerate down {state.id}` ends what is left",
            )

    def _state_or_remains(self, acceleration_id: str) -> AccelerationState:
        """Return the state; if it is damaged, one with the machines that the journal has, and without their cost."""
        try:
            return self.state(acceleration_id)
        except JobUnreadable as error:
            now_s, reason = time.time(), f"its state was damaged: {error}"
            state = AccelerationState(
                acceleration_id, "failed", now_s, now_s, reason=reason, cost_error="its state was damaged"
            )
            return with_remains(self._control, state)

    def _supervision(self, state: AccelerationState) -> Supervision | None:
        is_held = state.id not in self._held and self.is_supervised(state.id)
        return supervision_of(state, held=is_held, now_s=time.time())

    def replan(self, acceleration_id: str, flows: str | None) -> AccelerationState:
        """Place the flows again, or those of another file; return the state after that. Raises UsageError."""
        state = self.state(acceleration_id)
        if not self.is_supervised(acceleration_id):
            raise UsageError(
                f"acceleration {acceleration_id} is not running", hint="start a new one with `tradewind accelerate up`"
            )
        text = None if flows is None else flows_text(flows)
        number = self._put(state, AccelerationWish(0, flows=text))
        state = self._await(acceleration_id, lambda now: now.wish >= number, 0.0)
        if state.wish > number and state.phase != "running":
            raise _being_ended(acceleration_id)
        if state.wish_error is not None:
            raise UsageError(f"acceleration {acceleration_id} continues unchanged: {state.wish_error}")
        return state

    def _put(self, state: AccelerationState, wish: AccelerationWish) -> int:
        """Record a wish, and return its number. Raises GatewayLost, JobUnreadable.

        The supervisor reads only the latest wish. So a replan waits until the one before is answered. The end of an
        acceleration comes before all replans, and none replaces it.
        """
        deadline_s = time.monotonic() + WISH_S_MAX
        while True:
            with self._wishing(state.id):
                latest = self._unanswered(state.id)
                if latest is None or wish.down:
                    number = 1 + self._last_number(self._recorded(state.id))
                    _write(self.folder / state.id / WISH_FILE, json.dumps(to_document(replace(wish, number=number))))
                    return number
            self._require_answering(self.state(state.id), deadline_s)
            if latest.down:
                raise _being_ended(state.id)
            time.sleep(LOOK_EVERY_S)

    def _unanswered(self, acceleration_id: str) -> AccelerationWish | None:
        """Return the wish that the supervisor has not answered yet. Nobody answers a damaged one, or a killed one's."""
        with suppress(JobUnreadable):
            wish = self.wish(acceleration_id)
            if wish is not None and wish.number > self._recorded(acceleration_id).wish:
                return wish if self.is_supervised(acceleration_id) else None
        return None

    def _last_number(self, state: AccelerationState) -> int:
        """Return the number of the latest wish; of a damaged one, the largest that it may have had."""
        try:
            wish = self.wish(state.id)
        except JobUnreadable:
            return state.wish + 1
        return max(state.wish, 0 if wish is None else wish.number)

    @contextmanager
    def _wishing(self, acceleration_id: str) -> Iterator[None]:
        """Let no other process record a wish within the block. Raises GatewayLost if one does not finish doing so."""
        path, deadline_s = self.folder / acceleration_id / WISH_LOCK, time.monotonic() + WISHING_S_MAX
        while (lock := FileLock.take(path)) is None:
            if time.monotonic() >= deadline_s:
                raise GatewayLost(
                    f"another command has begun to change acceleration {acceleration_id}, and does not go on",
                    hint="continue or end that command, then run this one again",
                )
            time.sleep(LOOK_EVERY_S)
        try:
            yield
        finally:
            lock.release()

    def _await(
        self, acceleration_id: str, wanted: Callable[[AccelerationState], bool], more_s: float
    ) -> AccelerationState:
        deadline_s = time.monotonic() + WISH_S_MAX + more_s
        while not wanted(state := self.state(acceleration_id)):
            try:
                self._require_answering(state, deadline_s)
            except GatewayLost:
                # It may have answered just before it ended.
                if state.supervision == "stopped" or not wanted(state := self.state(acceleration_id)):
                    raise
                return state
            time.sleep(LOOK_EVERY_S)
        return state

    def _require_answering(self, state: AccelerationState, deadline_s: float) -> None:
        """Raise GatewayLost if the supervisor cannot answer a wish, or has not in time."""
        if state.supervision == "stopped":
            raise GatewayLost(
                f"the supervisor of acceleration {state.id} is stopped, and does this once it continues",
                hint=_stopped_hint(state),
            )
        if not self.is_supervised(state.id):
            raise GatewayLost(
                f"the supervisor of acceleration {state.id} has ended",
                hint=f"`tradewind accelerate down {state.id}` ends what is left",
            )
        if time.monotonic() >= deadline_s:
            raise GatewayLost(
                f"acceleration {state.id} did not answer in time", hint="`tradewind fleet list` shows its machines"
            )

    def _recorded(self, acceleration_id: str) -> AccelerationState:
        """Return the state as it was written. Raises FileNotFoundError, JobUnreadable."""
        path = self.folder / acceleration_id / STATE_FILE

        def whole(document: Any) -> AccelerationState:
            if isinstance(document, dict):
                document = without_digest(document, STATE_FILE)
            state = AccelerationState.from_document(document)
            if state.id != acceleration_id:
                raise ValueError(f"it is the state of acceleration {state.id}")
            return state

        return _read(path, whole)


#: Faults of a supervisor that holds its acceleration.
_LIVES: dict[Supervision, str] = {"stopped": "is stopped", "silent": "is running, but reports nothing"}


def _being_ended(acceleration_id: str) -> GatewayLost:
    return GatewayLost(
        f"acceleration {acceleration_id} is being ended, so it is not replanned",
        hint="start a new one with `tradewind accelerate up`",
    )


def _stopped_hint(state: AccelerationState) -> str:
    if state.process is None or state.supervision not in _LIVES:
        return f"`tradewind accelerate status {state.id}` shows it"
    pid = state.process.pid
    return f"`kill -CONT {pid}` continues it, `kill -KILL {pid}` ends it"


def flows_text(path: str) -> str:
    """Return the content of a flows file. Raises ConfigError if it cannot be read."""
    try:
        return read_user_file(path).decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="name a flows file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: it is not UTF-8", hint="name a flows file") from None


def _read(path: Path, decode: Callable[[Any], T]) -> T:
    """Return what a file has. Raises FileNotFoundError, JobUnreadable."""
    try:
        return decode(read_json(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TradewindError) as error:
        raise JobUnreadable(
            f"{path}: {error}", hint=f"`tradewind accelerate down {path.parent.name}` ends what is left of it"
        ) from error


def _write(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old or the new content."""
    os.replace(_write_beside(path, text), path)


def _write_beside(path: Path, text: str) -> Path:
    """Write what may replace a file, and return its path."""
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "w", encoding="utf-8", opener=open_private) as file:
        file.write(text)
    return beside
