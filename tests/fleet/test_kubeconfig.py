"""The kubeconfig files of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("lightkube")

from tradewind.fleet.kubernetes.kubeconfig import contexts_of, kubeconfig_of, kubeconfig_paths

ONE = """
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: me}}, {name: far, context: {cluster: far, user: me}}]
clusters: [{name: lab, cluster: {server: "https://one"}}]
users: [{name: me, user: {token: first}}]
"""
TWO = """
contexts: [{name: plant, context: {cluster: plant, user: me}}, {name: lab, context: {cluster: plant, user: me}}]
clusters: [{name: plant, cluster: {server: "https://two"}}, {name: far, cluster: {server: "https://far"}}]
users: [{name: me, user: {token: second}}]
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    made = [tmp_path / "one", tmp_path / "missing", tmp_path / "two"]
    made[0].write_text(ONE)
    made[2].write_text(TWO)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, made)))
    return made


def test_the_file_that_has_a_context_is_used(files: list[Path]) -> None:
    servers = {}
    for context in ("lab", "plant", "far"):
        found = kubeconfig_of(context, None).config.get(context)
        assert found is not None and found.user is not None
        servers[context] = found.cluster.server, found.user.token
    assert servers == {
        "lab": ("https://one", "first"),
        "plant": ("https://two", "first"),
        "far": ("https://far", "first"),
    }, "of two entries with one name the first file counts"
    only = kubeconfig_of("lab", str(files[2])).config.get("lab")
    assert only is not None and only.cluster.server == "https://two"


def test_the_contexts_of_a_file_are_read_if_it_is_one(files: list[Path], tmp_path: Path) -> None:
    assert [contexts_of(str(path)) for path in files] == [["lab", "far"], None, ["plant", "lab"]]
    for text in ("", "contexts: 3", "contexts: [3]", "{"):
        (tmp_path / "bad").write_text(text)
        assert contexts_of(str(tmp_path / "bad")) is None


def test_without_the_variable_it_is_that_of_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for value in ("", os.pathsep):
        monkeypatch.setenv("KUBECONFIG", value)
        assert kubeconfig_paths() == ["/home/me/.kube/config"]
