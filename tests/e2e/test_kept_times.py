"""The modification times of files in the metadata of their objects, exchanged with rclone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.odd_stores import Habits, OddPlace, OddStore
from testbed.places import Place, S3Place
from testbed.servers.process import Server
from testbed.servers.rclone import rclone_program
from testbed.trees import MIB, payload

OLD_NS = 1_500_000_000_123_456_789
SECONDS, DATE = "1500000000.123456789", "2017-07-14T02:40:00.123456789Z"
#: Header and form by kind of store.
FORM = {"moto": ("x-amz-meta-mtime", SECONDS), "gcs": ("x-goog-meta-mtime", DATE), "azure": ("x-ms-meta-mtime", DATE)}
OLD = {"small": OLD_NS, "large": OLD_NS}
CHUNKS = ["--chunk-size", "5MiB"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A small file and one of two parts, both old."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, content in (("small", b"small"), ("large", payload("large", 6 * MIB))):
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(OLD_NS, OLD_NS))
    return folder


def times(folder: Path) -> dict[str, int]:
    """Return the modification time of each file."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def rclone(server: Server, *words: str | Path) -> str:
    """Run rclone with the remote `there:`; return what it reports."""
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": server.endpoint,
        "ACCESS_KEY_ID": server.access_key,
        "SECRET_ACCESS_KEY": server.secret_key,
        "REGION": "us-east-1",
    }
    environment = {f"RCLONE_CONFIG_THERE_{name}": value for name, value in remote.items()}
    command = [rclone_program(), *words, "--config", "/dev/null", "--stats-log-level", "NOTICE"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_rclone_reads_the_times_that_tradewind_writes(
    place: Callable[[str], Place], s3_server: Server, command: Command, files: Path, tmp_path: Path
) -> None:
    there = place("versitygw")
    assert isinstance(there, S3Place)
    command.run("cp", "-r", files, f"{there.url}/d/", *CHUNKS, *there.flags("dst")).expect(0)
    rclone(s3_server, "copy", f"there:{there.bucket}/d", tmp_path / "copy")
    assert times(tmp_path / "copy") == OLD
    assert "NOTICE: small" not in rclone(s3_server, "sync", "--dry-run", files, f"there:{there.bucket}/d")


def test_tradewind_restores_the_times_that_rclone_writes(
    place: Callable[[str], Place], s3_server: Server, command: Command, files: Path, tmp_path: Path
) -> None:
    there, copy = place("versitygw"), tmp_path / "copy"
    assert isinstance(there, S3Place)
    rclone(s3_server, "copy", "--s3-upload-cutoff", "5Mi", files, f"there:{there.bucket}/d")
    words: tuple[str | Path, ...] = ("sync", f"{there.url}/d", copy, "--json", *CHUNKS, *there.flags("src"))
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 2
    assert times(copy) == OLD
    # The copies are older than the objects, but have the times that these keep.
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 0
    assert command.run(*words, "--compare", "time").expect(0).summary["progress"]["objects_done"] == 0
    there.put("d/small", b"other")
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 1
    assert (copy / "small").read_bytes() == b"other"
    back: tuple[str | Path, ...] = ("sync", copy, f"{there.url}/d", "--json", *CHUNKS, *there.flags("dst"))
    assert command.run(*back).expect(0).summary["progress"]["objects_done"] == 0


@pytest.mark.parametrize("compare", ["auto", "time"])
def test_a_file_that_an_older_one_of_its_size_replaces_is_copied(
    place: Callable[[str], Place], command: Command, files: Path, tmp_path: Path, compare: str
) -> None:
    """As when a disk image is restored from a backup: the copy has the later time, but of another file."""
    there = place("moto")
    words: tuple[str | Path, ...] = ("sync", files, there.url, "--json", *CHUNKS, *there.flags("dst"))
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 2
    contents = {"small": b"other", "large": payload("other", 6 * MIB)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, ns=(OLD_NS - 1, OLD_NS - 1))
        (tmp_path / name).rename(files / name)
    words = (*words, "--compare", compare)
    assert command.run("check", files, there.url, "--compare", compare, *there.flags("dst")).code == 6
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 2
    assert {name: there.get(name) for name in contents} == contents
    # Other permissions are another state of the file, too, but not another time.
    for name in contents:
        (files / name).chmod(0o600)
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 0


@pytest.mark.parametrize("compare", ["auto", "time"])
def test_a_copy_that_has_the_time_of_its_listing_is_not_copied_back(
    command: Command, tmp_path: Path, compare: str
) -> None:
    """Many servers list milliseconds and answer a `HEAD` with seconds."""
    copy = tmp_path / "copy"
    with OddStore("s3") as store:
        there = OddPlace(store, command)
        store.objects.put(there.bucket, "a", b"content", modified_s=1_500_000_000.299)
        words: tuple[str | Path, ...] = ("sync", there.url, copy, "--json", *there.flags("src"))
        assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 1
        assert times(copy) == {"a": 1_500_000_000_299_000_000}
        back: tuple[str | Path, ...] = (copy, there.url, "--compare", compare, *there.flags("dst"))
        assert command.run("check", *back).code == 0
        assert command.run("sync", *back, "--json").expect(0).summary["progress"]["objects_done"] == 0


def test_a_file_changed_in_the_second_of_its_object_is_compared_by_its_bytes(command: Command, tmp_path: Path) -> None:
    """The object may have been written before or after the change."""
    files = tmp_path / "files"
    files.mkdir()
    with OddStore("s3", Habits(whole_seconds=True)) as store:
        there = OddPlace(store, command)
        for name in ("same", "other"):
            (files / name).write_bytes(b"content")
            os.utime(files / name, ns=(OLD_NS, OLD_NS))
            store.objects.put(there.bucket, name, b"content" if name == "same" else b"changed", modified_s=OLD_NS / 1e9)
        words: tuple[str | Path, ...] = (files, there.url, *there.flags("dst"))
        assert "other" in command.run("check", *words).expect(6).stdout
        assert command.run("sync", *words, "--json").expect(0).summary["progress"]["objects_done"] == 1
        assert there.contents() == {"same": b"content", "other": b"content"}


@pytest.mark.parametrize(
    "kind", ["moto", pytest.param("gcs", marks=pytest.mark.slow), pytest.param("azure", marks=pytest.mark.slow)]
)
def test_each_store_gets_its_form_and_gives_it_back(
    place: Callable[[str], Place], command: Command, files: Path, tmp_path: Path, kind: str
) -> None:
    there, copy = place(kind), tmp_path / "copy"
    both = [*there.flags("src"), *there.flags("dst")]
    command.run("cp", "-r", files, f"{there.url}/d/", *CHUNKS, *there.flags("dst")).expect(0)
    name, text = FORM[kind]
    assert {there.headers(f"d/{key}").get(name) for key in OLD} == {text}
    command.run("cp", "-r", f"{there.url}/d", f"{there.url}/again/", *CHUNKS, *both).expect(0)
    command.run("cp", "-r", f"{there.url}/again", copy, *CHUNKS, *there.flags("src")).expect(0)
    assert times(copy) == OLD
    plain = ("--metadata-directive", "replace")
    command.run("cp", files / "small", f"{there.url}/none", *plain, *there.flags("dst")).expect(0)
    assert name not in there.headers("none")
