"""`tradewind console`: who can sign in, what other sites and other users cannot do, and its use in a browser."""

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.server import WAIT_S, until
from tests.service.test_console import NEEDS_BUILD, run_in_browser

MAIN = (sys.executable, "-m", "tradewind.cli.main")


class OwnConsole:
    """A console of a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.state, self.data = folder / "state", folder / "data"
        (self.data / "source").mkdir(parents=True)
        (self.data / "source" / "0").write_bytes(os.urandom(1000))
        self.environment = {**os.environ, "TRADEWIND_STATE_DIR": str(self.state)}
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*MAIN, "console", "--no-browser"], stdout=subprocess.PIPE, text=True, env=self.environment
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().removeprefix("listening on ").strip()
        self.address = self.process.stdout.readline().removeprefix("open ").strip()

    def stop(self) -> int:
        os.kill(self.process.pid, signal.SIGINT)
        return self.stop_reading()

    def stop_reading(self) -> int:
        """Wait for the end of the console, and return its exit code."""
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*MAIN, *words], capture_output=True, text=True, env=self.environment, timeout=WAIT_S)

    def copy_by_command(self) -> None:
        done = self.run("cp", str(self.data / "source" / "0"), str(self.data / "by-command"))
        assert done.returncode == 0, done.stderr

    def invited(self) -> str:
        """Return a new address that signs in, from a second start of the command."""
        again = self.run("console", "--no-browser")
        assert again.returncode == 0, again.stderr
        return again.stdout.removeprefix("open ").strip()

    def exchange(self, address: str) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/console/tokens", json={"code": address.partition("#code=")[2]})

    def client(self) -> httpx.Client:
        token = self.exchange(self.invited()).json()["token"]
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=WAIT_S)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnConsole]:
    console = OwnConsole(tmp_path_factory.mktemp("own"))
    yield console
    assert console.stop() == 0


def test_an_address_signs_in_once_and_with_the_rights_of_its_user_only(console: OwnConsole) -> None:
    assert console.address.startswith(f"{console.url}/#code=") and console.url.startswith("http://127.0.0.1:")
    made = console.exchange(console.address)
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    used = console.exchange(console.address)
    assert (used.status_code, used.json()["hint"]) == (403, "run `tradewind console` again")
    with httpx.Client(base_url=console.url, headers={"Authorization": f"Bearer {made.json()['token']}"}) as client:
        assert client.get("/v1/me").json()["scopes"] == ["jobs:read", "jobs:write"]
        assert client.post("/v1/console/invitations").status_code == 403
    assert httpx.get(f"{console.url}/v1/console/jobs").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Host": "rebound.example:80"}, 403),
        ("GET", "/healthz", {"Host": "localhost:PORT"}, 403),
        ("POST", "/v1/console/tokens", {"Origin": "http://evil.example"}, 403),
        ("POST", "/v1/console/tokens", {"Origin": "null"}, 403),
        ("GET", "/healthz", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "/healthz", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", "/healthz", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ("GET", "/healthz", {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:PORT"}, 200),
    ],
)
@NEEDS_BUILD
def test_only_its_own_pages_may_use_it(
    console: OwnConsole, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    port = console.url.rpartition(":")[2]
    sent = {name: value.replace("PORT", port) for name, value in headers.items()}
    answer = httpx.request(method, console.url + path, headers=sent, json={"code": "x"} if method == "POST" else None)
    assert answer.status_code == status
    assert status == 200 or answer.json()["detail"] == "the request is from another site"


def test_other_users_can_read_no_file_of_it_and_no_argument_has_a_secret(console: OwnConsole) -> None:
    console.invited()
    files = list((console.state / "console").iterdir())
    assert any(path.name.startswith("open-") for path in files)
    for path in (console.state, console.state / "console", *files):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    words = Path(f"/proc/{console.process.pid}/cmdline").read_bytes()
    assert b"code" not in words and b"tw1_" not in words


def test_a_code_is_not_printed_into_a_file_that_others_can_read(console: OwnConsole, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w") as file:
        path.chmod(0o644)
        subprocess.run([*MAIN, "console", "--no-browser"], stdout=file, env=console.environment, check=True)
    assert "code=" not in path.read_text() and "other users can read" in path.read_text()


def test_the_browser_gets_a_private_file_and_not_the_address(console: OwnConsole, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.part; mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    environment = {**console.environment, "BROWSER": str(browser)}
    subprocess.run([*MAIN, "console"], env=environment, check=True, timeout=WAIT_S, capture_output=True)
    page = Path(seen.read_text().strip().removeprefix("file://"))
    assert page.parent == console.state / "console"
    found = re.search(r'url=([^"]+)"', page.read_text())
    assert found is not None and console.exchange(found[1]).status_code == 201
    assert not page.exists()


def test_its_user_may_use_any_folder_and_sees_the_jobs_of_the_command_line(console: OwnConsole) -> None:
    console.copy_by_command()
    with console.client() as client:
        body = {"source": str(console.data / "source"), "destination": str(console.data / "copy"), "recursive": True}
        made = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}).json()
        assert until(client, made["id"], "done")["error"] is None
        shown = client.get("/v1/console/jobs").json()["jobs"]
    listed = console.run("jobs", "list", "--json").stdout.splitlines()
    assert len(listed) == 2
    assert [one["destination"] for one in shown] == [[f"{console.data}/by-command"]]
    assert (shown[0]["state"], shown[0]["bytes_done"]) == ("done", 1000)


@pytest.mark.slow
def test_a_new_start_signs_out_the_browsers_of_the_one_before(tmp_path: Path) -> None:
    console = OwnConsole(tmp_path)
    with console.client() as client:
        token = client.headers["Authorization"]
    assert console.stop() == 0
    assert not list((console.state / "console").glob("open-*"))
    assert not (console.state / "console" / "address").exists()
    console.start()
    assert httpx.get(f"{console.url}/v1/me", headers={"Authorization": token}).status_code == 401
    assert console.stop() == 0


def test_a_start_first_forgets_the_address_of_a_killed_console(tmp_path: Path) -> None:
    """Another user may have the port by now, and would be sent the admin token by a second start."""
    console = OwnConsole(tmp_path)
    console.process.kill()
    console.stop_reading()
    address = console.state / "console" / "address"
    assert address.exists()
    for path in (console.state / "console").glob("service.sqlite*"):
        path.unlink()
    (console.state / "console" / "service.sqlite").mkdir()  # So the start ends before it serves.
    assert console.run("console", "--no-browser").returncode != 0
    assert not address.exists()


@pytest.mark.slow
@NEEDS_BUILD
def test_the_own_console_in_a_browser(tmp_path: Path) -> None:
    console = OwnConsole(tmp_path)
    try:
        console.copy_by_command()
        (page,) = (console.state / "console").glob("open-*.html")
        job = re.search(r'"id": "([^"]+)"', console.run("jobs", "list", "--json").stdout)
        assert job is not None
        run_in_browser(
            "own",
            TRADEWIND_URL=console.url,
            TRADEWIND_DATA=str(console.data),
            TRADEWIND_PAGE=str(page),
            TRADEWIND_JOB=job[1],
        )
    finally:
        code = console.stop()
    assert code == 0
