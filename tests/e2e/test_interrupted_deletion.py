"""Deletions at the end of a job that are stopped half-way: the job is unfinished, says so, and can be resumed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from testbed.drive import Command

FILES = 3_000


@pytest.mark.parametrize("verb", ["mv", "sync"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_deletion_is_resumed(command: Command, tmp_path: Path, verb: str, number: signal.Signals) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    for folder in (source, copy):
        folder.mkdir()
    shrinking = source if verb == "mv" else copy
    for name in range(FILES):
        (shrinking / f"{name:04}").write_bytes(b"x")
    (source / "kept").write_bytes(b"y")
    words: list[str | Path] = ["mv", "-r", source, copy] if verb == "mv" else ["sync", "--delete", "-y", source, copy]
    running = command.start(*words)
    while running.process.poll() is None and len(list(shrinking.iterdir())) >= FILES:
        time.sleep(0.001)
    running.signal(number)
    done = running.finish()
    left = len([entry for entry in shrinking.iterdir() if entry.name != "kept"])
    if left == 0:
        assert done.code == 0
        return
    assert done.code == 130, done.stderr
    (job,) = command.jobs()
    assert job["state"] == "interrupted"
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert [entry.name for entry in shrinking.iterdir() if entry.name != "kept"] == []
    assert (copy / "kept").read_bytes() == b"y"
