"""One cluster of a lab: etcd, API server, controllers and scheduler on this machine, and its nodes."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.kubelab import node as node_files
from testbed.kubelab.node import GATEWAY, Node
from testbed.kubelab.pki import Pki, write_kubeconfig

__all__ = ["HOLD", "PID", "Cluster"]

READY_S = 180.0
POLL_S = 0.1
#: While this file exists in a cluster's folder, its API server is not started again.
HOLD = "apiserver.hold"
#: File with the process id of the API server, in a cluster's folder.
PID = "apiserver.pid"


class Cluster:
    """A cluster, whose processes end with this process's PID namespace."""

    def __init__(self, number: int, name: str, folder: Path, installed: Path, nodes: int) -> None:
        self.name, self.folder, self._number = name, folder, number
        self._program, self._rootfs = installed / "bin" / "kubernetes", installed / "rootfs"
        self._images = [installed / "images" / "pause.tar"]
        folder.mkdir(parents=True)
        self._pki = Pki(folder / "pki")
        self._port, self._etcd_port = 6500 + number, 23790 + 2 * number
        self.nodes = [Node(name, number, each, folder / f"{name}-n{each}") for each in range(nodes)]
        self.admin = self._pki.certificate("admin", "kubelab-admin", "system:masters")
        self._apiserver: subprocess.Popen[bytes] | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    def entry(self) -> tuple[str, str, Path, tuple[Path, Path]]:
        """Return the administrator's entry of a client's configuration."""
        return self.name, self.url, self._pki.ca, self.admin

    def start(self, images: Sequence[Path]) -> None:
        """Start the cluster, and return when its nodes are ready. Raises TimeoutError."""
        self._start_etcd()
        self._start_apiserver()
        self._start_controllers()
        for node in self.nodes:
            node.write(self._pki, f"https://{GATEWAY}:{self._port}")
            self._running[node.name] = self._start_node(node)
        for node in self.nodes:
            self.load(node, [*self._images, *images])
        _wait_for(lambda: self._ready_nodes() == {node.name for node in self.nodes}, f"the nodes of {self.name}")
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        _wait_for(lambda: self._ask(account) is not None, f"the service account of {self.name}")

    def load(self, node: Node, images: Sequence[Path]) -> None:
        """Make images known to a node."""
        ctr = [str(self._rootfs / "usr/bin/ctr"), "-a", str(node.folder / "containerd.sock"), "-n", "k8s.io"]

        def answers() -> bool:
            return subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0

        _wait_for(answers, f"containerd of {node.name}")
        for image in images:
            subprocess.run([*ctr, "images", "import", str(image)], check=True, capture_output=True)

    def supervise(self) -> None:
        """Start the API server and the nodes again if they have ended, unless they are held."""
        if self._apiserver is not None and self._apiserver.poll() is not None and not (self.folder / HOLD).exists():
            self._run_apiserver()
        for node in self.nodes:
            if self._running[node.name].poll() is not None and not (node.folder / node_files.HOLD).exists():
                self._running[node.name] = self._start_node(node)

    def _start_node(self, node: Node) -> subprocess.Popen[bytes]:
        others = [other for other in self.nodes if other is not node]
        return node.start(self._rootfs, self._program, others)

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._etcd_port + 1))
        listen = [f"--{kind}-client-urls={client}" for kind in ("listen", "advertise")]
        listen += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        self._spawn(
            "etcd", "--name=default", f"--data-dir={self.folder / 'etcd'}", *listen,
            f"--initial-cluster=default={peer}", "--unsafe-no-fsync", "--log-level=warn",
        )  # fmt: skip

    def _start_apiserver(self) -> None:
        names = ["DNS:localhost", "DNS:kubernetes", "IP:127.0.0.1", f"IP:{GATEWAY}", f"IP:10.{96 + self._number}.0.1"]
        self._serving = self._pki.certificate("apiserver", "kube-apiserver", names=",".join(names))
        self._run_apiserver()
        _wait_for(lambda: self._ask("/readyz") is not None, f"the API server of {self.name}")

    def _run_apiserver(self) -> None:
        certificate, key = self._serving
        admin_certificate, admin_key = self.admin
        self._apiserver = self._spawn(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--secure-port={self._port}",
            f"--advertise-address={GATEWAY}", "--bind-address=0.0.0.0", "--allow-privileged=true", "--v=1",
            f"--service-cluster-ip-range=10.{96 + self._number}.0.0/24", "--service-node-port-range=30000-32767",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--client-ca-file={self._pki.ca}",
            f"--service-account-key-file={self._pki.token_public}",
            f"--service-account-signing-key-file={self._pki.token_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-client-certificate={admin_certificate}", f"--kubelet-client-key={admin_key}",
            f"--kubelet-certificate-authority={self._pki.ca}", "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--profiling=false",
        )  # fmt: skip
        (self.folder / PID).write_text(str(self._apiserver.pid), encoding="ascii")

    def _start_controllers(self) -> None:
        configs = {}
        for name in ("controller-manager", "scheduler"):
            certificate = self._pki.certificate(name, f"system:kube-{name}")
            entry = ("default", self.url, self._pki.ca, certificate)
            configs[name] = write_kubeconfig(self.folder / f"{name}.kubeconfig", [entry])
        common = ["--leader-elect=false", "--secure-port=0", "--v=1"]
        self._spawn(
            "kube-controller-manager", f"--kubeconfig={configs['controller-manager']}", *common,
            f"--service-account-private-key-file={self._pki.token_key}", f"--root-ca-file={self._pki.ca}",
            "--use-service-account-credentials=true", "--node-monitor-grace-period=10s", "--node-monitor-period=1s",
        )  # fmt: skip
        self._spawn("kube-scheduler", f"--kubeconfig={configs['scheduler']}", *common)

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(self._program), name, *arguments]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _ask(self, path: str) -> str | None:
        """Return the API server's answer as its administrator, or None."""
        context = ssl.create_default_context(cafile=str(self._pki.ca))
        context.load_cert_chain(*map(str, self.admin))
        try:
            with urllib.request.urlopen(self.url + path, context=context, timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return None

    def _ready_nodes(self) -> set[str]:
        text = self._ask("/api/v1/nodes")
        nodes = [] if text is None else json.loads(text)["items"]
        return {
            node["metadata"]["name"]
            for node in nodes
            for condition in node["status"].get("conditions", [])
            if (condition["type"], condition["status"]) == ("Ready", "True")
        }


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not ready within {READY_S:.0f} s")
        time.sleep(POLL_S)
