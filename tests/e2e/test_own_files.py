"""A job does not change files that it needs itself: its report, the state folder and the configuration."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace


@pytest.fixture
def sides(tmp_path: Path) -> tuple[FilePlace, FilePlace]:
    source, there = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "there")
    source.put("a", b"precious")
    source.put("b", b"0123456789")
    there.put("old", b"x")
    return source, there


@pytest.mark.parametrize("report", ["source/a", "source/report", "there/report", "link/report", "there/new/report"])
@pytest.mark.parametrize("words", [("cp", "-r"), ("mv", "-r"), ("sync", "--delete", "-y")])
def test_a_report_within_the_places_of_its_job_is_refused(
    command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path, words: tuple[str, ...], report: str
) -> None:
    source, there = sides
    (tmp_path / "link").symlink_to(source.folder)
    refused = command.run(*words, source.folder, there.folder, "--report", tmp_path / report).expect(2)
    assert "--report" in refused.stderr and "hint: write the report to a file outside" in refused.stderr
    assert source.sizes() == {"a": 8, "b": 10} and there.sizes() == {"old": 1}


def test_a_report_that_is_a_source_or_a_copy_is_refused(
    command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path
) -> None:
    source, there = sides
    file, beside = Path(source.folder) / "a", tmp_path / "beside"
    os.link(file, beside)
    copy = Path(there.folder) / "copy"
    for report in file, beside, copy:
        refused = command.run("cp", file, copy, "--report", report).expect(2)
        assert "which the job reads or writes" in refused.stderr
    command.run("cp", "-r", source.folder, tmp_path / "new", "--report", beside).expect(2)
    assert file.read_bytes() == b"precious" and not copy.exists()
    command.run("cp", file, copy, "--report", Path(there.folder) / "report").expect(0)
    assert there.sizes().keys() == {"old", "copy", "report"}


def test_a_report_is_a_regular_file(command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path) -> None:
    source, _ = sides
    os.mkfifo(tmp_path / "fifo")
    for report in tmp_path / "fifo", tmp_path, "/dev/stdout", "/dev/fd/1":
        refused = command.run("cp", f"{source.folder}/a", tmp_path / "new", "--report", report).expect(2)
        assert "not a regular file" in refused.stderr
    command.run("cp", f"{source.folder}/a", tmp_path / "new", "--report", os.devnull).expect(0)


def test_a_report_needs_a_directory(command: Command, sides: tuple[FilePlace, FilePlace], tmp_path: Path) -> None:
    source, _ = sides
    report = tmp_path / "none" / "report"
    refused = command.run("cp", f"{source.folder}/a", tmp_path / "new", "--report", report).expect(2)
    assert f"--report {report}: no directory {report.parent}" in refused.stderr and "hint: " in refused.stderr
    assert not (tmp_path / "new").exists()


def test_the_state_folder_is_not_deleted_by_a_job(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "source")
    source.put("a", b"x")
    command.run("cp", f"{source.folder}/a", command.home / "document").expect(0)
    (tmp_path / "link").symlink_to(command.home)
    deleting: list[tuple[str | Path, ...]] = [
        ("sync", "--delete", "-y", source.folder, command.home),
        ("sync", "--delete", "-y", source.folder, tmp_path / "link"),
        ("sync", "--delete", "-y", source.folder, command.state / "jobs"),
        ("mv", "-r", command.home, tmp_path / "moved"),
        ("mv", "-r", command.home, "--exclude", "/state/", tmp_path / "moved"),
        ("mv", "-r", command.home, source.folder, f"{tmp_path}/moved/"),
        ("rm", "-r", "-y", command.home),
        ("rm", "-r", "-y", command.state),
        ("rm", "-r", "-y", command.state / "jobs"),
    ]
    for words in deleting:
        refused = command.run(*words).expect(2)
        assert f"the state folder {command.state} is in it" in refused.stderr, words
        assert "hint: " in refused.stderr
    assert (command.home / "document").exists() and source.sizes() == {"a": 1}
    assert len(command.jobs()) == 1
    command.run("cp", "-r", command.home, tmp_path / "copy", "--exclude", "/state/").expect(0)
    command.run("sync", source.folder, command.home).expect(0)
    finished = command.state / "jobs" / command.jobs()[0]["id"]
    assert stat.S_ISDIR(finished.stat().st_mode)
    command.run("rm", "-r", "-y", finished).expect(0)


def test_a_state_folder_that_does_not_exist_yet_is_protected_too(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "source")
    source.put("a", b"x")
    command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / "there" / "state")
    command.run("sync", "--delete", "-y", source.folder, tmp_path / "there").expect(2)
    assert not (tmp_path / "there").exists()


def test_the_configuration_is_not_deleted_by_a_job(command: Command, tmp_path: Path) -> None:
    config = command.home / "config"
    (config / "tradewind").mkdir(parents=True)
    (config / "tradewind" / "config.toml").write_text("stall = '50s'\n")
    for words in ("mv", "-r", config, tmp_path / "moved"), ("rm", "-r", "-y", config):
        assert "the configuration" in command.run(*words).expect(2).stderr
