"""``--via fleet`` in an emulated Compute Engine: VMs boot, enrol, move objects between two stores, and are deleted.

The API is a stand-in; each VM that it starts really runs its startup script, in a namespace on a private network.
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

from testbed.clouds.booter import BootedMachine
from testbed.clouds.gcp import GcpCloud, gcp_cloud
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
gcp:us-central1,gcp:europe-west4,0.03
gcp:us-central1,gcp:us-east4,0.09
gcp:us-east4,gcp:europe-west4,0.09
"""
VOLUME_BYTES = 40_000_000
#: The network of the emulated cloud is as fast as this host: the transfer must not end before a machine is replaced.
RATE = "3MB/s"
ENDS_S = 60.0
"""Time in which everything that a command has started is gone."""


class Stage:
    """The command on this host, with a store in each of two regions."""

    def __init__(self, command: Command, cloud: GcpCloud, folder: Path, endpoints: Sequence[str]) -> None:
        self.command, self.cloud, self.folder = command, cloud, folder
        self.source = folder / "store 0" / "bucket" / "data"
        self.copy = folder / "store 1" / "bucket" / "copy"
        self.words = [
            *(
                "cp",
                "-r",
                "s3://bucket/data/",
                "s3://bucket/copy/",
                "--limit-rate",
                RATE,
                "--max-cost",
                "5USD",
                "--max-vms",
                "1",
            ),
            *("--src-region", "gcp:us-central1", "--dst-region", "gcp:europe-west4", "--via", "fleet"),
            *("--src-endpoint", endpoints[0], "--dst-endpoint", endpoints[1], "--share-keys"),
        ]

    def configure(self, **settings: str) -> None:
        document = self.cloud.document()
        given = {"project": document["project"], "endpoint": document["endpoint"], **settings}
        gcp = [f'{name} = "{value}"' for name, value in given.items()]
        gcp.append('regions = ["us-central1", "us-east4", "europe-west4"]')
        fleet = [f'program_url = "{document["programs"][0]["url"]}"', f'home_cidr = "{document["home_cidr"]}"']
        path = Path(self.command.full_environment()["XDG_CONFIG_HOME"], "tradewind", "config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["[gcp]", *gcp, "[fleet]", *fleet, 'home_rate = "1Mbit/s"', ""]), encoding="utf-8")

    def start(self) -> Running:
        """Start the transfer, and return when a part of it has arrived."""
        running = self.command.start(*self.words)
        running.wait_for_bytes(VOLUME_BYTES // 8)
        return running

    def booted(self, region: str) -> tuple[str, BootedMachine]:
        """Return a machine of a region, with its name at Google."""
        name = next(one.name for one in self.cloud.engine.instances.values() if one.zone.startswith(region))
        return name, self.cloud.boots.booter.machines[name]

    def check(self, done: Finished) -> None:
        """Check that the transfer succeeded, and that nothing that it rented is left."""
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        machines = self.cloud.boots.booter.machines.values()
        wait_until(lambda: all(machine.ended.is_set() for machine in machines), ENDS_S)
        assert self.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"
        assert self.cloud.engine.billed() == []


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with ExitStack() as stack:
        cloud = stack.enter_context(gcp_cloud(tmp_path / "cloud", find_gateway()))
        endpoints = [stack.enter_context(store(cloud, tmp_path / f"store {number}")) for number in range(2)]
        command = Command(tmp_path / "home")
        command.environment |= {"AWS_ACCESS_KEY_ID": "testbed", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        made = Stage(command, cloud, tmp_path, endpoints)
        made.configure()
        write_files(made.source, VOLUME_BYTES)
        (tmp_path / "links.csv").write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", tmp_path / "links.csv").expect(0)
        yield made
        command.wait_until_alone()


@contextmanager
def store(cloud: GcpCloud, folder: Path) -> Iterator[str]:
    """Run an object store on this host's address in the network of the machines; yield its endpoint."""
    (folder / "bucket").mkdir(parents=True)
    address = f"{cloud.address}:{free_port()}"
    words = [str(go_program("versitygw", MODULE, VERSION)), "--port", address, "--quiet", "--region", REGION]
    environment = {**os.environ, "ROOT_ACCESS_KEY": "testbed", "ROOT_SECRET_KEY": SECRET}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            guarded([*words, "posix", str(folder)]), env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_answering(process, f"http://{address}", folder, None)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def test_a_relay_is_killed_and_replaced_and_nothing_is_left(stage: Stage) -> None:
    running = stage.start()
    listed = stage.command.run("fleet", "list", "--everywhere", "--json").expect(0).stdout.splitlines()
    found = {line["region"]: line for line in map(json.loads, listed)}
    assert set(found) == {"gcp:us-central1", "gcp:us-east4", "gcp:europe-west4"}
    assert all(line["owner"] == "in use" and line["usd"] > 0 for line in found.values())
    _, relay = stage.booted("us-east4")
    relay.kill()
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    done = running.finish()
    assert any("us-east4" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    secrets = [path for path in stage.folder.glob("cloud/machines/*") if SECRET in path.read_text(errors="replace")]
    assert secrets == [], "a key is in the user data or on a console"
    stage.check(done)


@pytest.mark.slow
def test_a_spot_machine_that_is_reclaimed_ends_by_itself_and_is_replaced(stage: Stage) -> None:
    """Its gateway ends as soon as Google announces it, half a minute before the VM is gone."""
    running = stage.start()
    name, sink = stage.booted("europe-west4")
    stage.cloud.engine.preempt(name)
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    wait_until(sink.ended.is_set)
    assert "the gateway ended with 0" in sink.console, "its gateway saved its work"
    stage.check(running.finish())


@pytest.mark.slow
def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(stage: Stage, tmp_path: Path) -> None:
    running = stage.start()
    running.signal(signal.SIGKILL)
    running.finish()
    stage.command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / "another state folder")
    swept = stage.command.run("fleet", "sweep").expect(0)
    del stage.command.environment["TRADEWIND_STATE_DIR"]
    assert "ran  gcp:europe-west4" in swept.stdout and " and cost $" in swept.stdout
    assert swept.stdout.endswith("nothing is left\n")
    assert stage.cloud.engine.billed() == []
    stage.command.run("fleet", "down").expect(0)
