"""`--delete` and `mv` at versitygw, which keeps objects as files and states times in whole seconds."""

from __future__ import annotations

import time
from pathlib import Path

from testbed.drive import Command
from testbed.places import S3Place

MARKERS = ["d/", "d/e/", "empty/"]
#: Time after which no object is of the second in which a job starts. The date that versitygw states is up to 1 s late.
SECOND_S = 2.1


def filled(place: S3Place, *keys: str) -> None:
    for key in keys:
        place.put(key, b"" if key.endswith("/") else key.encode())


def test_objects_as_young_as_the_job_stay_until_the_next_run(command: Command, s3: S3Place, tmp_path: Path) -> None:
    """The times of versitygw are whole seconds, so an object of this second could be another's that came since then."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "new").write_bytes(b"new")
    filled(s3, *MARKERS, "d/e/old", "a&b <c>", "old")
    words = ("sync", "--delete", "-y", "--json", str(source), f"{s3.url}/", *s3.flags("dst"))
    assert command.run(*words).code in (0, 4)
    command.run(*words).expect(0)
    assert list(s3.sizes()) == ["new"]


def test_a_marker_goes_although_its_folder_has_changed(command: Command, s3: S3Place, tmp_path: Path) -> None:
    """The time of a marker is that of a directory, which the job changes when it writes into it."""
    source = tmp_path / "source"
    (source / "d" / "e").mkdir(parents=True)
    (source / "d" / "e" / "new").write_bytes(b"new")
    filled(s3, *MARKERS, "d/e/old")
    time.sleep(SECOND_S)
    command.run("sync", "--delete", "-y", source, f"{s3.url}/", *s3.flags("dst")).expect(0)
    assert list(s3.sizes()) == ["d/e/new"]


def test_mv_takes_markers_along(command: Command, s3: S3Place, tmp_path: Path) -> None:
    names = [f"d/e/{number:03}" for number in range(120)]
    filled(s3, *MARKERS, *names)
    time.sleep(SECOND_S)
    command.run("mv", "-r", f"{s3.url}/", tmp_path / "moved", *s3.flags("src")).expect(0)
    assert s3.sizes() == {}
    assert len(list((tmp_path / "moved" / "d" / "e").iterdir())) == len(names)
