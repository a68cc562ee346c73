"""``--via fleet`` in emulated clouds: rented machines boot, enrol, move objects between two stores, and end.

The API is a stand-in; each machine that it starts really runs its user data, in a namespace on a private network.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from testbed.clouds.azure import GROUP, IDENTITY, SUBSCRIPTION, AzureCloud, azure_cloud
from testbed.clouds.lan import lan_unavailable
from testbed.servers import Server
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from testbed.transcript import record_step
from tests.fleet.transfers import VOLUME_BYTES, ready, two_stores
from tests.sky.cloud_transfer import CloudTransfer
from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.policy import policy
from tradewind.gateway.binary import find_gateway
from tradewind.model.azure import azure_from_document

REGIONS = ("azure:westeurope", "site:relay", "azure:eastus")
#: All of them in the cloud.
CLOUD_REGIONS = ("azure:westeurope", "azure:westus2", "azure:eastus")
#: From the cloud to another network, where the routing preference of the sender decides the price.
OUTWARD = ("azure:westeurope", "azure:eastus", "site:lab")
#: Packaged price of the routing preference Internet from Europe and North America.
INTERNET_USD_PER_GB = 0.08


class Stage(CloudTransfer):
    """A transfer between two regions of Azure, and a host in a third region."""

    def __init__(
        self,
        cloud: AzureCloud,
        folder: Path,
        stores: tuple[Server, Server],
        regions: tuple[str, str, str] = REGIONS,
        *words: str,
    ) -> None:
        super().__init__(folder, stores, regions, "--max-vms", "1", *words)  # This host runs all of them.
        self.cloud, self.booter = cloud, cloud.booter
        self.program_url, self.home_cidr = cloud.document()["programs"][0]["url"], f"{home_of(cloud)}/32"
        self.command.environment |= cloud.api.environment()
        self.configure()

    def table(self) -> list[str]:
        regions = [region.removeprefix("azure:") for region in self.regions if region.startswith("azure:")]
        return [
            "[azure]",
            f'endpoint = "{self.cloud.api.endpoint}"',
            f'subscription = "{SUBSCRIPTION}"',
            f'resource_group = "{GROUP}"',
            f"regions = {json.dumps(regions)}",
            f'identity = "{IDENTITY}"',
        ]

    def check_nothing_is_billed(self) -> None:
        assert not any(self.cloud.api.resources().values())


@contextmanager
def stage_in(folder: Path, regions: tuple[str, str, str], *words: str) -> Iterator[Stage]:
    """Run the cloud and the stores of a transfer."""
    if reason := lan_unavailable():
        pytest.skip(reason)
    with (
        azure_cloud(folder / "cloud", find_gateway()) as cloud,
        two_stores(home_of(cloud), folder) as stores,
        ready(Stage(cloud, folder, stores, regions, *words)) as made,
    ):
        yield made


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_in(tmp_path, REGIONS) as made:
        yield made


@pytest.fixture
def cloud_stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_in(tmp_path, CLOUD_REGIONS) as made:
        yield made


def home_of(cloud: AzureCloud) -> str:
    """Return this host's address in the network of the machines."""
    return urlsplit(cloud.api.endpoint).hostname or ""


def test_machines_are_rented_move_the_bytes_and_end(stage: Stage) -> None:
    """Without --via: machines are faster. The receipt of the job has their cost, and no cloud object is left."""
    planned = stage.command.run(*stage.words, "--dry-run").expect(0)
    assert "note: --via auto uses your machines in azure:westeurope and azure:eastus: " in planned.stderr
    running = stage.command.start(*stage.words)
    running.wait_for_bytes(VOLUME_BYTES // 8)
    stage.check_listed("azure:westeurope", "azure:eastus")
    stage.check_has_no_key()
    stage.check(running.finish())


@pytest.mark.slow
def test_a_machine_whose_power_is_cut_is_replaced(stage: Stage) -> None:
    running = stage.start()
    sink = next(machine for name, machine in stage.cloud.booter.machines.items() if "eastus" in name)
    sink.kill()
    stage.check(stage.finish_replaced(running))


@pytest.mark.slow
def test_a_relay_is_killed_and_replaced_and_nothing_is_left(cloud_stage: Stage) -> None:
    running = cloud_stage.start()
    cloud_stage.check_listed(*CLOUD_REGIONS)
    cloud_stage.check_has_no_key()
    record_step("The machine in westus2 loses its power.")
    next(machine for name, machine in cloud_stage.booter.machines.items() if "westus2" in name).kill()
    done = cloud_stage.finish_replaced(running)
    assert any("westus2" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    cloud_stage.check(done)


@pytest.mark.slow
def test_a_spot_machine_that_is_evicted_works_until_another_one_takes_its_place(stage: Stage) -> None:
    """Azure announces it half a minute before the VM is gone."""
    stage.configure(settings=["spot = true"])
    running = stage.start()
    name, sink = next(one for one in stage.cloud.booter.machines.items() if "eastus" in one[0])
    stage.cloud.api.ask(f"evict?name={name}", "")
    stage.finish_reclaimed(running, sink)
    assert "the cloud takes the machine back" in sink.console


@pytest.mark.slow
def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(stage: Stage) -> None:
    receipt = stage.sweep_after_a_kill(stage.start())
    assert "ran  azure:eastus  azure-eastus-1 (" in receipt
    assert not any(stage.cloud.api.resources().values())
    stage.command.run("fleet", "down").expect(0)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    if reason := sshd_unavailable():
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as made:
        yield made


def this_host(stage: Stage, server: LocalServer, region: str, folder: Path) -> list[str]:
    """Return the tables of the configuration for this host as one of a site."""
    host = ['name = "here"', f'region = "{region}"', "usd_per_hour = 1", f'address = "{home_of(stage.cloud)}"']
    return ["[ssh]", f'config = "{server.config}"', "[[ssh.hosts]]", *host, f'folder = "{folder}"']


@pytest.mark.slow
def test_a_relay_on_a_host_between_two_regions_of_a_cloud_is_killed_and_replaced(
    stage: Stage, server: LocalServer
) -> None:
    """One fleet of two providers. The machines in the cloud admit the host, and each side ends its own."""
    on_host = stage.folder / "on the host"
    stage.configure(*this_host(stage, server, "site:relay", on_host))
    running = stage.start()
    stage.check_listed(*REGIONS)
    record_step("The gateway in site:relay is killed.")
    (relay,) = on_host.glob("machines/*/pid")
    os.kill(int(relay.read_text()), signal.SIGKILL)
    done = stage.finish_replaced(running)
    assert any("site-relay" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    stage.check(done)
    assert list(on_host.glob("machines/*")) == []


@pytest.mark.slow
def test_a_whole_transfer_with_the_routing_preference_internet(
    tmp_path: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The addresses of source and relay have the tag, the ledger has its price, and nothing is left."""
    with stage_in(tmp_path, OUTWARD, "--tier", "standard") as stage:
        stage.configure(*this_host(stage, server, "site:lab", tmp_path / "on the host"))
        running = stage.start()
        for name, value in stage.cloud.api.environment().items():
            monkeypatch.setenv(name, value)
        addresses = Clients(azure_from_document(stage.cloud.document())).network.public_ip_addresses.list(GROUP)
        tags = [[(tag.ip_tag_type, tag.tag) for tag in address.ip_tags or ()] for address in addresses]
        assert tags == [[("RoutingPreference", "Internet")]] * 2
        done = running.finish()
        stage.check(done)
    egress = [line for line in done.summary["cost"]["lines"] if line["kind"] == "egress" and line["unit"] == "GB"]
    out = [line for line in egress if "→ site:lab" in line["what"]]
    assert out and all(line["unit_usd"] == pytest.approx(INTERNET_USD_PER_GB) for line in out)
    assert all("Routing Preference: Internet" in line["source"] for line in out)


@pytest.mark.slow
def test_init_prints_the_policy_and_what_is_available_and_doctor_what_is_missing(stage: Stage) -> None:
    done = stage.command.run("init").expect(0)
    assert "the smallest policy for azure:" in done.stdout
    assert '"Microsoft.Compute/virtualMachines/write"' in done.stdout
    regions = [line.split("  ")[0] for line in done.stdout.splitlines() if " per hour" in line]
    assert regions == ["azure:eastus", "azure:westeurope"]
    assert stage.command.run("doctor").stdout.count("ok   machines       azure:") == 2
    roles = policy(azure_from_document(stage.cloud.document(identity=IDENTITY)))
    actions = {action for role in roles for action in role["Actions"]}
    stage.cloud.api.allow("owner", sorted(actions - {"Microsoft.Compute/locations/usages/read"}))
    without_quotas = stage.command.run("doctor").expect(0).stdout
    assert "warn machines       azure:westeurope: the quota cannot be read: AuthorizationFailed: " in without_quotas
    assert "→ the missing permission is Microsoft.Compute/locations/usages/read" in without_quotas
    stage.cloud.api.allow("owner", [])
    refused = stage.command.run("doctor").expect(1).stdout
    assert "BAD  machines       azure: " in refused and "ok   machines" not in refused
    assert "→ the missing permission is Microsoft.Compute/virtualMachines/read" in refused


def test_a_plan_needs_no_permission_to_read_quotas(stage: Stage) -> None:
    roles = policy(azure_from_document(stage.cloud.document(identity=IDENTITY)))
    actions = {action for role in roles for action in role["Actions"]}
    stage.cloud.api.allow("owner", sorted(actions - {"Microsoft.Compute/locations/usages/read"}))
    done = stage.command.run(*stage.words, "--dry-run").expect(0)
    assert "note: the quota of azure:eastus cannot be read: AuthorizationFailed" in done.stderr
    assert "note: --via auto uses your machines" in done.stderr
