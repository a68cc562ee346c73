"""One job is one trace: its request, its wait, its runs and their hops, also if the server was killed in the middle."""

import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from testbed.chains import chain
from testbed.servers.process import free_port
from tests.service.collector import Collector
from tests.service.server import Server, until
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.errors import UsageError
from tradewind.service.database import ServiceDatabase
from tradewind.service.job_traces import JobTraces
from tradewind.service.traces import Traces, traces_endpoint

FILES = 12
SUBMIT = "POST /v1/jobs"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def server_with(folder: Path, url: str) -> Server:
    server = Server(folder, "--traces", url)
    for number in range(FILES):
        path = server.data / "secret-source" / f"secret-{number:02}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(500_000))
    server.start()
    return server


def submit(client: httpx.Client, server: Server, traceparent: str | None = None, **others: object) -> httpx.Response:
    body = {"source": str(server.data / "secret-source"), "destination": str(server.data / "copy"), "recursive": True}
    headers = {"Idempotency-Key": "k", "tracestate": "secret=1"}
    headers |= {} if traceparent is None else {"traceparent": traceparent}
    answer = client.post("/v1/jobs", json={**body, **others}, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer


@pytest.mark.slow
def test_a_job_is_one_trace_below_its_callers_span_although_its_server_was_killed(
    tmp_path: Path, collector: Collector
) -> None:
    trace, caller = secrets.token_hex(16), secrets.token_hex(8)
    server = server_with(tmp_path, collector.url)
    with server.client() as client:
        answer = submit(client, server, f"00-{trace}-{caller}-01", limit_bytes_per_s=3_000_000)
        job_id = answer.json()["id"]
        until(client, job_id, "running")
        collector.until(lambda: bool(collector.of(trace, SUBMIT) and collector.of(trace, "wait")))
        while not list(server.data.glob("copy/*")):
            pass
    server.kill()
    server.start()
    try:
        with server.client() as client:
            until(client, job_id, "done")
            collector.until(lambda: len(collector.of(trace, "run")) == 2)
            collector.until(lambda: bool(collector.of(trace, "hop")))
    finally:
        assert server.kill(signal.SIGTERM) == 0
    (request,) = collector.of(trace, SUBMIT)
    assert request.parent == caller
    assert answer.headers["traceparent"] == f"00-{trace}-{request.id}-01"
    assert request.attributes["http.route"] == "/v1/jobs"
    assert request.attributes["http.response.status_code"] == 201
    (wait,) = collector.of(trace, "wait")
    lost, last = collector.of(trace, "run")
    assert {wait.parent, lost.parent, last.parent} == {request.id}
    assert {span.attributes["tradewind.job.id"] for span in (request, wait, lost, last)} == {job_id}
    assert wait.end_ns <= lost.start_ns <= lost.end_ns <= last.start_ns < last.end_ns
    assert (lost.is_error, lost.attributes["tradewind.run.outcome"]) == (True, "lost")
    assert (last.is_error, last.attributes["tradewind.run.outcome"]) == (False, "done")
    (hop,) = (span for span in collector.of(trace, "hop") if span.parent == last.id)
    assert last.start_ns <= hop.start_ns <= hop.end_ns <= last.end_ns
    assert hop.attributes["tradewind.bytes"] == last.attributes["tradewind.bytes"] > 0
    assert not [body for body in collector.bodies if b"secret" in body or b"copy" in body], "no name of a tenant"


def test_a_run_over_gateways_has_a_span_for_each_hop(tmp_path: Path, collector: Collector) -> None:
    """Jobs of the service run on one gateway now, so the engine runs this one."""
    source, topology = tmp_path / "source", tmp_path / "topology.json"
    source.write_bytes(os.urandom(3_000_000))
    topology.write_text(json.dumps(chain("relay")))
    database, traces = ServiceDatabase(tmp_path), Traces(traces_endpoint(collector.url))
    trace, request = secrets.token_hex(16), secrets.token_hex(8)
    with Engine(state_dir=str(tmp_path / "state")) as engine:
        job = engine.start(engine.propose(Request(str(source), str(tmp_path / "copy"), topology=str(topology)))).wait()
        JobTraces(database, traces).run_ended("job-1", f"00-{trace}-{request}-01", job)
    traces.close()
    database.close()
    (run,) = collector.of(trace, "run")
    hops = collector.of(trace, "hop")
    assert run.parent == request and {hop.parent for hop in hops} == {run.id}
    ends = {(hop.attributes["tradewind.hop.from"], hop.attributes["tradewind.hop.to"]) for hop in hops}
    assert ends == {("source", "relay"), ("relay", "sink")}
    assert {hop.attributes["tradewind.bytes"] for hop in hops} == {3_000_000}


def test_a_collector_that_is_down_costs_one_warning(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    server = server_with(tmp_path, url)
    with server.client() as client:
        answer = submit(client, server)
        assert len(answer.headers["traceparent"]) == 55
        until(client, answer.json()["id"], "done")
        assert client.get("/v1/jobs/unknown", headers={"traceparent": "nonsense"}).status_code == 404
    assert server.kill(signal.SIGTERM) == 0
    assert server.log.splitlines() == [
        f"WARNING: traces: {url}/v1/traces does not accept spans; they are dropped until it does"
    ]


def test_the_address_of_a_collector() -> None:
    assert traces_endpoint("http://collector:4318") == "http://collector:4318/v1/traces"
    assert traces_endpoint("https://collector/team/v1/traces") == "https://collector/team/v1/traces"
    for wrong in ("collector:4318", "http://", "ftp://collector", "http://me:secret@collector", "http://collector:x"):
        with pytest.raises(UsageError) as error:
            traces_endpoint(wrong)
        assert "secret" not in str(error.value)
