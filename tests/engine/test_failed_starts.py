"""Starts of jobs that fail, and whose failure cannot be recorded either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.worlds import failing_binary
from tradewind.engine.client import Client
from tradewind.engine.gateways import JobGateways
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobStore
from tradewind.engine.launch_spec import local_launch
from tradewind.engine.request import Options
from tradewind.engine.runs import SPOT_STARTS_MAX
from tradewind.errors import GatewayError, MachineReclaimed, StateError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Machine
from tradewind.model.event import Event, Notice
from tradewind.model.job import JobSpec, ObjectSelection, Target
from tradewind.model.plan import Deployment
from tradewind.model.program import Program
from tradewind.model.records import replace
from tradewind.model.store import StoreSpec

SPEC = JobSpec(StoreSpec("s3://s"), ObjectSelection("k"), (Target(StoreSpec("s3://d"), "k"),))
REQUEST = {"verb": "cp", "source": "s3://s/k", "destinations": ["s3://d/k"], "argv": [], "settings": {}}


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobControl:
    """Without a gateway program, and with a full disk."""

    def full(_: JobStore, job_id: str) -> None:
        raise StateError(f"{job_id}: no space left")

    monkeypatch.setattr(JobStore, "forget", full)
    monkeypatch.setattr(JobStore, "set_start_failed", full)
    return JobControl(state_dir=str(tmp_path / "state"), gateway=str(tmp_path / "missing"))


def test_a_new_job_reports_why_it_did_not_start(control: JobControl, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    with pytest.raises(GatewayError, match="missing"):
        control.start(tmp_path / "file", tmp_path / "copy", Options(), local_launch())


def test_a_resumed_job_reports_why_it_did_not_start(control: JobControl) -> None:
    control.store.make_folder("job-1")
    control.store.create("job-1", SPEC, REQUEST, None)
    with pytest.raises(GatewayError, match="missing"):
        control.resume("job-1")


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ending:
    made = Ending(tmp_path)
    give = JobGateways.give_program

    def after_the_end_of_the_sink(gateways: JobGateways, deployment: Deployment, program: Program) -> None:
        if "b" in gateways.living() and made.ended < made.ends:
            made.ended += 1
            gateways.crash("b")
        give(gateways, deployment, program)

    monkeypatch.setattr(JobGateways, "give_program", after_the_end_of_the_sink)
    return made


class Ending:
    """A copy whose sink ends as soon as it has enrolled, the first `ends` times."""

    def __init__(self, folder: Path) -> None:
        self.ends, self.ended = 1, 0
        self._folder = folder
        self.client = Client(state_dir=str(folder / "state"))
        document = {
            "gateways": {"a": {"role": "source", "region": "site:a"}, "b": {"role": "sink", "region": "site:b"}},
            "routes": [{"nodes": ["a", "b"], "share": 1}],
        }
        self._topology = folder / "topology.json"
        self._topology.write_text(json.dumps(document), encoding="utf-8")
        (folder / "file").write_bytes(b"data")

    def copy(self) -> list[str]:
        """Copy, check that no fleet is left, and return the notes of the job."""
        notes: list[str] = []

        def note(event: Event) -> None:
            if isinstance(event, Notice):
                notes.append(event.message)

        try:
            self.client.copy(self._folder / "file", self._folder / "copy", topology=str(self._topology), on_event=note)
        finally:
            assert list(FleetJournal(self._folder / "state").records()) == []
        assert (self._folder / "copy").read_bytes() == b"data"
        return notes


def test_a_machine_that_ends_before_it_has_work_is_named(ending: Ending) -> None:
    with pytest.raises(GatewayError, match=r"^machine b in site:b ended before it had work$") as caught:
        ending.copy()
    assert caught.value.hint == "the other machines were ended; run the command again"


def test_the_machines_are_started_again_if_a_spot_machine_is_taken_back(
    ending: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobGateways, "spot", lambda _: {"b"})
    assert ending.copy() == ["machine b in site:b ended before it had work; all machines are started again"]
    assert ending.ended == 1


def spot_machine(*values: Any, **more: Any) -> Machine:
    return replace(Machine(*values, **more), spot=True)


def test_a_spot_machine_that_ends_while_it_starts_is_replaced(
    ending: Ending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others stay."""
    monkeypatch.setattr("tradewind.fleet.processes.Machine", spot_machine)
    ending.ends = 0
    ending.client = Client(state_dir=str(tmp_path / "state"), gateway=failing_binary(tmp_path, "b"))
    (note,) = ending.copy()
    assert note.startswith("gateway b did not start: ") and note.endswith("; another machine is started in its place")
    journal = FleetJournal(tmp_path / "state")
    rows = journal.database.rows("SELECT name FROM machines ORDER BY fleet, number")
    assert [name for (name,) in rows] == ["a", "b", "b"]


def test_machines_are_not_started_again_for_ever(ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobGateways, "spot", lambda _: {"b"})
    ending.ends = 100
    with pytest.raises(MachineReclaimed, match="machine b in site:b ended before it had work"):
        ending.copy()
    assert ending.ended == SPOT_STARTS_MAX
