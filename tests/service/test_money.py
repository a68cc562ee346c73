"""Money on a real server: quotes, budgets, tariffs, invoices and signed receipts."""

import csv
import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.service.soak.world import stepped_clock
from testbed.loopback import Answer, LoopbackServer
from tests.service.server import Server, get, submit, until

BYTES = 300_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("money"), "--jobs", "8")
    (server.data / "source").mkdir()
    for number in range(3):
        (server.data / "source" / f"{number}").write_bytes(os.urandom(BYTES // 3))
    server.start()
    with server.client() as admin:
        price = {"from_quantity": 0, "usd_micros_per_unit": 10_000_000}
        tariff = {"name": "base", "unit": "GB", "tiers": [price]}
        assert admin.put("/v1/tariffs", json={"tariffs": [tariff]}).status_code == 200
    yield server
    server.kill()


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def tenant_of(server: Server, admin: httpx.Client, name: str, limit_usd_micros: int | None = None) -> httpx.Client:
    assert admin.post("/v1/tenants", json={"name": name}).status_code == 201
    if limit_usd_micros is not None:
        limit = {"limit_usd_micros": limit_usd_micros}
        assert admin.put(f"/v1/tenants/{name}/budget", json=limit).status_code == 200
    made = admin.post("/v1/tokens", json={"tenant": name, "role": "tenant_admin"})
    return server.client(made.json()["token"])


def quote(client: httpx.Client, server: Server, to: str, **others: Any) -> dict[str, Any]:
    body = {"source": str(server.data / "source"), "destination": str(server.data / to), "recursive": True, **others}
    made = client.post("/v1/quotes", json=body)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def accept(client: httpx.Client, quote_id: str, key: str) -> httpx.Response:
    return client.post("/v1/jobs", json={"quote": quote_id}, headers={"Idempotency-Key": key})


def test_a_job_is_charged_what_its_quote_said(server: Server, admin: httpx.Client) -> None:
    with tenant_of(server, admin, "lab", 10_000) as lab:
        made = quote(lab, server, "quoted")
        assert (made["objects"], made["volume_bytes"], made["usd_micros"]) == (3, BYTES, 3_000)
        assert not (server.data / "quoted").exists()
        dear = {"name": "dear", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 90_000_000}]}
        before = admin.get("/v1/tariffs").json()
        assert admin.put("/v1/tariffs", json={"tariffs": [dear]}).status_code == 200
        job_id = accept(lab, made["id"], "k").json()["id"]
        assert lab.get("/v1/tenants/lab/budget").json()["left_usd_micros"] == 7_000
        assert until(lab, job_id, "done")["quote_usd_micros"] == 3_000
        assert admin.put("/v1/tariffs", json=before).status_code == 200
        budget = lab.get("/v1/tenants/lab/budget").json()
        assert (budget["spent_usd_micros"], budget["reserved_usd_micros"]) == (3_000, 0)
        charges = lab.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
        assert sum(line["usd_micros"] for line in charges) == 3_000
        assert charges[0]["what"] == "service: dear, site:local → site:local"
        assert charges[1] == {"what": f"price kept by quote {made['id']}", "usd_micros": 3_000 - 27_000}
        assert accept(lab, made["id"], "k").status_code == 200
        used = accept(lab, made["id"], "k2")
        assert (used.status_code, used.json()["detail"]) == (409, f"quote {made['id']} was used by job {job_id}")
        assert lab.get(f"/v1/quotes/{made['id']}").json()["job"] == job_id
        assert admin.get(f"/v1/quotes/{made['id']}").status_code == 404


def test_a_quote_by_utilisation_is_kept_within_its_bounds(server: Server, admin: httpx.Client) -> None:
    before = admin.get("/v1/tariffs").json()
    tier = {"from_quantity": 0, "usd_micros_per_unit": 10_000_000, "usd_micros_per_unit_max": 30_000_000}
    by_load = {"tariffs": [{"name": "load", "unit": "GB", "tiers": [tier]}]}
    assert admin.put("/v1/tariffs", json=by_load).json()["tariffs"][0]["tiers"] == [tier]
    try:
        with tenant_of(server, admin, "loaded", 1_000_000) as lab:
            prices = []
            for number, share in enumerate((0.0, 0.2, 0.5, 0.7, 0.88, 3.0)):
                set_utilisation(server, "link", "site:local>site:local", share)
                prices.append(quote(lab, server, f"load{number}")["usd_micros"])
            assert prices == sorted(prices)
            assert (prices[0], prices[-1]) == (BYTES // 100, 3 * BYTES // 100)
            assert prices[0] < prices[2] < prices[3] < prices[-1]
            dear = quote(lab, server, "kept")
            (line,) = (line for line in dear["lines"] if line["what"].startswith("service:"))
            assert line["what"] == "service: load, site:local → site:local, at 100% utilisation"
            set_utilisation(server, "link", "site:local>site:local", 0.0)
            cheap = quote(lab, server, "cheap")
            job_id = accept(lab, dear["id"], "kept").json()["id"]
            assert until(lab, job_id, "done")["quote_usd_micros"] == prices[-1]
            assert lab.get(f"/v1/jobs/{job_id}/receipt").json()["charges"] == [line]
            set_utilisation(server, "link", "site:local>site:local", 1.0)
            job_id = accept(lab, cheap["id"], "cheap").json()["id"]
            until(lab, job_id, "done")
            charges = lab.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
            assert [one["usd_micros"] for one in charges] == [prices[0]]
            month = lab.get("/v1/invoices").json()["invoices"][0]["id"]
            invoice = lab.get(f"/v1/invoices/{month}").json()
            assert sum(one["usd_micros"] for one in invoice["lines"]) == prices[0] + prices[-1]
        # A job without a quote has the price of the time of its submission.
        set_utilisation(server, "link", "site:local>site:local", 0.0)
        set_utilisation(server, "site", "servers", 0.95)
        job_id = submit(admin, "by-servers", server.data / "source", server.data / "unquoted", recursive=True).json()[
            "id"
        ]
        set_utilisation(server, "site", "servers", 0.0)
        until(admin, job_id, "done")
        charges = admin.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
        assert [one["usd_micros"] for one in charges] == [3 * BYTES // 100]
    finally:
        assert admin.put("/v1/tariffs", json=before).status_code == 200


def set_utilisation(server: Server, kind: str, name: str, share: float) -> None:
    with closing(sqlite3.connect(server.state / "service.sqlite", timeout=60)) as database, database:
        database.execute("DELETE FROM utilisations WHERE kind = ? AND name = ?", (kind, name))
        row = (kind, name, share, now_ms())
        database.execute("INSERT INTO utilisations (kind, name, share, at_unix_ms) VALUES (?, ?, ?, ?)", row)


def test_an_expired_quote_is_gone(server: Server, admin: httpx.Client) -> None:
    made = quote(admin, server, "expired", kept_s=1)
    while made["expires_unix_ms"] >= now_ms():
        time.sleep(0.05)
    refused = accept(admin, made["id"], "expired")
    assert (refused.status_code, refused.json()["detail"]) == (410, f"quote {made['id']} has expired")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_quoted_job_stops_when_its_source_has_grown(server: Server, admin: httpx.Client) -> None:
    (server.data / "grows").mkdir()
    (server.data / "grows" / "a").write_bytes(b"x")
    made = quote(admin, server, "grown", source=str(server.data / "grows"))
    with (server.data / "grows" / "b").open("wb") as file:
        file.truncate(2 << 20)
    job_id = accept(admin, made["id"], "grown").json()["id"]
    job = until(admin, job_id, "failed")
    assert job["error"] == "the source has grown beyond its quote"


def test_a_budget_is_never_exceeded_by_concurrent_jobs(server: Server, admin: httpx.Client) -> None:
    with tenant_of(server, admin, "crowd", 10_000) as crowd:
        unquoted = submit(crowd, "unquoted", server.data / "source", server.data / "u", recursive=True)
        assert unquoted.status_code == 409
        assert "needs a quote" in unquoted.json()["detail"]
        ids = [quote(crowd, server, f"crowd{number}")["id"] for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda one: accept(crowd, one, one), ids))
        accepted = [answer.json()["id"] for answer in answers if answer.status_code == 201]
        refused = [answer for answer in answers if answer.status_code != 201]
        assert len(accepted) == 3
        assert {answer.status_code for answer in refused} == {402}
        assert "that is left of the budget" in refused[0].json()["detail"]
        for job_id in accepted:
            until(crowd, job_id, "done")
        budget = crowd.get("/v1/tenants/crowd/budget").json()
        assert (budget["spent_usd_micros"], budget["left_usd_micros"]) == (9_000, 1_000)
        assert admin.put("/v1/tenants/crowd/budget", json={"limit_usd_micros": None}).status_code == 204
        assert crowd.get("/v1/tenants/crowd/budget").status_code == 404
        assert crowd.put("/v1/tenants/crowd/budget", json={"limit_usd_micros": 1}).status_code == 403


def test_a_job_is_charged_for_what_it_moved_before_its_source_was_removed(server: Server, admin: httpx.Client) -> None:
    source, there = server.data / "removed", server.data / "removed-copy"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02}").write_bytes(bytes(100_000))
    slow = {"recursive": True, "limit_bytes_per_s": 1_000_000}
    job_id = submit(admin, "removed", source, there, **slow).json()["id"]
    while not there.exists() or len(list(there.glob("[0-9]*"))) < 5:
        time.sleep(0.02)
    assert admin.post(f"/v1/jobs/{job_id}/pause").status_code == 202
    until(admin, job_id, "paused")
    source.rename(server.data / "elsewhere")
    moved_bytes = sum(path.stat().st_size for path in there.iterdir())
    charges = admin.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
    assert sum(line["usd_micros"] for line in charges) == moved_bytes // 100, "it may stay paused for ever"
    for _ in range(2):
        assert admin.post(f"/v1/jobs/{job_id}/resume").status_code == 202
        until(admin, job_id, "failed")
        charges = admin.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
        assert sum(line["usd_micros"] for line in charges) == moved_bytes // 100


def test_a_job_pays_for_each_byte_once_although_its_journal_was_lost_and_unreadable(
    server: Server, admin: httpx.Client
) -> None:
    """Each run loses its journal, so the next one moves the same bytes again. The second is charged without a journal,
    as on a disk that fails.
    """
    source, there, sizes = server.data / "again", server.data / "again-copy", [100_000] * 6
    source.mkdir()
    for number, size in enumerate(sizes):
        (source / f"{number}").write_bytes(os.urandom(size))
    slow = {"recursive": True, "limit_bytes_per_s": 100_000}
    job_id = submit(admin, "again", source, there, **slow).json()["id"]

    def written() -> set[int]:
        return {path.stat().st_ino for path in there.glob("[0-9]")}

    for is_readable in (True, False):
        before = written()
        while len(written() - before) <= len(sizes) / 2:
            time.sleep(0.02)
        journal = max((server.state / "engine" / "jobs").iterdir()) / "journal.sqlite"
        kept = journal.with_suffix(".kept")
        if not is_readable:
            journal.rename(kept)  # Its lead continues to write it.
            journal.write_text("no journal")
        assert admin.post(f"/v1/jobs/{job_id}/pause").status_code == 202
        until(admin, job_id, "paused")
        if not is_readable:
            kept.replace(journal)
        with closing(sqlite3.connect(journal)) as connection, connection:
            connection.execute("DELETE FROM done")
        assert admin.post(f"/v1/jobs/{job_id}/resume").status_code == 202
    until(admin, job_id, "done")
    receipt = admin.get(f"/v1/jobs/{job_id}/receipt").json()
    assert sum(run["moved_bytes"] for run in receipt["runs"]) > 2 * sum(sizes)
    assert sum(line["usd_micros"] for line in receipt["charges"]) == sum(sizes) // 100


def test_a_stepped_clock_of_the_server_does_not_change_what_the_time_of_a_run_costs(tmp_path: Path) -> None:
    clock, began_s = tmp_path / "clock", time.monotonic()
    clock.write_text("0")
    server = Server(tmp_path, **stepped_clock(clock))
    (server.data / "source").mkdir()
    for number in range(6):
        (server.data / "source" / f"{number}").write_bytes(os.urandom(100_000))
    server.start()
    try:
        with server.client() as client:
            price = {"name": "time", "unit": "hour", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 3_600_000}]}
            assert client.put("/v1/tariffs", json={"tariffs": [price]}).status_code == 200
            slow = {"recursive": True, "limit_bytes_per_s": 100_000}
            job_id = submit(client, "k", server.data / "source", server.data / "copy", **slow).json()["id"]
            while not list((server.data / "copy").glob("[0-9]")):
                time.sleep(0.02)
            clock.write_text("600")
            until(client, job_id, "done")
            charges = client.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
        assert 1_000 < sum(line["usd_micros"] for line in charges) < (time.monotonic() - began_s) * 1_000
    finally:
        server.kill()


def test_a_job_that_is_paused_while_it_waits_again_was_charged(server: Server, admin: httpx.Client) -> None:
    source, there = server.data / "stopped", server.data / "stopped-copy"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02}").write_bytes(bytes(100_000))
    # 10 s: also a busy host sees it run.
    job_id = submit(admin, "stopped", source, there, recursive=True, limit_bytes_per_s=200_000).json()["id"]
    while not there.exists() or len(list(there.glob("[0-9]*"))) < 2:
        time.sleep(0.02)
    closed = {"kind": "store-in", "name": "local", "reason": "a new disk", "stops_jobs": True}
    ban = admin.post("/v1/bans", json=closed).json()
    try:
        until(admin, job_id, "waiting")
        assert admin.post(f"/v1/jobs/{job_id}/pause").status_code == 202
    finally:
        assert admin.delete(f"/v1/bans/{ban['id']}").status_code == 204
    moved_bytes = sum(path.stat().st_size for path in there.iterdir())
    receipt = admin.get(f"/v1/jobs/{job_id}/receipt").json()
    assert admin.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    assert (receipt["state"], sum(line["usd_micros"] for line in receipt["charges"])) == ("paused", moved_bytes // 100)


def test_a_failed_job_without_a_quote_is_not_resumed_under_a_budget(server: Server, admin: httpx.Client) -> None:
    with tenant_of(server, admin, "late") as late:
        source = server.data / "late"
        job_id = submit(late, "late", source, server.data / "late2", recursive=True).json()["id"]
        until(late, job_id, "failed")
        source.mkdir()
        (source / "a").write_bytes(bytes(BYTES))
        assert admin.put("/v1/tenants/late/budget", json={"limit_usd_micros": 1}).status_code == 200
        refused = late.post(f"/v1/jobs/{job_id}/resume")
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            "the tenant has a budget: a job needs a quote",
        )
        assert late.get(f"/v1/jobs/{job_id}").json()["state"] == "failed"


def test_a_cancelled_job_releases_its_reservation(server: Server, admin: httpx.Client) -> None:
    with tenant_of(server, admin, "cancels", 5_000) as cancels:
        slow = quote(cancels, server, "cancelled", limit_bytes_per_s=1_000)
        job_id = accept(cancels, slow["id"], "slow").json()["id"]
        assert accept(cancels, quote(cancels, server, "other")["id"], "other").status_code == 402
        cancels.post(f"/v1/jobs/{job_id}/cancel")
        until(cancels, job_id, "cancelled")
        budget = cancels.get("/v1/tenants/cancels/budget").json()
        assert budget["reserved_usd_micros"] == 0
        assert budget["spent_usd_micros"] <= 3_000


def test_a_sync_is_charged_only_what_it_copies(server: Server, admin: httpx.Client) -> None:
    with tenant_of(server, admin, "syncs", 10_000) as syncs:
        for key, usd_micros in (("first", 3_000), ("second", 0)):
            made = quote(syncs, server, "synced", verb="sync")
            assert made["usd_micros"] == usd_micros
            until(syncs, accept(syncs, made["id"], key).json()["id"], "done")
        assert syncs.get("/v1/tenants/syncs/budget").json()["spent_usd_micros"] == 3_000


def test_invoices_add_up_to_the_cent(server: Server, admin: httpx.Client) -> None:
    with tenant_of(server, admin, "billed") as billed:
        for number in range(3):
            job = submit(billed, f"{number}", server.data / "source", server.data / f"b{number}", recursive=True)
            until(billed, job.json()["id"], "done")
        (entry,) = billed.get("/v1/invoices").json()["invoices"]
        assert not entry["final"]
        invoice = billed.get(f"/v1/invoices/{entry['id']}").json()
        assert sum(line["usd_micros"] for line in invoice["lines"]) == 9_000
        assert invoice["total_cents"] == sum(line["cents"] for line in invoice["lines"]) == 1
        table = billed.get(f"/v1/invoices/{entry['id']}", headers={"Accept": "text/csv"})
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert (rows[-1]["what"], rows[-1]["cents"], len(rows)) == ("total", "1", 4)
        assert billed.get("/v1/invoices/2020-01.billed").status_code == 404
        assert billed.get(f"/v1/invoices/{entry['month']}.default").status_code == 404
        assert billed.get("/v1/invoices", params={"tenant": "default"}).status_code == 404
        assert admin.get(f"/v1/invoices/{entry['id']}").json() == invoice


def test_receipts_are_verified_offline(server: Server, admin: httpx.Client, tmp_path: Path) -> None:
    job = submit(admin, "receipt", server.data / "source", server.data / "r", recursive=True).json()
    until(admin, job["id"], "done")
    receipt = admin.get(f"/v1/jobs/{job['id']}/receipt").json()
    assert receipt == admin.get(f"/v1/jobs/{job['id']}/receipt").json()
    assert stat.S_IMODE((server.state / "receipt.key").stat().st_mode) == 0o600
    assert sum(receipt["summary"]["proofs"].values()) == 3
    keys, files = get(f"{server.url}/v1/keys").json(), {}
    assert "d" not in keys["keys"][0]
    objects = admin.get(f"/v1/jobs/{job['id']}/objects.jsonl").text
    changed = {**receipt, "progress": {**receipt["progress"], "bytes_done": 1}}
    for name, content in (
        ("receipt", json.dumps(receipt)),
        ("pretty", json.dumps(receipt, indent=2, sort_keys=True)),
        ("changed", json.dumps(changed)),
        ("twice", '{"state": "failed", ' + json.dumps(receipt)[1:]),
        ("unsigned", json.dumps({**receipt, "signature": None})),
        ("keys", json.dumps(keys)),
        ("objects", objects),
        ("fewer", objects[:-1]),
    ):
        files[name] = tmp_path / name
        files[name].write_text(content)
    offline, online = ("--key", files["keys"]), ("--from", server.url)
    assert verify(files["receipt"], *offline, "--objects", files["objects"]) == (0, "")
    assert verify(files["pretty"], *online) == (0, "")
    code, message = verify(files["changed"], *offline)
    assert (code, message.split("\n")[0]) == (
        6,
        "error: the signature does not match: it was changed, or signed with another key",
    )
    assert verify(files["unsigned"], *offline)[0] == 6
    assert verify(files["twice"], *offline)[0] == 6
    assert verify(files["receipt"], *offline, "--objects", files["fewer"])[0] == 6
    assert verify(files["receipt"])[0] == 2
    assert verify(files["receipt"], "--key", files["objects"])[0] == 2
    code, message = verify(files["receipt"], "--from", "http://192.0.2.1")
    assert code == 2 and "the keys could be replaced on their way" in message
    redirecting = LoopbackServer(lambda received: Answer(302, headers={"Location": f"{server.url}{received.path}"}))
    code, message = verify(files["receipt"], "--from", redirecting.url)
    redirecting.close()
    assert code == 1 and message.startswith(f"error: {redirecting.url}/v1/keys: "), message


def verify(*words: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "tradewind.cli.main", "receipt", "verify", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_grid_has_sources_and_formats(admin: httpx.Client) -> None:
    page = admin.get("/v1/grid", params={"src": "aws:us-east-1", "limit": 2}).json()
    assert len(page["links"]) == 2
    assert all(link["src"] == "aws:us-east-1" and link["source"] for link in page["links"])
    assert all(0 <= link["confidence"] <= 1 for link in page["links"])
    following = admin.get("/v1/grid", params={"src": "aws:us-east-1", "limit": 2, "cursor": page["next"]}).json()
    assert following["links"][0]["dst"] > page["links"][1]["dst"]
    table = admin.get("/v1/grid", params={"src": "aws:us-east-1"}, headers={"Accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert rows[0]["dst"] == page["links"][0]["dst"]
    assert float(rows[0]["gbps"]) == page["links"][0]["gbps"]
    parquet = pytest.importorskip("pyarrow.parquet")
    file = admin.get("/v1/grid", params={"src": "aws:us-east-1", "format": "parquet"})
    assert parquet.read_table(io.BytesIO(file.content)).num_rows == len(rows)


def test_the_history_of_the_grid_is_a_table_of_its_own(admin: httpx.Client) -> None:
    table = admin.get("/v1/grid", params={"history": True, "format": "csv"})
    assert table.text.splitlines()[0] == "src,dst,date,gbps,at_least"
    parquet = pytest.importorskip("pyarrow.parquet")
    file = admin.get("/v1/grid", params={"history": True, "format": "parquet"})
    found = parquet.read_table(io.BytesIO(file.content))
    assert found.column_names == table.text.splitlines()[0].split(",")
    assert found.num_rows == len(table.text.splitlines()) - 1


def test_the_market_has_a_price_now(admin: httpx.Client) -> None:
    found = admin.get("/v1/market").json()
    bounds = found["margins"][5]["usd_per_hour"]
    assert bounds[0] <= found["now"]["usd_per_hour"] <= bounds[1]
    empty = admin.get("/v1/market", params={"extra_nodes": 3}).json()
    assert empty["now"]["usd_per_hour"] is None


def test_the_energy_of_a_month_is_that_of_its_jobs(server: Server, admin: httpx.Client) -> None:
    before = admin.get("/v1/market/energy").json()
    with tenant_of(server, admin, "warm") as warm:
        job_id = submit(warm, "warm", server.data / "source", server.data / "warm", recursive=True).json()["id"]
        until(warm, job_id, "done")
        assert warm.get("/v1/market/energy").status_code == 403
    now = admin.get("/v1/market/energy", params={"service_nodes": 0}).json()
    assert now["month"] == time.strftime("%Y-%m", time.gmtime()) and not now["final"]
    assert now["transfers"] > before["transfers"]
    assert 0 < now["busy_hours"] <= now["transfer_hours"]
    assert now["service_kwh"] == pytest.approx(now["transfer_hours"] * 2 * 0.2025)
    assert now["ratio"] == pytest.approx(7 / (2 * 1.2))
    past = admin.get("/v1/market/energy", params={"month": "2001-02", "service_nodes": 1}).json()
    assert past["final"] and past["ratio"] is None
    assert past["idle_kwh"] == pytest.approx(28 * 24 * 0.2025)


def test_a_tier_that_costs_nothing_counts_towards_the_next_one(server: Server, admin: httpx.Client) -> None:
    before = admin.get("/v1/tariffs").json()
    tiers = [
        {"from_quantity": 0, "usd_micros_per_unit": 0},
        {"from_quantity": 1, "usd_micros_per_unit": 10_000_000},
    ]
    free = {"name": "free", "unit": "GB", "tiers": tiers}
    assert admin.put("/v1/tariffs", json={"tariffs": [free]}).status_code == 200
    with tenant_of(server, admin, "starts") as starts:
        job_id = submit(starts, "free", server.data / "source", server.data / "free", recursive=True).json()["id"]
        until(starts, job_id, "done")
        what = "service: free, site:local → site:local"
        assert starts.get(f"/v1/jobs/{job_id}/receipt").json()["charges"] == [{"what": what, "usd_micros": 0}]
    with closing(sqlite3.connect(server.state / "service.sqlite")) as database:
        assert database.execute("SELECT volume_bytes FROM charges WHERE job = ?", (job_id,)).fetchall() == [(BYTES,)]
    assert admin.put("/v1/tariffs", json=before).status_code == 200


def test_a_job_without_a_price_counts_towards_tiers(server: Server, admin: httpx.Client) -> None:
    before = admin.get("/v1/tariffs").json()
    assert admin.put("/v1/tariffs", json={"tariffs": []}).status_code == 200
    with tenant_of(server, admin, "early") as early:
        job_id = submit(early, "free", server.data / "source", server.data / "early", recursive=True).json()["id"]
        until(early, job_id, "done")
        charged = early.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
        assert charged == [{"what": "transfer without a price", "usd_micros": 0}]
        month = early.get("/v1/invoices").json()["invoices"][0]["id"]
        assert early.get(f"/v1/invoices/{month}").json()["total_cents"] == 0
    with closing(sqlite3.connect(server.state / "service.sqlite")) as database:
        assert database.execute("SELECT volume_bytes FROM charges WHERE job = ?", (job_id,)).fetchall() == [(BYTES,)]
    assert admin.put("/v1/tariffs", json=before).status_code == 200


def test_a_price_list_holds_although_the_clock_is_set_back(server: Server, admin: httpx.Client) -> None:
    before = admin.get("/v1/tariffs").json()
    with closing(sqlite3.connect(server.state / "service.sqlite")) as database, database:
        database.execute("UPDATE tariffs SET set_unix_ms = set_unix_ms + 600000")
    assert admin.get("/v1/tariffs").json() == before
    assert quote(admin, server, "back")["usd_micros"] == 3_000
    job_id = submit(admin, "back", server.data / "source", server.data / "back", recursive=True).json()["id"]
    until(admin, job_id, "done")
    charges = admin.get(f"/v1/jobs/{job_id}/receipt").json()["charges"]
    assert sum(line["usd_micros"] for line in charges) == 3_000
    assert admin.put("/v1/tariffs", json=before).status_code == 200


def test_a_price_that_no_database_can_keep_is_refused(server: Server, admin: httpx.Client) -> None:
    before = admin.get("/v1/tariffs").json()

    def priced(micros: int) -> int:
        tier = {"from_quantity": 0, "usd_micros_per_unit": micros}
        tariff = {"name": "dear", "unit": "GB", "tiers": [tier]}
        return admin.put("/v1/tariffs", json={"tariffs": [tariff]}).status_code

    assert [priced(micros) for micros in (10**9 + 1, 10**15)] == [422, 422]
    assert priced(10**9) == 200
    body = {"source": "guest://me", "destination": str(server.data / "dear"), "source_bytes": 1 << 62}
    refused = admin.post("/v1/quotes", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (409, "the price is above $1,000,000,000"), refused.text
    assert admin.post("/v1/quotes", json={**body, "source_bytes": 10**15}).status_code == 201
    assert admin.put("/v1/tariffs", json=before).json() == before
    assert "Traceback" not in server.log


def test_volumes_and_amounts_that_overflow_a_sum_stop_no_job(server: Server, admin: httpx.Client) -> None:
    """Earlier versions kept any volume that a host stated. Jobs that cannot be charged would keep their places."""
    with tenant_of(server, admin, "vast") as vast:
        first = submit(vast, "first", server.data / "source", server.data / "vast", recursive=True).json()["id"]
        until(vast, first, "done")
        with closing(sqlite3.connect(server.state / "service.sqlite")) as database, database:
            columns = "tenant, job, at_unix_ms, what, usd_micros, volume_bytes, run_ms"
            copied = "tenant, job, at_unix_ms, 'service: vast', 1 << 61, 1 << 62, 1 << 62"
            for _ in range(3):
                command = f"INSERT INTO charges ({columns}) SELECT {copied} FROM charges WHERE job = ? LIMIT 1"
                database.execute(command, (first,))
            bids = "id, tenant, link, hour, slices, usd_micros, placed_unix_ms, state, reserved_usd_micros"
            for number in range(3):
                row = (f"a-{number}", "vast", "a>b", 10**9 + number, 1, 1, 0, "open", 1 << 62, 0, 0)
                database.execute(f"INSERT INTO bids ({bids}, won_slices, charged_usd_micros) VALUES {row}")
        second = submit(vast, "second", server.data / "source", server.data / "vaster", recursive=True).json()["id"]
        until(vast, second, "done")
        assert vast.get(f"/v1/jobs/{second}/receipt").json()["charges"][0]["usd_micros"] == 3_000
        limit = admin.put("/v1/tenants/vast/budget", json={"limit_usd_micros": 10**15})
        assert limit.status_code == 200, limit.text
        found = limit.json()
        assert (found["spent_usd_micros"], found["reserved_usd_micros"]) == (6_000 + 3 * (1 << 61), 3 * (1 << 62))
        assert found["left_usd_micros"] == 0
        full = quote(vast, server, "vastest")
        assert accept(vast, full["id"], "full").status_code == 402


def test_bad_tariffs_are_refused(server: Server, admin: httpx.Client) -> None:
    tier = {"from_quantity": 5, "usd_micros_per_unit": 1}
    refused = admin.put("/v1/tariffs", json={"tariffs": [{"name": "x", "unit": "GB", "tiers": [tier]}]})
    assert refused.status_code == 422
    assert "tiers must rise from 0" in refused.json()["detail"]
    before = admin.get("/v1/tariffs").json()
    hourly = {"name": "h", "unit": "hour", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1}]}
    assert admin.put("/v1/tariffs", json={"tariffs": [hourly]}).status_code == 200
    body = {"source": str(server.data / "source"), "destination": str(server.data / "h"), "recursive": True}
    unpriced = admin.post("/v1/quotes", json=body)
    assert (unpriced.status_code, unpriced.json()["detail"].split(",")[0]) == (409, "tariff h is per hour")
    assert admin.put("/v1/tariffs", json=before).json() == before
    both = {"quote": "q-0000000000000000", "verb": "cp"}
    assert admin.post("/v1/jobs", json=both, headers={"Idempotency-Key": "both"}).status_code == 422
    assert accept(admin, "q-0000000000000000", "none").status_code == 404
    assert "Traceback" not in server.log
