"""`tradewind accelerate up` on spot instances of an emulated EC2, one of which is reclaimed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.clouds.aws import AwsCloud, aws_cloud
from testbed.clouds.lan import lan_unavailable
from testbed.drive import Command
from tests.fleet.accelerations import FLOWS, PATIENCE_S, Sink, send, up
from tests.fleet.worlds import wait_until
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.slow
pytest.importorskip("tomllib")

REGIONS = ("us-east-1", "eu-west-1")
BODY = os.urandom(1_000_000)
#: Time until a machine has booted in place of another one, on a busy host.
REPLACED_S = 90.0


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[AwsCloud]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with aws_cloud(tmp_path / "cloud", find_gateway()) as made:
        yield made


@pytest.fixture
def command(cloud: AwsCloud, tmp_path: Path) -> Iterator[Command]:
    made, document = Command(tmp_path / "home"), cloud.document()
    made.environment.update({"AWS_ACCESS_KEY_ID": "root", "AWS_SECRET_ACCESS_KEY": "secret"})
    made.configure(
        "[fleet]",
        f'home_cidr = "{document["home_cidr"]}"',
        f'program_url = "{document["programs"][0]["url"]}"',
        "[aws]",
        f'endpoint = "{cloud.endpoint}"',
        f"regions = {list(REGIONS)}",
        "spot = true",
    )
    yield made
    made.run("accelerate", "down", "--drain", "0s")
    made.wait_until_alone()
    assert {one["state"] for one in cloud.instances()} == {"terminated"}


@pytest.fixture
def sink(cloud: AwsCloud) -> Iterator[Sink]:
    assert cloud.boots is not None
    made = Sink(cloud.boots.address)
    yield made
    made.close()


def test_a_proxy_whose_machine_is_reclaimed_gets_another_one_when_its_connections_have_ended(
    cloud: AwsCloud, command: Command, sink: Sink
) -> None:
    assert cloud.boots is not None
    state, _ = up(
        command, FLOWS.replace("site:a", "aws:us-east-1").replace("site:b", "aws:eu-west-1") % sink.address, "-y"
    )
    first, last = state["flows"][0]["through"]
    host, _, port = state["flows"][0]["listen"].rpartition(":")
    (leaving,) = (one for one in cloud.boots.booter.machines.values() if one.region == "aws:us-east-1")

    def now() -> dict[str, Any]:
        (found,) = command.run("accelerate", "status", "--json").events
        return dict(found)

    def health(name: str) -> str:
        return str(next(proxy["health"] for proxy in now()["proxies"] if proxy["name"] == name))

    with socket.create_connection((host, int(port)), PATIENCE_S) as client:
        client.sendall(BODY)
        wait_until(lambda: len(sink.received) == len(BODY))
        cloud.reclaim(leaving.address)
        wait_until(lambda: health(first) == "unhealthy")
        assert "the cloud takes its machine back" in next(p["error"] for p in now()["proxies"] if p["name"] == first)
        client.sendall(BODY)  # An open connection stays where it is.
        wait_until(lambda: len(sink.received) == 2 * len(BODY))
        assert health(first) == "unhealthy" and not leaving.ended.is_set()
    wait_until(lambda: health(first) == "healthy", REPLACED_S)
    assert leaving.ended.is_set() and health(last) == "healthy"
    assert len(cloud.boots.booter.machines) == 3
    wait_until(lambda: now()["flows"][0]["through"] == [first, last])
    send(now(), BODY)
    wait_until(lambda: len(sink.received) == 3 * len(BODY))
