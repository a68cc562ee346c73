"""Facts for machines in a cloud: the gateway program, and the address of home."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from tradewind.engine import programs
from tradewind.engine.programs import home_network, program_documents
from tradewind.errors import UsageError
from tradewind.model.sites import FleetTable

URL = "https://example.com/gateway/{sha256}/{processor}"


def test_a_folder_has_a_program_for_each_processor(tmp_path: Path) -> None:
    (tmp_path / "tradewind-gateway-x86_64").write_bytes(b"one")
    (tmp_path / "tradewind-gateway-aarch64").write_bytes(b"two")
    one, two = sha256(b"one").hexdigest(), sha256(b"two").hexdigest()
    assert program_documents(FleetTable(URL, str(tmp_path)), "none") == [
        {"processor": "aarch64", "url": f"https://example.com/gateway/{two}/aarch64", "sha256": two},
        {"processor": "x86_64", "url": f"https://example.com/gateway/{one}/x86_64", "sha256": one},
    ]
    with pytest.raises(UsageError, match="program_url is the same for all"):
        program_documents(FleetTable("https://example.com/gateway", str(tmp_path)), "none")


def test_without_a_folder_it_is_the_program_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = tmp_path / "gateway"
    gateway.write_bytes(b"mine")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    (found,) = program_documents(FleetTable("https://example.com/g"), str(gateway))
    assert found == {"processor": "aarch64", "url": "https://example.com/g", "sha256": sha256(b"mine").hexdigest()}
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="no cloud has machines with this machine's processor, riscv64"):
        program_documents(FleetTable("https://example.com/g"), str(gateway))


def test_missing_programs_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot download the gateway program") as refused:
        program_documents(FleetTable(), "none")
    assert "program_url" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="has no gateway program"):
        program_documents(FleetTable(URL, str(tmp_path)), "none")


@contextmanager
def service(answer: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_home_is_what_the_settings_say_else_what_the_service_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_own_address", lambda *_: None)
    assert home_network(FleetTable(home_cidr="203.0.113.0/24"), "http://127.0.0.1:1/") == "203.0.113.0/24"
    with service(b"8.8.4.4\n") as url:
        assert home_network(FleetTable(), url) == "8.8.4.4/32"


def test_home_is_an_ipv4_address_even_where_only_ipv6_needs_no_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines of clouds have IPv4 addresses: a firewall that admits an IPv6 address only would keep home out."""

    class Asked(socket.socket):
        def connect(self, address: object) -> None:
            """Send nothing, as a datagram socket does."""

        def getsockname(self) -> tuple[str, int]:
            return ("2606:4700::1" if self.family == socket.AF_INET6 else "192.168.1.7", 9)

    kernel = SimpleNamespace(socket=Asked, AF_INET=socket.AF_INET, SOCK_DGRAM=socket.SOCK_DGRAM)
    monkeypatch.setattr(programs, "socket", kernel)
    with service(b"8.8.4.4") as url:
        assert home_network(FleetTable(), url) == "8.8.4.4/32"


@pytest.mark.parametrize(
    "answer", [b"10.1.2.3", b"0.0.0.0", b"2606:4700::1", b"<html>please log in</html>", b"\xff", b""]
)
def test_the_firewall_is_never_opened_to_everybody(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(programs, "_own_address", lambda *_: None)
    with service(answer) as url, pytest.raises(UsageError, match="cannot be determined") as refused:
        home_network(FleetTable(), url)
    assert "home_cidr" in (refused.value.hint or "")
    with pytest.raises(UsageError):
        home_network(FleetTable(), "http://127.0.0.1:1/")
