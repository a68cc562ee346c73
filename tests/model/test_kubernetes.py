"""The table ``[kubernetes]`` of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tradewind.errors import ConfigError
from tradewind.model.kubernetes import KubeCluster, Toleration, kubernetes_from_document, read_kubernetes

LEAST = {"context": "lab", "region": "site:lab", "image": "registry.example/tradewind-gateway:1"}
ALL = {
    **LEAST,
    "namespace": "gateways",
    "network": "service",
    "service": "NodePort",
    "node_ports": "31000-31999",
    "external_addresses": True,
    "node_selector": {"pool": "gateways"},
    "tolerations": [{"key": "gateways", "effect": "NoSchedule"}],
    "cpu": "500m",
    "memory": "2Gi",
    "usd_per_hour": 0.4,
    "egress": "10Gbit/s",
    "ingress": "5Gbit/s",
    "gateways": 3,
    "wait_s": 20,
    "autoscales": True,
    "longest_h": 48,
    "pull_secrets": ["registry"],
    "service_account": "gateways.transfers",
}


def test_most_settings_have_defaults() -> None:
    settings = read_kubernetes({"clusters": [LEAST]}, "c")
    assert settings.clusters == (KubeCluster("lab", "site:lab", "registry.example/tradewind-gateway:1"),)
    assert settings.regions == ["site:lab"]


def test_all_settings_are_read_and_survive_the_document() -> None:
    settings = read_kubernetes({"clusters": [ALL], "kubeconfig": "~/lab", "home": "198.51.100.7"}, "c")
    (cluster,) = settings.clusters
    assert (cluster.node_ports, cluster.egress_gbps, cluster.ingress_gbps) == ((31000, 31999), 10.0, 5.0)
    assert cluster.tolerations == (Toleration("gateways", "", "NoSchedule"),)
    assert kubernetes_from_document(settings.document()) == settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contxt": "x"}, "unknown setting 'contxt'"),
        ({"context": 3}, "context must be text"),
        ({"image": ""}, "image must be text"),
        ({"region": "nowhere"}, "region: "),
        ({"network": "bridge"}, "network must be one of host, service, out, not 'bridge'"),
        ({"network": "out"}, "needs home, the address of this machine that pods call"),
        ({"service_account": "Upper"}, "service_account must be a name of a service account, not 'Upper'"),
        ({"service_account": "a..b"}, "service_account must be a name of a service account, not 'a..b'"),
        ({"service_account": ""}, "service_account must be text"),
        ({"namespace": "Upper"}, "namespace must be a name of a namespace, not 'Upper'"),
        ({"node_ports": "1"}, "node_ports must be a range such as 30000-32767, not '1'"),
        ({"cpu": "a lot"}, "cpu must be an amount such as 500m or 2, not 'a lot'"),
        ({"gateways": 0}, "gateways must be a whole number from 1 to 256, not 0"),
        ({"wait_s": True}, "wait_s must be a whole number"),
        ({"usd_per_hour": "free"}, "usd_per_hour must be a price, not 'free'"),
        ({"egress": "0"}, "egress: "),
        ({"tolerations": [{"key": "a", "effect": "Sometimes"}]}, "toleration 1: effect must be one of"),
        ({"tolerations": [{"name": "a"}]}, "toleration 1: unknown setting 'name'"),
        ({"node_selector": {"a": 1}}, "node_selector must be a table of texts"),
        ({"pull_secrets": "registry"}, "pull_secrets must be a list of names"),
        ({"autoscales": "yes"}, "autoscales must be true or false, not 'yes'"),
    ],
)
def test_a_wrong_setting_is_named(change: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_kubernetes({"clusters": [{**LEAST, **change}]}, "config.toml")
    assert words in str(caught.value) and str(caught.value).startswith("config.toml")


def test_two_clusters_of_one_context_are_refused() -> None:
    with pytest.raises(ConfigError, match="have the context 'lab'"):
        read_kubernetes({"clusters": [LEAST, LEAST]}, "c")
