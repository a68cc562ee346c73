"""Settings of the clouds' own tools on this machine that cannot be used: one line says so, and names the cloud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.kubernetes.kubeconfig import kubeconfig_of
from tradewind.fleet.provider import CallRefused, Refusal
from tradewind.fleet.providers import make_provider
from tradewind.model.aws import AwsSettings

NOWHERE = "http://127.0.0.1:1"
AZURE = {
    "kind": "azure",
    "subscription": "00000000-0000-0000-0000-000000000001",
    "resource_group": "group",
    "regions": ["eastus"],
    "endpoint": "https://127.0.0.1:1",
    "programs": [],
}
SERVICE = {"AZURE_CLIENT_ID": "x", "AZURE_TENANT_ID": "y"}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Begin with a machine that has none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AZURE_CLIENT_SECRET", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


def refusal(document: dict[str, Any], folder: Path) -> Refusal:
    provider = make_provider(document, "no-binary", FleetJournal(folder / "state"))
    with pytest.raises(CallRefused) as caught:
        provider.machines({})
    return caught.value.refusal


def aws() -> dict[str, Any]:
    return {"kind": "aws", "programs": [], **AwsSettings(("us-east-1",), endpoint=NOWHERE).document()}


@pytest.mark.parametrize(
    "variables, config, words",
    [
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://198.51.100.1/x"}, "", "Unsupported host '198.51.100.1'"),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/nope", "AWS_ROLE_ARN": "arn:aws:iam::1:role/x"}, "", "/nope: No such file"),
        ({}, "credential_process = /nope\n", "/nope: No such file"),
        ({}, "role_arn = arn:aws:iam::1:role/x\nsource_profile = nope\n", 'source_profile "nope"'),
        ({}, "sso_session = s\nsso_account_id = 1\nsso_role_name = r\n", "Token for s does not exist"),
    ],
    ids=["address", "token file", "process", "profile", "sso"],
)
def test_wrong_credentials_of_aws(
    variables: dict[str, str], config: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = "[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://127.0.0.1:1/\n"
    (tmp_path / "config").write_text(f"[default]\n{config}{session}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = refusal(aws(), tmp_path)
    assert found.kind == "permission" and found.reason.startswith("no AWS credentials: ") and words in found.reason
    assert found.missing is not None and "aws configure" in found.missing


def test_a_file_that_is_none_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("nonsense\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    found = refusal(aws(), tmp_path)
    assert found.kind == "bad request" and str(tmp_path / "config") in found.reason


@pytest.mark.parametrize(
    "variables, words",
    [
        ({**SERVICE, "AZURE_CLIENT_CERTIFICATE_PATH": "/nope"}, "/nope: No such file"),
        ({**SERVICE, "AZURE_CLIENT_CERTIFICATE_PATH": "/etc/passwd"}, "Failed to deserialize certificate"),
        ({**SERVICE, "AZURE_TENANT_ID": "y/z!", "AZURE_CLIENT_SECRET": "z"}, "Invalid tenant ID"),
        ({**SERVICE, "AZURE_CLIENT_SECRET": "z", "AZURE_AUTHORITY_HOST": NOWHERE}, "invalid authority"),
        ({"AZURE_TOKEN_CREDENTIALS": "what"}, "Invalid value for AZURE_TOKEN_CREDENTIALS"),
    ],
    ids=["no file", "no certificate", "tenant", "authority", "choice"],
)
def test_a_wrong_sign_in_to_azure(
    variables: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = refusal(AZURE, tmp_path)
    assert found.kind == "permission" and words in found.reason and "\n" not in found.reason
    assert found.missing is not None and "az login" in found.missing


@pytest.mark.parametrize("content", [None, "nonsense", json.dumps({"type": "service_account"})])
def test_wrong_credentials_of_google(content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None stands for a folder."""
    path = tmp_path / "credentials"
    path.mkdir() if content is None else path.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    found = refusal({"kind": "gcp", "project": "p-1234", "programs": [], "home_cidr": "192.0.2.1/32"}, tmp_path)
    assert found.kind == "permission" and str(path) in found.reason
    assert "Error(" not in found.reason and "('" not in found.reason, "no words of Python"


@pytest.mark.parametrize("content", ["nonsense", "[1, 2]", "clusters: 1\n", "contexts:\n- 1\n"])
def test_a_file_that_is_no_kubeconfig(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    clusters = [{"context": "c", "region": "site:k", "image": "i"}]
    found = refusal({"kind": "kubernetes", "clusters": clusters}, tmp_path)
    assert "the kubeconfig cannot be used" in found.reason and str(path) in found.reason


def test_an_empty_path_among_those_of_kubeconfig_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: x, user: u}}]\nusers: [{name: u, user: {}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", f":{path}:")
    assert "c" in kubeconfig_of("c", None).config.contexts
