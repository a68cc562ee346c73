"""Starts of jobs that fail, and whose failure cannot be recorded either."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobStore
from tradewind.engine.launch_spec import local_launch
from tradewind.engine.request import Options
from tradewind.errors import GatewayError, StateError
from tradewind.model.job import JobSpec, ObjectSelection, Target
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
