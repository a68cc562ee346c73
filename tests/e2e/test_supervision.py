"""An unattended job: its ceiling holds, its lead is restarted, and its processes end with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tradewind
from testbed.drive import find_binary
from testbed.processes import gateways_of
from testbed.trees import MIB, tree_hashes, write_large
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import LaunchSpec, local_launch, topology_launch
from tradewind.engine.supervisor import CEILING_STOP_S
from tradewind.errors import CeilingReached, Interrupted, JobBusy
from tradewind.fleet.running import find_process
from tradewind.model.ledger import JobPrices, MachinePrice

PATIENCE_S = 60.0
LARGE_BYTES = 48 * MIB


@pytest.fixture
def control(tmp_path: Path) -> JobControl:
    return JobControl(state_dir=str(tmp_path / "state"), gateway=str(find_binary("tradewind-gateway")))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_large(tmp_path / "source" / "large", LARGE_BYTES)
    return tmp_path / "source"


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "the condition never held"
        time.sleep(0.02)


def start(control: JobControl, source: Path, rate: int, launch: LaunchSpec | None = None) -> tradewind.RunningJob:
    options = tradewind.Options(recursive=True, limit_bytes_per_s=rate)
    return control.start(source, source.parent / "copy", options, launch or local_launch())


def test_a_ceiling_in_usd_stops_an_unattended_job(control: JobControl, source: Path) -> None:
    usd, usd_per_s = 0.05, 0.01
    job = start(control, source, 1_000_000, priced_launch(source.parent, usd_per_s / 2, usd))
    processes = [find_process(pid) for pid in gateways_of().values()]
    assert all(process.alive for process in processes)
    # The job's events are not read until its processes are gone.
    assert all(process.wait(PATIENCE_S) for process in processes), "the ceiling did not stop it"
    with pytest.raises(CeilingReached, match="cost more than the ceiling") as caught:
        job.wait()
    assert caught.value.summary is not None
    assert caught.value.summary.progress.elapsed_s >= usd / usd_per_s - CEILING_STOP_S - 2.0
    assert control.job(job.id).state == "interrupted"
    assert os.listdir(Path(control.store.state_dir) / "fleets") == []


def test_a_dead_lead_is_restarted_in_an_unattended_job(control: JobControl, source: Path) -> None:
    job = start(control, source, 20_000_000)
    (first,) = gateways_of().values()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: control.job(job.id).state == "done")
    result = job.wait()
    notices = [event.message for event in job.events() if isinstance(event, tradewind.Notice)]
    assert [line for line in notices if "restarted (1 of 2)" in line]
    assert result.progress.objects_done == 1
    assert tree_hashes(source) == tree_hashes(source.parent / "copy")


def test_a_finished_job_ends_its_machines_before_it_is_closed(control: JobControl, source: Path) -> None:
    job = start(control, source, 1_000_000_000)
    processes = [find_process(pid) for pid in gateways_of().values()]
    assert all(process.wait(PATIENCE_S) for process in processes)
    assert [type(event).__name__ for event in job.events()][-1] == "Summary"
    assert [type(event).__name__ for event in job.events()][-1] == "Summary", "events can be read again"
    job.close()
    job.close()
    assert job.result().progress.objects_done == 1


def test_a_frozen_lead_is_restarted(control: JobControl, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen lead keeps its connection open and sends nothing. In an earlier version its reader waited for ever."""
    monkeypatch.setattr("tradewind.gateway.client.EVENT_SILENCE_S", 6.0)
    job = start(control, source, 8_000_000)
    (first,) = gateways_of().values()
    os.kill(first, signal.SIGSTOP)
    try:
        assert job.wait().progress.objects_done == 1
    finally:
        job.close()
    assert tree_hashes(source) == tree_hashes(source.parent / "copy")


def priced_launch(folder: Path, usd_per_s: float, usd: float) -> LaunchSpec:
    """Return a launch of a source and a sink, local processes with a price, and a ceiling for both."""
    topology = {
        "gateways": {"a": {"role": "source"}, "b": {"role": "sink"}},
        "routes": [{"nodes": ["a", "b"], "share": 1, "usd_per_gb": 0}],
    }
    (folder / "topology.json").write_text(json.dumps(topology))
    prices = JobPrices({"site:local": MachinePrice(usd_per_s, "a test")})
    return replace(topology_launch(str(folder / "topology.json")), prices=prices, ceiling_usd=usd)


def test_a_hanging_gateway_costs_no_more_than_the_ceiling(control: JobControl, source: Path) -> None:
    """The lead drains and ends in order. The sink hangs, and waiting for it would cost more than the ceiling."""
    usd, usd_per_s = 0.16, 0.01
    launch = priced_launch(source.parent, usd_per_s, usd)
    job = start(control, source, 1_000_000, launch)
    next(event for event in job.events() if isinstance(event, tradewind.Progress))
    os.kill(gateways_of()["b"], signal.SIGSTOP)
    with pytest.raises(CeilingReached):
        job.wait()
    # Tolerance for a busy host: half a second of both machines.
    assert job.spent_usd() <= usd + usd_per_s


def test_one_of_several_resumes_runs_the_job_and_counts_all_its_machines(control: JobControl, source: Path) -> None:
    job = start(control, source, 8_000_000, priced_launch(source.parent, 0.001, 100.0))
    with pytest.raises(JobBusy, match=rf"job {job.id}"):
        control.resume(job.id)
    job.drain()
    with pytest.raises(Interrupted):
        job.wait()
    outcomes: list[tradewind.RunningJob | JobBusy] = []

    def resume() -> None:
        try:
            outcomes.append(control.resume(job.id))
        except JobBusy as error:
            outcomes.append(error)

    threads = [threading.Thread(target=resume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (outcome for outcome in outcomes if isinstance(outcome, tradewind.RunningJob))
    winner.wait()
    stored = control.book(job.id).read()
    assert stored is not None
    assert [(use.run, use.name) for use in stored.machines] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert all(use.ended_s is not None for use in stored.machines)
    assert stored.total_usd(time.time()) == pytest.approx(winner.spent_usd())


def test_resuming_a_job_that_another_process_runs_changes_nothing(control: JobControl, source: Path) -> None:
    job = start(control, source, 8_000_000, priced_launch(source.parent, 0.001, 100.0))
    job.drain()
    with pytest.raises(Interrupted):
        job.wait()
    before = control.book(job.id).read()
    lock = control.store.hold(job.id)
    with pytest.raises(JobBusy, match="another process is working on job"):
        control.resume(job.id)
    assert before is not None and control.book(job.id).read() == before
    assert os.listdir(Path(control.store.state_dir) / "fleets") == []
    lock.release()
    assert control.resume(job.id).wait().progress.objects_done == 1


CLIENT = """
import sys
from pathlib import Path
import tradewind
from testbed.processes import gateways_of
from tests.e2e.test_supervision import priced_launch
from tradewind.engine.job_control import JobControl
folder, state, gateway = map(Path, sys.argv[1:])
control = JobControl(state_dir=str(state), gateway=str(gateway))
options = tradewind.Options(recursive=True, limit_bytes_per_s=16_000_000)
job = control.start(folder / "source", folder / "copy", options, priced_launch(folder, 0.01, 0.60))
print(job.id, *(pid for name, pid in gateways_of().items() if name != job.plan.lead), flush=True)
job.wait()
print(job.spent_usd(), flush=True)
"""


@pytest.mark.slow
def test_a_suspended_client_keeps_no_machines_beyond_its_ceiling(control: JobControl, source: Path) -> None:
    """The job completes while the client is suspended, and the machines end with their leases."""
    words = [sys.executable, "-c", CLIENT, str(source.parent), control.store.state_dir, control.gateway]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        job_id, *pids = other.stdout.readline().split()
        processes = [find_process(int(pid)) for pid in pids]
        other.send_signal(signal.SIGSTOP)
        try:
            assert all(process.wait(PATIENCE_S) for process in processes), "the machines outlived the ceiling"
            assert control.job(job_id).state == "done"
        finally:
            other.send_signal(signal.SIGCONT)
        spent_usd = float(other.stdout.readline())
    assert other.returncode == 0
    assert spent_usd <= 0.60
    assert control.job(job_id).progress.cost_usd == pytest.approx(spent_usd)
