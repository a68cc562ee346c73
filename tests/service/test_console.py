"""The web console: its files and headers, and what users do with it in a headless Chromium on a real server."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.service.server import Server, get
from tradewind.catalog.learned import Sample, store_samples
from tradewind.catalog.load import catalog_folder
from tradewind.model.region import Region
from tradewind.service.console import STATIC, ConsoleFiles
from tradewind.service.problems import ApiProblem

CONSOLE = Path(__file__).parents[2] / "console"
NEEDS_BUILD = pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the console was not built: make console")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("console")
    site = f"lab={folder / 'data' / 'lab'}"
    server = Server(folder, "--site", site, "--allow-webhook-network", "127.0.0.0/8")
    for name, count, size in ("source", 3, 100_000), ("large", 16, 1_000_000):
        (server.data / name).mkdir()
        for number in range(count):
            (server.data / name / f"{number}").write_bytes(os.urandom(size))
    learn(server.state)
    server.start()
    admit(server.state)
    sell(server.state)
    yield server
    server.kill()


def learn(state: Path) -> None:
    """Store what two transfers observed of a link. The newer one was not limited by it."""
    link = Region.parse("aws:eu-central-1"), Region.parse("aws:eu-west-1")
    samples = [
        Sample(*link, gbps, at_least, 64, 10**12, 900.0, "m5.8xlarge", f"job {date}", date)
        for gbps, at_least, date in ((8.0, True, "2026-01-02"), (9.1, False, "2026-02-03"))
    ]
    assert store_samples(catalog_folder(str(state / "engine")), samples)


def admit(state: Path) -> None:
    """Record a member, as the first request with a token of an OIDC issuer does."""
    row = ("default", "0" * 32, "https://issuer.example", "ada", "operator", 1, 2)
    names = "tenant, id, issuer, subject, role, first_unix_ms, last_unix_ms"
    with closing(sqlite3.connect(state / "service.sqlite", timeout=30)) as database, database:
        database.execute(f"INSERT INTO members ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def sell(state: Path) -> None:
    """Record a bid that won an hour of 2026, with a refund, and its auction."""
    hour = 490_900
    won = ("a-" + "0" * 16, "default", "a:1>a:2", hour, 5, 90_000, 1, "won", 0, 3, 210_000, 70_000)
    names = "id, tenant, link, hour, slices, usd_micros, placed_unix_ms, state, reserved_usd_micros, won_slices, "
    names += "charged_usd_micros, refunded_usd_micros"
    with closing(sqlite3.connect(state / "service.sqlite", timeout=30)) as database, database:
        database.execute(f"INSERT INTO bids ({names}) VALUES ({', '.join('?' * len(won))})", won)
        columns = "link, hour, slices, usd_micros, cleared_unix_ms"
        row = ("a:1>a:2", hour, 3, 70_000, 1)
        database.execute(f"INSERT INTO auctions ({columns}) VALUES (?, ?, ?, ?, ?)", row)


@NEEDS_BUILD
def test_the_files_of_the_console_run_only_its_own_scripts(server: Server) -> None:
    page = get(f"{server.url}/")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "no-cache"
    assert "http:" not in page.text and "https:" not in page.text
    script = next((STATIC / "assets").glob("*.js")).name
    answer = get(f"{server.url}/assets/{script}")
    assert "immutable" in answer.headers["Cache-Control"]
    assert httpx.head(f"{server.url}/assets/{script}").status_code == 200
    assert get(f"{server.url}/assets/..%2findex.html").status_code == 404
    assert get(f"{server.url}/assets/none.js").status_code == 404


def test_a_console_that_was_not_built_says_so(tmp_path: Path) -> None:
    with pytest.raises(ApiProblem) as caught:
        ConsoleFiles.load(tmp_path).answer("index.html")
    assert (caught.value.status, caught.value.hint) == (404, "install Node 20 and run `make console`")


def test_a_token_shows_its_tenant_and_its_scopes(server: Server) -> None:
    with server.client() as admin:
        made = admin.post("/v1/tokens", json={"role": "operator", "scopes": ["jobs:read"]}).json()
    with server.client(made["token"]) as client:
        shown = client.get("/v1/me").json()
    assert shown == {"token": made["id"], "tenant": "default", "role": "operator", "scopes": ["jobs:read"]}
    assert get(f"{server.url}/v1/me").status_code == 401


@pytest.mark.slow
@NEEDS_BUILD
@pytest.mark.parametrize("name", ["transfers", "pages", "operation", "plan", "accessibility"])
def test_the_console_in_a_browser(server: Server, name: str) -> None:
    run_in_browser(
        name,
        TRADEWIND_URL=server.url,
        TRADEWIND_TOKEN=(server.state / "admin.token").read_text().strip(),
        TRADEWIND_DATA=str(server.data),
    )


def run_in_browser(name: str, **environment: str) -> None:
    """Run a file of console/e2e; skip without a browser."""
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None:
        pytest.skip("needs node and chromium on PATH, e.g. apt-get install nodejs chromium")
    if not (CONSOLE / "node_modules" / "playwright-core").exists():
        pytest.skip("the console's test libraries are not installed: make console")
    command = [node, "--test", "--test-concurrency=1", str(CONSOLE / "e2e" / f"{name}.test.mjs")]
    own = {**os.environ, "CHROMIUM": chromium, **environment}
    ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
