"""An overlay transfer from Python: proposed, started, paused, resumed, and its receipt."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tradewind
from testbed.drive import find_binary
from testbed.sky import unavailable
from tests.sky.world import SINK, SOURCE, differences, write_files, write_world
from tradewind.cli.follow import _cost
from tradewind.engine.stored import plan_document
from tradewind.engine.topology import topology_document
from tradewind.errors import Interrupted, UsageError
from tradewind.model.records import replace
from tradewind.sky.running import find_emulator

VOLUME_BYTES = 30_000_000
OPTIONS = tradewind.Options(
    recursive=True, source=tradewind.Access(region=SOURCE), destination=tradewind.Access(region=SINK)
)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tradewind.Engine:
    if reason := unavailable():
        pytest.skip(reason)
    monkeypatch.setenv("TRADEWIND_WAN", find_emulator())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tradewind.Engine(gateway=str(find_binary("tradewind-gateway")))


def request(tmp_path: Path, volume_bytes: int = VOLUME_BYTES) -> tradewind.Request:
    write_files(tmp_path / "source", volume_bytes)
    return tradewind.Request(
        tmp_path / "source", tmp_path / "copy", OPTIONS, sky=str(write_world(tmp_path)), ceiling_usd=1.0
    )


def until(job: tradewind.Job, bytes_done: int) -> None:
    """Wait until `bytes_done` bytes are done."""
    for event in job.events():
        if isinstance(event, tradewind.Progress) and event.bytes_done >= bytes_done:
            break


def test_a_proposal_has_a_plan_and_a_price_and_is_carried_out(engine: tradewind.Engine, tmp_path: Path) -> None:
    with engine:
        proposal = engine.propose(request(tmp_path))
        assert proposal.plan.overlay is not None and 0 < proposal.cost_usd <= 1.0
        assert (proposal.volume_bytes, proposal.objects) == (VOLUME_BYTES, 30)
        assert not (tmp_path / "copy").exists(), "a proposal starts nothing"
        receipt = engine.start(proposal).wait().receipt()
    assert differences(tmp_path / "source", tmp_path / "copy") == []
    assert receipt["complete"] and receipt["plan"] is not None
    assert receipt["cost"]["predicted_usd"] == pytest.approx(proposal.cost_usd)
    assert 0 < receipt["cost"]["metered_usd"] <= 1.0


def test_within_a_running_event_loop(engine: tradewind.Engine, tmp_path: Path) -> None:
    async def transfer() -> tradewind.Job:
        with engine:
            job = engine.start(await asyncio.to_thread(engine.propose, request(tmp_path)))
            return await asyncio.to_thread(job.wait)

    assert asyncio.run(transfer()).state == "done"
    assert differences(tmp_path / "source", tmp_path / "copy") == []


def test_a_paused_job_resumes_on_new_machines_under_the_same_ceiling(engine: tradewind.Engine, tmp_path: Path) -> None:
    with engine:
        asked = request(tmp_path)
        job = engine.start(engine.propose(asked))
        until(job, VOLUME_BYTES // 10)
        assert job.pause().state == "paused"
        with pytest.raises(Interrupted):
            job.wait()
        assert job.resume().wait().state == "done"
        receipt = job.receipt()
    assert [run["outcome"] for run in receipt["runs"]] == ["interrupted", "done"]
    assert receipt["ceiling"] == {"usd": 1.0}
    assert differences(tmp_path / "source", tmp_path / "copy") == []


@pytest.mark.slow
def test_the_predicted_cost_of_an_early_start_belongs_to_its_first_plan_also_after_a_change_of_the_plan(
    engine: tradewind.Engine, tmp_path: Path
) -> None:
    """The plan of a resumed job is the latest one. After `--replan` that is for the rest of the volume only."""
    with engine:
        made = engine.propose(request(tmp_path))
        assert made.plan.overlay is not None
        job = engine.start(replace(made, launch=replace(made.launch, is_early=True)))
        spec = job.require_running().spec
        until(job, VOLUME_BYTES // 10)
        job.pause()
        rest = replace(made.plan, overlay=replace(made.plan.overlay, volume_gb=made.plan.overlay.volume_gb / 10))
        engine.control.store.add_plan(job.id, spec, topology_document(rest), plan_document(rest))
        running = job.resume().require_running()
        result = running.wait()
        cost = _cost(running, result.progress)
        receipt = job.receipt()
    assert cost.predicted_usd == pytest.approx(made.cost_usd)
    assert receipt["cost"]["predicted_usd"] == pytest.approx(made.cost_usd)


PROPOSER = """
import sys
import tradewind
from tests.sky.test_engine import OPTIONS
folder, world, gateway = sys.argv[1:]
request = tradewind.Request(f"{folder}/source", f"{folder}/copy", OPTIONS, sky=world, ceiling_usd=1.0)
with tradewind.Engine(gateway=gateway) as engine:
    print(engine.propose(request, keep=True).id)
"""


@pytest.mark.slow
def test_a_plan_of_another_process_is_carried_out_if_its_prices_hold(engine: tradewind.Engine, tmp_path: Path) -> None:
    """The sky of the other process is down when the plan is carried out."""
    asked = request(tmp_path)
    words = [sys.executable, "-c", PROPOSER, str(tmp_path), str(asked.sky), engine.gateway]
    made = [subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    with engine:
        job = engine.start(made[0]).wait()
        assert differences(tmp_path / "source", tmp_path / "copy") == []
        plan = engine.job(job.id).plan
        assert plan.overlay is not None and job.receipt()["cost"]["predicted_usd"] == plan.overlay.cost.total_usd
        prices = Path(engine.state_dir) / "catalog" / "prices.csv"
        prices.parent.mkdir()
        edge = plan.overlay.edges[0]
        prices.write_text(f"src,dst,usd_per_gb\n{edge.src},{edge.dst},0.5\n")
        with pytest.raises(UsageError, match=f"these prices have changed: egress {edge.src} → {edge.dst}") as refused:
            engine.start(made[1])
    assert refused.value.hint == "propose again"
    assert os.listdir(tmp_path / "state" / "tradewind" / "fleets") == []


def test_a_request_that_cannot_be_planned_is_refused(engine: tradewind.Engine, tmp_path: Path) -> None:
    sky = str(write_world(tmp_path))
    with pytest.raises(UsageError, match="needs the region of both sides"):
        engine.propose(tradewind.Request(tmp_path, tmp_path / "copy", sky=sky))
    away = tradewind.Options(source=tradewind.Access(region="aws:us-east-1"), destination=OPTIONS.destination)
    with pytest.raises(UsageError, match="the sky has no machine in aws:us-east-1"):
        engine.propose(tradewind.Request(tmp_path, tmp_path / "copy", away, sky=sky))


@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_job_left_running_is_drained_with_its_engine(engine: tradewind.Engine, tmp_path: Path, resumed: bool) -> None:
    with engine:
        # What is in flight at a pause still arrives, so there must be more.
        job = engine.start(engine.propose(request(tmp_path, 5 * VOLUME_BYTES)))
        until(job, VOLUME_BYTES // 10)
        if resumed:
            until(job.pause().resume(), VOLUME_BYTES // 5)
    (*_, last) = job.events()
    assert isinstance(last, tradewind.Summary) and last.outcome == "interrupted", "its sky ran until the job had ended"
    assert os.listdir(tmp_path / "state" / "tradewind" / "fleets") == []


def test_the_lines_in_the_guide_work(engine: tradewind.Engine, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    lines = guide.split("## Through an overlay")[1].split("```python\n")[1].split("```")[0]
    write_files(tmp_path / "source", VOLUME_BYTES)
    for shown, real in (
        ("site:a", SOURCE),
        ("site:b", SINK),
        ("/data", str(tmp_path / "source")),
        ("/copy", str(tmp_path / "copy")),
        ("world.json", str(write_world(tmp_path))),
    ):
        assert f'"{shown}"' in lines
        lines = lines.replace(f'"{shown}"', f'"{real}"')
    exec(lines, {"tradewind": tradewind})
    assert differences(tmp_path / "source", tmp_path / "copy") == []
