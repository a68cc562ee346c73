"""The files of one node of a lab, and its process."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.kubelab.install import PAUSE_IMAGE
from testbed.kubelab.pki import Pki, write_kubeconfig

__all__ = ["BRIDGE", "GATEWAY", "HOLD", "PID", "Node", "control_groups"]

#: The bridge of all nodes, and its own address.
BRIDGE, GATEWAY = "klab0", "172.29.0.1"
#: File with the id of a node's process, in its folder; and the file that keeps it from being started again.
PID, HOLD = "pid", "hold"
SCRIPT = Path(__file__).with_name("node.sh")
NAMESPACE_S = 10.0
CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE runc cannot lower a process's oom_score_adj.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""


@dataclass(frozen=True)
class Node:
    """A node: the number of its region among the lab's, and its own number in the region."""

    region: str
    region_number: int
    number: int
    folder: Path

    @property
    def name(self) -> str:
        """Name of the node in Kubernetes."""
        return f"{self.region}-n{self.number}"

    @property
    def address(self) -> str:
        """Its address on the bridge."""
        return f"172.29.{self.region_number + 1}.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Network of its pods."""
        return f"10.{100 + self.region_number}.{self.number}.0/24"

    @property
    def link(self) -> str:
        """Name of its end of the cable on this machine."""
        return f"kl{self.region_number}n{self.number}"

    def write(self, pki: Pki, api: str) -> None:
        """Write the settings of its programs. `api` is the URL of the API server."""
        self.folder.mkdir(parents=True)
        names = f"DNS:{self.name},IP:{self.address}"
        certificate = pki.certificate(self.name, f"system:node:{self.name}", "system:nodes", names)
        proxy = pki.certificate(f"{self.name}-proxy", "system:kube-proxy")
        write_kubeconfig(self.folder / "kubelet.kubeconfig", [("default", api, pki.ca, certificate)])
        write_kubeconfig(self.folder / "proxy.kubeconfig", [("default", api, pki.ca, proxy)])
        (self.folder / "containerd.toml").write_text(CONTAINERD.format(folder=self.folder, pause=PAUSE_IMAGE))
        for name, document in {
            "network.conflist": self._network(),
            "kubelet.json": self._kubelet(pki, certificate),
            "proxy.json": self._proxy(),
        }.items():
            (self.folder / name).write_text(json.dumps(document), encoding="utf-8")
        for group in control_groups():
            (group / "kubelab" / self.name).mkdir(parents=True, exist_ok=True)

    def _network(self) -> dict[str, object]:
        """Return the network of pods. It masks their addresses, so that they reach the host ports of other clusters."""
        ranges = {"ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        plugins = [{**bridge, "ipam": {"type": "host-local", **ranges}}, ports]
        return {"cniVersion": "0.4.0", "name": "klab", "plugins": plugins}

    def _kubelet(self, pki: Pki, certificate: tuple[Path, Path]) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificate[0]),
            "tlsPrivateKeyFile": str(certificate[1]),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/kubelab/{self.name}",
            "failSwapOn": False,
            "resolvConf": "",
            "containerRuntimeEndpoint": f"unix://{self.folder}/containerd.sock",
            # Images must stay on a disk that is almost full.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "nodeStatusUpdateFrequency": "5s",
            "healthzBindAddress": "127.0.0.1",
        }

    def _proxy(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.folder / "proxy.kubeconfig")},
            "hostnameOverride": self.name,
            "clusterCIDR": f"10.{100 + self.region_number}.0.0/16",
            # A namespace may not change the limits of connection tracking.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }

    def start(self, rootfs: Path, program: Path, others: Sequence[Node]) -> subprocess.Popen[bytes]:
        """Start the node and return its process. The others of the node end with it."""
        routes = "; ".join(f"ip route add {other.pods} via {other.address}" for other in others)
        settings = {
            "node": self.name,
            "region": self.region,
            "address": self.address,
            "gateway": GATEWAY,
            "folder": str(self.folder),
            "rootfs": str(rootfs),
            "program": str(program),
            "routes": routes,
        }
        command = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "bash", str(SCRIPT)],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._connect(process.pid)
        (self.folder / PID).write_text(str(process.pid), encoding="ascii")
        return process

    def _connect(self, pid: int) -> None:
        """Connect the node's network namespace to the bridge, once it has one of its own."""
        own = os.readlink("/proc/self/ns/net")
        deadline_s = time.monotonic() + NAMESPACE_S
        while time.monotonic() < deadline_s and os.readlink(f"/proc/{pid}/ns/net") == own:
            time.sleep(0.01)
        namespace = f"/proc/{pid}/ns/net"
        # The kernel removes the namespaces of ended nodes, and with them their cables, when it has time.
        subprocess.run(["ip", "link", "del", self.link], capture_output=True, check=False)
        _ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", self.link, "master", BRIDGE, "up")
        _ip("route", "replace", self.pods, "via", self.address)


def control_groups() -> list[Path]:
    """Return the roots of the control groups that processes of this machine can be in."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.procs").exists():
        return [root]
    return [entry for entry in root.iterdir() if entry.is_dir() and (entry / "cgroup.procs").exists()]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
