"""Views of operators on links and fleets: limits, bans, load, machines and cost, in a real server."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.service.server import Server, submit, until
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.warm import Keeping, WarmBook, WarmMachine

LOCAL = "site:local>site:local"
SLOW = {"recursive": True, "limit_bytes_per_s": 200_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("views"))
    (server.data / "source").mkdir()
    for number in range(40):
        (server.data / "source" / f"{number}").write_bytes(os.urandom(100_000))
    server.start()
    yield server
    server.kill()


def test_links_have_their_limits_bans_and_load(server: Server) -> None:
    with server.client() as admin:
        assert admin.get("/v1/links").json() == {"links": [], "next": None}
        limits = [{"kind": "link", "name": name, "active": 4, "rate_gbps": 2.0} for name in (LOCAL, "a:1>a:2")]
        assert admin.put("/v1/limits", json={"limits": limits}).status_code == 200
        ban = {"kind": "link", "name": "b:1>b:2", "reason": "a cut cable"}
        banned = admin.post("/v1/bans", json=ban).json()
        job = submit(admin, "k", server.data / "source", server.data / "copy", **SLOW).json()["id"]
        until(admin, job, "running")
        first = admin.get("/v1/links", params={"limit": 2}).json()
        assert [link["name"] for link in first["links"]] == ["a:1>a:2", "b:1>b:2"]
        assert first["links"][0]["load"] == {"jobs": 0, "rate_gbps": 0.0}
        assert first["links"][1] == {
            "name": "b:1>b:2",
            "src": "b:1",
            "dst": "b:2",
            "known_gbps": None,
            "limit": None,
            "bans": [banned],
            "load": {"jobs": 0, "rate_gbps": 0.0},
            "utilisation": 0.0,
            "tuning": None,
        }
        last = admin.get("/v1/links", params={"cursor": first["next"]}).json()
        assert last["next"] is None
        (local,) = last["links"]
        assert local["limit"] == {"active": 4, "rate_gbps": 2.0, "usd_per_day": None}
        assert local["load"] == {"jobs": 1, "rate_gbps": pytest.approx(0.0016)}
        admin.post(f"/v1/jobs/{job}/cancel")
        until(admin, job, "cancelled")
        (local,) = admin.get("/v1/links", params={"cursor": first["next"]}).json()["links"]
        assert local["load"]["jobs"] == 0


def test_fleets_have_their_machines_jobs_and_cost(server: Server) -> None:
    # Fleets are listed by id, and those of one second in any order.
    journal, warm = FleetJournal(server.state / "engine"), "20260101-000000-0a1b2c3d"
    journal.open(warm, "warm", {"kind": "local"}, {"one": "site:a"})
    kept = {"one": WarmMachine("site:a", type="large", usd_per_s=0.5)}
    WarmBook(journal).keep(warm, Keeping(300, time.time() + 900, kept))
    with server.client() as admin:
        job = submit(admin, "f", server.data / "source", server.data / "second", **SLOW).json()["id"]
        until(admin, job, "running")
        deadline_s = time.monotonic() + 30
        # The machines of a job are there a moment before the job knows its run.
        while not (found := admin.get("/v1/fleets").json()["fleets"])[-1]["jobs"]:
            assert time.monotonic() < deadline_s, found
        first, second = found
        assert (first["id"], first["state"], first["jobs"], first["provider"]) == (warm, "in use", [], "local")
        assert first["cost_usd"] is not None
        (machine,) = first["machines"]
        assert (machine["name"], machine["type"], machine["usd_per_hour"]) == ("one", "large", 1800.0)
        assert (second["state"], second["jobs"]) == ("in use", [job])
        assert not second["cost_usd"], "this machine is free"
        assert second["machines"] == [], "the job runs on the server's own machine"
        page = admin.get("/v1/fleets", params={"limit": 1}).json()
        assert ([one["id"] for one in page["fleets"]], page["next"]) == ([warm], warm)
        admin.post(f"/v1/jobs/{job}/cancel")
        until(admin, job, "cancelled")
        assert admin.get("/v1/fleets", params={"cursor": warm}).json()["next"] is None
