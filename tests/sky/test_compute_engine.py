"""``--via fleet`` in an emulated Compute Engine: VMs boot, enrol, move objects between two stores, and are deleted.

The API is a stand-in; each VM that it starts really runs its startup script, in a namespace on a private network.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.clouds.booter import BootedMachine
from testbed.clouds.gcp import GcpCloud, gcp_cloud
from testbed.clouds.lan import lan_unavailable
from testbed.servers import Server
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from testbed.transcript import record_step
from tests.fleet.transfers import ready, two_stores
from tests.sky.cloud_transfer import CloudTransfer
from tradewind.catalog.learned import Sample, store_samples
from tradewind.catalog.load import catalog_folder
from tradewind.gateway.binary import find_gateway
from tradewind.model.ledger import STANDARD_EDGE
from tradewind.model.region import Region

REGIONS = ("gcp:us-central1", "gcp:us-east4", "gcp:europe-west4")
#: From the cloud to another network, where the network tier of the sender decides the price.
OUTWARD = ("gcp:us-central1", "gcp:us-east4", "site:lab")
#: Packaged price of the standard tier from North America: 0.085 USD per GiB.
STANDARD_USD_PER_GB = 0.085 * 1e9 / 2**30


class Stage(CloudTransfer):
    """A transfer between two regions of the cloud, over a third one."""

    def __init__(
        self,
        cloud: GcpCloud,
        folder: Path,
        stores: tuple[Server, Server],
        regions: tuple[str, str, str] = REGIONS,
        *words: str,
    ) -> None:
        super().__init__(folder, stores, regions, "--max-vms", "1", *words)
        document = cloud.document()
        self.cloud, self.booter = cloud, cloud.boots.booter
        self.program_url, self.home_cidr = document["programs"][0]["url"], document["home_cidr"]
        self.configure()

    def table(self) -> list[str]:
        document = self.cloud.document()
        settings = [f'{name} = "{document[name]}"' for name in ("project", "endpoint")]
        regions = [region.removeprefix("gcp:") for region in self.regions if region.startswith("gcp:")]
        return ["[gcp]", *settings, f"regions = {json.dumps(regions)}"]

    def check_nothing_is_billed(self) -> None:
        assert self.cloud.engine.billed() == []

    def network_tiers(self) -> list[str]:
        """Return the network tier of each VM."""
        interfaces = [vm.given["networkInterfaces"][0] for vm in self.cloud.engine.instances.values()]
        return [interface["accessConfigs"][0]["networkTier"] for interface in interfaces]

    def booted(self, region: str) -> tuple[str, BootedMachine]:
        """Return a machine of a region, with its name at Google."""
        name = next(one.name for one in self.cloud.engine.instances.values() if one.zone.startswith(region))
        return name, self.booter.machines[name]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with (
        gcp_cloud(tmp_path / "cloud", find_gateway()) as cloud,
        two_stores(cloud.address, tmp_path) as stores,
        ready(Stage(cloud, tmp_path, stores)) as made,
    ):
        yield made


@pytest.mark.slow
def test_a_relay_is_killed_and_replaced_and_nothing_is_left(stage: Stage) -> None:
    running = stage.start()
    stage.check_listed(*REGIONS)
    stage.check_has_no_key()
    _, relay = stage.booted("us-east4")
    record_step("The machine in us-east4 loses its power.")
    relay.kill()
    done = stage.finish_replaced(running)
    assert any("us-east4" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    stage.check(done)


@pytest.mark.slow
def test_a_spot_machine_that_is_reclaimed_works_until_another_one_takes_its_place(stage: Stage) -> None:
    """Google announces it half a minute before the VM is gone."""
    stage.configure(settings=["spot = true"])
    running = stage.start()
    name, sink = stage.booted("europe-west4")
    stage.cloud.engine.preempt(name)
    stage.finish_reclaimed(running, sink)


@pytest.mark.slow
def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(stage: Stage) -> None:
    stage.sweep_after_a_kill(stage.start())
    assert stage.cloud.engine.billed() == []
    stage.command.run("fleet", "down").expect(0)


def this_host(stage: Stage, server: LocalServer) -> list[str]:
    """Return the tables of the configuration for this host, as one of a site."""
    host = ['name = "here"', 'region = "site:lab"', f'address = "{stage.cloud.address}"']
    return ["[ssh]", f'config = "{server.config}"', "[[ssh.hosts]]", *host, f'folder = "{stage.folder}/here"']


@pytest.fixture
def outward(tmp_path: Path) -> Iterator[Stage]:
    """A transfer in the standard network tier from the cloud to a host elsewhere, which is this host."""
    if reason := lan_unavailable() or sshd_unavailable():
        pytest.skip(reason)
    with (
        gcp_cloud(tmp_path / "cloud", find_gateway()) as cloud,
        two_stores(cloud.address, tmp_path) as stores,
        TemporaryDirectory(prefix="tw-ssh-") as short,
        local_ssh_server(Path(short, "ssh")) as server,
        ready(Stage(cloud, tmp_path, stores, OUTWARD, "--tier", "standard")) as made,
    ):
        made.configure(*this_host(made, server))
        yield made


@pytest.mark.slow
def test_a_whole_transfer_in_the_standard_network_tier(outward: Stage) -> None:
    """The orders have the tier, the ledger has its price, and nothing is left."""
    running = outward.start()
    assert set(outward.network_tiers()) == {"STANDARD"}
    done = running.finish()
    outward.check(done)
    egress = [line for line in done.summary["cost"]["lines"] if line["kind"] == "egress" and line["unit"] == "GB"]
    out = [line for line in egress if "→ site:lab" in line["what"]]
    assert out and all(line["unit_usd"] == pytest.approx(STANDARD_USD_PER_GB) for line in out)
    assert all("Standard Tier" in line["source"] for line in out)


#: Rates of a machine pair in the premium and in the standard tier, and a rate that a mix of both reaches at least cost.
PREMIUM_GBPS, LEARNED_GBPS, WANTED = 0.016, 0.010, "13Mbit/s"


@pytest.fixture
def mixed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A transfer to a host elsewhere whose sender, the source or a relay, has a machine of each network tier.

    An earlier transfer has learned that the standard tier is slower; the user's contract makes the premium tier dear.
    """
    if reason := lan_unavailable() or sshd_unavailable():
        pytest.skip(reason)
    source, relay, sink = OUTWARD
    sender, other = (relay, source) if request.param == "relay" else (source, relay)
    with (
        gcp_cloud(tmp_path / "cloud", find_gateway()) as cloud,
        two_stores(cloud.address, tmp_path) as stores,
        TemporaryDirectory(prefix="tw-ssh-") as short,
        local_ssh_server(Path(short, "ssh")) as server,
    ):
        stage = Stage(cloud, tmp_path, stores, OUTWARD, "--tier", "best", "--max-vms", "2")
        stage.links = ((sender, sink, PREMIUM_GBPS), (other, sink, 0.001), (source, relay, 1.0))
        ceiling = stage.words.index("--max-cost")
        stage.words[ceiling : ceiling + 2] = ["--min-throughput", WANTED]
        prices = tmp_path / "contract.csv"
        prices.write_text(f"src,dst,usd_per_gb\n{sender},{sink},5\n", encoding="utf-8")
        stage.command.run("catalog", "import", prices).expect(0)
        ends = Region.parse(sender), Region.parse(sink)
        today = datetime.date.today().isoformat()
        seen = Sample(*ends, LEARNED_GBPS, False, 64, 10**9, 800.0, "", "job earlier", today, "standard")
        assert store_samples(catalog_folder(str(stage.command.state)), [seen])
        with ready(stage) as made:
            made.configure(*this_host(made, server))
            yield made


@pytest.mark.slow
@pytest.mark.parametrize("mixed", ["source", "relay"], indirect=True)
def test_a_region_sends_from_machines_of_both_network_tiers(mixed: Stage) -> None:
    """Each machine is ordered in its tier and moves its share, and the ledger has both prices."""
    running = mixed.start()
    sender = "us-east4" if mixed.links[0][0] == OUTWARD[1] else "us-central1"
    zones = [vm.zone for vm in mixed.cloud.engine.instances.values()]
    tiers = [tier for zone, tier in zip(zones, mixed.network_tiers(), strict=True) if zone.startswith(sender)]
    assert sorted(tiers) == ["PREMIUM", "STANDARD"]
    done = running.finish()
    mixed.check(done)
    lines = [line for line in done.summary["cost"]["lines"] if line["kind"] == "egress" and line["unit"] == "GB"]
    out = {line["what"]: line for line in lines if line["what"].startswith(f"gcp:{sender} → site:lab")}
    edge = f"gcp:{sender} → site:lab"
    prices = {what: line["unit_usd"] for what, line in out.items()}
    assert prices == {edge: pytest.approx(5.0), f"{edge}{STANDARD_EDGE}": pytest.approx(STANDARD_USD_PER_GB)}
    assert all(line["quantity"] > 0 for line in out.values())


def test_init_prints_the_role_and_what_is_available_and_doctor_what_is_missing(stage: Stage) -> None:
    """The role that `init` prints suffices for `doctor`; without a permission of it, `doctor` names it."""
    done = stage.command.run("init").expect(0)
    assert "the smallest policy for gcp:" in done.stdout
    regions = [line.split("  ")[0] for line in done.stdout.splitlines() if " per hour" in line]
    assert sorted(regions) == sorted(REGIONS)
    printed = (line.strip().removeprefix("- ") for line in done.stdout.splitlines() if line.strip().startswith("- "))
    granted = frozenset(word for word in printed if word.startswith(("compute.", "iam.")))
    stage.cloud.api.role = granted
    assert stage.command.run("doctor").expect(0).stdout.count("ok   machines       gcp:") == len(REGIONS)
    stage.cloud.api.role = granted - {"compute.instances.create"}
    lacking = stage.command.run("init").expect(1).stderr
    project = stage.cloud.api.cloud.project
    assert f"error: gcp cannot be used: the permission compute.instances.create is missing in project {project}\n" in (
        lacking
    )
    assert lacking.count("hint: add it to the policy or role of your login") == 1
    stage.cloud.api.role = granted - {"compute.regions.get"}
    refused = stage.command.run("doctor").expect(1).stdout
    assert (
        "BAD  machines       gcp: " in refused and "ok   machines" not in refused and "compute.regions.get" in refused
    )
