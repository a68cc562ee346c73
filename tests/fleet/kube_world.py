"""Namespaces of a shared lab, and providers for them."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.kubelab import Lab, lab_unavailable
from testbed.kubelab.shared import GATEWAY_IMAGE, shared_lab
from testbed.servers import InstallError
from tests.fleet.worlds import Enrolment
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, LaunchResult, Lease, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway

REGIONS = {"r1": "site:a", "r2": "site:b", "r3": "site:relay"}
"""Region of each cluster, by its name and context."""
NODES = {"r1": 1, "r2": 1, "r3": 2}
"""Number of nodes of each cluster. Kubernetes moves nothing from the last node of a cluster when it is lost."""


def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the lab that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return Path(base.parent if base.name.startswith("popen-") else base, "kubelab")


@contextmanager
def lab_of_session(folder: Path) -> Iterator[Lab]:
    """Yield the lab of this test run; skip the test if this machine cannot run one."""
    if reason := lab_unavailable():
        pytest.skip(reason)
    try:
        with shared_lab(folder, NODES, Path(find_gateway()).resolve()) as lab:
            yield lab
    except InstallError as error:
        pytest.skip(f"the lab cannot be built: {error}")


@dataclass
class Stage:
    """A namespace of its own in each cluster of a lab."""

    lab: Lab
    folder: Path
    enrolment: Enrolment
    namespace: str = field(default_factory=lambda: f"tw-{secrets.token_hex(4)}")
    owner: str = field(default_factory=lambda: f"owner-{secrets.token_hex(4)}")

    def document(self, kubeconfig: Path | None = None, **changes: Any) -> dict[str, Any]:
        """Return the provider's document. `changes` are settings of all clusters."""
        cluster = {
            "image": GATEWAY_IMAGE,
            "namespace": self.namespace,
            "network": "service",
            "cpu": "10m",
            "memory": "256Mi",
            "gateways": 4,
            **changes,
        }
        clusters = [{"context": context, "region": region, **cluster} for context, region in REGIONS.items()]
        return {
            "kind": "kubernetes",
            "clusters": clusters,
            "kubeconfig": str(kubeconfig or self.lab.kubeconfig),
            "home": self.lab.address,
        }

    def provider(self, kubeconfig: Path | None = None, **changes: Any) -> Provider:
        """Return a provider of all clusters."""
        return make_provider(self.document(kubeconfig, **changes), find_gateway(), FleetJournal(self.folder / "state"))

    def order(self, name: str = "one", lease_s: int = 600, region: str = "site:a") -> LaunchOrder:
        """Return an order of the fleet `faults`."""
        join = self.enrolment.join(name, name)
        return LaunchOrder("faults", name, region, name, 1, Lease(lease_s, self.owner), peers=("lead",), join=join)

    def launch(self, provider: Provider, name: str = "one", region: str = "site:a") -> LaunchResult:
        """Launch one machine."""
        (result,) = provider.launch([self.order(name, region=region)])
        return result

    def kubectl(self, *words: str, given: str | None = None, region: str = "r1") -> str:
        """Run kubectl in the namespace."""
        return self.lab.kubectl(region, "-n", self.namespace, *words, given=given)

    def objects(self, region: str) -> list[str]:
        """Return the names of all objects of the namespace that have labels of machines."""
        kinds = "jobs,pods,services,secrets"
        return self.kubectl("get", kinds, "-l", "tradewind-fleet", "-o", "name", region=region).split()


@contextmanager
def stage_of(lab: Lab, folder: Path, level: str = "privileged") -> Iterator[Stage]:
    """Yield a stage whose namespaces enforce a level of pod security."""
    with tempfile.TemporaryDirectory(prefix="tw-kube-") as short:
        enrolment = Enrolment(find_gateway(), Path(short, "fleet"))
        stage = Stage(lab, folder, enrolment)
        label = {"pod-security.kubernetes.io/enforce": level}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace, "labels": label}}
        try:
            for region in REGIONS:
                lab.apply(region, space)
            yield stage
        finally:
            for region in REGIONS:
                lab.kubectl(region, "delete", "namespace", stage.namespace, "--wait=false", "--ignore-not-found")
            enrolment.close()
