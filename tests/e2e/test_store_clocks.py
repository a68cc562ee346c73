"""Stores with a wrong clock: no upload of others is aborted, none of ours is left, `sync` detects newer objects."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import Edit, Kind, OddPlace, OddStore, Reply, during
from testbed.trees import MIB, payload

XML: list[Kind] = ["s3", "gcs"]
KINDS: list[Kind] = [*XML, "azure"]
HOUR_S = 3_600
CONTENT = payload("k", 12 * MIB)


@pytest.mark.parametrize("kind", XML)
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_the_sweep_of_unfinished_uploads_uses_the_stores_clock(
    command: Command, tmp_path: Path, kind: Kind, ahead_s: int
) -> None:
    source = tmp_path / "k"
    source.write_bytes(CONTENT)
    with OddStore(kind) as store:
        store.habits.clock_ahead_s = ahead_s
        place = OddPlace(store, command)
        foreign = store.objects.open_upload(place.bucket, "k", {})
        foreign.opened_s = time.time() - HOUR_S / 2
        # The answer is lost, so the id of our first upload is unknown.
        store.add(Rule(Edit(lambda _: Reply(500)), when=during("open upload"), count=1))
        arguments = [str(source), f"{place.url}/k", "--chunk-size", "5MiB", *place.flags("dst")]
        command.run("cp", *arguments).expect(0)
        left = [upload.upload_id for upload in store.objects.uploads(place.bucket)]
        assert left == [foreign.upload_id]
        assert place.contents() == {"k": CONTENT}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_sync_by_time_uses_one_clock(command: Command, tmp_path: Path, kind: Kind, ahead_s: int) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "k").write_bytes(b"old")
    os.utime(source / "k", (time.time() - HOUR_S / 2,) * 2)
    with OddStore(kind) as store:
        store.habits.clock_ahead_s = ahead_s
        place = OddPlace(store, command)
        words = ["sync", "--compare", "time", str(source), place.url, *place.flags("dst")]
        command.run(*words).expect(0)
        store.clear()
        command.run(*words).expect(0)
        assert not store.requests(during("put")), "the copy is newer than its source"
        (source / "k").write_bytes(b"new")
        os.utime(source / "k", (time.time() + 2,) * 2)
        command.run(*words).expect(0)
        assert place.contents() == {"k": b"new"}


@pytest.mark.parametrize("kind", KINDS)
def test_sync_by_time_uses_one_clock_at_the_source_too(command: Command, kind: Kind) -> None:
    """The source's clock is behind, so an object that was rewritten after its copy has an earlier time."""
    with OddStore(kind) as store, OddStore("s3") as there:
        place, to = OddPlace(store, command), OddPlace(there, command)
        store.habits.clock_ahead_s = -HOUR_S
        store.objects.put(place.bucket, "k", b"old", modified_s=time.time() - HOUR_S)
        words = ["sync", "--compare", "time", place.url, to.url, *place.flags("src"), *to.flags("dst")]
        command.run(*words).expect(0)
        store.objects.put(place.bucket, "k", b"new", modified_s=time.time() + 2)
        command.run(*words).expect(0)
        assert to.contents() == {"k": b"new"}
