"""The client library's decoders are prepared in one thread: otherwise the process crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the client of Kubernetes is not installed")

from lightkube import codecs

from tradewind.fleet.kubernetes import calls
from tradewind.fleet.kubernetes.calls import ClusterCalls
from tradewind.fleet.provider import CallRefused
from tradewind.model.kubernetes import KubeCluster


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.may("get", "", "pods", None),
        lambda cluster: cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}),
    ],
    ids=["may", "create"],
)
def test_no_object_is_decoded_before_that(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[ClusterCalls], object]
) -> None:
    order: list[str] = []
    decode = codecs.from_dict

    def decoded(*words: Any) -> Any:
        order.append("decode")
        return decode(*words)

    monkeypatch.setattr(codecs, "from_dict", decoded)
    monkeypatch.setattr(calls, "prepare_decoders", lambda: order.append("prepare"))
    with pytest.raises(CallRefused):
        call(ClusterCalls(KubeCluster("none", "site:a", "image"), "/nonexistent"))
    assert order == ["prepare"], "without a valid login there is nothing to decode"
