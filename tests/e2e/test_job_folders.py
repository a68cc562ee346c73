"""Files that another program has put into a job's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace
from tradewind.state.database import open_database


@pytest.mark.parametrize("name", ["status.json", "lock", "client.lock"])
def test_a_pipe_in_a_jobs_folder_blocks_nothing(command: Command, tmp_path: Path, name: str) -> None:
    source = FilePlace(tmp_path / "source")
    source.put("a", b"x")
    command.run("cp", "-r", source.folder, tmp_path / "there").expect(0)
    (job,) = command.jobs()
    unsettle(command, job["id"])
    place = command.state / "jobs" / job["id"] / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    said = command.run("jobs", "list", timeout_s=20).expect(0)
    assert f"warning: {place} is unreadable: not a regular file; it is skipped" in said.stderr
    for action in "show", "attach", "wait", "pause", "resume", "cancel", "receipt":
        refused = command.run("jobs", action, job["id"], timeout_s=20).expect(1)
        assert f"{place} is unreadable: not a regular file" in refused.stderr and "hint: " in refused.stderr


def test_other_pipes_in_a_jobs_folder_are_skipped(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "source")
    source.put("a", b"x")
    command.run("cp", "-r", source.folder, tmp_path / "there").expect(0)
    (job,) = command.jobs()
    unsettle(command, job["id"])
    os.mkfifo(command.state / "jobs" / job["id"] / "cancelling")
    command.run("jobs", "show", job["id"], timeout_s=20).expect(0)
    cancelled = command.run("jobs", "cancel", job["id"], timeout_s=20).expect(1)
    assert "the journal" in cancelled.stderr, "the job was really done"


def unsettle(command: Command, job_id: str) -> None:
    """Make the job look interrupted."""
    status = command.state / "jobs" / job_id / "status.json"
    status.write_text(status.read_text().replace('"done"', '"interrupted"'))
    open_database(command.state).write("UPDATE jobs SET state = 'open'")
