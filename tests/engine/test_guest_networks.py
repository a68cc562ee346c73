"""A guest's gateway connects to the service alone, whatever addresses that names."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.engine.test_guest_programs import HostileService
from tradewind.engine.guest_host import GuestHost
from tradewind.engine.guest_networks import require_known_hosts, require_reachable
from tradewind.engine.guest_programs import GuestPlace
from tradewind.engine.service_client import ServiceClient
from tradewind.errors import GatewayError
from tradewind.gateway.owner import JoinToken


@pytest.mark.parametrize(
    ("owner", "service"),
    [
        ("8.8.8.8:1", "9.9.9.9"),
        ("8.8.8.8:1", "10.1.0.1"),
        ("8.8.8.8:1", "127.0.0.1"),
        ("8.8.8.8:1", None),
        ("[2620:fe::9]:1", "9.9.9.9"),
        ("10.0.0.1:1", "10.1.0.1"),
        ("[::ffff:10.0.0.1]:1", "10.1.0.1"),
        ("10.0.0.1:1", "127.0.0.1"),
        ("127.0.0.2:1", "127.0.0.1"),
        ("[::1]:1", "127.0.0.1"),
        ("100.64.0.9:1", "10.1.0.1"),
        ("169.254.7.7:1", "169.254.7.7"),
    ],
)
def test_an_owner_may_be_where_the_service_is(owner: str, service: str | None) -> None:
    require_reachable(owner, service)


@pytest.mark.parametrize(
    ("owner", "service"),
    [
        ("10.0.0.1:22", "9.9.9.9"),
        ("[fd12::1]:22", "9.9.9.9"),
        ("100.64.0.9:22", "9.9.9.9"),
        ("127.0.0.1:22", "9.9.9.9"),
        ("127.0.0.1:22", "10.1.0.1"),
        ("[::1]:22", "9.9.9.9"),
        ("[::ffff:127.0.0.1]:22", "9.9.9.9"),
        ("[::ffff:10.0.0.1]:22", "9.9.9.9"),
        ("0.0.0.0:22", "127.0.0.1"),
        ("[::]:22", "127.0.0.1"),
        ("10.0.0.1:22", None),
        ("127.0.0.1:22", None),
        ("169.254.169.254:80", "10.1.0.1"),
        ("169.254.169.254:80", "127.0.0.1"),
        ("[fe80::1%eth0]:80", "10.1.0.1"),
        ("[fd00:ec2::254]:80", "10.1.0.1"),
        ("100.100.100.200:80", "10.1.0.1"),
        ("168.63.129.16:80", "9.9.9.9"),
        ("192.0.0.192:80", "10.1.0.1"),
        ("[64:ff9b::7f00:1]:22", "9.9.9.9"),
        ("[2002:7f00:1::1]:22", "9.9.9.9"),
        ("224.0.0.1:80", "10.1.0.1"),
        ("localhost:22", "127.0.0.1"),
        ("printer.lan:22", "10.1.0.1"),
        ("transfers.example.org:1", "9.9.9.9"),
        ("2130706433:22", "9.9.9.9"),
        ("0x7f000001:22", "9.9.9.9"),
        ("127.1:22", "9.9.9.9"),
        (":22", "9.9.9.9"),
        ("", "9.9.9.9"),
    ],
)
def test_an_owner_elsewhere_is_not_dialled(owner: str, service: str | None) -> None:
    with pytest.raises(GatewayError, match="the service asks this host to connect to"):
        require_reachable(owner, service)


def test_a_user_may_allow_a_network() -> None:
    require_reachable("10.0.0.1:1", "9.9.9.9", ["192.168.0.0/16", "10.0.0.0/24"])
    require_reachable("[fd12::1]:1", None, ["fd00::/8"])
    with pytest.raises(GatewayError, match="another network") as caught:
        require_reachable("10.0.1.1:1", "9.9.9.9", ["fd00::/8", "10.0.0.0/24"])
    assert caught.value.hint is not None and "--allow-network 10.0.1.1" in caught.value.hint
    with pytest.raises(GatewayError, match="not an IP address"):
        require_reachable("localhost:1", "9.9.9.9", ["127.0.0.0/8"])


@pytest.mark.parametrize(
    ("owner", "others", "routes_max", "said"),
    [
        ("192.0.2.7:1", ["8.8.8.8:2"], 1, "another host"),
        ("8.8.4.4:1", ["8.8.8.8:2"], 2, None),
        ("8.8.4.4:1", ["8.8.8.8:2", "9.9.9.9:2"], 2, "more than 2 hosts"),
        ("8.8.4.4:1", ["10.0.0.1:22"], 2, "another network"),
        ("8.8.4.4:1", ["127.0.0.1:22"], 2, "another network"),
        ("8.8.4.4:1", ["168.63.129.16:80"], 2, "another network"),
        ("8.8.4.4:1", ["printer.lan:22"], 2, "another network"),
        ("10.1.0.1:1", ["10.0.0.1:2"], 2, None),
        ("10.1.0.1:1", ["169.254.169.254:80"], 2, "another network"),
        ("10.1.0.1:1", ["100.100.100.200:80"], 2, "another network"),
        ("10.1.0.1:1", ["[::ffff:10.0.0.1]:2"], 2, None),
        ("10.1.0.1:1", ["[::ffff:127.0.0.1]:22"], 2, "another network"),
        ("10.1.0.1:1", ["[::ffff:169.254.169.254]:80"], 2, "another network"),
    ],
)
def test_no_route_leads_to_another_network(owner: str, others: list[str], routes_max: int, said: str | None) -> None:
    dialled = [owner, *others]
    if said is None:
        require_known_hosts(dialled, owner, routes_max)
        return
    with pytest.raises(GatewayError, match=said):
        require_known_hosts(dialled, owner, routes_max)


@contextmanager
def counted_connections() -> Iterator[tuple[int, list[object]]]:
    """Yield a port of localhost, and the list of the connections to it."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    came.append(listener.accept())

        Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], came


def test_a_hostile_service_cannot_point_the_gateway_at_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TRADEWIND_SERVICE_TOKEN", "token")
    (tmp_path / "file").write_text("content")
    place = GuestPlace("source", str(tmp_path / "file"), "file", is_folder=False)
    token = JoinToken.new()
    given = {"fleet": "fleet", "name": "guest", "token_hex": token.hex, "expires_unix_s": token.expires_unix_s}
    with counted_connections() as (port, came):
        wish = {"kind": "drain", "method": "POST", "body": {}}
        service = HostileService({**given, "ca_pem": "", "owner": f"localhost:{port}"}, [wish])
        with service:
            Thread(target=service.serve_forever, daemon=True).start()
            client = ServiceClient(f"http://127.0.0.1:{service.server_port}")
            host = GuestHost(client, "service", place, "dublin", gateway=None)
            with pytest.raises(GatewayError, match="localhost, which is not an IP address"):
                host.take_part("j1", lambda _: None)
            host.close()
            service.shutdown()
        assert client.address == "127.0.0.1"
    assert not came
