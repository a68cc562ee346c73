"""`tradewind send` and `receive` through a real server with sites, by paths that both can read and write."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.service.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sites")
    server = Server(folder, "--site", f"dublin={folder / 'data' / 'dublin'}")
    for name in ("one", "below/two"):
        path = server.data / "sent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    server.start()
    yield server
    server.kill()


def tradewind(server: Server, *words: str, token: str | None = None) -> "subprocess.CompletedProcess[str]":
    own = {"TRADEWIND_SERVICE_TOKEN": token or server.admin_token()}
    command = [sys.executable, "-m", "tradewind.cli.main", words[0], "--shared", "--service", server.url, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **own}, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_sent_to_a_site_and_received_from_it(server: Server) -> None:
    sent, received = server.data / "sent", server.data / "received"
    done = tradewind(server, "send", "--chunk-size", "64MiB", str(sent), "dublin:run7")
    assert done.returncode == 0, done.stderr
    assert contents(server.data / "dublin" / "default" / "run7") == contents(sent)
    done = tradewind(server, "receive", "dublin:run7", str(received))
    assert done.returncode == 0, done.stderr
    assert contents(received) == contents(sent)


def test_a_single_file_is_sent_and_received(server: Server) -> None:
    done = tradewind(server, "send", "--routes", "1", str(server.data / "sent" / "one"), "dublin:models/one.bin")
    assert done.returncode == 0, done.stderr
    done = tradewind(server, "receive", "--file", "dublin:models/one.bin", str(server.data / "single"))
    assert done.returncode == 0, done.stderr
    assert (server.data / "single" / "one.bin").read_bytes() == (server.data / "sent" / "one").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("send", "SENT", "paris:run7"), 2, "paris: the service has no such site\nhint: its sites: dublin"),
        (("send", "SENT", "run7"), 2, "run7: not SITE:NAME"),
        (("send", "SENT", "dublin:../other"), 2, "not SITE:NAME"),
        (("send", "SENT/nothing", "dublin:run7"), 3, "no such file or folder"),
        (("send", "--chunk-size", "65MiB", "SENT", "dublin:run7"), 2, "chunk_bytes"),
        (("send", "--routes", "2", "SENT", "dublin:run7"), 2, "routes: this job rents no machines\nhint: leave out"),
        (
            ("send", "--deadline", "30m", "SENT", "dublin:run7"),
            2,
            "deadline_s: this job rents no machines\nhint: leave",
        ),
        (("send", "--deadline", "30", "SENT", "dublin:run7"), 2, "a duration needs a unit"),
        (("send", "--compress", "zstd", "SENT", "dublin:run7"), 2, "compression: this job rents no machines"),
        (("send", "--dedup", "on", "SENT", "dublin:run7"), 2, "deduplication: this job rents no machines"),
        (("send", "--routes", "33", "SENT", "dublin:run7"), 2, "a number of routes, 1 to 32, not 33"),
        (("send", "s3://other/run7/", "dublin:run7"), 2, "s3://other/run7/: the operator has not allowed this store"),
        (("send", "/etc", "dublin:run7"), 2, "/etc: not below an allowed folder"),
    ],
)
def test_mistakes_are_explained(server: Server, words: tuple[str, ...], code: int, said: str) -> None:
    done = tradewind(server, *(word.replace("SENT", str(server.data / "sent")) for word in words))
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_tenant_with_a_budget_sends_at_a_price(server: Server) -> None:
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "payer"})
        token = admin.post("/v1/tokens", json={"tenant": "payer", "role": "operator"}).json()["token"]
        assert admin.put("/v1/tenants/payer/budget", json={"limit_usd_micros": 5_000_000}).status_code == 200
        price = {"name": "base", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1_000_000_000}]}
        assert admin.put("/v1/tariffs", json={"tariffs": [price]}).status_code == 200
    words = "send", str(server.data / "sent"), "dublin:priced"
    refused = tradewind(server, *words, token=token)
    assert refused.returncode == 2 and "quote" in refused.stderr
    dear = tradewind(server, *words, "--max-cost", "0.10USD", token=token)
    assert dear.returncode == 8 and "the service asks for $0.2" in dear.stderr, dear.stderr
    assert not (server.data / "dublin" / "payer").exists()
    done = tradewind(server, *words, "--max-cost", "1USD", token=token)
    assert done.returncode == 0, done.stderr
    assert contents(server.data / "dublin" / "payer" / "priced") == contents(server.data / "sent")
    with server.client() as admin:
        assert admin.put("/v1/tariffs", json={"tariffs": []}).status_code == 200


def test_the_token_is_not_sent_unencrypted_or_to_another_address(server: Server) -> None:
    words = [sys.executable, "-m", "tradewind.cli.main", "send", str(server.data / "sent"), "dublin:run7", "--service"]
    own = {**os.environ, "TRADEWIND_SERVICE_TOKEN": "secret"}
    plain = subprocess.run([*words, "http://192.0.2.1"], capture_output=True, text=True, env=own, check=False)
    assert plain.returncode == 2 and "the token would be sent unencrypted" in plain.stderr

    asked: list[str | None] = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{other.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirecting) as other:
        thread = Thread(target=other.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{other.server_port}"
        moved = subprocess.run([*words, url], capture_output=True, text=True, env=own, check=False)
        other.shutdown()
        thread.join()
    assert moved.returncode == 2 and "it redirects to another address" in moved.stderr
    assert asked == ["Bearer secret"]


def test_a_wrong_token_is_not_authorised(server: Server) -> None:
    done = tradewind(server, "send", str(server.data / "sent"), "dublin:run7", token="wrong")
    assert done.returncode == 7, done.stderr


def test_each_tenant_has_a_folder_of_its_own(server: Server) -> None:
    with server.client() as admin:
        admin.post("/v1/tenants", json={"name": "lab"})
        token = admin.post("/v1/tokens", json={"tenant": "lab", "role": "viewer"}).json()["token"]
    with server.client(token) as lab:
        (site,) = lab.get("/v1/sites").json()["sites"]
    assert site == {"name": "dublin", "place": str(server.data / "dublin" / "lab")}


@pytest.mark.parametrize(
    ("site", "said"), [("dublin", "not NAME=PLACE"), ("dublin=/etc", "/etc/{tenant}: not below an allowed folder")]
)
def test_a_bad_site_is_refused_at_the_start(tmp_path: Path, site: str, said: str) -> None:
    command = Server(tmp_path).command("--site", site)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_an_address_that_is_no_service_has_a_hint(server: Server) -> None:
    done = tradewind(server, "receive", "--service", f"{server.url}/elsewhere", "dublin:run7", str(server.data / "x"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[1] == "hint: is this the address of the service?"
