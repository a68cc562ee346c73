"""`--detach`: the command returns once its job runs, and the background process completes the job."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.drive import Command, find_binary
from testbed.trees import tree_hashes, write_tree
from tradewind.model.locks import is_locked

OBJECTS, OBJECT_BYTES = 40, 100_000


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_tree(tmp_path / "source", {f"{number:03}": OBJECT_BYTES for number in range(OBJECTS)})
    return tmp_path / "source"


def test_a_detached_job_runs_after_the_command_has_returned(command: Command, source: Path, tmp_path: Path) -> None:
    started = command.run("cp", "-r", source, tmp_path / "copy", "--detach").expect(0)
    job_id = started.stdout.strip()
    assert started.stderr.startswith("copy    ")
    assert f"tradewind jobs cancel {job_id}" in started.stderr
    command.wait_until_alone()
    assert [(job["id"], job["state"]) for job in command.jobs()] == [(job_id, "done")]
    assert tree_hashes(source) == tree_hashes(tmp_path / "copy")
    said = (command.state / "jobs" / job_id / "output.log").read_text()
    assert f"moved   {OBJECTS} objects" in said and "\x1b" not in said


def test_cancel_ends_a_detached_job_and_all_its_processes(command: Command, source: Path, tmp_path: Path) -> None:
    words = ("cp", "-r", source, tmp_path / "copy", "--detach", "--quiet", "--limit-rate", "100kB/s")
    started = command.run(*words).expect(0)
    assert started.stderr == ""
    assert [job["state"] for job in command.jobs()] == ["running"]
    lock = command.state / "jobs" / started.stdout.strip() / "client.lock"
    assert is_locked(lock), "the process in the background has the job"
    assert command.run("jobs", "cancel", started.stdout.strip(), "-q").expect(0).stderr == ""
    command.wait_until_alone()
    assert not is_locked(lock)
    assert [job["state"] for job in command.jobs()] == ["cancelled"]
    assert os.listdir(command.state / "fleets") == []


def test_errors_before_a_detached_job_runs_are_shown(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{}")
    topology = ("--topology", tmp_path / "broken.json")
    refused = command.run("cp", "-r", tmp_path / "a", tmp_path / "b", "--detach", *topology)
    assert refused.code != 0 and refused.stdout == "" and "broken.json" in refused.stderr
    command.wait_until_alone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: str(number.name))
def test_the_waiting_command_can_be_stopped_before_the_job_runs(
    command: Command, source: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C ends everything. If the command is killed, the background process continues the job."""
    script, begun, go_on = tmp_path / "gateway", tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    # The shell itself waits by opening the pipe: a `cat` would survive a kill of the shell.
    waits = f'[ "$1" = serve ] && echo > {begun} && read _ < {go_on}'
    script.write_text(f'#!/bin/sh\n{waits}\nexec {find_binary("tradewind-gateway")} "$@"\n')
    script.chmod(0o755)
    command.environment["TRADEWIND_GATEWAY"] = str(script)
    running = command.start("cp", "-r", source, tmp_path / "copy", "--detach")
    begun.read_text()
    running.signal(number)
    running.process.wait()
    # If the signal came before Python had noted the script, it still waits. It becomes a gateway without a client.
    descriptor = os.open(go_on, os.O_RDWR)
    os.write(descriptor, b"\n")
    running.finish().expect(130 if number == signal.SIGINT else -signal.SIGKILL)
    command.wait_until_alone()
    os.close(descriptor)
    assert os.listdir(command.state / "fleets") == []
    assert [job["state"] for job in command.jobs()] == ([] if number == signal.SIGINT else ["done"])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-r", "a", "b", "--dry-run"], "--detach and --dry-run cannot be combined"),
        (["-", "b"], "--detach closes standard input and output"),
        (["a", "-"], "--detach closes standard input and output"),
    ],
)
def test_detach_is_refused_if_it_does_not_apply(command: Command, words: list[str], error: str) -> None:
    refused = command.run("cp", *words, "--detach").expect(2)
    assert f"error: {error}" in refused.stderr
