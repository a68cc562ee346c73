"""Ceilings on bytes and cost hold over losses, kills and all runs of a job. Bytes are counted at the source."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command, Running
from testbed.faults import TcpProxy
from testbed.trees import MIB, tree_hashes, write_large
from tests.e2e.test_gateway_faults import FRAMING, USD_PER_GB, detoured
from tradewind.model.units import format_usd

LARGE_BYTES = 48 * MIB
CEILING_BYTES = 72 * MIB
MOST = f"{CEILING_BYTES >> 20}MiB"
CHUNK = ("--chunk-size", "5MiB")
#: The first kills a sink and the client at once, the other the lead.
SEEDS_QUICK = (0, 3)
SEEDS = [
    pytest.param(seed, marks=[] if seed in SEEDS_QUICK else [pytest.mark.slow])
    for seed in range(int(os.environ.get("TRADEWIND_MONEY_SEEDS", "4")))
]
RUNS_MAX = 8


def copy_words(tmp_path: Path, topology: Path) -> tuple[str | Path, ...]:
    return ("cp", tmp_path / "large", tmp_path / "copy", "--topology", topology, *CHUNK, "--json")


def only_job_id(command: Command) -> str:
    (job,) = command.jobs()
    return str(job["id"])


@pytest.mark.slow
def test_a_link_that_keeps_dying_sends_no_more_than_max_bytes(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "large", LARGE_BYTES)
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, connections=2)
        # Each connection dies in the middle of a part, so that most of the sent bytes are lost.
        between.cut_each_after(3 * MIB, cuts_max=1000)
        words = copy_words(tmp_path, topology)
        ended = command.run(*words, "--max-bytes", MOST).expect(8)
        assert ended.summary["outcome"] == "ceiling"
        assert "bytes lost in transit count" in ended.summary["message"]
        assert "--max-bytes" in ended.stderr
        assert 5 * MIB < between.bytes_forward <= CEILING_BYTES * FRAMING
        first_bytes = between.bytes_forward
        assert command.jobs()[0]["state"] == "interrupted"
        for _ in range(2):
            command.run("jobs", "resume", only_job_id(command), "--json").expect(8)
        assert between.bytes_forward - first_bytes <= 5 * MIB * FRAMING, "a resumed job starts with nothing spent"
        assert between.bytes_forward <= CEILING_BYTES * FRAMING


def test_a_job_with_few_lost_bytes_succeeds_under_max_bytes(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "large", LARGE_BYTES)
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, connections=2)
        between.cut_each_after(8 * MIB, cuts_max=2)
        # A dying connection loses all unacknowledged bytes, so the ceiling needs room for some parts.
        command.run(*copy_words(tmp_path, topology), "--max-bytes", "144MiB").expect(0)
        assert LARGE_BYTES < between.bytes_forward <= 144 * MIB * FRAMING
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "large").read_bytes()


@pytest.mark.slow
def test_max_bytes_holds_over_killed_runs(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "large", LARGE_BYTES)
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, connections=1)
        words: tuple[str | Path, ...] = (
            *copy_words(tmp_path, topology), "--limit-rate", "20MB/s", "--max-bytes", MOST
        )  # fmt: skip
        code = -1
        for _ in range(RUNS_MAX):
            running = command.start(*words)
            with suppress(TimeoutError):
                between.wait_forward(between.bytes_forward + 9 * MIB, 5.0)
            kill(command.processes())
            code = running.finish().code
            command.wait_until_alone()
            words = ("jobs", "resume", only_job_id(command), "--json")
            if code in (0, 8):
                break
            assert between.bytes_forward <= CEILING_BYTES * FRAMING
        if code not in (0, 8):
            code = command.run(*words).code
        assert code in (0, 8)
        assert between.bytes_forward <= CEILING_BYTES * FRAMING


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def egress_usd(shown: dict[str, Any]) -> float:
    return sum(float(line["usd"]) for line in shown["cost"]["lines"] if line["kind"] == "egress")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_covers_all_sent_bytes_whichever_process_is_killed(
    command: Command, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    write_large(tmp_path / "large", LARGE_BYTES)
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, connections=2, usd_per_gb=USD_PER_GB)
        words: tuple[str | Path, ...] = (*copy_words(tmp_path, topology), "--limit-rate", "20MB/s", "--stall", "3s")
        spent_usd, done = 0.0, None
        for run in range(RUNS_MAX):
            running = command.start(*words)
            victims = rng.sample(["client", "lead", "source", "sink"], rng.randrange(1, 4)) if run < 4 else []
            if victims:
                with suppress(TimeoutError):
                    between.wait_forward(between.bytes_forward + rng.randrange(1, 12 * MIB), 5.0)
                strike(running, victims)
            done = running.finish()
            command.wait_until_alone()
            words = ("jobs", "resume", only_job_id(command), "--json")
            costs = [event["cost_usd"] for event in done.events if event["event"] == "progress"]
            shrinks = [(one, next_) for one, next_ in itertools.pairwise(costs) if next_ < one * (1 - 1e-9)]
            assert not shrinks, f"{victims}: the cost shrank while the job ran"
            assert not costs or costs[0] >= spent_usd * 0.999, f"{victims}: what earlier runs spent was forgotten"
            shown = json.loads(command.run("jobs", "show", only_job_id(command), "--json").expect(0).stdout)
            assert egress_usd(shown) * FRAMING >= between.bytes_forward / 1e9 * USD_PER_GB, f"{victims}: too little"
            assert shown["cost"]["metered_usd"] >= max([spent_usd, *costs]) * 0.999, f"{victims}: the ledger shrank"
            spent_usd = shown["cost"]["metered_usd"]
            if done.code == 0:
                break
        assert done is not None and done.code == 0
        sent_usd = between.bytes_forward / 1e9 * USD_PER_GB
    assert tree_hashes(tmp_path)["copy"] == tree_hashes(tmp_path)["large"]
    # Each run may have charged the bytes in flight when it died, but nothing twice.
    assert spent_usd <= sent_usd + RUNS_MAX * 64 * MIB / 1e9 * USD_PER_GB
    summary, cost = done.summary, done.summary["cost"]
    assert summary["progress"]["cost_usd"] == pytest.approx(cost["metered_usd"])
    assert shown["cost"] == cost
    assert shown["summary"]["progress"]["cost_usd"] == pytest.approx(cost["metered_usd"])
    assert sum(line["usd"] for line in cost["lines"]) == pytest.approx(cost["metered_usd"])
    words_shown = command.run("jobs", "show", only_job_id(command)).expect(0).stdout
    assert f"{format_usd(cost['metered_usd'])} metered" in words_shown


def strike(running: Running, victims: list[str]) -> None:
    """Kill some of the command's processes. A living client may restart the lead."""
    gateways = running.gateways()
    kill([gateways[name] for name in victims if name in gateways])
    if "client" in victims and running.process.poll() is None:
        running.process.kill()
