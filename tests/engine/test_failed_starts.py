"""Starts of jobs that fail, and whose failure cannot be recorded either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.engine.client import Client
from tradewind.engine.gateways import JobGateways
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobStore
from tradewind.engine.launch_spec import local_launch
from tradewind.engine.request import Options
from tradewind.errors import GatewayError, StateError
from tradewind.fleet.journal import FleetJournal
from tradewind.model.job import JobSpec, ObjectSelection, Target
from tradewind.model.plan import Deployment
from tradewind.model.program import Program
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


def test_a_machine_that_ends_before_it_has_work_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud may take a spot machine back as soon as it has enrolled."""
    give = JobGateways.give_program

    def after_the_end_of_the_sink(gateways: JobGateways, deployment: Deployment, program: Program) -> None:
        if "b" in gateways.living():
            gateways.crash("b")
        give(gateways, deployment, program)

    monkeypatch.setattr(JobGateways, "give_program", after_the_end_of_the_sink)
    document = {
        "gateways": {"a": {"role": "source", "region": "site:a"}, "b": {"role": "sink", "region": "site:b"}},
        "routes": [{"nodes": ["a", "b"], "share": 1}],
    }
    topology = tmp_path / "topology.json"
    topology.write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "file").write_bytes(b"data")
    client = Client(state_dir=str(tmp_path / "state"))
    with pytest.raises(GatewayError, match=r"^machine b in site:b ended before it had work$") as caught:
        client.copy(tmp_path / "file", tmp_path / "copy", topology=str(topology))
    assert caught.value.hint == "the other machines were ended; run the command again"
    assert list(FleetJournal(tmp_path / "state").records()) == []
