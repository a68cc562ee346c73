"""`jobs attach`, `wait`, `pause` and `receipt`: any process may work on a job, but only one at a time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from testbed.drive import Command, Finished
from testbed.trees import tree_hashes, write_tree
from tradewind.engine.jobs import OBJECTS_BYTES_MAX, OBJECTS_FILE
from tradewind.state.database import open_database

OBJECTS, OBJECT_BYTES = 40, 100_000
SLOWLY = ("--limit-rate", "1MB/s")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_tree(tmp_path / "source", {f"{number:03}": OBJECT_BYTES for number in range(OBJECTS)})
    return tmp_path / "source"


def detached(command: Command, source: Path, copy: Path) -> str:
    return command.run("cp", "-r", source, copy, "--detach", *SLOWLY).expect(0).stdout.strip()


def kill_client(command: Command, job_id: str) -> None:
    """Kill the process that holds the job's lock. Its gateways notice that by themselves."""
    lock = (command.state / "jobs" / job_id / "client.lock").stat().st_ino
    for pid in command.processes():
        locks = Path("/proc/locks").read_text()
        names = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"tradewind-gateway" not in names and any(f":{lock} " in line for line in locks.splitlines()):
            os.kill(pid, signal.SIGKILL)


def test_attach_shows_a_detached_job_to_its_end_and_wait_returns_its_exit_code(
    command: Command, source: Path, tmp_path: Path
) -> None:
    job_id = detached(command, source, tmp_path / "copy")
    waited: list[Finished] = []
    waiter = threading.Thread(target=lambda: waited.append(command.run("jobs", "wait", job_id)))
    waiter.start()
    attached = command.run("jobs", "attach", job_id).expect(0)
    waiter.join()
    assert f"moved   {OBJECTS} objects" in attached.stderr
    assert (waited[0].code, waited[0].stdout, waited[0].stderr) == (0, "", "")
    assert tree_hashes(source) == tree_hashes(tmp_path / "copy")
    again = command.run("jobs", "attach", job_id, "--json").expect(0)
    assert again.summary["exit_code"] == 0 and again.summary["job_id"] == job_id


def test_an_attached_command_that_is_stopped_leaves_the_job_alone(
    command: Command, source: Path, tmp_path: Path
) -> None:
    job_id = detached(command, source, tmp_path / "copy")
    running = command.start("jobs", "attach", job_id)
    running.wait_for(lambda event: event["event"] == "progress")
    running.process.send_signal(signal.SIGINT)
    ended = running.finish()
    assert ended.code == 130 and f"tradewind jobs pause {job_id}" in ended.stderr
    assert [job["state"] for job in command.jobs()] == ["running"]
    command.run("jobs", "wait", job_id).expect(0)
    assert tree_hashes(source) == tree_hashes(tmp_path / "copy")


def test_attach_resumes_a_job_whose_process_was_killed(command: Command, source: Path, tmp_path: Path) -> None:
    job_id = detached(command, source, tmp_path / "copy")
    watching = command.start("jobs", "attach", job_id)
    watching.wait_for_bytes(5 * OBJECT_BYTES)
    watching.process.kill()
    watching.finish()
    kill_client(command, job_id)
    waited = command.run("jobs", "wait", job_id)
    assert waited.code == 130 and f"tradewind jobs attach {job_id}" in waited.stderr
    adopted = command.run("jobs", "attach", job_id).expect(0)
    assert f"the process that ran job {job_id} was killed" in adopted.stderr
    assert "in earlier runs" in adopted.stderr, "acknowledged work is not repeated"
    assert tree_hashes(source) == tree_hashes(tmp_path / "copy")
    assert os.listdir(command.state / "fleets") == []
    runs = json.loads(command.run("jobs", "receipt", job_id).expect(0).stdout)["runs"]
    assert [run["outcome"] for run in runs] == [None, "done"]


def test_two_commands_that_adopt_one_job_start_it_once(command: Command, source: Path, tmp_path: Path) -> None:
    job_id = detached(command, source, tmp_path / "copy")
    watching = command.start("jobs", "attach", job_id)
    watching.wait_for_bytes(5 * OBJECT_BYTES)
    watching.process.kill()
    watching.finish()
    kill_client(command, job_id)
    both = [command.start("jobs", "attach", job_id) for _ in range(2)]
    ends = [running.finish() for running in both]
    assert [end.code for end in ends] == [0, 0], [end.stderr for end in ends]
    runs = json.loads(command.run("jobs", "receipt", job_id).expect(0).stdout)["runs"]
    assert len(runs) == 2, "the first run, and one that resumed it"
    assert tree_hashes(source) == tree_hashes(tmp_path / "copy")


def test_a_paused_job_is_shown_as_paused_and_can_be_resumed(command: Command, source: Path, tmp_path: Path) -> None:
    running = command.start("cp", "-r", source, tmp_path / "copy", *SLOWLY)
    running.wait_for_bytes(5 * OBJECT_BYTES)
    (job_id,) = [job["id"] for job in command.jobs()]
    said = command.run("jobs", "pause", job_id).expect(0)
    assert said.stderr == f"paused; resume with: tradewind jobs resume {job_id}\n"
    paused = running.finish()
    assert paused.code == 130 and f"job {job_id} is paused" in paused.stderr
    assert [job["state"] for job in command.jobs()] == ["paused"]
    refused = command.run("jobs", "pause", job_id)
    assert refused.code == 2 and "there is nothing to pause" in refused.stderr
    assert command.run("jobs", "attach", job_id).expect(130).stderr.count(f"job {job_id} is paused") == 1
    resumed = command.run("jobs", "resume", job_id).expect(0)
    assert "in earlier runs" in resumed.stderr
    assert tree_hashes(source) == tree_hashes(tmp_path / "copy")
    assert [job["state"] for job in command.jobs()] == ["done"]


def test_a_receipt_states_what_moved_and_how(command: Command, source: Path, tmp_path: Path) -> None:
    command.run("cp", "-r", source, tmp_path / "copy").expect(0)
    (job,) = command.jobs()
    receipt = json.loads(command.run("jobs", "receipt", job["id"]).expect(0).stdout)
    assert receipt["complete"] and receipt["state"] == "done"
    assert receipt["progress"]["objects_done"] == OBJECTS
    assert sum(receipt["summary"]["proofs"].values()) == OBJECTS
    (run,) = receipt["runs"]
    assert run["outcome"] == "done" and run["started_unix_ms"] <= run["ended_unix_ms"]
    lines = Path(receipt["objects"]["file"]).read_text().splitlines()
    assert len(lines) == OBJECTS and {json.loads(line)["verdict"] for line in lines} == {"copied"}
    assert all(json.loads(line)["proof"]["destination"] == "length" for line in lines)


def test_a_report_of_the_users_own_has_the_objects_instead(command: Command, source: Path, tmp_path: Path) -> None:
    for report, there in ((str(tmp_path / "report"), True), ("/dev/null", False)):
        command.run("cp", "-r", source, tmp_path / "copy", "--report", report).expect(0)
        job_id = command.jobs()[-1]["id"]
        objects = json.loads(command.run("jobs", "receipt", job_id).expect(0).stdout)["objects"]
        assert objects["file"] == report and (objects["bytes"] > 0) == there
        assert not (command.state / "jobs" / job_id / OBJECTS_FILE).exists()


def test_a_resumed_job_completes_its_list_of_objects_and_a_long_one_is_removed(
    command: Command, source: Path, tmp_path: Path
) -> None:
    running = command.start("cp", "-r", source, tmp_path / "copy", *SLOWLY)
    running.wait_for_bytes(5 * OBJECT_BYTES)
    running.signal(signal.SIGINT)
    running.finish()
    (job,) = command.jobs()
    objects = command.state / "jobs" / job["id"] / OBJECTS_FILE
    assert 0 < len(objects.read_text().splitlines()) < OBJECTS
    shutil.move(command.state, tmp_path / "moved")
    shutil.move(tmp_path / "moved", command.state)
    command.run("jobs", "resume", job["id"]).expect(0)
    assert len({json.loads(line)["destination"] for line in objects.read_text().splitlines()}) == OBJECTS

    running = command.start("cp", "-r", source, tmp_path / "copy", *SLOWLY)
    running.wait_for_bytes(5 * OBJECT_BYTES)
    running.signal(signal.SIGINT)
    running.finish()
    job_id = command.jobs()[-1]["id"]
    with (command.state / "jobs" / job_id / OBJECTS_FILE).open("a") as file:
        file.write("x" * OBJECTS_BYTES_MAX + "\n")
    command.run("jobs", "resume", job_id).expect(0)
    assert json.loads(command.run("jobs", "receipt", job_id).expect(0).stdout)["objects"] is None


def test_invalid_events_change_nothing(command: Command, source: Path, tmp_path: Path) -> None:
    job_id = detached(command, source, tmp_path / "copy")
    command.run("jobs", "wait", job_id).expect(0)
    with open_database(command.state).transaction() as connection:
        for number, line in enumerate(["[" * 200_000, "x" * (2 << 20), "{}", "null", "", "[1]"]):
            connection.execute("INSERT INTO events VALUES (?, ?, 1, ?)", (job_id, 100_000 + number, line))
    for action in ("attach", "wait", "receipt"):
        assert "internal" not in command.run("jobs", action, job_id).expect(0).stderr


def test_a_copied_folder_of_a_running_job_is_not_adopted(command: Command, source: Path, tmp_path: Path) -> None:
    job_id = detached(command, source, tmp_path / "copy")
    other = Command(tmp_path / "other")
    shutil.copytree(command.state, other.state, ignore=shutil.ignore_patterns("fleets"))
    attached = other.run("jobs", "attach", job_id)
    assert attached.code == 130 and "may still run elsewhere" in attached.stderr
    command.run("jobs", "wait", job_id).expect(0)
