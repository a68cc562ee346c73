"""``--via fleet`` in three real clusters: pods start, enrol, move objects between two stores, and end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from testbed.kubelab import Lab
from testbed.servers import Server
from testbed.transcript import record_step
from tests.fleet.kube_world import NODES, REGIONS, Stage, stage_of
from tests.fleet.transfers import SECRET, Transfer, ready, two_stores
from tests.fleet.worlds import wait_until
from tradewind.fleet.kubernetes.policy import ROLE

pytestmark = pytest.mark.slow


class ClusterTransfer(Transfer):
    """A transfer between the regions of two clusters, over that of a third one."""

    def __init__(self, stage: Stage, folder: Path, stores: tuple[Server, Server]) -> None:
        super().__init__(folder, stores, (REGIONS["r1"], REGIONS["r3"], REGIONS["r2"]))
        self.stage = stage
        self.configure(dict.fromkeys(REGIONS, "host"))

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
        self.command.configure(*lines)

    def check_nothing_is_left(self) -> None:
        super().check_nothing_is_left()
        self.kubectl_finds_nothing()

    def kubectl_finds_nothing(self) -> None:
        """Wait until the garbage collector of each cluster has removed what belonged to the Jobs."""
        for region in REGIONS:
            wait_until(lambda region=region: self.stage.objects(region) == [])  # type: ignore[misc]


@pytest.fixture
def transfer(kube_lab: Lab, tmp_path: Path) -> Iterator[ClusterTransfer]:
    with (
        stage_of(kube_lab, tmp_path) as stage,
        two_stores(kube_lab.address, tmp_path) as stores,
        ready(ClusterTransfer(stage, tmp_path, stores)) as made,
    ):
        yield made


def test_a_relay_is_killed_and_replaced_and_nothing_is_left(transfer: ClusterTransfer) -> None:
    running = transfer.start()
    transfer.check_listed(*REGIONS.values())
    transfer.check_has_no_key()
    for region in REGIONS:
        logs = transfer.stage.kubectl("logs", "-l", "tradewind-role", "--all-containers", "--tail=-1", region=region)
        assert SECRET not in transfer.stage.kubectl("get", "all,secrets,events", "-o", "yaml", region=region) + logs
    record_step("The pod of the relay is deleted.")
    transfer.stage.kubectl("delete", "pods", "-l", "tradewind-role=relay", "--grace-period=1", region="r3")
    done = transfer.finish_replaced(running)
    assert any("relay" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    transfer.check(done)


def test_a_sink_and_a_source_that_nobody_can_dial(transfer: ClusterTransfer) -> None:
    """Their pods call home, and dial the relay."""
    transfer.configure({"r1": "out", "r2": "out", "r3": "service"})
    transfer.check(transfer.start().finish())


def test_pods_of_a_killed_command_are_swept_from_an_empty_state_folder(transfer: ClusterTransfer) -> None:
    transfer.sweep_after_a_kill(transfer.start())
    transfer.kubectl_finds_nothing()
    transfer.command.run("fleet", "down").expect(0)


def test_init_prints_the_permissions_and_what_is_available_and_doctor_what_is_missing(
    transfer: ClusterTransfer,
) -> None:
    """The user is the service account that `init` prints; without a permission of it, `doctor` names it."""
    stage = transfer.stage
    done = transfer.command.run("init").expect(0)
    printed = done.stdout.partition("the smallest policy for kubernetes:")[2]
    assert f"namespace: {stage.namespace}" in printed and f"name: {ROLE}" in printed, done.stdout
    regions = {
        line.split("  ")[0] for line in printed.splitlines() if " machine left" in line or " machines left" in line
    }
    assert regions == set(REGIONS.values())
    for part in printed.split("# kubectl --context ")[1:]:
        context, _, text = part.partition(" apply -f -\n")
        stage.lab.apply(context, text.split("\n\n")[0])
    config = json.loads(stage.lab.kubeconfig.read_text())
    for user in config["users"]:
        token = stage.kubectl("create", "token", ROLE, region=user["name"]).strip()
        user["user"] = {"token": token}
    own = transfer.folder / "kubeconfig"
    own.write_text(json.dumps(config), encoding="utf-8")
    written = transfer.command.configuration.read_text(encoding="utf-8")
    transfer.command.configuration.write_text(written.replace(str(stage.lab.kubeconfig), str(own)), encoding="utf-8")
    assert transfer.command.run("doctor").expect(0).stdout.count(" left as pods, from ") == len(REGIONS)
    stage.kubectl("delete", "rolebinding", ROLE)
    refused = transfer.command.run("doctor").expect(1).stdout
    assert "BAD  machines " in refused and "site:a" in refused and "list jobs" in refused, refused
