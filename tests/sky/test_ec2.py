"""``--via fleet`` in an emulated EC2: instances boot, enrol, move objects between two stores, and are terminated.

The API is moto's; each instance that it starts really runs its user data, in a namespace on a private network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.clouds.aws import KEYS, AwsCloud, aws_cloud
from testbed.clouds.booter import BootedMachine
from testbed.clouds.lan import lan_unavailable
from testbed.drive import Command, Finished, Running
from testbed.servers.install import go_program
from testbed.servers.process import free_port, guarded, wait_until_answering
from testbed.servers.versitygw import MODULE, REGION, VERSION
from tests.fleet.worlds import wait_until
from tests.sky.world import differences, write_files
from tradewind.gateway.binary import find_gateway

SECRET = "testbed-secret"
#: The way over a third region is the fastest.
LINKS = """\
src,dst,gbps
aws:us-east-1,aws:eu-west-1,0.03
aws:us-east-1,aws:us-west-2,0.09
aws:us-west-2,aws:eu-west-1,0.09
"""
VOLUME_BYTES = 40_000_000
#: The network of the emulated cloud is as fast as this host: the transfer must not end before a machine is replaced.
RATE = "3MB/s"
ENDS_S = 60.0
"""Time in which everything that a command has started is gone."""


class Stage:
    """The command on this host, with a store in each of two regions."""

    def __init__(self, command: Command, cloud: AwsCloud, folder: Path, endpoints: Sequence[str]) -> None:
        self.command, self.cloud, self.folder = command, cloud, folder
        self.source = folder / "store 0" / "bucket" / "data"
        self.copy = folder / "store 1" / "bucket" / "copy"
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--limit-rate", RATE, "--max-cost", "5USD"),
            *("--src-region", "aws:us-east-1", "--dst-region", "aws:eu-west-1", "--via", "fleet"),
            *("--src-endpoint", endpoints[0], "--dst-endpoint", endpoints[1], "--share-keys"),
        ]

    def configure(self) -> None:
        document = self.cloud.document()
        aws = [f'endpoint = "{self.cloud.endpoint}"', 'regions = ["us-east-1", "us-west-2", "eu-west-1"]']
        fleet = [f'program_url = "{document["programs"][0]["url"]}"', f'home_cidr = "{document["home_cidr"]}"']
        path = Path(self.command.full_environment()["XDG_CONFIG_HOME"], "tradewind", "config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["[aws]", *aws, "[fleet]", *fleet, 'home_rate = "1Mbit/s"', ""]), encoding="utf-8")

    def start(self) -> Running:
        """Start the transfer, and return when a part of it has arrived."""
        running = self.command.start(*self.words)
        running.wait_for_bytes(VOLUME_BYTES // 8)
        return running

    def booted(self, region: str) -> BootedMachine:
        """Return a living machine of a region."""
        assert self.cloud.boots is not None
        machines = self.cloud.boots.booter.machines.values()
        return next(one for one in machines if one.region == f"aws:{region}" and not one.ended.is_set())

    def check(self, done: Finished) -> None:
        """Check that the transfer succeeded, and that nothing that it rented is left."""
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        assert self.cloud.boots is not None
        machines = self.cloud.boots.booter.machines.values()
        wait_until(lambda: all(machine.ended.is_set() for machine in machines), ENDS_S)
        assert self.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"
        assert {one["state"] for one in self.cloud.instances()} == {"terminated"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with ExitStack() as stack:
        cloud = stack.enter_context(aws_cloud(tmp_path / "cloud", find_gateway()))
        assert cloud.boots is not None
        endpoints = [stack.enter_context(store(cloud.boots.address, tmp_path / f"store {n}")) for n in range(2)]
        command = Command(tmp_path / "home")
        command.environment |= {**KEYS, "AWS_ACCESS_KEY_ID": "testbed", "AWS_SECRET_ACCESS_KEY": SECRET}
        command.environment["AWS_REGION"] = REGION
        made = Stage(command, cloud, tmp_path, endpoints)
        made.configure()
        write_files(made.source, VOLUME_BYTES)
        (tmp_path / "links.csv").write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", tmp_path / "links.csv").expect(0)
        yield made
        command.wait_until_alone()


@contextmanager
def store(address: str, folder: Path) -> Iterator[str]:
    """Run an object store on this host's address in the network of the machines; yield its endpoint."""
    (folder / "bucket").mkdir(parents=True)
    place = f"{address}:{free_port()}"
    words = [str(go_program("versitygw", MODULE, VERSION)), "--port", place, "--quiet", "--region", REGION]
    environment = {**os.environ, "ROOT_ACCESS_KEY": "testbed", "ROOT_SECRET_KEY": SECRET}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            guarded([*words, "posix", str(folder)]), env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_answering(process, f"http://{place}", folder, None)
        yield f"http://{place}"
    finally:
        process.kill()
        process.wait()


def test_a_relay_is_killed_and_replaced_and_nothing_is_left(stage: Stage) -> None:
    running = stage.start()
    listed = stage.command.run("fleet", "list", "--everywhere", "--json").expect(0).stdout.splitlines()
    found = {line["region"]: line for line in map(json.loads, listed)}
    assert set(found) == {"aws:us-east-1", "aws:us-west-2", "aws:eu-west-1"}
    assert all(line["owner"] == "in use" and line["usd"] > 0 for line in found.values())
    stage.booted("us-west-2").kill()
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    done = running.finish()
    assert any("us-west-2" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    secrets = [path for path in stage.folder.glob("cloud/machines/*") if SECRET in path.read_text(errors="replace")]
    assert secrets == [], "a key is in the user data or on a console"
    stage.check(done)


@pytest.mark.slow
def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(stage: Stage, tmp_path: Path) -> None:
    running = stage.start()
    running.signal(signal.SIGKILL)
    running.finish()
    stage.command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / "another state folder")
    swept = stage.command.run("fleet", "sweep").expect(0)
    del stage.command.environment["TRADEWIND_STATE_DIR"]
    assert "ran  aws:eu-west-1" in swept.stdout and " and cost $" in swept.stdout
    assert swept.stdout.endswith("nothing is left\n")
    assert {one["state"] for one in stage.cloud.instances()} == {"terminated"}
    stage.command.run("fleet", "down").expect(0)
