"""The cost of a real job with priced local gateways: an interruption, failed resumes, and one that completes it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tradewind
from testbed.drive import Command, find_binary
from testbed.trees import MIB, write_large
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import topology_launch
from tradewind.errors import CeilingReached, GatewayError, Interrupted, JobUnreadable
from tradewind.model.ledger import JobPrices, MachinePrice
from tradewind.model.requests import RequestPrices
from tradewind.model.units import format_usd

USD_PER_S = 0.01
USD_PER_GB = 0.1
LARGE_BYTES = 24 * MIB
STORE = RequestPrices(get_usd_per_1000=0.4, put_usd_per_1000=5.0, list_usd_per_1000=5.0)
PRICES = JobPrices({"site:local": MachinePrice(USD_PER_S, "a test")}, STORE, "a test", STORE, "a test")
TOPOLOGY = {
    "gateways": {"a": {"role": "source"}, "b": {"role": "sink"}},
    "routes": [{"nodes": ["a", "b"], "share": 1, "usd_per_gb": USD_PER_GB}],
}


def test_all_runs_of_a_job_add_up_and_every_display_shows_their_sum(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "source" / "large", LARGE_BYTES)
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    binary = str(find_binary("tradewind-gateway"))
    control = JobControl(state_dir=str(command.state), gateway=binary)
    launch = replace(topology_launch(str(tmp_path / "topology.json")), prices=PRICES)
    options = tradewind.Options(recursive=True, limit_bytes_per_s=8_000_000, chunk_bytes=MIB)
    began_s = time.time()
    job = control.start(tmp_path / "source", tmp_path / "copy", options, launch)
    for event in job.events():
        if isinstance(event, tradewind.Progress) and event.bytes_done > 4 * MIB:
            job.drain()
    with pytest.raises(Interrupted):
        job.wait()

    def spent_usd() -> float:
        return control.ledger(control.job(job.id)).total_usd(time.time())

    first_usd = spent_usd()
    assert first_usd == pytest.approx(job.spent_usd())
    uses = job.ledger.machines
    assert sorted(use.name for use in uses) == ["a", "b"], "the lead has no machine of its own"
    assert all(began_s - 1 <= use.launched_s < (use.ended_s or 0.0) <= time.time() + 1 for use in uses)

    # The gateways of these runs start but never become ready.
    broken = JobControl(state_dir=str(command.state), gateway=broken_gateway(tmp_path, "echo no; exec sleep 60"))
    failed_s = time.monotonic()
    for _ in range(3):
        with pytest.raises(GatewayError):
            broken.resume(job.id)
    lasted_s = time.monotonic() - failed_s
    assert first_usd < spent_usd() <= first_usd + 2 * USD_PER_S * lasted_s, "earlier machines were charged again"

    resumed = control.resume(job.id)
    summary = resumed.wait().summary
    ledger, now_s = resumed.ledger, time.time()
    assert summary.progress.cost_usd == pytest.approx(ledger.total_usd(now_s))
    assert ledger.usd_of("egress", now_s) == pytest.approx(USD_PER_GB * LARGE_BYTES / 1e9, rel=0.3)
    machines_s = sum(use.ended_s - use.launched_s for use in ledger.machines if use.ended_s is not None)
    assert ledger.usd_of("machine", now_s) == pytest.approx(machines_s * USD_PER_S)
    parts = LARGE_BYTES // MIB
    assert ledger.usd_of("requests", now_s) >= (parts * 0.4 + (parts + 2) * 5.0) / 1000

    shown = json.loads(command.run("jobs", "show", job.id, "--json").expect(0).stdout)["cost"]
    assert shown["metered_usd"] == pytest.approx(spent_usd()) == pytest.approx(resumed.spent_usd())
    assert shown["metered_usd"] == pytest.approx(sum(line["usd"] for line in shown["lines"]))
    table = command.run("jobs", "show", job.id, "--cost").expect(0).stdout.splitlines()
    assert any(f", {format_usd(spent_usd())} metered" in line for line in table)
    heading = next(at for at, line in enumerate(table) if line.startswith("run  kind"))
    kinds = [line.split()[1] for line in table[heading + 1 :]]
    assert kinds == [line["kind"] for line in shown["lines"]], "each line of the ledger"
    assert [line.split()[-1] for line in table[heading + 1 :]] == [format_usd(line["usd"]) for line in shown["lines"]]


def test_the_last_line_of_cp_and_jobs_show_agree(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "source" / "large", MIB)
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    paths = tmp_path / "source", tmp_path / "copy"
    done = command.run("cp", "-ry", *map(str, paths), "--topology", str(tmp_path / "topology.json"), "--json").expect(0)
    cost = done.summary["cost"]
    assert cost["metered_usd"] == pytest.approx(USD_PER_GB * MIB / 1e9)
    shown = command.run("jobs", "show", done.summary["job_id"], "--json").expect(0)
    assert json.loads(shown.stdout)["cost"] == cost
    words = command.run("jobs", "show", done.summary["job_id"]).expect(0).stdout
    assert f"{format_usd(cost['predicted_usd'])} predicted, {format_usd(cost['metered_usd'])} metered" in words


def test_compressed_bytes_cost_what_was_sent(command: Command, tmp_path: Path) -> None:
    words = [f"{number * 0x9E3779B97F4A7C15 >> 40 & 0xFFF:x}" for number in range(300_000)]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "text").write_text(" ".join(words))
    raw_bytes = (tmp_path / "source" / "text").stat().st_size
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    options = "--topology", str(tmp_path / "topology.json"), "--chunk-size", "5MiB", "--json"
    sent_bytes = {}
    for codec in ("off", "lz4", "zstd:1", "zstd:9"):
        paths = tmp_path / "source", tmp_path / codec
        done = command.run("cp", "-ry", *map(str, paths), *options, "--compress", codec).expect(0).summary
        assert (tmp_path / codec / "text").read_text() == (tmp_path / "source" / "text").read_text()
        (hop,) = done["progress"]["hops"]
        assert hop["bytes"] == raw_bytes
        sent_bytes[codec] = raw_bytes - hop["saved_bytes"]
        assert done["cost"]["metered_usd"] == pytest.approx(USD_PER_GB * sent_bytes[codec] / 1e9)
        shown = json.loads(command.run("jobs", "show", done["job_id"], "--cost", "--json").expect(0).stdout)["cost"]
        assert [line["what"] for line in shown["lines"]] == ["a → b"], "nothing was sent again"
    assert raw_bytes == sent_bytes["off"] > sent_bytes["lz4"] > sent_bytes["zstd:1"] > sent_bytes["zstd:9"]


def broken_gateway(folder: Path, serve: str) -> str:
    """Return a gateway program that runs this command of a shell instead of serving."""
    path = folder / "broken-gateway"
    binary = find_binary("tradewind-gateway")
    path.write_text(f'#!/bin/sh\nif [ "$1" = serve ]; then {serve}; fi\nexec {binary} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_machines_that_do_not_become_ready_end_at_the_ceiling(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "source" / "large", MIB)
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    control = JobControl(state_dir=str(command.state), gateway=broken_gateway(tmp_path, "exec sleep 600"))
    # The ceiling is the cost of two machines for 2 s. Without it they would get 60 s.
    launch = replace(topology_launch(str(tmp_path / "topology.json")), prices=PRICES, ceiling_usd=2 * 2 * USD_PER_S)
    with pytest.raises(CeilingReached):
        control.start(tmp_path / "source", tmp_path / "copy", tradewind.Options(recursive=True), launch)
    command.wait_until_alone()
    billed = {"site:local": MachinePrice(USD_PER_S, "a test", billed_s_min=60.0)}
    dear = replace(launch, prices=replace(PRICES, machines=billed))
    with pytest.raises(CeilingReached, match="no machines were started"):
        control.start(tmp_path / "source", tmp_path / "copy", tradewind.Options(recursive=True), dear)
    (job,) = control.jobs()  # Only the first has cost anything.
    assert job.state == "failed"
    assert launch.ceiling_usd is not None and job.progress.cost_usd > 0.9 * launch.ceiling_usd
    with pytest.raises(CeilingReached, match="is not resumed"):
        control.resume(job.id)
    control.cancel(job.id)
    assert control.job(job.id).progress.cost_usd == job.progress.cost_usd


def test_the_cost_of_machines_that_never_became_ready_is_kept_and_counts_when_the_job_is_resumed(
    command: Command, tmp_path: Path
) -> None:
    write_large(tmp_path / "source" / "large", MIB)
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    control = JobControl(state_dir=str(command.state), gateway=broken_gateway(tmp_path, "sleep 0.2; exit 3"))
    launch = replace(topology_launch(str(tmp_path / "topology.json")), prices=PRICES)
    with pytest.raises(GatewayError):
        control.start(tmp_path / "source", tmp_path / "copy", tradewind.Options(recursive=True), launch)
    (job,) = control.jobs()
    first_usd = job.progress.cost_usd
    assert job.state == "failed" and first_usd > 0
    mended = JobControl(state_dir=str(command.state), gateway=str(find_binary("tradewind-gateway")))
    assert mended.resume(job.id).wait().summary.progress.cost_usd > first_usd
    assert (tmp_path / "copy" / "large").read_bytes() == (tmp_path / "source" / "large").read_bytes()


def test_a_job_with_a_ceiling_whose_ledger_is_damaged_is_not_resumed(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "source" / "large", LARGE_BYTES)
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    control = JobControl(state_dir=str(command.state), gateway=str(find_binary("tradewind-gateway")))
    launch = replace(topology_launch(str(tmp_path / "topology.json")), prices=PRICES, ceiling_usd=10.0)
    options = tradewind.Options(recursive=True, limit_bytes_per_s=8_000_000, chunk_bytes=MIB)
    job = control.start(tmp_path / "source", tmp_path / "copy", options, launch)
    job.drain()
    with pytest.raises(Interrupted):
        job.wait()
    control.store.database.write("UPDATE ledgers SET prices = '{'")
    with pytest.raises(JobUnreadable, match="its ceiling could not be enforced"):
        control.resume(job.id)
