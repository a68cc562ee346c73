"""A client that is killed at any of its calls to Azure leaves nothing that is not seen, or that cannot be removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.clouds.azure import azure_api
from tests.fleet.azure_stage import Stage
from tests.fleet.orphan_client import Client, Clients, clients_of
from tests.fleet.worlds import wait_until
from tradewind.fleet.azure.names import MACHINES
from tradewind.fleet.journal import FleetJournal

LIBRARIES = ("azure.identity", "azure.mgmt.compute", "azure.mgmt.network")


class Lives:
    """Starts clients for machines of these names, and kills them at a call."""

    def __init__(self, stage: Stage, clients: Clients, folder: Path, names: tuple[str, ...]) -> None:
        self._stage, self._clients, self._folder, self._names = stage, clients, folder, names

    def _start(self) -> Client:
        return self._clients.start(self._stage.api.document(), self._folder, *self._names, market=False)

    def whole(self) -> list[tuple[str, str]]:
        """Let a client live to its end, and return its calls."""
        before = len(self._stage.api.calls())
        client = self._start()
        assert client.exit_code() == 0
        return self._stage.api.calls()[before:]

    def killed_at(self, number: int, mode: str, match: str = "") -> bool:
        """Kill a client at one of its calls that match, counted from 1. Return False if it did not make so many."""
        api = self._stage.api
        held = api.held()
        api.fault({"match": match, "nth": number, "mode": mode})
        client = self._start()
        wait_until(lambda: client.has_ended() or api.held() > held)
        killed = client.kill()
        api.fault()
        return killed


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with azure_api() as api:
        yield Stage(api, FleetJournal(tmp_path / "empty"), monkeypatch)


@contextmanager
def lives_of(stage: Stage, folder: Path, *names: str) -> Iterator[Lives]:
    with clients_of("tests.fleet.azure_stage", *LIBRARIES) as clients:
        yield Lives(stage, clients, folder, names)


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
