"""A real Kubernetes cluster on this host, which runs the relay of the demo."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.clouds.lan import HostBridge
from testbed.kubelab import Lab, gateway_image, kubelab
from testbed.kubelab.node import BRIDGE
from testbed.kubelab.shared import GATEWAY_IMAGE

__all__ = ["RelayCluster", "relay_cluster"]

CONTEXT, NAMESPACE = "cluster", "tradewind"
NODES = 2
#: Addresses of machines on the bridge of the nodes; nodes have others.
PREFIX = "172.29.200."


@dataclass(frozen=True)
class RelayCluster:
    """A running cluster, as a region of fleets."""

    lab: Lab
    region: str

    def network(self) -> HostBridge:
        """Return the network of the nodes, for machines of other clouds."""
        return HostBridge(BRIDGE, self.lab.address, PREFIX)

    def configuration(self) -> list[str]:
        """Return the lines of the user's configuration."""
        return [
            "[kubernetes]",
            f'kubeconfig = "{self.lab.kubeconfig}"',
            f'home = "{self.lab.address}"',
            "[[kubernetes.clusters]]",
            f'context = "{CONTEXT}"',
            f'region = "{self.region}"',
            f'namespace = "{NAMESPACE}"',
            f'image = "{GATEWAY_IMAGE}"',
            'network = "host"',
            'cpu = "10m"',
            'memory = "256Mi"',
            "gateways = 1",
            "usd_per_hour = 0.1",
        ]

    def kill_relay(self) -> None:
        """End the pod of the relay."""
        self._kubectl("delete", "pods", "-l", "tradewind-role=relay", "--grace-period=1")

    def objects(self) -> list[str]:
        """Return the names of all objects of fleets."""
        return self._kubectl("get", "jobs,pods,services,secrets", "-l", "tradewind-fleet", "-o", "name").split()

    def _kubectl(self, *words: str) -> str:
        return self.lab.kubectl(CONTEXT, "-n", NAMESPACE, *words)


@contextmanager
def relay_cluster(folder: Path, gateway: str, region: str) -> Iterator[RelayCluster]:
    """Run a cluster whose nodes have the image of the gateway. Needs root, and that its programs are built."""
    image = folder / "gateway.tar"
    gateway_image(image, GATEWAY_IMAGE, Path(gateway))
    with kubelab(folder / "lab", {CONTEXT: NODES}, images=[image], on_wait=_say_waiting) as lab:
        label = {"pod-security.kubernetes.io/enforce": "privileged"}
        lab.apply(CONTEXT, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": label}})
        yield RelayCluster(lab, region)


def _say_waiting() -> None:
    print(
        "note: waiting for another Kubernetes cluster of the testbed on this host to end", file=sys.stderr, flush=True
    )
