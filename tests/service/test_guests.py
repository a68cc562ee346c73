"""`tradewind send` and `receive` of a host whose files the service cannot read: it joins the job with a gateway."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.s3 import S3
from testbed.servers import InstallError, versitygw
from tests.service.server import WAIT_S, Server, until
from tradewind.cli.main import main
from tradewind.engine import guest_programs
from tradewind.errors import GatewayLost
from tradewind.fleet.guests import GuestDesk, leave_guests
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.owner import Join, JoinToken
from tradewind.gateway.process import GatewayProcess
from tradewind.model.job import Preserve
from tradewind.model.program import Program
from tradewind.model.records import replace

#: A rate at which the large file of `slow` takes long enough to be interrupted.
SLOW = "8MB/s"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("guests")
    server = Server(folder, "--site", f"dublin={folder / 'data' / 'dublin'}")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A folder beyond what the service may read."""
    for name in ("one", "below/two", "a name with * and ?"):
        path = tmp_path / "sent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    return tmp_path / "sent"


def command(server: Server, *words: str) -> list[str]:
    return [sys.executable, "-m", "tradewind.cli.main", words[0], "--service", server.url, *words[1:]]


def surroundings(server: Server, home: Path, token: str | None = None) -> dict[str, str]:
    own = {"TRADEWIND_SERVICE_TOKEN": token or server.admin_token(), "TRADEWIND_STATE_DIR": str(home / "state")}
    return {**os.environ, **own}


def tradewind(server: Server, home: Path, *words: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
    around = surroundings(server, home, token)
    return subprocess.run(command(server, *words), capture_output=True, text=True, timeout=90, env=around, check=False)


def begin(server: Server, home: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command, and return it with its job."""
    started = subprocess.Popen(
        command(server, *words), stderr=subprocess.PIPE, text=True, env=surroundings(server, home)
    )
    assert started.stderr is not None
    return started, started.stderr.readline().split()[-1]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def until_moved(client: httpx.Client, job_id: str, bytes_min: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while (client.get(f"/v1/jobs/{job_id}").json()["counts"] or {}).get("bytes_done", 0) < bytes_min:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_folder_is_sent_and_received_by_a_host_that_joins(server: Server, sent: Path, tmp_path: Path) -> None:
    done = tradewind(server, tmp_path, "send", "--compress", "zstd", str(sent), "dublin:run7")
    assert done.returncode == 0, done.stderr
    assert contents(server.data / "dublin" / "default" / "run7") == contents(sent)
    (sent / "one").write_bytes(b"changed")
    assert tradewind(server, tmp_path, "send", str(sent), "dublin:run7").returncode == 0
    done = tradewind(server, tmp_path, "receive", "dublin:run7", str(tmp_path / "received"))
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "received") == contents(sent)
    with server.client() as client:
        received, *_ = client.get("/v1/jobs").json()["jobs"]
        assert received["request"]["destination"] == ["guest://run7/"]
        receipt = client.get(f"/v1/jobs/{received['id']}/receipt").json()
        assert receipt["complete"] and receipt["progress"]["bytes_done"] == 200_007
        assert receipt["summary"]["destinations"][0]["url"] == "guest://run7/"
        actions = [entry["action"] for entry in client.get("/v1/audit").json()["entries"]]
        assert actions.count("job.join") == 3
    assert [path.name for path in (tmp_path / "state" / "guests").glob("*/*")] == ["lock"] * 2
    assert str(sent) not in server.log


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_a_host_does_not_send_what_the_other_end_has(server: Server, tmp_path: Path, verb: str) -> None:
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "twice").write_bytes(2 * os.urandom(4_000_000))
    place = server.data / "dublin" / "default" / f"doubled-{verb}"
    if verb == "receive":
        shutil.copytree(tmp_path / "sent", place)
    words = (tmp_path / "sent", place.name) if verb == "send" else (place.name, tmp_path / "received")
    named = [f"dublin:{word}" if isinstance(word, str) else str(word) for word in words]
    done = tradewind(server, tmp_path, verb, "--dedup", "on", *named)
    assert done.returncode == 0, done.stderr
    assert contents(place if verb == "send" else tmp_path / "received") == contents(tmp_path / "sent")
    with server.client() as client:
        saved = client.get(f"/v1/jobs/{done.stderr.split()[1]}").json()["deduplication"]
    assert saved["carried_bytes"] == 8_000_000 and saved["ratio"] < 0.6


@pytest.mark.slow
def test_objects_with_long_names_may_fail(server: Server, tmp_path: Path) -> None:
    """What failed is reported in more than one request: the body of each is bounded."""
    below, place = Path(*6 * ["ä" * 120]), server.data / "dublin" / "default" / "long"
    (tmp_path / "sent" / below).mkdir(parents=True)
    for number in range(300):
        name = f"{number:03d}{'ä' * 110}"
        (tmp_path / "sent" / below / name).write_bytes(b"x")
        (place / below / name).mkdir(parents=True)
    done = tradewind(server, tmp_path, "send", str(tmp_path / "sent"), "dublin:long")
    assert done.returncode == 1 and "300 of 300 objects failed" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_single_file_is_sent_and_received(server: Server, sent: Path, tmp_path: Path) -> None:
    name = "a name with * and ?"
    assert tradewind(server, tmp_path, "send", str(sent / name), "dublin:models/one.bin").returncode == 0
    done = tradewind(server, tmp_path, "receive", "--file", "dublin:models/one.bin", str(tmp_path / "single"))
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "single") == {"one.bin": (sent / name).read_bytes()}


@pytest.mark.slow
def test_a_tenant_with_a_budget_sends_at_a_price(server: Server, sent: Path, tmp_path: Path) -> None:
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "payer"})
        token = admin.post("/v1/tokens", json={"tenant": "payer", "role": "operator"}).json()["token"]
        admin.put("/v1/tenants/payer/budget", json={"limit_usd_micros": 5_000_000})
        price = {"name": "base", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1_000_000_000}]}
        assert admin.put("/v1/tariffs", json={"tariffs": [price]}).status_code == 200
    words = "send", str(sent), "dublin:priced"
    dear = tradewind(server, tmp_path, *words, "--max-cost", "0.10USD", token=token)
    assert dear.returncode == 8 and "the service asks for $0.3" in dear.stderr, dear.stderr
    done = tradewind(server, tmp_path, *words, "--max-cost", "1USD", token=token)
    assert done.returncode == 0, done.stderr
    with server.client(token) as payer:
        (job,) = payer.get("/v1/jobs").json()["jobs"]
        charges = payer.get(f"/v1/jobs/{job['id']}/receipt").json()["charges"]
        assert sum(line["usd_micros"] for line in charges) == 300_000
    with server.client() as admin:
        assert admin.put("/v1/tariffs", json={"tariffs": []}).status_code == 200


def test_a_killed_client_resumes_where_it_was(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:killed"
    with server.client() as client:
        first, job_id = begin(server, tmp_path, *words)
        until_moved(client, job_id, 10 << 20)
        first.kill()
        first.communicate()
        done = tradewind(server, tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"job {job_id}\n")
        job = client.get(f"/v1/jobs/{job_id}").json()
    assert job["counts"]["bytes_earlier"] >= 5 << 20
    assert (server.data / "dublin" / "default" / "killed").read_bytes() == large.read_bytes()


@pytest.mark.slow
def test_ctrl_c_pauses_the_job_and_the_same_command_resumes_it(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:paused"
    with server.client() as client:
        first, job_id = begin(server, tmp_path, *words)
        until_moved(client, job_id, 5 << 20)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=WAIT_S)
        assert first.returncode == 130
        until(client, job_id, "paused")
        done = tradewind(server, tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert client.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] > 0
    assert (server.data / "dublin" / "default" / "paused").read_bytes() == large.read_bytes()


@pytest.mark.slow
def test_ctrl_c_pauses_a_job_that_waits(server: Server, sent: Path, tmp_path: Path) -> None:
    with server.client() as client:
        limit = {"kind": "tenant", "name": "default", "active": 0}
        assert client.put("/v1/limits", json={"limits": [limit]}).status_code == 200
        waiting, job_id = begin(server, tmp_path, "send", str(sent), "dublin:later")
        assert waiting.stderr is not None and waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=WAIT_S)
        assert waiting.returncode == 130
        assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "paused"
        assert client.put("/v1/limits", json={"limits": []}).status_code == 200
    done = tradewind(server, tmp_path, "send", str(sent), "dublin:later")
    assert done.returncode == 0 and f"job {job_id}" in done.stderr, done.stderr


def test_a_place_that_cannot_be_written_fails_at_once(server: Server, sent: Path, tmp_path: Path) -> None:
    shutil.copytree(sent, server.data / "dublin" / "default" / "shown")
    with server.client() as client:
        jobs = len(client.get("/v1/jobs").json()["jobs"])
        done = tradewind(server, tmp_path, "receive", "dublin:shown", str(sent / "one"))
        assert done.returncode == 1 and f"{sent / 'one'}: File exists" in done.stderr, done.stderr
        assert len(client.get("/v1/jobs").json()["jobs"]) == jobs


def test_what_is_missing_or_empty_leaves_no_folder_and_no_hint_of_other_commands(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = tradewind(server, tmp_path, "send", str(tmp_path / "empty"), "dublin:nothing")
    assert done.returncode == 1 and "nothing exists at" in done.stderr and "--allow-empty" not in done.stderr
    (tmp_path / "own").mkdir()
    for name in ("own", "own/new/below"):
        done = tradewind(server, tmp_path, "receive", "dublin:missing", str(tmp_path / name))
        assert done.returncode == 1 and "no such directory" in done.stderr
    assert (tmp_path / "own").exists() and not list((tmp_path / "own").iterdir())


@pytest.mark.slow
def test_a_cancelled_job_ends_its_client_and_keeps_its_counts(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    started, job_id = begin(
        server, tmp_path, "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:c"
    )
    with server.client() as client:
        until_moved(client, job_id, 5 << 20)
        client.post(f"/v1/jobs/{job_id}/cancel")
        said = started.communicate(timeout=WAIT_S)[1]
        assert started.returncode == 1 and "the job was cancelled" in said, said
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert job["state"] == "cancelled" and job["counts"]["bytes_done"] >= 5 << 20
        assert client.get(f"/v1/jobs/{job_id}/objects").status_code == 410
    assert [path.name for path in (tmp_path / "state" / "guests").glob("*/*")] == ["lock"]


@pytest.mark.slow
def test_a_killed_service_continues_with_the_same_client(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path / "service"
    server = Server(folder, "--site", f"dublin={folder / 'data'}", "--listen", f"127.0.0.1:{port}")
    large = tmp_path / "large"
    large.write_bytes(os.urandom(32 << 20))
    server.start()
    try:
        words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:large"
        client, job_id = begin(server, tmp_path, *words)
        with server.client() as admin:
            until_moved(admin, job_id, 10 << 20)
        server.kill()
        server.start()
        said = client.communicate(timeout=90)[1]
        assert client.returncode == 0, said
        with server.client() as admin:
            assert admin.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] >= 5 << 20
    finally:
        server.kill()
    assert (server.data / "default" / "large").read_bytes() == large.read_bytes()


def submitted(client: httpx.Client, **places: Any) -> str:
    job_id: str = client.post("/v1/jobs", json=places, headers={"Idempotency-Key": os.urandom(8).hex()}).json()["id"]
    return job_id


def claimed(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return the join document of a job, once its run waits for the guest."""
    deadline_s = time.monotonic() + WAIT_S
    while (answer := client.post(f"/v1/jobs/{job_id}/guest", json={})).status_code != 201:
        assert answer.status_code == 410 and time.monotonic() < deadline_s, answer.text
        time.sleep(0.05)
    found: dict[str, Any] = answer.json()
    return found


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
        until_cancelled(admin, job_id)
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
    *(json.dumps({**PROGRESS, **said}) for said in ({"bytes_done": -1}, {"bytes_done": 10**400})),
    *(json.dumps({**PROGRESS, "bytes_per_s": rate}) for rate in (float("inf"), -1.0)),
    json.dumps({**PROGRESS, "hops": [{"name": "a", "saved_bytes": -(10**9)}]}),
    json.dumps({"event": "done", "outcome": "done", "proofs": {"length": -1}}),
]


def test_a_server_that_stops_does_not_wait_for_its_guests(tmp_path: Path) -> None:
    """Its API is closed by then, so that no client hears of the drain."""
    desk = GuestDesk("g-1", Join("fleet", "guest", JoinToken("0" * 64, 0), "", "127.0.0.1:1"), tmp_path)
    try:
        desk.claim()
        leave_guests()
        assert desk.ending() is None  # The engine asks for a drain first: it would restart a lead that has ended.
        assert desk.pass_on("drain", "POST", b"") is None
        assert desk.ending() == "the service stops"
    finally:
        desk.close()


def test_a_desk_says_nothing_of_a_closed_connection(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    desk = GuestDesk("g-2", Join("fleet", "guest", JoinToken("0" * 64, 0), "", "127.0.0.1:1"), tmp_path)
    try:
        session = desk.claim()
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(str(tmp_path / "guest"))
            engine.sendall(b"GET /v1/events HTTP/1.1\r\n\r\n")
            assert engine.recv(100).startswith(b"HTTP/1.0 200")
        line = b'{"event": "notice", "message": "x"}\n'
        deadline_s = time.monotonic() + WAIT_S
        while any(thread.name.endswith("(process_request_thread)") for thread in threading.enumerate()):
            assert time.monotonic() < deadline_s
            desk.say(session, None, {}, 0, [line] * 2_000, None)
            time.sleep(0.02)
    finally:
        desk.close()
    assert capfd.readouterr().err == ""


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
        deadline_s = time.monotonic() + WAIT_S
        while (job := client.get(f"/v1/jobs/{job_id}").json())["state"] != "failed":
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert "[2Jits host is gone" in job["error"] and job["error"].isprintable()
        assert client.get("/healthz").json()["status"] == "ok"


def wait_for_control(path: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    GatewayClient(f"unix:{path}").version(WAIT_S)


def until_logged(log: Path, words: str) -> str:
    deadline_s = time.monotonic() + WAIT_S
    while words not in (text := log.read_text()):
        assert time.monotonic() < deadline_s, text
        time.sleep(0.05)
    return text


def until_cancelled(client: httpx.Client, job_id: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while client.get(f"/v1/jobs/{job_id}").json()["state"] != "cancelled":
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


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


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_host_with_other_files_sends_them(server: Server, tmp_path: Path) -> None:
    """The same path has other files on the sender's host: a mount namespace of its own."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "which").write_text("that of the service")
    words = " ".join(command(server, "send", str(hidden), "dublin:hidden"))
    script = f"mount -t tmpfs none {hidden} && echo that of the sender > {hidden}/which && exec {words}"
    around = surroundings(server, tmp_path)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=around, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (server.data / "dublin" / "default" / "hidden" / "which").read_text() == "that of the sender\n"


@pytest.mark.slow
def test_a_job_whose_client_stays_away_fails_with_one_line(server: Server, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:away"
    with server.client() as client:
        first, job_id = begin(server, tmp_path, *words)
        until_moved(client, job_id, 10 << 20)
        first.kill()
        first.communicate()
        deadline_s = time.monotonic() + 3 * WAIT_S
        while (job := client.get(f"/v1/jobs/{job_id}").json())["state"] != "failed":
            assert time.monotonic() < deadline_s, job
            time.sleep(1)
        assert job["error"] == "the host that sends or receives is missing: it did not join within 60 s"
        assert job["hint"] == "run the same command there again"
        done = tradewind(server, tmp_path, *words)
        assert done.returncode == 0 and f"job {job_id}" in done.stderr
    assert (server.data / "dublin" / "default" / "away").read_bytes() == large.read_bytes()


@pytest.mark.slow
def test_a_site_may_be_in_a_store(tmp_path: Path, sent: Path) -> None:
    try:
        store = versitygw()
    except InstallError as error:
        pytest.skip(str(error))
    keys = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key, "AWS_PROFILE": ""}
    there = {"AWS_ENDPOINT_URL_S3": store.endpoint, "AWS_REGION": "us-east-1"}
    site = "--allow-store", "s3://bucket/taas/", "--site", "lab=s3://bucket/taas"
    server = Server(tmp_path / "service", *site, **keys, **there)
    (sent / "large").write_bytes(os.urandom(12 << 20))
    try:
        client = S3(store.endpoint, store.access_key, store.secret_key)
        client.create_bucket("bucket")
        server.start()
        for words in (
            ("send", "--chunk-size", "5MiB", str(sent), "lab:run7"),
            ("receive", "lab:run7", str(tmp_path / "got")),
        ):
            done = tradewind(server, tmp_path, *words)
            assert done.returncode == 0, done.stderr
        assert contents(tmp_path / "got") == contents(sent)
        with server.client() as admin:
            job, *_ = admin.get("/v1/jobs").json()["jobs"]
            listed = admin.get(f"/v1/jobs/{job['id']}/objects").json()["objects"]
            assert {one["destination"] for one in listed} == {f"guest://run7/{name}" for name in contents(sent)}
    finally:
        if server.process is not None:
            server.kill()
        store.stop()


#: Forwards connections from the first address to the second, until it is killed.
FORWARDER = """
import socket, sys, threading
def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    for each in (one, other):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
start, end = [(text.rpartition(":")[0], int(text.rpartition(":")[2])) for text in sys.argv[1:]]
with socket.create_server(start) as server:
    while True:
        one = server.accept()[0]
        try:
            other = socket.create_connection(end, 5)
        except OSError:
            one.close()
            continue
        other.settimeout(None)
        for pair in ((one, other), (other, one)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip")
def test_a_host_in_another_network_sends_although_it_is_cut_off(tmp_path: Path) -> None:
    """The host can dial out, and nobody can dial it. For longer than the service is patient it reaches nobody."""
    space, outer, inner = f"twg{os.getpid()}", f"twg{os.getpid()}o", f"twg{os.getpid()}i"
    here, there, port = "10.231.77.1", "10.231.77.2", 18_231
    inside = ["ip", "netns", "exec", space]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    folder = tmp_path / "service"
    server = Server(folder, "--site", f"dublin={folder / 'data'}", "--guest-address", here)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(48 << 20))
    forwarders: list[subprocess.Popen[bytes]] = []
    ip("netns", "add", space)
    try:
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
        ip("addr", "add", f"{here}/30", "dev", outer)
        ip("link", "set", outer, "up")
        for setting in (
            ("addr", "add", f"{there}/30", "dev", inner),
            ("link", "set", inner, "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run([*inside, "ip", *setting], check=True)
        server.start()
        # The client sends its token to a loopback address only.
        for enter, start, end in (
            ([], f"{here}:{port}", server.url[7:]),
            (inside, f"127.0.0.1:{port}", f"{here}:{port}"),
        ):
            forwarders.append(subprocess.Popen([*enter, sys.executable, "-c", FORWARDER, start, end]))
        words = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(large), "dublin:far"
        around = surroundings(server, tmp_path)
        url, server.url = server.url, f"http://127.0.0.1:{port}"
        client = subprocess.Popen([*inside, *command(server, *words)], stderr=subprocess.PIPE, text=True, env=around)
        server.url = url
        assert client.stderr is not None
        job_id = client.stderr.readline().split()[-1]
        with server.client() as admin:
            until_moved(admin, job_id, 10 << 20)
            ip("link", "set", outer, "down")
            time.sleep(20)
            ip("link", "set", outer, "up")
            said = client.communicate(timeout=120)[1]
            assert client.returncode == 0, said
            assert admin.get(f"/v1/jobs/{job_id}").json()["counts"]["bytes_earlier"] > 0
    finally:
        for forwarder in forwarders:
            forwarder.kill()
            forwarder.wait()
        if server.process is not None:
            server.kill()
        ip("netns", "delete", space)
    assert (server.data / "default" / "far").read_bytes() == large.read_bytes()
