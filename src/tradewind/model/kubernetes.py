"""The clusters of the configuration, `[[kubernetes.clusters]]`, in which gateways may run as pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from tradewind.errors import ConfigError, UsageError
from tradewind.model.records import dataclass, field, fields
from tradewind.model.region import Region
from tradewind.model.units import parse_rate

__all__ = ["KubeCluster", "KubeSettings", "Toleration", "kubernetes_from_document", "read_kubernetes"]

#: Most gateways that one cluster may run, and their number if the configuration does not say it.
GATEWAYS_MAX, GATEWAYS = 256, 8
#: Longest life of a gateway that the configuration may set [h], and the life if it does not.
LONGEST_H_MAX, LONGEST_H = 24 * 30, 24
#: Longest time to wait for room in a cluster [s]. A launch call must end sooner than its time limit.
WAIT_S_MAX, WAIT_S = 45, 5
NETWORKS = ("host", "service", "out")
SERVICES = ("NodePort", "LoadBalancer")
EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
Network = Literal["host", "service", "out"]
#: A name that Kubernetes accepts for a namespace.
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: A name that it accepts for a service account.
_ACCOUNT = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
#: An amount of CPU or memory as Kubernetes writes it: 500m, 2, 4Gi.
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint of nodes on which gateways may run nevertheless. An empty `value` or `effect` matches any."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class KubeCluster:
    """A cluster, and how gateways run there.

    - `context`: the context of the kubeconfig file
    - `region`: its region, such as `aws:us-east-1` or `site:lab`
    - `image`: the image of the gateway
    - `network`: how a gateway is reached: at its node's `host` port, through a `service`, or not at all (`out`)
    - `service`: kind of the services: `NodePort` or `LoadBalancer`
    - `node_ports`: ports of services of the kind `NodePort`, as the cluster sets them
    - `external_addresses`: True to reach nodes at their external addresses; it needs the permission to get nodes
    - `cpu`, `memory`: what a gateway requests and may use at most for memory, such as `2` and `2Gi`
    - `usd_per_hour`: price of a gateway
    - `egress_gbps`, `ingress_gbps`: the most that a gateway sends and receives [Gbit/s]; None if that is not known
    - `gateways`: the most gateways at once
    - `wait_s`: time for which a launch waits for room [s]
    - `autoscales`: True if the cluster adds nodes for pods that have no room
    - `longest_h`: longest life of a gateway [h], however often its lease is renewed
    - `pull_secrets`: names of the secrets with the image registry's credentials
    - `service_account`: service account of the pods, whose workload identity gateways may use; None: the namespace's
    """

    context: str
    region: str
    image: str
    namespace: str = "default"
    network: Network = "host"
    service: str = "NodePort"
    node_ports: tuple[int, int] = (30000, 32767)
    external_addresses: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    cpu: str = "1"
    memory: str = "1Gi"
    usd_per_hour: float = 0.0
    egress_gbps: float | None = None
    ingress_gbps: float | None = None
    gateways: int = GATEWAYS
    wait_s: int = WAIT_S
    autoscales: bool = False
    longest_h: int = LONGEST_H
    pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the cluster as a JSON object, which has no secrets."""
        found = {each.name: getattr(self, each.name) for each in fields(KubeCluster)}
        tolerations = [{name: getattr(one, name) for name in ("key", "value", "effect")} for one in self.tolerations]
        lists = {"node_ports": list(self.node_ports), "pull_secrets": list(self.pull_secrets)}
        return {**found, **lists, "node_selector": dict(self.node_selector), "tolerations": tolerations}


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """All clusters.

    `kubeconfig` is the path of the file with their contexts; None: `KUBECONFIG`, else `~/.kube/config`. `home` is the
    address of this machine that pods of the network `out` call.
    """

    clusters: tuple[KubeCluster, ...]
    kubeconfig: str | None = None
    home: str | None = None

    @property
    def regions(self) -> list[str]:
        """The regions that have clusters, sorted."""
        return sorted({cluster.region for cluster in self.clusters})

    def document(self) -> dict[str, Any]:
        """Return the clusters as a JSON object."""
        clusters = [cluster.document() for cluster in self.clusters]
        return {"clusters": clusters, "kubeconfig": self.kubeconfig, "home": self.home}


def kubernetes_from_document(document: Mapping[str, Any]) -> KubeSettings:
    """Return the settings of `KubeSettings.document`."""

    def cluster(found: Mapping[str, Any]) -> KubeCluster:
        tolerations = tuple(Toleration(**one) for one in found.get("tolerations", ()))
        first, last = found.get("node_ports", (30000, 32767))
        secrets = tuple(found.get("pull_secrets", ()))
        parts = {"tolerations": tolerations, "node_ports": (first, last), "pull_secrets": secrets}
        return KubeCluster(**{**found, **parts})

    clusters = tuple(cluster(found) for found in document["clusters"])
    return KubeSettings(clusters, document.get("kubeconfig"), document.get("home"))


def read_kubernetes(table: Mapping[str, Any], place: str) -> KubeSettings:
    """Return the settings of the table `[kubernetes]`. `place` names it in errors. Raises ConfigError."""
    if unknown := sorted(table.keys() - {"clusters", "kubeconfig", "home"}):
        raise ConfigError(
            f"{place}: [kubernetes] has no setting {unknown[0]!r}", hint="it has clusters, kubeconfig and home"
        )
    entries = table.get("clusters", [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ConfigError(
            f"{place}: kubernetes.clusters must be tables", hint="begin each cluster with [[kubernetes.clusters]]"
        )
    clusters = tuple(
        _Entry(entry, f"{place}, [[kubernetes.clusters]] {number}").cluster() for number, entry in enumerate(entries, 1)
    )
    contexts = [cluster.context for cluster in clusters]
    if twice := next((context for context in contexts if contexts.count(context) > 1), None):
        raise ConfigError(f"{place}: two [[kubernetes.clusters]] have the context {twice!r}")
    whole = _Entry(table, f"{place}, [kubernetes]")
    home = whole.text("home", None)
    if home is None and any(cluster.network == "out" for cluster in clusters):
        raise ConfigError(
            f"{place}: [kubernetes] needs home, the address of this machine that pods call",
            hint='for example home = "198.51.100.7"; or set the network of its clusters to "host" or "service"',
        )
    return KubeSettings(clusters, whole.text("kubeconfig", None), home)


class _Entry:
    """Reads the settings of one table. `place` names it in errors."""

    def __init__(self, table: Mapping[str, Any], place: str) -> None:
        self._table, self._place = table, place

    def cluster(self) -> KubeCluster:
        known = ({each.name for each in fields(KubeCluster)} | {"egress", "ingress"}) - {"egress_gbps", "ingress_gbps"}
        if unknown := sorted(self._table.keys() - known):
            raise ConfigError(
                f"{self._place}: unknown setting {unknown[0]!r}", hint=f"known: {', '.join(sorted(known))}"
            )
        return KubeCluster(
            context=self._required("context"),
            region=self._region(),
            image=self._required("image"),
            namespace=self._matching("namespace", "default", _NAMESPACE, "a name of a namespace"),
            network=self._choice("network", "host", NETWORKS),
            service=self._choice("service", "NodePort", SERVICES),
            node_ports=self._node_ports(),
            external_addresses=self._truth("external_addresses"),
            node_selector=self._selector(),
            tolerations=self._tolerations(),
            cpu=self._matching("cpu", "1", _AMOUNT, "an amount such as 500m or 2"),
            memory=self._matching("memory", "1Gi", _AMOUNT, "an amount such as 2Gi"),
            usd_per_hour=self._price(),
            egress_gbps=self._gbps("egress"),
            ingress_gbps=self._gbps("ingress"),
            gateways=self._number("gateways", GATEWAYS, 1, GATEWAYS_MAX),
            wait_s=self._number("wait_s", WAIT_S, 1, WAIT_S_MAX),
            autoscales=self._truth("autoscales"),
            longest_h=self._number("longest_h", LONGEST_H, 1, LONGEST_H_MAX),
            pull_secrets=self._texts("pull_secrets"),
            service_account=self._service_account(),
        )

    def text(self, key: str, default: str | None) -> str | None:
        value = self._table.get(key, default)
        if value is not None and (not isinstance(value, str) or not value or not value.isprintable()):
            raise ConfigError(f"{self._place}: {key} must be text", hint=f'for example {key} = "…"')
        return value

    def _required(self, key: str) -> str:
        text = self.text(key, None)
        if text is None:
            raise ConfigError(f"{self._place}: {key} is missing", hint=f'for example {key} = "…"')
        return text

    def _region(self) -> str:
        try:
            return str(Region.parse(self._required("region")))
        except ValueError as error:
            raise ConfigError(f"{self._place}: region: {error}") from None

    def _matching(self, key: str, default: str, pattern: re.Pattern[str], what: str) -> str:
        text = self.text(key, default) or default
        if not pattern.fullmatch(text):
            raise ConfigError(f"{self._place}: {key} must be {what}, not {text!r}")
        return text

    def _choice(self, key: str, default: str, choices: tuple[str, ...]) -> Any:
        text = self.text(key, default)
        if text not in choices:
            raise ConfigError(f"{self._place}: {key} must be one of {', '.join(choices)}, not {text!r}")
        return text

    def _truth(self, key: str) -> bool:
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise ConfigError(f"{self._place}: {key} must be true or false, not {value!r}")
        return value

    def _number(self, key: str, default: int, least: int, most: int) -> int:
        value = self._table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ConfigError(f"{self._place}: {key} must be a whole number from {least} to {most}, not {value!r}")
        return value

    def _price(self) -> float:
        value = self._table.get("usd_per_hour", 0)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e6:
            raise ConfigError(f"{self._place}: usd_per_hour must be a price, not {value!r}", hint="for example 0.45")
        return float(value)

    def _gbps(self, key: str) -> float | None:
        if key not in self._table:
            return None
        try:
            gbps = parse_rate(self._required(key)) * 8 / 1e9
        except UsageError as error:
            raise ConfigError(f"{self._place}: {key}: {error}") from None
        if gbps <= 0:
            raise ConfigError(f"{self._place}: {key} must be above 0")
        return gbps

    def _texts(self, key: str) -> tuple[str, ...]:
        values = self._table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise ConfigError(f"{self._place}: {key} must be a list of names")
        return tuple(values)

    def _service_account(self) -> str | None:
        if "service_account" not in self._table:
            return None
        return self._matching("service_account", "", _ACCOUNT, "a name of a service account")

    def _node_ports(self) -> tuple[int, int]:
        text = self.text("node_ports", "30000-32767") or ""
        first, _, last = text.partition("-")
        if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) < int(last) <= 65535):
            raise ConfigError(f"{self._place}: node_ports must be a range such as 30000-32767, not {text!r}")
        return int(first), int(last)

    def _selector(self) -> dict[str, str]:
        found = self._table.get("node_selector", {})
        if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
            raise ConfigError(f"{self._place}: node_selector must be a table of texts", hint='{ pool = "gateways" }')
        return dict(found)

    def _tolerations(self) -> tuple[Toleration, ...]:
        found = self._table.get("tolerations", [])
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise ConfigError(f"{self._place}: tolerations must be a list", hint='[{ key = "gateways" }]')
        tolerations = []
        for number, one in enumerate(found, 1):
            inner = _Entry(one, f"{self._place}, toleration {number}")
            if unknown := sorted(one.keys() - {"key", "value", "effect"}):
                raise ConfigError(f"{inner._place}: unknown setting {unknown[0]!r}", hint="known: key, value, effect")
            effect = inner._choice("effect", "", EFFECTS)
            tolerations.append(Toleration(inner._required("key"), inner.text("value", None) or "", effect))
        return tuple(tolerations)
