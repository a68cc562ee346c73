"""`tradewind accelerate up` at configured sites: SSH hosts that are this host under two names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command
from testbed.servers.process import free_port
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.accelerations import FLOWS, Sink, send, up
from tests.fleet.worlds import wait_until

pytest.importorskip("tomllib")

SITES = ("a", "b", "c")
BODY = os.urandom(3_000_000)


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Command]:
    """The command, configured for a host in each of three regions."""
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-acc-") as short, local_ssh_server(Path(short, "ssh")) as server:
        command = Command(Path(short, "home"))
        with server.config.open("a", encoding="utf-8") as config:
            config.writelines(f"Host {site}\n  HostName 127.0.0.1\n" for site in SITES)
        lines = ["[ssh]", f'config = "{server.config}"']
        for site in SITES:
            lines += ["[[ssh.hosts]]", f'name = "{site}"', f'region = "site:{site}"', 'address = "127.0.0.1"']
            lines += ["usd_per_hour = 1", f'folder = "{tmp_path}/on {site}"']
        command.configure(*lines)
        yield command
        for state in command.run("accelerate", "status", "--json").events:
            command.run("accelerate", "down", state["id"], "--drain", "0s")
        wait_until(lambda: not list(tmp_path.glob("on */machines/*/pid")))
        command.wait_until_alone()


def test_flows_go_through_proxies_on_the_configured_hosts(hosts: Command, sink: Sink) -> None:
    (hosts.home / "flows.toml").write_text(FLOWS % sink.address)
    refused = hosts.run("accelerate", "up", "--flows", hosts.home / "flows.toml")
    assert refused.code == 2 and "expected to cost $2.00 in a period" in refused.stderr

    state, said = up(hosts, FLOWS % sink.address, "-y")
    path = state["flows"][0]["through"]
    assert len(path) == 2 and {proxy["region"] for proxy in state["proxies"]} == {"site:a", "site:b"}
    send(state, BODY)
    wait_until(lambda: len(sink.received) == len(BODY))
    assert sink.received == BODY

    ended = hosts.run("accelerate", "down", "--json").expect(0).events[0]
    assert [proxy["bytes_up"] for proxy in ended["proxies"]] == [len(BODY)] * 2
    assert ended["machines_usd"] > 0 and ended["phase"] == "ended"
    assert ended["flows"][0]["bytes_up"] == len(BODY)
    assert "first, which is free" in said


def test_flows_of_another_host_enter_there(hosts: Command, sink: Sink) -> None:
    listen = f"127.0.0.1:{free_port()}"
    flows = (FLOWS % sink.address).replace('source = "here"', 'source = "site:c"') + f'listen = "{listen}"\n'
    state, _ = up(hosts, flows, "-y")
    (flow,) = state["flows"]
    assert (flow["listen"], flow["region"], len(flow["through"])) == (listen, "site:c", 2)
    assert {proxy["region"] for proxy in state["proxies"]} == {"site:a", "site:b"}
    send(state, BODY)
    wait_until(lambda: len(sink.received) == len(BODY))
    ended = hosts.run("accelerate", "down", "--json").expect(0).events[0]
    assert [proxy["bytes_up"] for proxy in ended["proxies"]] == [len(BODY)] * 2
    assert "site-c-entrance in site:c" in {line["what"] for line in ended["ledger"]}

    (hosts.home / "flows.toml").write_text(flows.replace('"site:c"', '"aws:eu-west-1"'))
    refused = hosts.run("accelerate", "up", "--flows", hosts.home / "flows.toml", "-y")
    assert refused.code == 2 and "the configuration has no machine in aws:eu-west-1" in refused.stderr


def test_machines_that_call_home_and_unknown_regions_are_refused(hosts: Command, sink: Sink) -> None:
    flows = hosts.home / "flows.toml"
    flows.write_text(FLOWS.replace('"site:b"]', '"site:d"]') % sink.address)
    refused = hosts.run("accelerate", "up", "--flows", flows, "-y")
    assert refused.code == 2 and refused.stderr.startswith("error: the configuration has no machine in site:d\n")
    configuration = hosts.configuration
    configuration.write_text(configuration.read_text().replace("usd_per_hour = 1", "inbound = false"))
    flows.write_text(FLOWS % sink.address)
    refused = hosts.run("accelerate", "up", "--flows", flows, "-y")
    assert (
        refused.code == 2 and "machines in site:a call home, so nothing can connect to a proxy there" in refused.stderr
    )
    assert hosts.run("accelerate", "status").expect(0).stdout == ""
