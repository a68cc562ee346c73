"""Mode and owner of files with --preserve: between files, and in the metadata of objects, exchanged with rclone."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place, S3Place
from testbed.servers.process import Server
from testbed.trees import MIB, payload, write_large
from tests.e2e.test_kept_times import OLD_NS, rclone

IS_ROOT = os.geteuid() == 0
CHUNKS = ["--chunk-size", "5MiB"]
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
MODES = {"private": 0o600, "program": 0o4755, "large": 0o751}
#: The modes that a copy has: without the setuid bit, unless root keeps the owner too.
PLAIN = {**MODES, "program": 0o755}
OWNER = (1234, 2345) if IS_ROOT else (os.getuid(), os.getgid())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two small files and one of two parts, with modes of their own; those of root belong to another user."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, mode in MODES.items():
        path = folder / name
        path.write_bytes(payload(name, 6 * MIB if name == "large" else 10))
        if IS_ROOT:
            os.chown(path, *OWNER)
        path.chmod(mode)
        os.utime(path, ns=(OLD_NS, OLD_NS))
    return folder


def modes(folder: Path) -> dict[str, int]:
    """Return the mode of each file."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def owners(folder: Path) -> set[tuple[int, int]]:
    """Return users and groups of the files."""
    return {(path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir()}


def test_files_keep_what_the_user_names(command: Command, files: Path, tmp_path: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for words, expected in (
        ((), dict.fromkeys(MODES, 0o666 & ~mask)),
        (("--preserve", "mode,time"), PLAIN),
        (("--preserve", "mode"), PLAIN),
    ):
        copy = tmp_path / "-".join(("copy", *words))
        command.run("cp", "-r", files, copy, *words, *CHUNKS).expect(0)
        assert modes(copy) == expected
        assert owners(copy) == {(os.getuid(), os.getgid())}
        times = {path.stat().st_mtime_ns // MIB for path in copy.iterdir()}
        assert (times == {OLD_NS // 1_000_000 * 1_000_000 // MIB}) == (words != ("--preserve", "mode"))


@pytest.mark.skipif(not IS_ROOT, reason="only root can give files to other users")
def test_root_keeps_owners_and_with_them_the_setuid_bit(command: Command, files: Path, tmp_path: Path) -> None:
    command.run("mv", "-r", files, tmp_path / "moved", "--preserve", "mode,owner,time", *CHUNKS).expect(0)
    assert (modes(tmp_path / "moved"), owners(tmp_path / "moved")) == (MODES, {OWNER})


def test_attributes_alone_are_no_difference(command: Command, files: Path, tmp_path: Path) -> None:
    words: tuple[str | Path, ...] = ("sync", files, tmp_path / "copy", "--preserve", "mode,time", "--json", *CHUNKS)
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == len(MODES)
    (files / "private").chmod(0o640)
    assert command.run(*words).expect(0).summary["progress"]["objects_done"] == 0
    assert "0 differ" in command.run("check", files, tmp_path / "copy").expect(0).stderr
    assert modes(tmp_path / "copy") == PLAIN


def test_rclone_and_tradewind_restore_what_tradewind_writes(
    place: Callable[[str], Place], s3_server: Server, command: Command, files: Path, tmp_path: Path
) -> None:
    there = place("versitygw")
    assert isinstance(there, S3Place)
    up: tuple[str | Path, ...] = (
        "cp",
        "-r",
        files,
        f"{there.url}/d/",
        "--preserve",
        "mode,owner,time",
        *CHUNKS,
        *there.flags("dst"),
    )
    command.run(*up).expect(0)
    headers = there.headers("d/program")
    kept = {name: headers.get(f"x-amz-meta-{name}") for name in ("mode", "uid", "gid", "mtime")}
    assert kept == {"mode": "104755", "uid": str(OWNER[0]), "gid": str(OWNER[1]), "mtime": "1500000000.123456789"}
    rclone(s3_server, "copy", "--metadata", f"there:{there.bucket}/d", tmp_path / "rclone")
    assert {**modes(tmp_path / "rclone"), "program": 0o755} == PLAIN
    assert owners(tmp_path / "rclone") == {OWNER}
    down: tuple[str | Path, ...] = (
        "cp",
        "-r",
        f"{there.url}/d",
        tmp_path / "copy",
        "--preserve",
        "mode,time",
        *CHUNKS,
        *there.flags("src"),
    )
    command.run(*down).expect(0)
    assert modes(tmp_path / "copy") == PLAIN
    plain = command.run("cp", f"{there.url}/d/program", tmp_path / "plain", *there.flags("src")).expect(0)
    assert "unreadable" not in plain.stderr and not (tmp_path / "plain").stat().st_mode & stat.S_IXUSR


def test_tradewind_restores_what_rclone_writes(
    place: Callable[[str], Place], s3_server: Server, command: Command, files: Path, tmp_path: Path
) -> None:
    there, copy = place("versitygw"), tmp_path / "copy"
    assert isinstance(there, S3Place)
    rclone(s3_server, "copy", "--metadata", "--s3-upload-cutoff", "5Mi", files, f"there:{there.bucket}/d")
    kept = "mode,owner,time" if IS_ROOT else "mode,time"
    words: tuple[str | Path, ...] = ("sync", f"{there.url}/d", copy, "--preserve", kept, "--json", *CHUNKS)
    summary = command.run(*words, *there.flags("src")).expect(0).summary
    assert (summary["progress"]["objects_done"], summary["attributes_ignored"]) == (len(MODES), 0)
    assert (modes(copy), owners(copy)) == (MODES if IS_ROOT else PLAIN, {OWNER})
    assert {path.stat().st_mtime_ns for path in copy.iterdir()} == {OLD_NS}
    again = command.run(*words, *there.flags("src")).expect(0).summary
    assert again["progress"]["objects_done"] == 0


def test_a_bucket_plants_no_setuid_program_and_unreadable_values_are_counted(
    place: Callable[[str], Place], command: Command, tmp_path: Path
) -> None:
    there, copy = place("versitygw"), tmp_path / "copy"
    assert isinstance(there, S3Place)
    for name, headers in {
        "planted": {"mode": "107755", "uid": "0", "gid": "0"},
        "ownerless": {"mode": "4755"},
        "link": {"mode": "120777"},
        "words": {"mode": "rwx", "uid": "root", "gid": "-1"},
    }.items():
        for size in (1, 6 * MIB):
            fields = {f"x-amz-meta-{field}": text for field, text in headers.items()}
            there.client.put(there.bucket, f"d/{name}-{size}", payload(name, size), fields)
    words: tuple[str | Path, ...] = (
        "cp",
        "-r",
        f"{there.url}/d",
        copy,
        "--preserve",
        "mode,time",
        *CHUNKS,
        *there.flags("src"),
    )
    done = command.run(*words).expect(0)
    assert "4 with unreadable mode, owner or time in the metadata" in done.stderr
    found = {
        name: {mode for path, mode in modes(copy).items() if path.startswith(name)} for name in ("planted", "link")
    }
    assert found["planted"] == {0o755} and not {mode & 0o111 for mode in found["link"]} - {0}
    if IS_ROOT:
        command.run(*words[:-2], "--preserve", "mode,owner", *CHUNKS, *there.flags("src")).expect(0)
        assert {mode for path, mode in modes(copy).items() if path.startswith("ownerless")} == {0o755}


@pytest.fixture
def own_folder() -> Iterator[Path]:
    """A folder of the user `nobody`, in one that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tradewind-test-"))
    if IS_ROOT:
        os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def test_a_read_only_upload_of_a_killed_run_starts_over(own_folder: Path) -> None:
    """A run that is killed between the last part and the rename has given the temporary file its mode."""
    command = Command(own_folder / "home", enter=AS_NOBODY if IS_ROOT else ())
    if IS_ROOT:
        if shutil.which("setpriv") is None:
            pytest.skip("to run as another user needs setpriv (util-linux)")
        os.chown(command.home, NOBODY, NOBODY)
        if command.run("--version").code != 0:
            pytest.skip("the user nobody may not run the command here")
    source, copy = own_folder / "large", own_folder / "copy"
    write_large(source, 48 * MIB)
    source.chmod(0o444)
    running = command.start("cp", source, copy, "--preserve", "mode", "--limit-rate", "20MB/s", *CHUNKS)
    running.wait_for_bytes(10 * MIB)
    running.signal(signal.SIGKILL)
    running.finish()
    (temporary,) = (path for path in own_folder.iterdir() if path.is_file() and path not in (source, copy))
    temporary.chmod(0o444)
    (job,) = command.jobs()
    done = command.run("jobs", "resume", str(job["id"]), "--json").expect(0)
    notes = [event["message"] for event in done.events if event["event"] == "notice"]
    assert any("copy starts over: its unfinished upload cannot be resumed: " in note for note in notes), notes
    assert copy.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o444
    assert not temporary.exists()
