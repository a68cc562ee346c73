"""Jobs of the service on machines of the operator's providers: SSH hosts, with the keys of the tenant's connections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.service.machine_world import (
    OBJECT_BYTES,
    OBJECTS,
    REGIONS,
    SLOW_BYTES_PER_S,
    World,
    body,
    check_charges,
    machine_lines,
    send,
    when_machines_move,
)
from tests.service.server import until
from tradewind.cli.send import _Shown
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.errors import DeadlineMissed, UsageError
from tradewind.fleet.given import AwsKey, GivenCredentials
from tradewind.model.goal import Deadline, MinThroughput
from tradewind.model.store import Access
from tradewind.service.machines import MachineRules, placed_request
from tradewind.service.quotes import COST_EXTRA_USD, COST_FACTOR

STORES: dict[str, Any] = {"source": "s3://a/x/", "destination": ["s3://b/y/"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("machines")
        yield World(
            folder,
            stack,
            "--share-keys",
            "--site",
            f"box={folder / 'data' / 'box'}",
            "--site",
            "store=connection:b/sent",
        )


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with world.server.client() as made:
        yield made


def test_a_quoted_job_runs_on_machines_with_the_keys_of_its_connections(world: World, client: httpx.Client) -> None:
    """The quote prices the machines, the ledger counts them, and the charges add up to it. Nothing is left."""
    made = client.post("/v1/quotes", json=body("quoted", max_cost_usd=1.5, via="fleet"))
    assert made.status_code == 201, made.text
    quote = made.json()
    assert quote["usd_micros"] > 0 and quote["rate_gbps"] > 0 and "2 machines" in quote["plan"], quote
    sent = client.post("/v1/jobs", json={"quote": quote["id"]}, headers={"Idempotency-Key": "quoted"}).json()
    done = until(client, sent["id"], "done")
    assert world.copied("quoted")
    lines = machine_lines(done)
    assert len(lines) == len(REGIONS) and all(line["usd"] > 0 and line["unit"] == "s" for line in lines), lines
    charges = client.get(f"/v1/jobs/{sent['id']}/receipt").json()["charges"]
    by_machine = [line["usd_micros"] for line in charges if line["what"].startswith("machine: ")]
    assert by_machine == [pytest.approx(line["usd"] * 1e6, abs=1) for line in lines]
    assert sum(line["usd_micros"] for line in charges) <= quote["usd_micros"]
    world.nothing_is_left(client)


def test_a_quoted_job_does_not_cost_much_more_than_its_price(world: World, client: httpx.Client) -> None:
    """Otherwise a tenant whose store is slow could use machines for days, for the price of a minute."""
    quote = client.post("/v1/quotes", json=body("bounded", max_cost_usd=1000.0, via="fleet")).json()
    predicted_usd = quote["usd_micros"] / 1e6
    sent = client.post("/v1/jobs", json={"quote": quote["id"]}, headers={"Idempotency-Key": "bounded"}).json()
    assert sent["request"]["max_cost_usd"] < 1000.0
    until(client, sent["id"], "done")
    most_usd = max(predicted_usd * COST_FACTOR, predicted_usd + COST_EXTRA_USD)
    ceiling = client.get(f"/v1/jobs/{sent['id']}/receipt").json()["ceiling"]
    assert ceiling["usd"] == pytest.approx(most_usd, abs=2e-5)
    assert ceiling["usd"] == sent["request"]["max_cost_usd"]


def test_a_quote_promises_no_more_than_the_limits_allow(world: World, client: httpx.Client) -> None:
    """A goal beyond the limit is refused. The job of a quote within it runs."""
    link = f"{REGIONS[0]}>{REGIONS[1]}"
    free_gbps = client.post("/v1/quotes", json=body("free", via="fleet")).json()["rate_gbps"]
    limit = {"kind": "link", "name": link, "rate_gbps": free_gbps / 2}
    assert client.put("/v1/limits", json={"limits": [limit]}).status_code == 200
    closed = ({"kind": "link", "name": f"{REGIONS[1]}>{REGIONS[0]}"}, {"kind": "site", "name": "site:other"})
    bans = [client.post("/v1/bans", json={**one, "reason": "drill"}).json()["id"] for one in closed]
    try:
        made = client.post("/v1/quotes", json=body("limited", via="fleet")).json()
        assert made["rate_gbps"] == pytest.approx(free_gbps / 2, rel=0.01)
        refused = client.post("/v1/quotes", json=body("goal", via="fleet", min_throughput_gbps=free_gbps))
        assert refused.status_code == 409, refused.text
        sent = client.post("/v1/jobs", json={"quote": made["id"]}, headers={"Idempotency-Key": "limited"}).json()
        until(client, sent["id"], "done")
        assert "proposed again" not in world.server.log
    finally:
        client.put("/v1/limits", json={"limits": []})
        for ban in bans:
            client.delete(f"/v1/bans/{ban}")


def test_a_compressed_job_is_measured_and_charged_by_what_was_sent(world: World, client: httpx.Client) -> None:
    """Routes and chunk size are as asked, in the quote and in the job. The tariff prices the bytes that were sent."""
    price = [{"from_quantity": 0, "usd_micros_per_unit": 1_000_000_000}]
    with world.server.client() as admin:
        assert admin.put("/v1/tariffs", json={"tariffs": [{"name": "base", "unit": "GB", "tiers": price}]}).is_success
    asked: dict[str, Any] = {"routes": 1, "compression": "zstd", "chunk_bytes": 8 << 20, "via": "fleet"}
    asked["deduplication"] = True
    made = client.post("/v1/quotes", json={**body("packed", **asked), "source": "connection:a/text/"})
    assert made.status_code == 201, made.text
    assert made.json()["routes"] == 1
    sent = client.post("/v1/jobs", json={"quote": made.json()["id"]}, headers={"Idempotency-Key": "packed"}).json()
    with world.server.client() as admin:
        assert admin.put("/v1/tariffs", json={"tariffs": []}).is_success
    assert {name: sent["request"][name] for name in asked} == asked
    done = until(client, sent["id"], "done")
    assert world.copied("packed", "text")
    found, kept = done["compression"], done["deduplication"]
    assert (done["routes"], found["codec"], kept["carried_bytes"]) == (1, "zstd", done["counts"]["bytes_done"])
    assert 0 < kept["ratio"] == kept["sent_bytes"] / kept["carried_bytes"] <= 1
    assert found["carried_bytes"] == kept["sent_bytes"]
    assert found["ratio"] == found["sent_bytes"] / found["carried_bytes"] < 0.7
    receipt = client.get(f"/v1/jobs/{sent['id']}/receipt").json()
    assert (receipt["routes"], receipt["compression"], receipt["deduplication"]) == (1, found, kept)
    (tariff,) = [line["usd_micros"] for line in receipt["charges"] if line["what"].startswith("service: ")]
    assert tariff == pytest.approx(found["sent_bytes"], abs=1)
    world.nothing_is_left(client)


def test_a_place_of_a_connection_is_sent_to_a_site(world: World) -> None:
    """The site is a local folder, so the job runs on the server's own machine, and has no routes."""
    words = ("send", "--service", world.server.url, "connection:a/text/")
    own = {**os.environ, "TRADEWIND_SERVICE_TOKEN": world.server.admin_token()}

    def send_to(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tradewind.cli.main", *words, f"box:{name}", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=own, check=False)

    refused = send_to("x", "--routes", "2")
    assert refused.returncode == 2 and "routes: machines copy between stores, and " in refused.stderr, refused.stderr
    done = send_to("run7", "--compress", "auto", "--json")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert (job["routes"], job["compression"]["ratio"]) == (None, 1.0)
    folder = world.server.data / "box" / "default" / "run7"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        str(number): world.clients[0].get("bucket", f"text/{number}") for number in range(OBJECTS)
    }


def test_the_options_of_send_reach_the_machines(world: World, client: httpx.Client) -> None:
    """The site is in a connection of the tenant, so the job runs on machines. Both ways are the real commands."""
    own = {**os.environ, "TRADEWIND_SERVICE_TOKEN": world.server.admin_token()}

    def carried(*words: str) -> dict[str, Any]:
        options = (
            "--service",
            world.server.url,
            "--routes",
            "2",
            "--chunk-size",
            "8MiB",
            "--deadline",
            "10m",
            "--json",
        )
        command = [sys.executable, "-m", "tradewind.cli.main", words[0], *options, *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=own, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    for words in (("send", "connection:a/text/", "store:run7"), ("receive", "store:run7", "connection:a/back/")):
        job = carried(*words)
        asked = {name: job["request"][name] for name in ("routes", "chunk_bytes", "deadline_s")}
        assert asked == {"routes": 2, "chunk_bytes": 8 << 20, "deadline_s": 600.0}
        assert job["routes"] == 1, "each region has one machine"
        assert len(machine_lines(job)) == len(REGIONS)
    assert world.copied("sent/run7", "text")
    for number in range(OBJECTS):
        assert world.clients[0].get("bucket", f"back/{number}") == world.clients[0].get("bucket", f"text/{number}")
    world.nothing_is_left(client)


def test_the_operator_bounds_jobs(world: World, client: httpx.Client) -> None:
    local = {"source": str(world.server.data), "destination": "connection:b/x/", "recursive": True, "via": "fleet"}
    for wrong, why in (
        (body("x", via="here", max_cost_usd=1.0), "max_cost_usd: this job rents no machines"),
        (body("x", via="here", routes=2), "routes: this job rents no machines"),
        (body("x", via="here", deadline_s=60), "deadline_s: this job rents no machines"),
        (
            {**local, "via": None, "min_throughput_gbps": 1},
            f"min_throughput_gbps: machines copy between stores, and {world.server.data} is a local path",
        ),
        (body("x", via="here", deduplication=True), "deduplication: this job rents no machines"),
        (
            {**local, "via": None, "compression": "lz4"},
            f"compression: machines copy between stores, and {world.server.data} is a local path",
        ),
        (local, f"via fleet: machines copy between stores, and {world.server.data} is a local path"),
    ):
        refused = client.post("/v1/jobs", json=wrong, headers={"Idempotency-Key": "x"})
        assert (refused.status_code, refused.json()["detail"]) == (422, why), refused.text
    dear = client.post("/v1/quotes", json=body("dear", max_cost_usd=0.000001, via="fleet"))
    assert dear.status_code == 409 and " is not enough: the cheapest plan costs $" in dear.json()["detail"]
    two = client.post("/v1/quotes", json=body("two", deadline_s=60, min_throughput_gbps=1))
    assert two.status_code == 422 and "one goal at a time" in two.text


def test_a_goal_chooses_the_plan(world: World, client: httpx.Client) -> None:
    """A quote in time is made, with the goal in the request; neither an impossible one, nor one above the ceiling."""
    made = client.post("/v1/quotes", json=body("goal", deadline_s=3600, via="fleet"))
    assert made.status_code == 201, made.text
    assert "2 machines" in made.json()["plan"]
    sent = client.post("/v1/jobs", json={"quote": made.json()["id"]}, headers={"Idempotency-Key": "goal"}).json()
    assert sent["request"]["deadline_s"] == 3600
    done = until(client, sent["id"], "done")
    assert done["deadline"]["kept"] is True and done["error"] is None
    # A deadline of a second, the shortest, can be met by machines that have learned to start fast.
    refused = client.post("/v1/quotes", json=body("x", via="auto", min_throughput_gbps=9999))
    assert refused.status_code == 409, refused.text
    poor = client.post("/v1/quotes", json=body("poor", max_cost_usd=0.000001, deadline_s=3600, via="fleet"))
    assert poor.status_code == 409 and "more than the ceiling of $" in poor.json()["detail"], poor.text
    world.nothing_is_left(client)


def test_a_late_job_is_done_and_says_so(world: World, client: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator lowers the limit after the quote: everything is copied, after the deadline."""
    # Machines of a busy host have learned to start slowly, so it may refuse the shorter ones.
    for deadline_s in (8, 16, 32):
        made = client.post("/v1/quotes", json=body("late", deadline_s=deadline_s, via="fleet"))
        if made.status_code == 201:
            break
    assert made.status_code == 201, made.text
    rate_gbps = OBJECTS * OBJECT_BYTES * 8e-9 / (deadline_s * 1.25)
    limit = {"kind": "link", "name": f"{REGIONS[0]}>{REGIONS[1]}", "rate_gbps": rate_gbps}
    assert client.put("/v1/limits", json={"limits": [limit]}).status_code == 200
    try:
        key = {"Idempotency-Key": "late"}
        job_id = client.post("/v1/jobs", json={"quote": made.json()["id"]}, headers=key).json()["id"]
        job = until(client, job_id, "done")
    finally:
        client.put("/v1/limits", json={"limits": []})
    assert world.copied("late")
    assert job["deadline"]["kept"] is False and job["deadline"]["took_s"] > job["deadline"]["deadline_s"] == deadline_s
    assert f"after its deadline of {deadline_s}" in job["error"], job["error"]
    assert client.get(f"/v1/jobs/{job_id}/receipt").json()["deadline"] == job["deadline"]
    with pytest.raises(DeadlineMissed) as late:
        _Shown(Namespace(json=True, quiet=True)).end(job)
    assert late.value.exit_code == 9
    assert json.loads(capsys.readouterr().out) == job


def test_a_job_without_any_ceiling_rents_nothing() -> None:
    rules = MachineRules("fleet", machines_max=4)
    with pytest.raises(UsageError, match="a job that may rent machines needs a ceiling"):
        rules.via_of(STORES)
    assert rules.via_of({**STORES, "source": "/data"}) == rules.via_of({**STORES, "via": "here"}) == "here"
    assert rules.via_of({**STORES, "max_cost_usd": 1.0}) == "fleet"
    assert MachineRules("auto", usd_max=2.0).usd_of({**STORES, "max_cost_usd": 5.0}) == 2.0
    assert rules.machines_of({**STORES, "max_vms": 2}) == 2
    assert MachineRules().via_of(STORES) == "here"
    with pytest.raises(UsageError, match="the operator rents no machines for jobs"):
        MachineRules().via_of({**STORES, "via": "auto"})


def test_a_goal_is_that_of_the_plan_and_is_never_dropped() -> None:
    rules, request = MachineRules("auto", usd_max=1.0), Request("s3://a/x/", ("s3://b/y/",))
    for given, goal in (({"deadline_s": 60.0}, Deadline(60.0)), ({"min_throughput_gbps": 2.0}, MinThroughput(2.0))):
        placed = placed_request(request, {**STORES, **given}, rules)
        assert (placed.goal, placed.ceiling_usd) == (goal, 1.0)
        key = GivenCredentials({"a": AwsKey("id", "secret")})
        reached = Options(source=Access("http://127.0.0.1:1", None, "a", is_given=True))
        with pytest.raises(UsageError, match="a goal needs machines: the keys of the connection to s3://a"):
            placed_request(Request("s3://a/x/", ("s3://b/y/",), reached), {**STORES, **given}, rules, key)


def test_keys_that_machines_may_not_get_are_refused_in_one_sentence() -> None:
    """A compatible server has no token service. With `auto` such a job runs on the server's own machine."""
    key = GivenCredentials({"a": AwsKey("id", "secret"), "b": AwsKey("id", "secret", "token")})
    given = [Access("http://127.0.0.1:1" if name == "a" else None, None, name, is_given=True) for name in "ab"]
    rules = MachineRules("auto", usd_max=1.0)
    for source, end, place in ((given[0], Access(), "s3://a"), (Access(), given[1], "s3://b")):
        request = Request("s3://a/x/", ("s3://b/y/",), Options(source=source, destination=end))
        with pytest.raises(UsageError, match=f"the keys of the connection to {place} cannot be limited to this job"):
            placed_request(request, {**STORES, "via": "fleet"}, rules, key)
        assert placed_request(request, STORES, rules, key) is request


@pytest.mark.parametrize(
    ("given", "is_limited"), [(GivenCredentials(azure_key="a2V5"), True), (GivenCredentials(azure_sas="sv=1"), False)]
)
def test_an_account_key_of_azure_is_limited_and_a_signature_is_not(given: GivenCredentials, is_limited: bool) -> None:
    access = Access(is_given=True)
    request = Request("az://a/c/x/", ("az://a/c/y/",), Options(source=access, destination=access))
    placed = placed_request(request, STORES, MachineRules("auto", usd_max=1.0), given)
    assert (placed is not request) == is_limited


@pytest.mark.slow
def test_cancel_and_pause_end_the_machines(world: World, client: httpx.Client) -> None:
    """The ledger shows the machines while they run."""
    job_id = send(client, "stopped", limit_bytes_per_s=SLOW_BYTES_PER_S)
    live = when_machines_move(world, client, job_id)
    assert all(line["usd"] > 0 for line in machine_lines(live))
    assert client.post(f"/v1/jobs/{job_id}/pause").status_code == 202
    until(client, job_id, "paused")
    world.nothing_is_left(client)
    assert client.post(f"/v1/jobs/{job_id}/resume").status_code == 202
    until(client, job_id, "running")
    when_machines_move(world, client, job_id)
    assert client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    until(client, job_id, "cancelled")
    world.nothing_is_left(client)
    check_charges(client, job_id)
