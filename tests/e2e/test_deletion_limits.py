"""The limits of `sync --delete` without consent, and its question on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace


@pytest.fixture
def sides(tmp_path: Path) -> tuple[FilePlace, FilePlace]:
    """The destination has 5 objects of 10 bytes each; the source has 2 of them."""
    source, there = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "there")
    for key in "abcde":
        there.put(key, b"0123456789")
    for key in "ab":
        source.put(key, b"0123456789")
    return source, there


def test_more_than_half_of_a_destination_needs_consent(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    refused = command.run("sync", "--delete", source.url, there.url).expect(1)
    assert "3 of the 5 objects" in refused.stderr
    assert "--dry-run" in refused.stderr
    assert set(there.sizes()) == set("abcde")
    command.run("sync", "--delete", "--max-delete", "2", source.url, there.url).expect(1)
    assert set(there.sizes()) == set("abcde")
    command.run("sync", "--delete", "--max-delete", "3", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")
    there.put("c", b"x")
    command.run("sync", "--delete", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")


def test_a_setting_limits_deletions_but_is_not_consent(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    command.environment["TRADEWIND_MAX_DELETE"] = "1000"
    assert "3 of the 5 objects" in command.run("sync", "--delete", source.url, there.url).expect(1).stderr
    assert set(there.sizes()) == set("abcde")
    command.environment["TRADEWIND_MAX_DELETE"] = "2"
    assert "allows 2" in command.run("sync", "--delete", "-y", source.url, there.url).expect(1).stderr
    assert set(there.sizes()) == set("abcde")
    command.run("sync", "--delete", "--max-delete", "3", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")


@pytest.mark.parametrize("consent", [("-y",), ("--max-delete", "3")])
def test_a_refused_job_is_resumed_with_consent(
    command: Command, sides: tuple[FilePlace, FilePlace], consent: tuple[str, ...]
) -> None:
    source, there = sides
    command.run("sync", "--delete", source.url, there.url).expect(1)
    (job,) = command.jobs()
    command.environment["TRADEWIND_MAX_DELETE"] = "1000"
    command.run("jobs", "resume", job["id"]).expect(1)
    command.run("jobs", "resume", job["id"], "--max-delete", "2").expect(1)
    assert set(there.sizes()) == set("abcde")
    command.run("jobs", "resume", job["id"], *consent).expect(0)
    assert set(there.sizes()) == set("ab")


def test_only_a_job_that_deletes_accepts_a_limit_of_deletions(
    command: Command, sides: tuple[FilePlace, FilePlace]
) -> None:
    source, there = sides
    command.run("cp", "-r", source.url, there.url, "--max-bytes", "1B").expect(8)
    (job,) = command.jobs()
    assert "does not delete" in command.run("jobs", "resume", job["id"], "--max-delete", "2").expect(2).stderr


def test_yes_is_consent(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    command.run("sync", "--delete", "-y", source.url, there.url).expect(0)
    assert set(there.sizes()) == set("ab")


def test_a_dry_run_totals_what_would_be_deleted(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    said = command.run("sync", "--delete", "-y", "--dry-run", source.url, there.url).expect(0)
    assert "would delete 3 objects, 30 B" in said.stdout + said.stderr
    said = command.run("sync", "--delete", "-y", "--dry-run", "--json", source.url, there.url).expect(0)
    assert said.summary["to_delete"] == {"objects": 3, "bytes": 30}
    assert set(there.sizes()) == set("abcde")


def test_a_dry_run_names_only_options_that_would_allow_the_deletion(
    command: Command, sides: tuple[FilePlace, FilePlace]
) -> None:
    source, there = sides
    limited = command.run("sync", "--delete", "--max-delete", "2", "--dry-run", source.url, there.url).expect(0)
    assert "--max-delete allows 2; pass a higher --max-delete to allow it" in limited.stderr
    halved = command.run("sync", "--delete", "--dry-run", source.url, there.url).expect(0)
    assert "more than half; pass -y or a higher --max-delete to allow it" in halved.stderr


def on_terminal(command: Command, answer: str | signal.Signals, *words: str) -> tuple[int, str]:
    """Run the command on its own terminal, and answer its question with a line or a signal.

    Returns exit code and output.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command.binary, [str(command.binary), *words], command.full_environment())
    said = b""
    solve_checked = False
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # The other end is closed.
            break
        if not more:
            break
        said += more
        if not solve_checked and b"[y/N]" in said:
            if isinstance(answer, signal.Signals):
                os.kill(pid, answer)
            else:
                os.write(terminal, answer.encode() + b"\n")
            solve_checked = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def test_a_terminal_is_asked_with_number_and_bytes(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    source.put("new", b"x")
    code, said = on_terminal(command, "n", "sync", "--delete", source.url, there.url)
    assert "Delete 3 objects (30 B)" in said
    assert code == 2
    assert set(there.sizes()) == {*"abcde", "new"}
    assert "error: nothing was deleted; the copies stay\r\n" in said and "nothing was done" not in said
    code, said = on_terminal(command, "y", "sync", "--delete", source.url, there.url)
    assert (code, set(there.sizes())) == (0, {*"ab", "new"}), said
    assert json.loads(command.run("jobs", "list", "--json").stdout.splitlines()[-1])["state"] == "done"
    code, said = on_terminal(command, "", "sync", "--delete", source.url, there.url)
    assert (code, "Delete" in said) == (0, False), said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_question_ends_the_command(
    command: Command, sides: tuple[FilePlace, FilePlace], number: signal.Signals
) -> None:
    source, there = sides
    code, said = on_terminal(command, number, "sync", "--delete", source.url, there.url)
    assert (code, set(there.sizes())) == (130, set("abcde")), said
    assert said.endswith("[y/N] \r\ninterrupted\r\n"), "the shell's prompt begins a line of its own"


def test_the_destination_that_would_lose_more_than_half_is_named(
    command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path
) -> None:
    source, there = sides
    small = FilePlace(tmp_path / "small")
    small.put("a", b"0123456789")
    refused = command.run("sync", "--delete", source.url, "--to", small.url, "--to", there.url).expect(1)
    assert f"3 of the 5 objects in {there.folder}/ would be deleted" in refused.stderr
    assert refused.stderr.count("more than half") == 1, "not in a note and in the error"


def test_the_hint_names_an_option_that_helps(
    command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path
) -> None:
    source, there = sides
    limited = command.run("sync", "--delete", "-y", "--max-delete", "2", source.url, there.url).expect(1)
    assert "pass a higher --max-delete to allow it" in limited.stderr and "-y or" not in limited.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    for more, code in ((), 3), (("--allow-empty",), 1):
        refused = command.run("sync", "--delete", "-y", *more, empty, there.url).expect(code)
        assert "--delete never empties a destination" in refused.stderr
        assert "--allow-empty" not in refused.stderr
    (tmp_path / "names").write_text("a\n")
    command.run("sync", "--delete", "--files-from", tmp_path / "names", source.url, there.url).expect(2)
    assert set(there.sizes()) == set("abcde")


def test_rm_of_a_missing_object_states_whether_it_is_a_directory(command: Command, tmp_path: Path) -> None:
    missing = command.run("rm", tmp_path / "missing").expect(3)
    assert "tradewind ls" in missing.stderr and "-r removes" not in missing.stderr
    FilePlace(tmp_path / "tree").put("a", b"x")
    directory = command.run("rm", tmp_path / "tree").expect(3)
    assert "it is a directory; add -r to remove everything below it" in directory.stderr


def test_destinations_without_a_source_are_a_usage_error(command: Command) -> None:
    refused = command.run("cp", "--to", "x", "--to", "y").expect(2)
    assert "no source" in refused.stderr and "SRC… --to DST" in refused.stderr


@pytest.mark.parametrize("limit", [(), ("--max-delete", "2")], ids=["more than half", "more than the limit"])
def test_a_dry_run_shows_what_needs_consent(
    command: Command, sides: tuple[FilePlace, FilePlace], limit: tuple[str, ...]
) -> None:
    source, there = sides
    words = ("sync", "--delete", *limit, "--dry-run", source.url, there.url)
    said = command.run(*words).expect(0)
    for name in "cde":
        assert f"{there.folder}/{name}" in said.stdout + said.stderr
    assert "would delete 3 objects, 30 B" in said.stdout + said.stderr
    assert "-y" in said.stderr or "--max-delete" in said.stderr
    said = command.run(*words, "--json").expect(0)
    assert said.summary["to_delete"] == {"objects": 3, "bytes": 30}
    assert set(there.sizes()) == set("abcde")


def test_objects_that_the_filter_excludes_do_not_count_towards_half(
    command: Command, sides: tuple[FilePlace, FilePlace]
) -> None:
    source, there = sides
    for number in range(20):
        source.put(f"other/{number}", b"1")
        there.put(f"other/{number}", b"1")
        there.put(f"more/{number}", b"1")
    for rules in (("--include", "/*", "--exclude", "*/"), ("--exclude", "other/", "--exclude", "more/")):
        refused = command.run("sync", "--delete", source.url, there.url, *rules).expect(1)
        assert "3 of the 5 objects" in refused.stderr
    assert set("abcde") <= set(there.sizes())


def test_empty_folders_do_not_count_towards_half(command: Command, sides: tuple[FilePlace, FilePlace]) -> None:
    source, there = sides
    for number in range(20):
        (source.folder / f"empty-{number}").mkdir()
        (there.folder / f"empty-{number}").mkdir()
    refused = command.run("sync", "--delete", source.url, there.url).expect(1)
    assert "3 of the 5 objects" in refused.stderr
    for folder in source.folder.glob("empty-*"):
        folder.rmdir()
    (source.folder / "c").write_bytes(b"0123456789")
    (source.folder / "d").write_bytes(b"0123456789")
    command.run("sync", "--delete", source.url, there.url).expect(0)
    assert {path.name for path in there.folder.iterdir()} == set("abcd")


def test_folders_that_a_deletion_empties_are_removed_at_once(command: Command, tmp_path: Path) -> None:
    source, there = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "there")
    for place in (source, there):
        for key in ("a", "b", "c", "full/x"):
            place.put(key, b"1")
    for key in ("gone/deep/er/x", "gone/y", "full/gone/z", "kept/empty/x", "left/over"):
        there.put(key, b"1")
    (source.folder / "kept" / "empty").mkdir(parents=True)
    (there.folder / "was" / "empty").mkdir(parents=True)
    command.run("sync", "--delete", "-y", source.url, there.url, "--exclude", "was/", "--exclude", "left/").expect(0)
    folders = {path.relative_to(there.folder).as_posix() for path in there.folder.rglob("*") if path.is_dir()}
    assert folders == {"full", "kept", "kept/empty", "was", "was/empty", "left"}
    done = command.run("sync", "--delete", "-y", source.url, there.url, "--exclude", "left/", "--json").expect(0)
    assert done.summary["objects_deleted"] == 1, "the folder that was empty before is removed as a folder"
    assert (there.folder / "left" / "over").exists()
