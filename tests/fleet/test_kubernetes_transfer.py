"""``--via fleet`` in three real clusters: pods start, enrol, move objects between two stores, and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.drive import Command, Finished, Running
from testbed.kubelab import Lab
from testbed.servers.install import go_program
from testbed.servers.process import free_port, guarded, wait_until_answering
from testbed.servers.versitygw import MODULE, REGION, VERSION
from tests.fleet.kube_world import NODES, REGIONS, Stage, stage_of
from tests.fleet.worlds import wait_until
from tests.sky.world import differences, write_files

pytestmark = pytest.mark.slow
SECRET = "testbed-secret"
#: The way over a third region is the fastest.
LINKS = """\
src,dst,gbps
site:a,site:b,0.03
site:a,site:relay,0.09
site:relay,site:b,0.09
"""
VOLUME_BYTES = 40_000_000
#: The network of the clusters is as fast as this host: the transfer must not end before a machine is replaced.
RATE = "3MB/s"


class Transfer:
    """The command on this host, with a store in each of two regions."""

    def __init__(self, stage: Stage, command: Command, folder: Path, endpoints: Sequence[str]) -> None:
        self.stage, self.command, self.folder = stage, command, folder
        self.source = folder / "store 0" / "bucket" / "data"
        self.copy = folder / "store 1" / "bucket" / "copy"
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--limit-rate", RATE, "--max-cost", "5USD"),
            *("--src-region", "site:a", "--dst-region", "site:b", "--via", "fleet"),
            *("--src-endpoint", endpoints[0], "--dst-endpoint", endpoints[1], "--share-keys"),
        ]

    def configure(self, networks: Mapping[str, str]) -> None:
        """Write the configuration: the clusters, each with a network."""
        document = self.stage.document()
        lines = ["[kubernetes]", f'kubeconfig = "{document["kubeconfig"]}"', f'home = "{document["home"]}"']
        for cluster in document["clusters"]:
            lines += ["[[kubernetes.clusters]]", f'network = "{networks[cluster["context"]]}"', "usd_per_hour = 0.4"]
            # One per node, so that the plan does not want more.
            lines.append(f"gateways = {NODES[cluster['context']]}")
            lines += [f'{name} = "{cluster[name]}"' for name in ("context", "region", "image", "namespace")]
            lines += [f'{name} = "{cluster[name]}"' for name in ("cpu", "memory")]
        path = Path(self.command.full_environment()["XDG_CONFIG_HOME"], "tradewind", "config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")

    def start(self) -> Running:
        """Start the transfer, and return when a part of it has arrived."""
        running = self.command.start(*self.words)
        running.wait_for_bytes(VOLUME_BYTES // 8)
        return running

    def check(self, done: Finished) -> None:
        """Check that the transfer succeeded, and that the clusters have none of its objects left."""
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        assert self.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"
        self.kubectl_finds_nothing()

    def kubectl_finds_nothing(self) -> None:
        """Wait until the garbage collector of each cluster has removed what belonged to the Jobs."""
        for region in REGIONS:
            wait_until(lambda region=region: self.stage.objects(region) == [])  # type: ignore[misc]


@pytest.fixture
def transfer(kube_lab: Lab, tmp_path: Path) -> Iterator[Transfer]:
    with ExitStack() as stack:
        stage = stack.enter_context(stage_of(kube_lab, tmp_path))
        endpoints = [stack.enter_context(store(kube_lab.address, tmp_path / f"store {number}")) for number in range(2)]
        command = Command(tmp_path / "home")
        command.environment |= {"AWS_ACCESS_KEY_ID": "testbed", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        made = Transfer(stage, command, tmp_path, endpoints)
        made.configure(dict.fromkeys(REGIONS, "host"))
        write_files(made.source, VOLUME_BYTES)
        (tmp_path / "links.csv").write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", tmp_path / "links.csv").expect(0)
        yield made
        command.wait_until_alone()


@contextmanager
def store(address: str, folder: Path) -> Iterator[str]:
    """Run an object store on this host's address in the network of the nodes; yield its endpoint."""
    (folder / "bucket").mkdir(parents=True)
    listen = f"{address}:{free_port()}"
    words = [str(go_program("versitygw", MODULE, VERSION)), "--port", listen, "--quiet", "--region", REGION]
    environment = {**os.environ, "ROOT_ACCESS_KEY": "testbed", "ROOT_SECRET_KEY": SECRET}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            guarded([*words, "posix", str(folder)]), env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_answering(process, f"http://{listen}", folder, None)
        yield f"http://{listen}"
    finally:
        process.kill()
        process.wait()


def test_a_relay_is_killed_and_replaced_and_nothing_is_left(transfer: Transfer) -> None:
    running = transfer.start()
    listed = transfer.command.run("fleet", "list", "--everywhere", "--json").expect(0).stdout.splitlines()
    found = {line["region"]: line for line in map(json.loads, listed)}
    assert set(found) == {"site:a", "site:b", "site:relay"}
    assert all(line["owner"] == "in use" and line["usd"] > 0 for line in found.values())
    for region in REGIONS:
        assert SECRET not in transfer.stage.kubectl("get", "all,secrets,events", "-o", "yaml", region=region)
    transfer.stage.kubectl("delete", "pods", "-l", "tradewind-role=relay", "--grace-period=1", region="r3")
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    done = running.finish()
    assert any("relay" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    transfer.check(done)


def test_a_sink_and_a_source_that_nobody_can_dial(transfer: Transfer) -> None:
    """Their pods call home, and dial the relay."""
    transfer.configure({"r1": "out", "r2": "out", "r3": "service"})
    transfer.check(transfer.command.start(*transfer.words).finish())


def test_pods_of_a_killed_command_are_swept_from_an_empty_state_folder(transfer: Transfer, tmp_path: Path) -> None:
    running = transfer.start()
    running.signal(signal.SIGKILL)
    running.finish()
    transfer.command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / "another state folder")
    swept = transfer.command.run("fleet", "sweep").expect(0)
    del transfer.command.environment["TRADEWIND_STATE_DIR"]
    assert "ran  site:b" in swept.stdout and " and cost $" in swept.stdout
    assert swept.stdout.endswith("nothing is left\n")
    transfer.kubectl_finds_nothing()
    transfer.command.run("fleet", "down").expect(0)
