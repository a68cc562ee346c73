"""Jobs from Python without a command line: in a thread, in an event loop, from another process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import tradewind
from testbed.drive import MARK, Command, find_binary
from testbed.trees import tree_hashes, write_tree
from tradewind.engine import job_control
from tradewind.engine.jobs import JobStore
from tradewind.errors import JobBusy, JobNotFound, StateError, UsageError

OBJECTS, OBJECT_BYTES = 20, 100_000


@pytest.fixture
def engine(tmp_path: Path) -> tradewind.Engine:
    gateway = str(find_binary("tradewind-gateway"))
    return tradewind.Engine(state_dir=str(tmp_path / "home" / "state" / "tradewind"), gateway=gateway)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_tree(tmp_path / "source", {f"{number:03}": OBJECT_BYTES for number in range(OBJECTS)})
    return tmp_path / "source"


def request(source: Path, **options: object) -> tradewind.Request:
    made = tradewind.Options(recursive=True, **options)  # type: ignore[arg-type]
    return tradewind.Request(source, source.parent / "copy", made)


def same(source: Path) -> bool:
    return tree_hashes(source) == tree_hashes(source.parent / "copy")


def test_old_jobs_that_cannot_be_removed_do_not_keep_a_new_one(
    engine: tradewind.Engine, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_control, "prune_oldest", failing(OSError("too many open files")))
    with engine:
        engine.start(engine.propose(request(source))).wait()
    assert same(source)


def test_an_interrupt_while_old_jobs_are_removed_leaves_no_running_job(
    engine: tradewind.Engine, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_control, "prune_oldest", failing(KeyboardInterrupt()))
    with engine:
        with pytest.raises(KeyboardInterrupt):
            engine.start(engine.propose(request(source, limit_bytes_per_s=OBJECT_BYTES)))
        (job,) = engine.jobs()
        assert not engine.control.store.is_owned(job.id) and not engine.control.store.has_lead(job.id)
        assert job.state == "interrupted"


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_proposal_is_started_and_its_job_ends_with_a_receipt(engine: tradewind.Engine, source: Path) -> None:
    with engine:
        proposal = engine.propose(request(source))
        assert str(proposal) == "this machine, no gateways in between" and proposal.cost_usd == 0.0
        receipt = engine.start(proposal).wait().receipt()
    assert receipt["complete"] and receipt["progress"]["objects_done"] == OBJECTS
    assert same(source)


def test_in_a_thread_and_in_an_event_loop(engine: tradewind.Engine, source: Path) -> None:
    async def transfer() -> None:
        job = engine.start(engine.propose(request(source)))
        await asyncio.gather(asyncio.to_thread(job.wait), asyncio.sleep(0))

    thread = threading.Thread(target=lambda: asyncio.run(transfer()))
    thread.start()
    thread.join()
    assert same(source)


def test_events_are_replayed_from_the_position_where_a_reader_stopped(engine: tradewind.Engine, source: Path) -> None:
    job = engine.start(engine.propose(request(source))).wait()
    again = engine.attach(job.id)
    events = list(again.events())
    assert isinstance(events[-1], tradewind.Summary) and events[-1].outcome == "done"
    assert list(again.events(since=len(events) - 1)) == events[-1:]
    assert again.wait().result().progress.objects_done == OBJECTS
    with pytest.raises(JobNotFound):
        engine.attach("20250131-120000-k3f9t")


def test_a_job_of_another_process_is_followed_paused_and_resumed_here(
    engine: tradewind.Engine, command: Command, source: Path
) -> None:
    running = command.start("cp", "-r", source, source.parent / "copy", "--limit-rate", "500kB/s")
    running.wait_for_bytes(OBJECT_BYTES)
    (job,) = engine.jobs()
    job = engine.attach(job.id)
    assert job.running is None and job.state == "running"
    with pytest.raises(JobBusy):
        job.resume()
    assert job.pause().state == "paused"
    assert running.finish().code == 130
    assert job.resume().wait().state == "done"
    assert same(source)


def test_a_proposal_is_started_once_and_only_by_its_engine_while_that_is_open(
    engine: tradewind.Engine, source: Path
) -> None:
    with engine:
        proposal, dropped = engine.propose(request(source)), engine.propose(request(source))
        dropped.drop()
        left = engine.propose(request(source))
        engine.start(proposal).wait()
        for refused in (proposal, dropped):
            with pytest.raises(UsageError, match="started or dropped"):
                engine.start(refused)
    with pytest.raises(UsageError, match="started or dropped"):
        engine.start(left)
    assert len(engine.jobs()) == 1


def test_a_job_lookup_returns_the_current_state(engine: tradewind.Engine, source: Path) -> None:
    done = engine.start(engine.propose(request(source))).wait()
    job = engine.job(done.id)
    assert job.running is None and job.record.state == "done" and not job.plan.stations()
    assert job.ledger.total_usd(time.time()) == 0.0
    with pytest.raises(UsageError, match="is not running in this process"):
        job.require_running()
    with pytest.raises(JobNotFound):
        engine.job("20250131-120000-k3f9t")


def test_the_client_and_the_engine_have_the_same_jobs(engine: tradewind.Engine, source: Path) -> None:
    client = tradewind.Client(state_dir=engine.state_dir, gateway=engine.gateway)
    job_id = client.copy(source, source.parent / "copy", tradewind.Options(recursive=True)).job_id
    assert [job.id for job in engine.jobs()] == [record.id for record in client.jobs()] == [job_id]
    assert client.plan(client.job(job_id)) == engine.job(job_id).plan


def test_the_hold_on_a_job_ends_when_its_machines_are_gone(engine: tradewind.Engine, source: Path) -> None:
    running = engine.start(engine.propose(request(source, limit_bytes_per_s=500_000))).require_running()
    ended: list[list[str]] = []

    def end() -> None:
        ended.append(os.listdir(Path(engine.state_dir) / "fleets"))

    held = ExitStack()
    held.callback(end)
    running.hold(held)
    before = running.is_over, list(ended)
    running.drain_to_end()
    running.close()
    assert before == (False, []) and running.is_over and ended == [[]]
    late = ExitStack()
    late.callback(end)
    running.hold(late)
    assert ended == [[], []], "it must end at once: no later call would end it"


PROPOSER = """
import os, sys
import tradewind
state, gateway, folder = sys.argv[1:]
os.chdir(folder)
with tradewind.Engine(state_dir=state, gateway=gateway) as engine:
    options = tradewind.Options(recursive=True, report_file="report.ndjson")
    print(engine.propose(tradewind.Request("source", "copy", options), keep=True).id)
"""


def propose_elsewhere(engine: tradewind.Engine, folder: Path) -> str:
    """Return the id of a proposal that another process made, in its own directory. The process has ended."""
    words = [sys.executable, "-c", PROPOSER, engine.state_dir, engine.gateway, str(folder)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_a_proposal_of_another_process_is_started_once(engine: tradewind.Engine, source: Path) -> None:
    proposal_id = propose_elsewhere(engine, source.parent)
    with engine:
        job = engine.start(proposal_id).wait()
        assert job.receipt()["complete"] and same(source)
        assert len((source.parent / "report.ndjson").read_text().splitlines()) == OBJECTS
        with pytest.raises(UsageError, match=f"was started as job {job.id}"):
            engine.start(proposal_id)
        with pytest.raises(UsageError, match="no proposal p-unknown"):
            engine.start("p-unknown")


def test_only_one_of_two_engines_starts_a_proposal(engine: tradewind.Engine, source: Path) -> None:
    proposal_id = propose_elsewhere(engine, source.parent)
    started: list[object] = []

    def start() -> None:
        with tradewind.Engine(state_dir=engine.state_dir, gateway=engine.gateway) as other:
            try:
                started.append(other.start(proposal_id).wait().id)
            except UsageError as error:
                started.append(error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(each, str) for each in started) == 1, started
    assert len(engine.jobs()) == 1 and same(source)


def test_a_job_is_cancelled_or_paused_before_its_lead_works(command: Command, source: Path) -> None:
    """The job is stopped while its gateways start, which takes seconds on other machines."""
    for verb, state in (("cancel", "cancelled"), ("pause", "paused")):
        before = {job["id"] for job in command.jobs()}
        go = source.parent / f"go-{verb}"
        command.environment["TRADEWIND_GATEWAY"] = str(waiting_gateway(source.parent, go))
        running = command.start("cp", "-r", source, source.parent / f"copy-{verb}")
        (job_id,) = wait_for_job(command, before)
        stopping = command.start("jobs", verb, job_id)
        until(partial(JobStore(str(command.state)).is_to_stop, job_id))
        go.touch()
        assert stopping.finish().code == 0
        assert running.finish().code == 130
        assert next(job for job in command.jobs() if job["id"] == job_id)["state"] == state
        assert not (source.parent / f"copy-{verb}").exists(), "nothing was copied"
        command.wait_until_alone()


def test_an_error_just_after_the_start_leaves_no_gateway(
    engine: tradewind.Engine, command: Command, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the state cannot be read any more: nobody else knows of them."""
    monkeypatch.setenv(MARK, command.mark)

    def unreadable() -> bool:
        raise StateError("the database is locked")

    with engine:
        with pytest.raises(StateError, match="is locked"):
            engine.start(engine.propose(request(source)), is_to_stop=unreadable)
        assert command.processes() == []


def waiting_gateway(folder: Path, go: Path) -> Path:
    """Return a gateway program that starts to serve when the file `go` exists."""
    script = folder / "waiting-gateway"
    real = find_binary("tradewind-gateway")
    script.write_text(f'#!/bin/sh\n[ "$1" = serve ] && while [ ! -e {go} ]; do sleep 0.05; done\nexec {real} "$@"\n')
    script.chmod(0o755)
    return script


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail after 30 s."""
    deadline_s = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never held"
        time.sleep(0.05)


def wait_for_job(command: Command, before: set[str]) -> set[str]:
    deadline_s = time.monotonic() + 30.0
    while not (there := {job["id"] for job in command.jobs()} - before):
        assert time.monotonic() < deadline_s, "no job"
        time.sleep(0.05)
    return there
