"""A client that is killed at any of its calls to Azure leaves nothing that is not seen, or that cannot be removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.clouds.azure import azure_api
from tests.fleet.azure_stage import Stage
from tests.fleet.worlds import wait_until
from tradewind.fleet.azure.names import MACHINES
from tradewind.fleet.journal import FleetJournal

#: Lives of clients: each line on standard input is one, in a process of its own, whose id is printed first. The clients
#: of Azure, which are slow to load, are loaded once.
LIVES = """
import json, os, sys
from pathlib import Path
import azure.identity, azure.mgmt.compute, azure.mgmt.network
from tests.fleet.azure_stage import order
from tests.fleet.orders import FLEET
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers import make_provider
document, folder, names = json.loads(sys.argv[1])
def life():
    provider = make_provider(document, "unused", FleetJournal(Path(folder)))
    provider.launch([order(name) for name in names])
    provider.terminate([machine.id for machine in provider.machines({FLEET_TAG: FLEET})])
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        life()
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


class Lives:
    """Starts clients, and kills them at a call."""

    def __init__(self, stage: Stage, process: subprocess.Popen[str]) -> None:
        self._stage, self._process = stage, process

    def start(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write("live\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process of the clients has ended"
        return line.strip()

    def whole(self) -> list[tuple[str, str]]:
        """Let a client live to its end, and return its calls."""
        before = len(self._stage.api.calls())
        self.start()
        assert self._line() == "ended"
        return self._stage.api.calls()[before:]

    def killed_at(self, number: int, mode: str, match: str = "") -> bool:
        """Kill a client at one of its calls that match, counted from 1. Return False if it did not make so many."""
        api = self._stage.api
        held = api.held()
        api.fault({"match": match, "nth": number, "mode": mode})
        pid = self.start()
        ended = False

        def over() -> bool:
            nonlocal ended
            ended = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z" if _there(pid) else True
            return ended or api.held() > held

        wait_until(over)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        assert self._line() == "ended"
        api.fault()
        return not ended


def _there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with azure_api() as api:
        yield Stage(api, FleetJournal(tmp_path / "empty"), monkeypatch)


@contextmanager
def lives_of(stage: Stage, folder: Path, *names: str) -> Iterator[Lives]:
    argument = json.dumps([stage.api.document(), str(folder), names])
    with subprocess.Popen(
        [sys.executable, "-c", LIVES, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Lives(stage, process)
        finally:
            process.kill()


def assert_all_is_seen_and_removed(stage: Stage, what: str) -> None:
    """A stranger with an empty state folder sees all that there is, and removes it."""
    stranger = stage.provider()
    there = {(kind, name) for kind, names in stage.api.resources().items() for name in names}
    left = stranger.leftovers()
    seen = {tuple(one.id.split("/providers/")[1].rsplit("/", 1)) for one in left}
    assert seen == there, f"{what}: not everything is seen"
    refusals = [answer.refusal for answer in stranger.terminate([one.id for one in left]) if answer.refusal]
    assert refusals == [], what
    assert stage.api.resources() == {}, f"{what}: something is left"


def test_a_client_killed_at_a_change_leaves_what_a_stranger_sees_and_removes(stage: Stage, tmp_path: Path) -> None:
    """Azure has carried out the call, but nobody got the answer."""
    with lives_of(stage, tmp_path / "client", "one") as lives:
        calls = lives.whole()
        assert stage.api.resources() == {}
        changes = [" ".join(call) for call in calls if call[0] != "GET"]
        assert len(changes) >= 10
        kinds = set[str]()
        for number, change in enumerate(changes, 1):
            assert lives.killed_at(number, "hold-after", "^(PUT|DELETE|POST) ")
            kinds |= stage.api.resources().keys()
            # Concurrent calls come in another order each time, so this may be another change.
            assert_all_is_seen_and_removed(stage, f"change {number}, such as {change}")
        assert MACHINES in kinds and len(kinds) == 7, "each type of resource was left once"


@pytest.mark.slow
def test_a_client_killed_before_any_call_leaves_what_a_stranger_sees_and_removes(stage: Stage, tmp_path: Path) -> None:
    with lives_of(stage, tmp_path / "client", "one", "two") as lives:
        calls = lives.whole()
        for number, call in enumerate(calls, 1):
            # Concurrent calls come in another order each time; the last ones may not be made.
            if lives.killed_at(number, "hold"):
                assert_all_is_seen_and_removed(stage, f"call {number}: {' '.join(call)}")
            else:
                assert number > len(calls) // 2
                assert stage.api.resources() == {}
