"""``--via fleet`` in emulated clouds: rented machines boot, enrol, move objects between two stores, and end.

The API is a stand-in; each machine that it starts really runs its user data, in a namespace on a private network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from testbed.clouds.azure import GROUP, IDENTITY, SUBSCRIPTION, AzureCloud, azure_cloud
from testbed.clouds.lan import lan_unavailable
from testbed.drive import Command, Finished
from testbed.servers.install import go_program
from testbed.servers.process import free_port, guarded, wait_until_answering
from testbed.servers.versitygw import MODULE, REGION, VERSION
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from tests.fleet.worlds import wait_until
from tests.sky.world import differences, write_files
from tradewind.fleet.azure.policy import policy
from tradewind.gateway.binary import find_gateway
from tradewind.model.azure import azure_from_document

SECRET = "testbed-secret"
LINKS = """\
src,dst,gbps
azure:westeurope,azure:eastus,0.03
azure:westeurope,site:relay,0.09
site:relay,azure:eastus,0.09
"""
VOLUME_BYTES = 40_000_000
#: The network of the emulated clouds is as fast as this host: the transfer must not end before a machine is replaced.
RATE = "3MB/s"
ENDS_S = 60.0
"""Time in which everything that a command has started is gone."""


class Stage:
    """The command on this host, with a store in each of two regions of Azure, and a host in a third region."""

    def __init__(self, command: Command, cloud: AzureCloud, folder: Path, endpoints: Sequence[str]) -> None:
        self.command, self.cloud, self.folder = command, cloud, folder
        self.source = folder / "store 0" / "bucket" / "data"
        self.copy = folder / "store 1" / "bucket" / "copy"
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--limit-rate", RATE, "--max-cost", "5USD"),
            *("--max-vms", "1"),  # This host runs all of them.
            *("--src-region", "azure:westeurope", "--dst-region", "azure:eastus"),
            *("--src-endpoint", endpoints[0], "--dst-endpoint", endpoints[1], "--share-keys"),
        ]

    def configure(self, *tables: str) -> None:
        """Write the configuration: the fleet's and Azure's tables, and others."""
        program = self.cloud.document()["programs"][0]["url"]
        azure = [f'endpoint = "{self.cloud.api.endpoint}"', f'subscription = "{SUBSCRIPTION}"']
        azure += [f'resource_group = "{GROUP}"', 'regions = ["westeurope", "eastus"]', f'identity = "{IDENTITY}"']
        fleet = [f'program_url = "{program}"', f'home_cidr = "{home_of(self.cloud)}/32"', 'home_rate = "1Mbit/s"']
        path = Path(self.command.full_environment()["XDG_CONFIG_HOME"], "tradewind", "config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["[azure]", *azure, "[fleet]", *fleet, *tables, ""]
        path.write_text("\n".join(lines), encoding="utf-8")

    def check(self, done: Finished) -> None:
        """Check that the transfer succeeded, and that its machines and all that belonged to them are gone."""
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        wait_until(lambda: all(machine.ended.is_set() for machine in self.cloud.booter.machines.values()), ENDS_S)
        assert self.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"
        assert not any(self.cloud.api.resources().values())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with ExitStack() as stack:
        cloud = stack.enter_context(azure_cloud(tmp_path / "cloud", find_gateway()))
        endpoints = [stack.enter_context(store(cloud, tmp_path / f"store {number}")) for number in range(2)]
        command = Command(tmp_path / "home")
        command.environment |= {"AWS_ACCESS_KEY_ID": "testbed", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        command.environment |= cloud.api.environment()
        made = Stage(command, cloud, tmp_path, endpoints)
        made.configure()
        write_files(made.source, VOLUME_BYTES)
        (tmp_path / "links.csv").write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", tmp_path / "links.csv").expect(0)
        yield made
        command.wait_until_alone()


def home_of(cloud: AzureCloud) -> str:
    """Return this host's address in the network of the machines."""
    return urlsplit(cloud.api.endpoint).hostname or ""


@contextmanager
def store(cloud: AzureCloud, folder: Path) -> Iterator[str]:
    """Run an object store on this host's address in the network of the machines; yield its endpoint."""
    (folder / "bucket").mkdir(parents=True)
    address = f"{home_of(cloud)}:{free_port()}"
    words = [str(go_program("versitygw", MODULE, VERSION)), "--port", address, "--quiet", "--region", REGION]
    environment = {**os.environ, "ROOT_ACCESS_KEY": "testbed", "ROOT_SECRET_KEY": SECRET}
    process = subprocess.Popen(
        guarded([*words, "posix", str(folder)]),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_answering(process, f"http://{address}", folder, None)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def test_machines_are_rented_move_the_bytes_and_end(stage: Stage) -> None:
    """Without --via: machines are faster. The receipt of the job has their cost, and no cloud object is left."""
    planned = stage.command.run(*stage.words, "--dry-run").expect(0)
    assert "note: --via auto uses your machines in azure:westeurope and azure:eastus: " in planned.stderr
    running = stage.command.start(*stage.words)
    running.wait_for_bytes(VOLUME_BYTES // 8)
    listed = stage.command.run("fleet", "list", "--everywhere", "--json").expect(0).stdout.splitlines()
    found = {line["region"]: line for line in map(json.loads, listed)}
    assert set(found) == {"azure:westeurope", "azure:eastus"}
    assert all(line["owner"] == "in use" and line["usd"] > 0 for line in found.values())
    stage.check(running.finish())


def test_a_machine_whose_power_is_cut_is_replaced(stage: Stage) -> None:
    running = stage.command.start(*stage.words, "--via", "fleet")
    running.wait_for_bytes(VOLUME_BYTES // 8)
    sink = next(machine for name, machine in stage.cloud.booter.machines.items() if "eastus" in name)
    sink.kill()
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    stage.check(running.finish())


def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(stage: Stage, tmp_path: Path) -> None:
    """The receipt says what ran and what it cost."""
    running = stage.command.start(*stage.words, "--via", "fleet")
    running.wait_for_bytes(VOLUME_BYTES // 8)
    running.signal(signal.SIGKILL)
    running.finish()
    stage.command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / "another state folder")
    swept = stage.command.run("fleet", "sweep").expect(0)
    del stage.command.environment["TRADEWIND_STATE_DIR"]
    assert "ran  azure:eastus  azure-eastus-1 (" in swept.stdout and " and cost $" in swept.stdout
    assert swept.stdout.endswith("nothing is left\n")
    assert not any(stage.cloud.api.resources().values())
    stage.command.run("fleet", "down").expect(0)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    if reason := sshd_unavailable():
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as made:
        yield made


def test_a_relay_on_a_host_between_two_regions_of_a_cloud_is_killed_and_replaced(
    stage: Stage, server: LocalServer
) -> None:
    """One fleet of two providers. The machines in the cloud admit the host, and each side ends its own."""
    on_host = stage.folder / "on the host"
    stage.configure(
        "[ssh]",
        f'config = "{server.config}"',
        "[[ssh.hosts]]",
        'name = "here"',
        'region = "site:relay"',
        f'address = "{home_of(stage.cloud)}"',
        f'folder = "{on_host}"',
    )
    running = stage.command.start(*stage.words, "--via", "fleet")
    running.wait_for_bytes(VOLUME_BYTES // 8)
    (relay,) = on_host.glob("machines/*/pid")
    os.kill(int(relay.read_text()), signal.SIGKILL)
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    done = running.finish()
    assert any("site-relay" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    stage.check(done)
    assert list(on_host.glob("machines/*")) == []


def test_init_prints_the_policy_and_what_is_available_and_doctor_what_is_missing(stage: Stage) -> None:
    done = stage.command.run("init").expect(0)
    assert "the smallest policy for azure:" in done.stdout
    assert '"Microsoft.Compute/virtualMachines/write"' in done.stdout
    regions = [line.split("  ")[0] for line in done.stdout.splitlines() if " per hour" in line]
    assert regions == ["azure:eastus", "azure:westeurope"]
    assert stage.command.run("doctor").stdout.count("ok   machines       azure:") == 2
    stage.cloud.api.allow("owner", [])
    refused = stage.command.run("doctor").expect(1).stdout
    assert "BAD  machines       azure:westeurope: AuthorizationFailed: " in refused
    assert "→ the missing permission is Microsoft.Compute/locations/usages/read" in refused


def test_a_plan_needs_no_permission_to_read_quotas(stage: Stage) -> None:
    roles = policy(azure_from_document(stage.cloud.document(identity=IDENTITY)))
    actions = {action for role in roles for action in role["Actions"]}
    stage.cloud.api.allow("owner", sorted(actions - {"Microsoft.Compute/locations/usages/read"}))
    done = stage.command.run(*stage.words, "--dry-run").expect(0)
    assert "note: the quota of azure:eastus cannot be read: AuthorizationFailed" in done.stderr
    assert "note: --via auto uses your machines" in done.stderr
