"""The rights of a guest: who may join a job, what its host may say, and which places it may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.guest_hosts import (
    claimed,
    submitted,
    surroundings,
    with_dublin,
)
from tests.service.server import WAIT_S, Server, until
from tradewind.cli.main import main
from tradewind.engine import guest_programs
from tradewind.errors import GatewayLost
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.owner import Join, JoinToken
from tradewind.gateway.process import GatewayProcess
from tradewind.model.job import Preserve
from tradewind.model.program import Program
from tradewind.model.records import replace


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_dublin(tmp_path_factory.mktemp("guests")) as server:
        yield server


def joined(folder: Path, name: str, said: dict[str, Any]) -> GatewayProcess:
    """Start a gateway with a join document, which ends by itself if it cannot join."""
    join = Join(
        said["fleet"], said["name"], JoinToken(said["token_hex"], said["expires_unix_s"]), said["ca_pem"], said["owner"]
    )
    line = join.beside(str(folder / name), None)
    return GatewayProcess(find_gateway(), name, ["--join", "-"], str(folder / f"{name}.log"), input_line=line)


def test_a_join_document_is_for_one_tenant_one_client_and_one_gateway(server: Server, tmp_path: Path) -> None:
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "other"})
        token = admin.post("/v1/tokens", json={"tenant": "other", "role": "tenant_admin"}).json()["token"]
        viewer = admin.post("/v1/tokens", json={"tenant": "default", "role": "viewer"}).json()["token"]
        job_id = submitted(admin, source="guest://x", destination=str(server.data / "dublin" / "default" / "x"))
        grant = claimed(admin, job_id)
        with server.client(token) as other, server.client(viewer) as reader:
            assert other.post(f"/v1/jobs/{job_id}/guest", json={}).status_code == 404
            stolen = {"session": grant["session"]}
            assert other.post(f"/v1/jobs/{job_id}/guest/exchange", json=stolen).status_code == 404
            assert reader.post(f"/v1/jobs/{job_id}/guest", json={}).status_code == 403
        assert admin.post(f"/v1/jobs/{job_id}/guest", json={}).status_code == 409
        guessed = {"session": "0" * 32}
        assert admin.post(f"/v1/jobs/{job_id}/guest/exchange", json=guessed).status_code == 410
        bad = {"session": grant["session"], "events": ['{"event": "progress", "bytes_done": "many"}']}
        assert admin.post(f"/v1/jobs/{job_id}/guest/exchange", json=bad).status_code == 422
        shown = json.dumps(admin.get(f"/v1/jobs/{job_id}").json()) + server.log
        assert grant["join"]["token_hex"] not in shown and grant["session"] not in shown
        first = joined(tmp_path, "first", grant["join"])
        second = None
        try:
            wait_for_control(tmp_path / "first")
            second = joined(tmp_path, "second", grant["join"])
            until_logged(tmp_path / "second.log", "not enrolled yet")
            with pytest.raises(GatewayLost):
                GatewayClient(f"unix:{tmp_path / 'second'}").version(0.5)
        finally:
            first.kill()
            if second is not None:
                second.kill()
        assert admin.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
        until(admin, job_id, "cancelled")
        late = joined(tmp_path, "late", grant["join"])
        try:
            assert "refused" in until_logged(tmp_path / "late.log", "not enrolled yet")  # Its fleet is gone.
        finally:
            late.kill()
        late_report = {"session": grant["session"]}
        assert admin.post(f"/v1/jobs/{job_id}/guest/exchange", json=late_report).status_code == 410


def test_hosts_receive_at_the_same_time(server: Server) -> None:
    """A host that stays away must not hold up those of other tenants."""
    (server.data / "shown").write_bytes(b"x")
    place = str(server.data / "shown")
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "late"})
        token = admin.post("/v1/tokens", json={"tenant": "late", "role": "operator"}).json()["token"]
        with server.client(token) as late:
            away = submitted(late, source=place, destination="guest://shown")
            there = submitted(admin, source=place, destination="guest://shown")
            assert claimed(admin, there)["join"]["name"] == "guest"
            assert late.get(f"/v1/jobs/{away}").json()["state"] == "running"
            late.post(f"/v1/jobs/{away}/cancel")
        admin.post(f"/v1/jobs/{there}/cancel")


PROGRESS = {"event": "progress", "elapsed_s": 1.0, "cost_usd": 0.0}


FORGED = [
    "[" * 60_000,
    '{"event": "run_started", "at_unix_ms": 0}',
    '{"event": "run_ended", "outcome": "done", "at_unix_ms": 0}',
    '{"event": "done", "outcome": "as planned"}',
    *(json.dumps({**PROGRESS, **said}) for said in ({"bytes_done": n} for n in (-1, 1 << 53, 10**400))),
    *(json.dumps({**PROGRESS, "bytes_per_s": rate}) for rate in (float("inf"), -1.0)),
    json.dumps({**PROGRESS, "hops": [{"name": "a", "saved_bytes": -(10**9)}]}),
    json.dumps({"event": "done", "outcome": "done", "proofs": {"length": -1}}),
]


def test_a_guest_says_only_what_a_lead_says(server: Server) -> None:
    """Forged events would change charges and times of runs, or stop the scheduler for all tenants."""
    with server.client() as client:
        job_id = submitted(client, source="guest://x", destination=str(server.data / "dublin" / "default" / "forged"))
        report = {"session": claimed(client, job_id)["session"]}
        for line in FORGED:
            answer = client.post(f"/v1/jobs/{job_id}/guest/exchange", json={**report, "events": [line]})
            assert answer.status_code == 422, (line[:100], answer.text)
        last = {"event": "done", "outcome": "failed", "message": "\x00\x1b[2Jlost", "secret": "of the engine"}
        answer = client.post(f"/v1/jobs/{job_id}/guest/exchange", json={**report, "events": [json.dumps(last)]})
        assert answer.status_code == 200 and answer.json()["events"] == 1
        failure = {**report, "failure": "\x00\x1b[2Jits host is gone"}
        assert client.post(f"/v1/jobs/{job_id}/guest/exchange", json=failure).status_code == 410
        job = until(client, job_id, "failed")
        assert "[2Jits host is gone" in job["error"] and job["error"].isprintable()
        assert client.get("/healthz").json()["status"] == "ok"


def wait_for_control(path: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            GatewayClient(f"unix:{path}").version(WAIT_S)
        except GatewayLost:  # The socket is not there, or nobody listens yet.
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        else:
            return


def until_logged(log: Path, words: str) -> str:
    deadline_s = time.monotonic() + WAIT_S
    while words not in (text := log.read_text()):
        assert time.monotonic() < deadline_s, text
        time.sleep(0.05)
    return text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"source": "guest://x", "destination": "guest://y"}, "a guest is one side of a cp"),
        ({"source": "guest://x", "destination": "DATA/y", "verb": "mv"}, "a guest is one side of a cp"),
        ({"source": "guest://a/b", "destination": "DATA/y"}, "not the name of a file or folder"),
        ({"source": "guest://..", "destination": "DATA/y"}, "not the name of a file or folder"),
        ({"source": "guest://x", "destination": "/etc/y"}, "not below an allowed folder"),
        ({"source": "guest://x", "destination": "DATA/y", "via": "fleet"}, "joined to the server's own machine"),
        ({"source": "DATA/x", "destination": "guest://y", "source_bytes": 1}, "the service counts this source itself"),
    ],
)
def test_places_of_guests_are_checked(server: Server, body: dict[str, str], said: str) -> None:
    data = str(server.data)
    places = {name: text.replace("DATA", data) if isinstance(text, str) else text for name, text in body.items()}
    with server.client() as client:
        answer = client.post("/v1/jobs", json=places, headers={"Idempotency-Key": os.urandom(8).hex()})
    assert answer.status_code == 422 and said in answer.json()["detail"], answer.text


def test_other_commands_have_no_guests(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tradewind.cli.main", "cp", "guest://x", str(tmp_path / "y")]
    around = {**os.environ, "TRADEWIND_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(words, capture_output=True, text=True, env=around, check=False)
    assert done.returncode == 2 and "only jobs of the transfer service have guests" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could set the bits")
def test_a_guest_cannot_leave_programs_that_run_as_root(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed client asks the sink, which root runs, to keep owner and mode."""
    honest = guest_programs.guest_program

    def changed(*words: Any, **named: Any) -> Program:
        program = honest(*words, **named)
        assert program.lead is not None
        return replace(program, lead=replace(program.lead, preserve=Preserve(mode=True, owner=True)))

    (tmp_path / "sent").mkdir()
    for name, mode in (("harmful", 0o4755), ("plain", 0o750)):
        (tmp_path / "sent" / name).write_text("#!/bin/sh")
        (tmp_path / "sent" / name).chmod(mode)
    for name, value in surroundings(server, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tradewind.engine.guest_host.guest_program", changed)
    assert main(["send", "--service", server.url, str(tmp_path / "sent"), "dublin:modes"]) != 0
    left = {path.name: path.stat().st_mode & 0o7777 for path in (server.data / "dublin/default/modes").iterdir()}
    assert left.pop("plain") == 0o750
    assert not any(mode & 0o6000 for mode in left.values())


def test_a_bad_address_for_guests_is_refused_at_the_start(tmp_path: Path) -> None:
    words = Server(tmp_path).command("--guest-address", "192.0.2.7")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--guest-address 192.0.2.7:0: Cannot assign" in done.stderr, done.stderr
