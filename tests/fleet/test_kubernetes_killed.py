"""The real command is killed at each of its calls to a real cluster in turn, while its pods really run.

The calls are those of an undisturbed transfer. Polls repeat each other: the first of each kind stands for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.kubelab import Lab
from testbed.kubelab.proxy import ApiProxy, api_proxy
from tests.fleet.kube_world import REGIONS, stage_of
from tests.fleet.test_kubernetes_transfer import ClusterTransfer
from tests.fleet.transfers import two_stores
from tests.fleet.worlds import wait_until
from tests.sky.halts import Halts
from tradewind.fleet.kubernetes.objects import START_S

pytestmark = pytest.mark.slow

#: Calls after which the pods are left to their leases.
LEFT_ALONE_MAX = 4
#: The longest lease that the ceiling allows, with the time in which a pod ends.
LEASES_S = 240.0
#: Conditions of a Job that has ended, or whose pods are being ended.
JOB_ENDS = {"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"}


class KubernetesHalts(Halts):
    """The API server of the source's cluster carries out the call."""

    stage: ClusterTransfer
    proxy: ApiProxy

    def halt_at(self, number: int | None) -> None:
        self.proxy.begin(number)

    def calls(self) -> list[str]:
        return self.proxy.calls

    def release(self) -> None:
        self.proxy.release()

    def living_regions(self) -> list[str]:
        return [region for context, region in REGIONS.items() for _ in self._living_jobs(context)]

    def running_pods(self) -> list[str]:
        """Return the names of all pods whose gateway runs."""
        pods = [pod for context in REGIONS for pod in self._objects("pods", context)]
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]

    def deadlines_s(self) -> set[int]:
        """Return the times after which Kubernetes ends the Jobs that live."""
        return {job["spec"]["activeDeadlineSeconds"] for context in REGIONS for job in self._living_jobs(context)}

    def _living_jobs(self, context: str) -> list[dict[str, Any]]:
        def has_ended(job: dict[str, Any]) -> bool:
            conditions = job["status"].get("conditions", ())
            return any(each["type"] in JOB_ENDS and each["status"] == "True" for each in conditions)

        return [job for job in self._objects("jobs", context) if not has_ended(job)]

    def _objects(self, kind: str, context: str) -> list[dict[str, Any]]:
        found = json.loads(self.stage.stage.kubectl("get", kind, "-o", "json", region=context))["items"]
        return [dict(each) for each in found]

    def check_nothing_runs(self) -> None:
        self.stage.kubectl_finds_nothing()


@pytest.fixture
def halts(kube_lab: Lab, tmp_path: Path) -> Iterator[KubernetesHalts]:
    with (
        stage_of(kube_lab, tmp_path) as stage,
        two_stores(kube_lab.address, tmp_path) as stores,
        api_proxy(kube_lab.kubeconfig, "r1") as proxy,
    ):
        transfer = ClusterTransfer(stage, tmp_path, stores)
        configure(transfer, kube_lab, proxy)
        made = KubernetesHalts(transfer)
        made.proxy = proxy
        yield made
        transfer.command.wait_until_alone()


def configure(transfer: ClusterTransfer, lab: Lab, proxy: ApiProxy) -> None:
    """Let the command reach the cluster of the source through a proxy. A region has room for what earlier ones left."""
    transfer.configure(dict.fromkeys(REGIONS, "service"))
    transfer.words += ["--max-vms", "1"]
    config = json.loads(lab.kubeconfig.read_text(encoding="utf-8"))
    (through,) = json.loads(proxy.kubeconfig("r1"))["clusters"]
    named = next(each["context"]["cluster"] for each in config["contexts"] if each["name"] == "r1")
    (there,) = (each for each in config["clusters"] if each["name"] == named)
    there["cluster"] = through["cluster"]
    own = transfer.folder / "kubeconfig"
    own.write_text(json.dumps(config), encoding="utf-8")
    written = transfer.command.configuration.read_text(encoding="utf-8")
    written = re.sub(r"(?m)^gateways = .*$", f"gateways = {LEFT_ALONE_MAX + 1}", written)
    transfer.command.configuration.write_text(written.replace(str(lab.kubeconfig), str(own)), encoding="utf-8")


def points_of(calls: Sequence[str]) -> list[int]:
    """Return the numbers of the calls to kill the command at, from the last one before the first change."""
    numbers = [n for n, call in enumerate(calls) if not call.startswith("GET") or call not in calls[:n]]
    first = next(number for number, call in enumerate(calls) if call.startswith("POST jobs"))
    return [first - 1, *(number for number in numbers if number >= first)]


def test_a_stranger_sees_and_ends_what_a_killed_command_leaves(halts: KubernetesHalts) -> None:
    halts.sweep_after_kills(points_of(halts.whole_run()))


def test_what_a_killed_command_leaves_ends_with_its_leases(halts: KubernetesHalts) -> None:
    """All are listed until then, those of former commands, too. A pod whose secret was never made cannot start, and
    Kubernetes ends its Job after 20 minutes.
    """
    points = points_of(halts.whole_run())[:LEFT_ALONE_MAX]
    for point in points:
        call = halts.kill_at(point)
        halts.check_all_are_listed(f"killed at call {point}, {call}")
    assert halts.running_pods() != []
    wait_until(lambda: halts.running_pods() == [], LEASES_S)
    assert halts.deadlines_s() <= {START_S}
    halts.check_all_are_listed("after all leases")
    halts.sweep("after all leases")
