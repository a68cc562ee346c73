"""`mv` checks each copy right before it deletes the source, so that no data is lost if the copy is missing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import Answer, Call, Hang, OddPlace, OddStore, Request, during
from testbed.trees import MIB, payload

CHUNK = ("--chunk-size", "5MiB")
WAIT_S = 30.0


def looks_at_copies(place: OddPlace, name: str | None = None) -> Callable[[Request], bool]:
    """Return a condition that matches checks of existing objects. `mv` also checks first whether the places differ."""
    return lambda asking: during("head", name)(asking) and bool(place.contents())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def fill(folder: Path, sizes: dict[str, int]) -> Path:
    folder.mkdir()
    for name, size in sizes.items():
        (folder / name).write_bytes(payload(name, size))
    return folder


def test_no_source_is_deleted_if_a_store_forgets_an_acknowledged_copy(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    place, source = OddPlace(store, command), fill(tmp_path / "source", {"whole": 10, "in-parts": 12 * MIB})
    store.habits.forgets_writes = True
    done = command.run("mv", "-r", "--json", *CHUNK, source, place.url, *place.flags("dst")).expect(6)
    # An object is checked when it is written if the answer has no checksum, otherwise before its source is deleted.
    assert sorted(done.failure_kinds) == ["mismatch", "mismatch" if store.kind == "azure" else "overwritten"]
    assert names(source) == {"whole", "in-parts"}
    store.habits.forgets_writes = False
    (job,) = command.jobs()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert (names(source), set(place.contents())) == (set(), {"whole", "in-parts"})


@pytest.mark.parametrize("fault", ["removed", "replaced"])
def test_no_source_is_deleted_if_its_copy_was_removed(
    store: OddStore, command: Command, tmp_path: Path, fault: str
) -> None:
    place, source = OddPlace(store, command), fill(tmp_path / "source", {"a": 10, "b": 10})

    def interfere() -> None:
        if fault == "removed":
            store.objects.delete(place.bucket, "a")
        else:
            place.put("a", b"of another")

    # An Azure blob is also checked when it is written, because the write's answer states no checksum.
    written = int(store.kind == "azure")
    store.add(Rule(Call(interfere), when=looks_at_copies(place, "a"), skip=written, count=1))
    done = command.run("mv", "-r", "--json", source, place.url, *place.flags("dst")).expect(4)
    assert sorted(done.failure_kinds) == ["overwritten"]
    assert done.failures[0]["destination"].endswith("/source/a")
    assert names(source) == {"a"}
    assert place.contents().get("a") == (None if fault == "removed" else b"of another")


def test_without_permission_to_check_copies_nothing_is_deleted(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    place, source = OddPlace(store, command), fill(tmp_path / "source", {"a": 10, "b": 10})
    store.add(Rule(Answer(403, "AccessDenied"), when=looks_at_copies(place)))
    done = command.run("mv", "-r", "--json", source, place.url, *place.flags("dst"))
    assert done.code in (4, 7)
    assert sorted(done.failure_kinds) == ["forbidden", "forbidden"]
    assert names(source) == {"a", "b"}


@pytest.mark.parametrize("fault", ["removed", "replaced", "none"])
def test_a_resumed_job_checks_copies_of_earlier_runs(
    store: OddStore, command: Command, tmp_path: Path, fault: str
) -> None:
    source = fill(tmp_path / "source", {"done": 4 * MIB, "open": 4 * MIB})
    place = OddPlace(store, command)
    store.add(Rule(Hang(), when=during("put", "open"), count=1))
    running = command.start("mv", "-r", source, place.url, *place.flags("dst"))
    end = time.monotonic() + WAIT_S
    while "done" not in place.contents() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(1.0)
    running.signal(signal.SIGINT)
    assert running.finish().code == 130
    assert names(source) == {"done", "open"}
    if fault == "removed":
        store.objects.delete(place.bucket, "done")
    elif fault == "replaced":
        place.put("done", payload("another", 4 * MIB))
    (job,) = command.jobs()
    resumed = command.run("jobs", "resume", str(job["id"]), "--json")
    if fault != "none":
        assert resumed.code == 4
        assert sorted(resumed.failure_kinds) == ["overwritten"]
        assert names(source) == {"done"}
        command.run("jobs", "resume", str(job["id"])).expect(0)
    assert (names(source), set(place.contents())) == (set(), {"done", "open"})
    assert place.get("done") == payload("done", 4 * MIB)
