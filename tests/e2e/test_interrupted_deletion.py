"""Deletions at the end of a job that are interrupted: the job is reported as unfinished, and can be resumed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import Call, OddPlace, OddStore, Request, during

FILES = 3_000
KEYS = 150
"""Number of objects: more than one request can delete."""


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


@pytest.mark.parametrize("selection", ["tree", "list", "several", "one object"])
def test_a_resumed_deletion_counts_the_objects_that_were_deleted_before(
    command: Command, tmp_path: Path, selection: str
) -> None:
    """All processes are killed after the store has carried out a deletion and before that is recorded."""
    with OddStore("s3") as store:
        place, copy = OddPlace(store, command), tmp_path / "copy"
        names = [f"{number:04}" for number in range(1 if selection == "one object" else KEYS)]
        for name in names:
            place.put(f"d/{name}", b"x")
        (tmp_path / "names").write_text("".join(f"{name}\n" for name in names))
        choices: dict[str, list[str | Path]] = {
            "tree": ["-r", f"{place.url}/d/", f"{copy}/"],
            "list": ["--files-from", tmp_path / "names", f"{place.url}/d/", f"{copy}/"],
            "several": ["-r", f"{place.url}/d", f"{place.url}/e", f"{copy}/"],
            "one object": [f"{place.url}/d/0000", f"{copy}/"],
        }
        words = choices[selection]
        if selection == "several":
            place.put("e/x", b"x")
            names += ["x"]
        deletes = [during("delete"), during("delete many")]

        def is_delete(asking: Request) -> bool:
            return any(each(asking) for each in deletes)

        def delete_and_kill() -> None:
            """Delete the requested objects, and kill all processes before the answer."""
            for name in names[:100]:
                store.objects.delete(place.bucket, f"d/{name}")
            for pid in command.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        store.add(Rule(Call(delete_and_kill), when=is_delete, count=1))
        command.run("mv", *words, *place.flags("src")).expect(-signal.SIGKILL)
        (job,) = command.jobs()
        resumed = command.run("jobs", "resume", str(job["id"]), "--json").expect(0)
        progress = resumed.summary["progress"]
        assert (progress["objects_done"], progress["objects_failed"]) == (len(names), 0)
        assert (progress["objects_total"], progress["bytes_done"]) == (len(names), len(names))
        assert place.contents() == {}
        assert len(list(copy.rglob("[0-9x]*"))) == len(names)


def test_a_resumed_flat_move_replaces_no_copy_whose_source_is_gone(command: Command, tmp_path: Path) -> None:
    """All processes are killed once sources are deleted. Then an object that would get the name of one appears."""
    with OddStore("s3") as store:
        place, copy = OddPlace(store, command), tmp_path / "copy"
        for name in ("x", "y"):
            place.put(f"d/a/{name}", b"first")

        def delete_and_kill() -> None:
            store.objects.delete(place.bucket, "d/a/x")
            for pid in command.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        deletes = [during("delete"), during("delete many")]
        store.add(Rule(Call(delete_and_kill), when=lambda asking: any(each(asking) for each in deletes), count=1))
        command.run("mv", "-r", "--flatten", f"{place.url}/d/", f"{copy}/", *place.flags("src")).expect(-signal.SIGKILL)
        place.put("d/b/x", b"another")
        place.put("d/b/z", b"new")
        (job,) = command.jobs()
        done = command.run("jobs", "resume", str(job["id"])).expect(0)
        assert "1 already there" in done.stderr
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == {"x": b"first", "y": b"first", "z": b"new"}
        assert place.contents() == {"d/b/x": b"another"}
