"""`tradewind send` and `receive` of a host whose files the service cannot read: it joins the job with a gateway."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.s3 import S3
from testbed.servers import InstallError, versitygw
from tests.service.guest_hosts import (
    SLOW,
    begin,
    command,
    contents,
    some_files,
    surroundings,
    tradewind,
    until_moved,
    with_dublin,
)
from tests.service.server import Server, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_dublin(tmp_path_factory.mktemp("guests")) as server:
        yield server


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """A folder beyond what the service may read."""
    return some_files(tmp_path / "sent")


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
            (sent / "large").write_bytes(os.urandom(48 << 20))
            slow = "send", "--limit-rate", SLOW, "--chunk-size", "5MiB", str(sent), "lab:run8"
            sender, job_id = begin(server, tmp_path, *slow)
            until_moved(admin, job_id, 10 << 20)
            assert client.uploads("bucket")
            sender.kill()
            sender.communicate()
            admin.post(f"/v1/jobs/{job_id}/cancel")
            until(admin, job_id, "cancelled")
            assert not client.uploads("bucket")
    finally:
        if server.process is not None:
            server.kill()
        store.stop()
