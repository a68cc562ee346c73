"""Folders of tenants: jobs reach only those of their own tenant, and the server names the places that all share."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.server import Server, eventually, submit, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("places"))
    server.allowed = [str(server.data / "{tenant}")]
    for tenant in ("lab", "other"):
        (server.data / tenant / "in").mkdir(parents=True)
        (server.data / tenant / "in" / "secret").write_text(tenant)
    (server.data / "lab" / "link").symlink_to(server.data / "other")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def lab(server: Server) -> Iterator[httpx.Client]:
    with server.client() as admin:
        for tenant in ("lab", "other"):
            assert admin.post("/v1/tenants", json={"name": tenant}).status_code == 201
        token = admin.post("/v1/tokens", json={"tenant": "lab", "role": "tenant_admin"}).json()["token"]
    with server.client(token) as client:
        yield client


def test_a_job_copies_within_its_tenants_folder(server: Server, lab: httpx.Client) -> None:
    folder = server.data / "lab"
    job = submit(lab, "own", folder / "in", folder / "copy", recursive=True)
    assert job.status_code == 201, job.text
    until(lab, job.json()["id"], "done")
    assert (folder / "copy" / "secret").read_text() == "lab"


@pytest.mark.parametrize("path", ["other/in", "lab/link/in", "lab/../other/in", "", "*", "lab/l*/../../other/in"])
@pytest.mark.parametrize("kind", ["jobs", "quotes", "schedules"])
def test_the_folder_of_another_tenant_is_refused(server: Server, lab: httpx.Client, path: str, kind: str) -> None:
    own, foreign = str(server.data / "lab" / "x"), f"{server.data}/{path}"
    for source, destination in ((foreign, own), (own, foreign)):
        job = {"source": source, "destination": destination, "recursive": True}
        body = {"job": job, "cron": "0 0 * * *"} if kind == "schedules" else job
        answer = lab.post(f"/v1/{kind}", json=body, headers={"Idempotency-Key": f"{path}-{destination == own}"})
        assert answer.status_code == 422, answer.text
        assert "not below an allowed folder" in answer.json()["detail"]


@pytest.mark.parametrize("swapped", ["source", "target"])
def test_a_folder_that_becomes_a_link_while_the_job_runs_leads_nowhere(
    server: Server, lab: httpx.Client, swapped: str
) -> None:
    """Its owner may have a login on the host."""
    own, foreign = (server.data / tenant / f"swap {swapped}" for tenant in ("lab", "other"))
    for folder in (own, foreign):
        (folder / "source" / "in").mkdir(parents=True)
        (folder / "target" / "copy").mkdir(parents=True)
        for number in range(20):
            (folder / "source" / "in" / f"{number:02}").write_bytes(folder.parent.name.encode() * 50_000)
    copy, options = own / "target" / "copy", {"recursive": True, "limit_bytes_per_s": 150_000}
    job_id = submit(lab, swapped, own / "source" / "in", copy, **options).json()["id"]
    eventually(lambda: len(list(copy.iterdir())) > 2)
    (own / swapped).rename(own / "moved")
    (own / swapped).symlink_to(foreign / swapped)
    failed = until(lab, job_id, "failed")
    assert failed["error"].endswith(" of 20 objects failed"), failed
    assert list((foreign / "target" / "copy").iterdir()) == []
    arrived = list((own / ("moved" if swapped == "target" else "target") / "copy").iterdir())
    assert arrived and all(b"other" not in one.read_bytes() for one in arrived)


def test_nothing_is_shared_so_nothing_is_said(server: Server, lab: httpx.Client) -> None:
    assert lab.get("/v1/me").json()["tenant"] == "lab"
    assert "all" not in server.log


def test_the_server_says_once_that_tenants_share_a_place(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    said = f"jobs of all 2 tenants may use {server.data}; with {{tenant}} in a place, each tenant has a part of its own"
    try:
        assert "tenants" not in server.log, "a single tenant shares with nobody"
        with server.client() as admin:
            for name in ("lab", "other"):
                assert admin.post("/v1/tenants", json={"name": name}).status_code == 201
        assert server.log.count("may use") == 1
        assert said in server.log
        server.kill()
        server.start()
        assert server.log.count("may use") == 2
        assert said.replace("2", "3", 1) in server.log
    finally:
        server.kill()
