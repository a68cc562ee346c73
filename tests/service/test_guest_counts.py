"""The counts of a host: it may run another program than ours, so the service's own gateway counts as well."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.service.guest_hosts import command, surroundings, with_dublin
from tests.service.server import Server, eventually
from tradewind.cli.main import main
from tradewind.engine import guest_host, guest_programs
from tradewind.fleet.sink_counts import SinkCounts
from tradewind.fleet.source_counts import SENT_FILE, sent_to
from tradewind.model.document import to_document
from tradewind.model.event import HopActivity, Progress
from tradewind.model.program import Program
from tradewind.model.records import replace

#: Price of a GB in these tests: a millionth of a USD for each byte.
USD_MICROS_PER_GB = 10**9


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_dublin(tmp_path_factory.mktemp("guest-counts")) as server:
        with server.client() as admin:
            tiers = [{"from_quantity": 0, "usd_micros_per_unit": USD_MICROS_PER_GB}]
            tariff = {"name": "base", "unit": "GB", "tiers": tiers}
            assert admin.put("/v1/tariffs", json={"tariffs": [tariff]}).status_code == 200
        yield server


def understated(waiting: Sequence[str]) -> list[str]:
    """Return events that say that nothing was sent, and that what was sent was saved."""
    found = []
    for line in waiting:
        document = json.loads(line)
        progress = document.get("progress", document)
        if "bytes_done" in progress:
            progress |= {"bytes_done": 0, "bytes_total": 0, "bytes_earlier": 0}
            for hop in progress["hops"]:
                hop |= {"bytes": 10, "saved_bytes": 10, "deduplicated_bytes": 10}
        found.append(json.dumps(document))
    return found


def lie(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `main` of this process be a client whose events are false."""
    for name, value in surroundings(server, home).items():
        monkeypatch.setenv(name, value)
    honest = guest_host._first_events
    monkeypatch.setattr(guest_host, "_first_events", lambda waiting: understated(honest(waiting)))


def latest_job(server: Server) -> dict[str, Any]:
    with server.client() as client:
        job: dict[str, Any] = client.get("/v1/jobs").json()["jobs"][0]
        return {**job, "receipt": client.get(f"/v1/jobs/{job['id']}/receipt").json()}


def charged(job: dict[str, Any]) -> int:
    return sum(line["usd_micros"] for line in job["receipt"]["charges"])


@pytest.mark.parametrize("options", [(), ("--compress", "zstd")])
def test_a_host_that_understates_is_charged_for_what_was_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    (tmp_path / "sent").mkdir()
    for name in ("one", "two"):
        (tmp_path / "sent" / name).write_bytes(os.urandom(3_000_000))
    lie(server, tmp_path, monkeypatch)
    place = f"dublin:understated{len(options)}"
    assert main(["send", "--service", server.url, *options, str(tmp_path / "sent"), place]) == 0
    job = latest_job(server)
    assert job["state"] == "done" and job["receipt"]["progress"]["bytes_done"] == 6_000_000
    assert charged(job) >= 5_990_000


def test_a_host_cannot_send_more_than_its_quote(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its changed lead has no ceiling, and its counts are false."""
    honest = guest_programs.guest_program

    def unbounded(*words: Any, **named: Any) -> Program:
        program = honest(*words, **named)
        assert program.lead is not None
        lead = replace(program.lead, ceiling_bytes=None, rate_limit_bytes_per_s=20_000_000)
        return replace(program, lead=lead)

    large = tmp_path / "large"
    large.write_bytes(os.urandom(96_000_000))
    lie(server, tmp_path, monkeypatch)
    monkeypatch.setattr(guest_host, "guest_program", unbounded)
    monkeypatch.setattr(guest_host.GuestHost, "source_bytes", lambda _: 1_000)
    words = ["send", "--service", server.url, "--chunk-size", "5MiB", "--max-cost", "100USD", str(large), "dublin:more"]
    assert main(words) != 0
    job = latest_job(server)
    assert job["state"] == "failed" and "the source has grown beyond its quote" in job["error"], job["error"]
    assert not (server.data / "dublin" / "default" / "more").exists()
    assert charged(job) > 0


def test_a_host_that_says_nothing_is_charged_for_what_was_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is cancelled when all is there, so no lead ever states an end."""
    (tmp_path / "silent").write_bytes(os.urandom(2_000_000))

    def silent(_: Sequence[str]) -> list[str]:
        if (server.data / "dublin" / "default" / "silent").exists():
            with server.client() as client:
                client.post(f"/v1/jobs/{client.get('/v1/jobs').json()['jobs'][0]['id']}/cancel")
        return []

    honest = guest_host._GuestRun._answer

    def gone_at_drain(run: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
        if asked["kind"] != "drain":
            return honest(run, asked)
        run._failure = "it is gone"
        return {}

    lie(server, tmp_path, monkeypatch)
    monkeypatch.setattr(guest_host, "_first_events", silent)
    monkeypatch.setattr(guest_host._GuestRun, "_answer", gone_at_drain)
    assert main(["send", "--service", server.url, str(tmp_path / "silent"), "dublin:silent"]) != 0
    job = latest_job(server)
    assert job["state"] == "cancelled" and job["receipt"]["progress"]["bytes_done"] == 2_000_000
    assert charged(job) == 2_000_000


def test_a_host_that_acknowledges_nothing_is_charged_for_what_was_sent(server: Server, tmp_path: Path) -> None:
    """Its files must not grow beyond a size, so it has received bytes of which it acknowledges none."""
    (server.data / "dublin" / "default" / "unpaid").mkdir(parents=True)
    for name in ("one", "two"):
        (server.data / "dublin" / "default" / "unpaid" / name).write_bytes(os.urandom(6_000_000))
    words = command(server, "receive", "--chunk-size", "5MiB", "dublin:unpaid", str(tmp_path / "received"))
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
    with subprocess.Popen(words, env=surroundings(server, tmp_path), preexec_fn=small) as receiver:
        try:
            eventually(lambda: sent_bytes(server) > 2_000_000)
        finally:
            receiver.kill()
    with server.client() as client:
        job_id = latest_job(server)["id"]
        client.post(f"/v1/jobs/{job_id}/cancel")
        eventually(lambda: client.get(f"/v1/jobs/{job_id}").json()["state"] in ("cancelled", "failed"))
    job = latest_job(server)
    assert job["receipt"]["progress"]["bytes_done"] == 0
    assert 2_000_000 < charged(job) <= 12_000_000


def sent_bytes(server: Server) -> int:
    """Return the bytes that the service has recorded as sent for its only receiver."""
    return sum(int(file.read_text()) for file in (server.state / "engine" / "jobs").glob(f"*/{SENT_FILE}"))


def test_an_honest_progress_is_not_changed() -> None:
    hops = HopActivity("guest → sink", bytes=100, saved_bytes=40, deduplicated_bytes=10)
    said = to_document(Progress(bytes_done=150, bytes_earlier=50, bytes_total=200, hops=(hops,)))
    assert SinkCounts(100, 40, 10).corrected(said, 50) == said
    assert SinkCounts().corrected(to_document(Progress()), 0) == to_document(Progress())


def test_a_false_progress_is_corrected() -> None:
    hops = [HopActivity(name, bytes=10, saved_bytes=1 << 60) for name in "ab"]
    said = to_document(Progress(bytes_done=1, hops=tuple(hops)))
    now = SinkCounts(100, 30, 20).corrected(said, 50)
    assert (now["bytes_done"], now["bytes_total"]) == (150, 150)
    assert sum(hop["bytes"] for hop in now["hops"]) == 100
    assert sum(hop["saved_bytes"] for hop in now["hops"]) == 30
    assert SinkCounts(100).corrected(to_document(Progress()), 0)["hops"] == [
        {"name": "", "bytes": 100, "saved_bytes": 0, "deduplicated_bytes": 0}
    ]


def test_the_bytes_sent_to_a_guest_are_in_the_metrics() -> None:
    text = """
tradewind_hop_bytes_total{from="service",to="guest"} 16004111
tradewind_hop_bytes_total{from="service",to="relay"} 5
tradewind_hop_chunks_total{from="service",to="guest"} 2
"""
    assert sent_to("guest", text) == 16_004_111
    assert sent_to("other", text) == 0
