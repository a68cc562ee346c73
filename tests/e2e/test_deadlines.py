"""A job that ends after its `--deadline` is done, says so, and has an exit code of its own."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.trees import MIB, write_large
from tradewind import Engine, Options, Request
from tradewind.errors import DeadlineMissed
from tradewind.model.goal import Deadline

PASSED = ("--via", "auto", "--deadline", "0.001s")
AHEAD = ("--via", "auto", "--deadline", "1h")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a").write_bytes(b"content")
    return folder


def test_a_late_job_is_done_and_says_how_late_it_is(command: Command, source: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", source, tmp_path / "copy", *PASSED).expect(9)
    assert (tmp_path / "copy" / "a").read_bytes() == b"content"
    assert "after the deadline of" in done.stderr
    assert "after its deadline of" in next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    job = command.jobs()[-1]
    assert job["state"] == "done"
    assert "after the deadline of" in command.run("jobs", "show", job["id"]).expect(0).stdout
    command.run("jobs", "wait", job["id"]).expect(9)
    command.run("jobs", "attach", job["id"]).expect(9)
    receipt = json.loads(command.run("jobs", "receipt", job["id"]).expect(0).stdout)
    assert receipt["complete"] and receipt["deadline"]["kept"] is False


def test_json_states_whether_a_deadline_was_kept(command: Command, source: Path, tmp_path: Path) -> None:
    for words, code in ((PASSED, 9), (AHEAD, 0)):
        ended = command.run("cp", "-r", "--json", source, tmp_path / f"copy-{code}", *words).expect(code).summary
        assert (ended["outcome"], ended["exit_code"]) == ("done", code)
        assert ended["deadline"]["kept"] is (code == 0)
        assert (ended["deadline"]["took_s"] > ended["deadline"]["deadline_s"]) is (code == 9)
        shown = command.run("jobs", "show", "--json", ended["job_id"]).expect(0).stdout
        assert json.loads(shown)["deadline"] == ended["deadline"]


def test_a_job_that_keeps_its_deadline_says_so(command: Command, source: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", source, tmp_path / "copy", *AHEAD).expect(0)
    assert "goal    within the deadline of 1 h 00 min" in done.stderr


def test_a_late_job_that_failed_keeps_the_code_of_its_failure(command: Command, source: Path, tmp_path: Path) -> None:
    (tmp_path / "copy" / "a").mkdir(parents=True)
    done = command.run("cp", "-r", source, tmp_path / "copy", *PASSED)
    assert done.code not in (0, 9)
    assert "after the deadline of" in done.stderr


def test_a_deadline_counts_from_the_start_of_the_first_run(command: Command, tmp_path: Path) -> None:
    source, copy = tmp_path / "large", tmp_path / "copy"
    write_large(source, 48 * MIB)
    words = ("cp", source, copy, "--via", "auto", "--deadline", "3s", "--limit-rate", "16MB/s", "--chunk-size", "5MiB")
    running = command.start(*words)
    running.wait_for_bytes(1)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    time.sleep(3)
    job_id = command.jobs()[-1]["id"]
    resumed = command.run("jobs", "resume", job_id, "--json").expect(9)
    assert resumed.summary["deadline"]["took_s"] > 3
    assert copy.read_bytes() == source.read_bytes()


def test_without_a_deadline_nothing_is_said(command: Command, source: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", "--json", source, tmp_path / "copy").expect(0)
    assert "deadline" not in done.summary
    assert "goal    " not in command.run("jobs", "show", done.summary["job_id"]).expect(0).stdout


def test_python_raises_a_missed_deadline_with_the_summary(source: Path, tmp_path: Path) -> None:
    with Engine(state_dir=str(tmp_path / "state")) as engine:
        request = Request(str(source), str(tmp_path / "copy"), Options(recursive=True), via="auto", goal=Deadline(1e-3))
        job = engine.start(engine.propose(request))
        with pytest.raises(DeadlineMissed) as missed:
            job.wait()
        assert missed.value.summary is not None and missed.value.summary.outcome == "done"
        assert job.deadline is not None and job.deadline.late_s > 0
        with pytest.raises(DeadlineMissed):
            engine.job(job.id).result()
