"""One `accelerate up` for flows of several hosts: each has a gateway at which its own flows enter, and no others."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from testbed.drive import Command
from tests.sky.test_accelerate import (
    BODY,
    CLIENT,
    FLOWS,
    NEAR,
    SERVER,
    SKY,
    kill_machine,
    pid_of,
    running,
    states,
    until,
    up,
)

pytest.importorskip("tomllib")

OFFICE = "azure:eastus"
OTHER_PORT = 8001
TWO_HOSTS: dict[str, Any] = {
    **SKY,
    "regions": {**SKY["regions"], OFFICE: {"name": "office", "egress": "16Gbit/s", "ingress": "16Gbit/s"}},
    "links": [
        *SKY["links"],
        {"between": [OFFICE, SERVER], "rtt_ms": 40, "rate": "5Gbit/s"},
        {"between": [OFFICE, NEAR], "rtt_ms": 20, "rate": "14Gbit/s"},
        {"between": [OFFICE, CLIENT], "rtt_ms": 20, "rate": "14Gbit/s"},
    ],
}
#: Windows so small that one proxy has room for both flows.
SMALL = FLOWS.replace("200 kB", "100 kB")
#: Downloads of the office. It has no flow to the destination of this machine's.
OF_OFFICE = f"""
[[flow]]
name = "office"
source = "10.77.3.1:{OTHER_PORT}"
source_region = "{SERVER}"
destination = "{OFFICE}"
size = "2 GB"
listen = "127.0.0.1:8443"
"""


@pytest.fixture
def entrance() -> str:
    return f"{OFFICE.replace(':', '-')}-entrance"


def serve(world: Command, port: int) -> subprocess.Popen[bytes]:
    words = "sky", "exec", world.home / "sky.json", "server-1", "--", "python3", "-m", "http.server", str(port)
    return subprocess.Popen(
        [str(world.binary), *map(str, words), "-d", str(world.home / "www")],
        env=world.full_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def download(world: Command, machine: str, address: str) -> bytes:
    words = "sky", "exec", world.home / "sky.json", machine, "--", "curl", "-s", "--retry", "9"
    more = "--retry-all-errors", "--retry-delay", "1", "--max-time", "120", f"http://{address}/file"
    code, body, _ = world.run_bytes(*words, *more)
    assert code == 0
    return body


def refused(world: Command, machine: str, address: str) -> bool:
    words = "sky", "exec", world.home / "sky.json", machine, "--", "curl", "-s", "--max-time", "10"
    return world.run_bytes(*words, f"http://{address}/file")[0] != 0


def flow_of(state: dict[str, Any], name: str) -> dict[str, Any]:
    return next(flow for flow in state["flows"] if flow["name"] == name)


@pytest.mark.slow
def test_two_hosts_share_the_proxies_of_one_up(command: Command, entrance: str) -> None:
    with running(command, TWO_HOSTS, SMALL + OF_OFFICE) as world:
        other = serve(world, OTHER_PORT)
        try:
            state = up(world)
            here, office = flow_of(state, "backup"), flow_of(state, "office")
            (proxy,) = (each["name"] for each in state["proxies"])
            assert here["through"] == office["through"] == [proxy]
            assert (office["listen"], office["region"], "region" in here) == ("127.0.0.1:8443", OFFICE, False)
            assert download(world, "client-1", here["listen"]) == BODY
            assert download(world, "office-1", office["listen"]) == BODY
            # Each entrance is on loopback of its own host.
            assert refused(world, "client-1", office["listen"])
            moved = until(world, lambda now: all(flow.get("bytes_down", 0) > len(BODY) for flow in now["flows"]))
            assert moved["proxies"][0]["bytes_down"] > 2 * len(BODY)
            assert f"at {OFFICE} 127.0.0.1:8443" in world.run("accelerate", "status").expect(0).stdout

            kill_machine(world, entrance)
            until(world, lambda now: "reason" in flow_of(now, "office"))
            assert download(world, "client-1", here["listen"]) == BODY
            until(world, lambda now: "reason" not in flow_of(now, "office"))
            assert download(world, "office-1", office["listen"]) == BODY
            # The bytes before the replacement count, too.
            until(world, lambda now: flow_of(now, "office").get("bytes_down", 0) > 2 * len(BODY))

            # Without the office's flow, its gateway ends, and the other host's flow stays.
            (world.home / "one.toml").write_text(SMALL)
            world.run("accelerate", "replan", "--flows", world.home / "one.toml").expect(0)
            assert [flow["name"] for flow in states(world)[0]["flows"]] == ["backup"]
            assert refused(world, "office-1", office["listen"])
            assert download(world, "client-1", here["listen"]) == BODY
            ended = world.run("accelerate", "down", "--drain", "1s").expect(0).stdout
            assert f"machine  {entrance} in {OFFICE}" in ended
            assert world.run("fleet", "list").expect(0).stdout == ""
        finally:
            other.terminate()
            other.wait()


def test_a_host_of_no_flow_here_needs_no_listener_here(command: Command, entrance: str) -> None:
    flows = SMALL.partition("[[flow]]")[0] + OF_OFFICE
    with running(command, TWO_HOSTS, flows) as world:
        other = serve(world, OTHER_PORT)
        try:
            state = up(world)
            assert download(world, "office-1", state["flows"][0]["listen"]) == BODY
            assert until(world, lambda now: now["flows"][0].get("bytes_down", 0) > len(BODY))["phase"] == "running"
            assert pid_of(world, entrance)
        finally:
            other.terminate()
            other.wait()


def test_a_region_of_several_hosts_is_refused(command: Command) -> None:
    with running(command, TWO_HOSTS, SMALL + OF_OFFICE.replace(OFFICE, NEAR)) as world:
        files = "--flows", world.home / "flows.toml", "--sky", world.home / "sky.json"
        said = world.run("accelerate", "up", *files, "-y").expect(2).stderr
        assert f"its connections begin in {NEAR}, where the configuration has 2 hosts" in said
        assert not json.loads(world.run("fleet", "list", "--json").stdout or "[]")
