"""Resuming: the results that a later run may trust, and the folder in which it works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.places import S3Place
from testbed.trees import MIB, tree_hashes, write_large, write_tree
from tradewind.state.database import open_database


def interrupted(command: Command, *arguments: str | Path) -> str:
    """Start a slow job and stop it with Ctrl-C in the middle; return its id."""
    running = command.start(*arguments, "--limit-rate", "20MB/s", "--chunk-size", "5MiB")
    running.wait_for_bytes(5 * MIB)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    return str(job["id"])


def with_state(command: Command, folder: Path) -> Command:
    """Return the same command with another state folder."""
    return replace(command, environment={**command.environment, "TRADEWIND_STATE_DIR": str(folder)})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copied_state_folder_uses_its_own_journal(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "copy"
    write_large(source, 48 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(command.state, elsewhere)
    # Older versions stored the absolute path of the folder in which the job started, and no digest.
    database = open_database(elsewhere)
    ((spec,),) = database.rows("SELECT spec FROM jobs")
    assert "state_dir" not in json.loads(spec)
    old = {**json.loads(spec), "state_dir": str(command.state / "jobs" / job_id)}
    del old["digest"]
    database.write("UPDATE jobs SET spec = ?", (json.dumps(old),))
    before = contents(command.state)

    with_state(command, elsewhere).run("jobs", "resume", job_id).expect(0)
    assert copy.read_bytes() == source.read_bytes()
    assert contents(command.state) == before, "the original is not touched"
    command.run("jobs", "resume", job_id).expect(0)
    assert copy.read_bytes() == source.read_bytes()


def test_jobs_of_a_moved_state_folder_can_be_resumed(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "copy"
    write_large(source, 48 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    moved = tmp_path / "moved"
    command.state.rename(moved)
    done = with_state(command, moved).run("jobs", "resume", job_id, "--json").expect(0)
    assert done.summary["progress"]["bytes_earlier"] > 0
    assert copy.read_bytes() == source.read_bytes()
    assert not command.state.exists(), "nothing is created in the folder's old place"


def journal(command: Command, job_id: str) -> sqlite3.Connection:
    return sqlite3.connect(command.state / "jobs" / job_id / "journal.sqlite", isolation_level=None)


def restart_machine(command: Command, job_id: str) -> None:
    """Change the journal as if everything had been written in another boot."""
    connection = journal(command, job_id)
    connection.execute("UPDATE part SET tag = 'the-boot-before', digest = NULL")
    connection.execute("UPDATE done SET boot = 'the-boot-before', digest = NULL WHERE boot IS NOT NULL")
    connection.close()


def zero(path: Path, offset: int, length: int) -> None:
    """Change a file as by a power failure: its length was on the disk, its bytes were not."""
    modified = path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(length))
    os.utime(path, ns=(modified, modified))


def test_parts_lost_in_a_power_failure_are_sent_again(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "to" / "copy"
    write_large(source, 64 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    connection = journal(command, job_id)
    parts = [part for (part,) in connection.execute("SELECT part FROM part ORDER BY part")]
    connection.close()
    restart_machine(command, job_id)
    (temporary,) = copy.parent.iterdir()
    zero(temporary, (parts[0] - 1) * 5 * MIB + 4096, 4096)
    progress = command.run("jobs", "resume", job_id, "--json").expect(0).summary["progress"]
    assert copy.read_bytes() == source.read_bytes()
    assert progress["bytes_earlier"] == (len(parts) - 1) * 5 * MIB, "the others were read back and kept"


def test_files_lost_in_a_power_failure_are_copied_again(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "from", tmp_path / "to"
    write_tree(source, {f"a/{number}": 1000 for number in range(20)})
    write_large(source / "z-large", 48 * MIB)
    running = command.start("cp", "-r", source, copy, "--limit-rate", "20MB/s")
    running.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= 20)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    (copy / "a" / "3").unlink()
    (copy / "a" / "5").write_bytes(b"")
    zero(copy / "a" / "7", 0, 512)
    restart_machine(command, str(job["id"]))
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


def test_a_resumed_sync_trusts_no_length_and_time_after_a_power_failure(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "from", tmp_path / "to"
    write_tree(source, {f"a/{number}": 1000 for number in range(20)})
    write_large(source / "z-large", 48 * MIB)
    running = command.start("sync", source, copy, "--limit-rate", "20MB/s")
    running.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= 20)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    zero(copy / "a" / "7", 0, 512)
    connection = journal(command, str(job["id"]))
    # The journal's rows had not reached the disk either.
    connection.execute("DELETE FROM done")
    connection.execute("UPDATE boot SET boot = 'the-boot-before'")
    connection.close()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


def test_an_upload_of_a_source_that_changed_twice_is_not_forgotten(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "to" / "copy"
    write_large(source, 48 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    os.utime(source, (1_600_000_000, 1_600_000_000))
    running = command.start("jobs", "resume", job_id)
    running.wait_for_bytes(5 * MIB)
    running.signal(signal.SIGINT)
    stopped = running.finish().expect(130)
    notes = [event["message"] for event in stopped.events if event["event"] == "notice"]
    assert any(note.endswith("/copy starts over: its source has changed since the earlier run") for note in notes)
    assert len(list(copy.parent.iterdir())) <= 2
    command.run("jobs", "resume", job_id).expect(0)
    assert [path.name for path in copy.parent.iterdir()] == ["copy"], "no temporary file is left"
    assert copy.read_bytes() == source.read_bytes()


def test_a_temporary_file_that_was_emptied_is_written_again(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "to" / "copy"
    write_large(source, 64 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    (temporary,) = copy.parent.iterdir()
    length = temporary.stat().st_size
    # The file has its length, but no content.
    os.truncate(temporary, 0)
    os.truncate(temporary, length)
    progress = command.run("jobs", "resume", job_id, "--json").expect(0).summary["progress"]
    assert copy.read_bytes() == source.read_bytes()
    assert progress["bytes_earlier"] == 0


def test_a_resumed_job_writes_into_no_file_that_was_linked_to_its_temporary_name(
    command: Command, tmp_path: Path
) -> None:
    source, copy, victim = tmp_path / "large", tmp_path / "to" / "copy", tmp_path / "victim"
    write_large(source, 48 * MIB)
    write_large(victim, 20 * MIB)
    kept, content = victim.read_bytes(), source.read_bytes()
    job_id = interrupted(command, "mv", source, copy)
    (temporary,) = copy.parent.iterdir()
    temporary.unlink()
    os.link(victim, temporary)
    command.run("jobs", "resume", job_id).expect(0)
    assert copy.read_bytes() == content
    assert not source.exists()
    assert victim.read_bytes() == kept
    assert sorted(copy.parent.iterdir()) == sorted([copy, temporary]), "the link stays"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
def test_a_resumed_job_replaces_anything_else_with_its_temporary_name(
    make: Callable[[Path], None], command: Command, tmp_path: Path
) -> None:
    source, copy = tmp_path / "large", tmp_path / "to" / "copy"
    write_large(source, 48 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    (temporary,) = copy.parent.iterdir()
    temporary.unlink()
    make(temporary)
    command.run("jobs", "resume", job_id).expect(0)
    assert copy.read_bytes() == source.read_bytes()
    assert sorted(copy.parent.iterdir()) == sorted([copy, temporary])


def test_a_resumed_move_reads_back_earlier_parts_before_it_deletes_the_source(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "to" / "copy"
    write_large(source, 48 * MIB)
    content = source.read_bytes()
    job_id = interrupted(command, "mv", source, copy)
    (temporary,) = copy.parent.iterdir()
    zero(temporary, 4096, 4096)
    command.run("jobs", "resume", job_id, "--json").expect(0)
    assert copy.read_bytes() == content
    assert not source.exists()


def reported(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()]


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_a_resumed_job_restores_lost_lines_of_the_report(verb: str, command: Command, tmp_path: Path) -> None:
    source, copy, report = tmp_path / "from", tmp_path / "to", tmp_path / "report"
    names = [f"a/{number}" for number in range(20)]
    write_tree(source, dict.fromkeys(names, 1000))
    write_large(source / "z-large", 48 * MIB)
    running = command.start(verb, "-r", source, copy, "--limit-rate", "20MB/s", "--report", report)
    running.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= 20)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    lines = report.read_text().splitlines(keepends=True)
    assert len(lines) == 20
    report.write_text("".join(lines[:8]) + lines[8][:30])

    command.run("jobs", "resume", str(command.jobs()[0]["id"])).expect(0)
    copied = [line for line in reported(report) if line["verdict"] == "copied"]
    pairs = sorted((line["source"], line["destination"]) for line in copied)
    assert pairs == sorted((f"file://{source}/{name}", f"file://{copy}/{name}") for name in [*names, "z-large"])
    earlier = [line for line in copied if line["proof"]["destination"] == "earlier run"]
    assert [line["size_bytes"] for line in earlier] == [1000] * 12


def test_a_report_on_a_full_disk_is_complete_after_the_job_is_resumed(
    command: Command, tmp_path: Path, small_disk: Path
) -> None:
    source, copy, report, filler = tmp_path / "from", tmp_path / "to", small_disk / "report", small_disk / "filler"
    write_tree(source, {str(number): 10 for number in range(2000)})
    disk = os.statvfs(small_disk)
    filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize - 100_000))
    message = command.run("cp", "-r", source, copy, "--report", report, "--json").expect(1).summary["message"]
    assert message == f"cannot write the report {report}: No space left on device (os error 28)"
    assert 0 < len(reported(report)) < 2000, "whole lines only"

    filler.unlink()
    command.run("jobs", "resume", str(command.jobs()[0]["id"])).expect(0)
    assert sorted(line["destination"] for line in reported(report)) == sorted(
        f"file://{copy}/{number}" for number in range(2000)
    )


def test_a_job_without_a_ceiling_is_resumed_without_its_status(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "copy"
    write_large(source, 48 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    for text in ["", "{}"]:
        (command.state / "jobs" / job_id / "status.json").write_text(text)
        assert [job["id"] for job in command.jobs()] == [job_id]
    done = command.run("jobs", "resume", job_id, "--json").expect(0)
    assert done.summary["progress"]["bytes_earlier"] > 0
    assert copy.read_bytes() == source.read_bytes()


def test_a_job_with_a_ceiling_is_not_resumed_if_its_cost_is_unknown(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "copy"
    write_large(source, 48 * MIB)
    job_id = interrupted(command, "cp", "--max-bytes", "1GB", source, copy)
    folder = command.state / "jobs" / job_id
    (folder / "status.json").write_text("")
    spent = (folder / "spent").read_bytes()
    (folder / "spent").unlink()
    refused = command.run("jobs", "resume", job_id).expect(1)
    assert f"{folder / 'status.json'}" in refused.stderr
    assert "spent" not in refused.stderr.replace("what earlier runs have spent", "")
    (folder / "spent").write_bytes(spent)
    command.run("jobs", "resume", job_id).expect(0)
    assert copy.read_bytes() == source.read_bytes()


@pytest.fixture
def source_gone(command: Command, s3: S3Place, tmp_path: Path) -> str:
    """The id of a job that was interrupted during an upload to `s3`, and whose source was then removed."""
    write_large(tmp_path / "tree" / "large", 48 * MIB)
    job_id = interrupted(command, "cp", "-r", tmp_path / "tree", s3.url, *s3.flags("dst"))
    assert len(s3.unfinished()) == 1
    (tmp_path / "tree" / "large").unlink()
    return job_id


def test_uploads_of_a_missing_source_are_kept_with_a_hint_to_abort_them(
    command: Command, s3: S3Place, source_gone: str
) -> None:
    done = command.run("jobs", "resume", source_gone).expect(3)
    assert f"run `tradewind jobs resume {source_gone}`, or abort its 1 unfinished upload" in done.stderr
    assert f"with `tradewind jobs cancel {source_gone}`" in done.stderr
    assert len(s3.unfinished()) == 1
    assert "1 unfinished upload aborted" in command.run("jobs", "cancel", source_gone).expect(0).stderr
    assert s3.unfinished() == []


def test_a_job_that_may_find_nothing_aborts_its_uploads(command: Command, s3: S3Place, tmp_path: Path) -> None:
    write_large(tmp_path / "tree" / "large", 48 * MIB)
    job_id = interrupted(command, "cp", "-r", tmp_path / "tree", s3.url, *s3.flags("dst"), "--allow-empty")
    (tmp_path / "tree" / "large").unlink()
    command.run("jobs", "resume", job_id).expect(0)
    assert s3.unfinished() == []


@pytest.mark.parametrize("verb", [["cp", "-r"], ["sync"]], ids=["cp", "sync"])
def test_copies_that_were_removed_or_replaced_meanwhile_are_repeated(
    command: Command, tmp_path: Path, verb: list[str]
) -> None:
    source, copy = tmp_path / "from", tmp_path / "to"
    write_tree(source, {f"a/{number}": 1000 for number in range(20)})
    write_large(source / "z-large", 48 * MIB)
    running = command.start(*verb, source, copy, "--limit-rate", "20MB/s")
    running.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= 20)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    (copy / "a" / "3").unlink()
    (copy / "a" / "5").write_bytes(b"short")
    (copy / "a" / "7").write_bytes(bytes(1000))
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo"])
def test_what_is_no_file_is_not_taken_for_a_copy_of_an_earlier_run(command: Command, tmp_path: Path, kind: str) -> None:
    source, copy = tmp_path / "from", tmp_path / "to"
    write_tree(source, {f"a/{number}": 1000 for number in range(20)})
    write_large(source / "z-large", 48 * MIB)
    running = command.start("cp", "-r", source, copy, "--limit-rate", "20MB/s")
    running.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= 20)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    replaced = copy / "a" / "3"
    replaced.unlink()
    if kind == "fifo":
        os.mkfifo(replaced)
    else:
        replaced.symlink_to(source / "a" / "4" if kind == "link" else "nowhere")
    done = command.run("jobs", "resume", str(job["id"]), "--json").expect(4)
    assert [failure["source"].rpartition("/")[2] for failure in done.failures] == ["3"]
    replaced.unlink()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_job_is_not_resumed_with_another_list_of_names(command: Command, tmp_path: Path, damage: str) -> None:
    source, copy, names = tmp_path / "from", tmp_path / "to", tmp_path / "names"
    write_tree(source, {f"{number:02}": MIB for number in range(40)})
    names.write_text("".join(f"{number:02}\n" for number in range(40)))
    running = command.start("cp", "--files-from", names, source, copy, "--limit-rate", "10MB/s")
    running.wait_for_bytes(5 * MIB)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    kept = command.state / "jobs" / str(job["id"]) / "names"
    whole = kept.read_bytes()
    if damage == "missing":
        kept.unlink()
    else:
        kept.write_bytes(whole[: 3 * 30] if damage == "cut" else whole.replace(b"39\n", b"38\n"))
    refused = command.run("jobs", "resume", str(job["id"])).expect(1)
    assert f"error: {kept} is unreadable: " in refused.stderr and "hint: start the transfer again" in refused.stderr
    kept.write_bytes(whole)
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)


def test_a_part_that_only_a_damaged_journal_knows_is_not_believed(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "to" / "copy"
    write_large(source, 64 * MIB)
    job_id = interrupted(command, "cp", source, copy)
    (temporary,) = copy.parent.iterdir()
    connection = journal(command, job_id)
    (last,) = connection.execute("SELECT max(part) FROM part").fetchone()
    assert 1 <= last <= 11
    # The part after the last one had not arrived yet, and then the row of the last one changes.
    zero(temporary, last * 5 * MIB, 5 * MIB)
    connection.execute("UPDATE part SET part = part + 1 WHERE part = ?", (last,))
    connection.close()
    refused = command.run("jobs", "resume", job_id).expect(1)
    path = command.state / "jobs" / job_id / "journal.sqlite"
    assert f"error: the journal {path} is damaged: a row of the table part differs from its checksum" in refused.stderr
    assert "hint: start the transfer again" in refused.stderr
    assert not copy.exists()
    command.run("cp", source, copy).expect(0)
    assert copy.read_bytes() == source.read_bytes()


def test_a_job_whose_record_was_changed_deletes_nothing_at_another_place(command: Command, tmp_path: Path) -> None:
    source, copy, other = tmp_path / "from", tmp_path / "to-1", tmp_path / "to-3"
    write_tree(source, {f"{number:02}": MIB for number in range(40)})
    write_tree(other, {"precious": 1000})
    running = command.start("sync", source, copy, "--delete", "--max-delete", "10", "--limit-rate", "10MB/s")
    running.wait_for_bytes(5 * MIB)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    database = open_database(command.state)
    ((spec,),) = database.rows("SELECT spec FROM jobs")
    database.write("UPDATE jobs SET spec = ?", (spec.replace("/to-1", "/to-3"),))
    refused = command.run("jobs", "resume", str(job["id"])).expect(1)
    assert "is unreadable: it is not what was recorded" in refused.stderr and "hint: " in refused.stderr
    assert [path.name for path in other.iterdir()] == ["precious"]
    database.write("UPDATE jobs SET spec = ?", (spec,))
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert tree_hashes(copy) == tree_hashes(source)
