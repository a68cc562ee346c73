"""The clouds that `init` finds on this machine, and the tables that it makes for them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tradewind.cli.main import main
from tradewind.engine import machine_identity
from tradewind.engine.cloud_setup import FoundCloud, cloud_tables, find_clouds, table_diff
from tradewind.engine.job_control import JobControl
from tradewind.engine.setup import ADD, MORE, Caveat, Note, Unusable, _of_permissions, append_tables, available
from tradewind.engine.survey import SiteMember, Survey, _Failure
from tradewind.errors import UsageError
from tradewind.fleet.provider import CallRefused, Offer, PermissionAnswer, Refusal
from tradewind.model.sites import NO_SITES, Cloud, Sites

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without credentials."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "GCE_", "AZURE_", "CLOUDSDK_", "KUBECONFIG")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(machine_identity, "FIRMWARE", tmp_path / "firmware")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TRADEWIND_CONFIG", str(tmp_path / "config.toml"))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def log_in_to_azure(home: Path) -> None:
    profile = {"subscriptions": [{"id": SUBSCRIPTION, "isDefault": True}]}
    write(home / ".azure" / "azureProfile.json", "\ufeff" + json.dumps(profile))


def test_nothing_is_found_without_credentials(home: Path) -> None:
    assert find_clouds([]) == []


def test_the_tables_have_what_the_tools_of_the_clouds_know_and_no_secret(home: Path) -> None:
    write(home / ".aws" / "credentials", "[default]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n")
    write(home / ".aws" / "config", "[default]\nregion = eu-west-1\n")
    key = {"project_id": "my-project-1", "private_key": "secret"}
    write(home / ".config" / "gcloud" / "application_default_credentials.json", json.dumps(key))
    log_in_to_azure(home)
    write(home / ".azure" / "config", "[defaults]\ngroup = mine\nlocation = westeurope\n")
    tables = cloud_tables(find_clouds([]))
    assert tables.split("\n\n") == [
        '[aws]\nregions = ["eu-west-1"]',
        '[gcp]\nproject = "my-project-1"',
        f'[azure]\nsubscription = "{SUBSCRIPTION}"\nresource_group = "mine"\nregions = ["westeurope"]\n',
    ]
    assert [cloud.kind for cloud in find_clouds(["aws", "azure"])] == ["gcp"]


def test_a_cloud_of_which_only_the_user_knows_the_rest_has_no_table(home: Path) -> None:
    log_in_to_azure(home)
    write(home / ".kube" / "config", "apiVersion: v1\n")
    azure, kubernetes = find_clouds([])
    assert "defaults.group" in (azure.missing or "") and "image" in (kubernetes.missing or "")
    assert cloud_tables([azure, kubernetes]) == ""


def test_each_context_of_all_kubeconfig_files_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("yaml", reason="the client of Kubernetes, which has a reader of YAML, is not installed")
    write(home / "one", "contexts:\n- name: lab\n- name: plant\n")
    write(home / "two", "contexts:\n- name: lab\n- name: cloud\n")
    write(home / "three", "not: a kubeconfig\n")
    files = [str(home / name) for name in ("one", "missing", "two", "three")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([*files, ""]))
    (found,) = find_clouds([])
    assert found.place == ", ".join([files[0], files[2], files[3]])
    assert (found.missing or "").startswith("region and image of each cluster (lab, plant, cloud)")


@pytest.mark.parametrize("proof", ["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"])
def test_the_variables_of_a_service_principal_are_found(
    home: Path, monkeypatch: pytest.MonkeyPatch, proof: str
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_ID", "an id")
    monkeypatch.setenv("AZURE_TENANT_ID", "a tenant")
    assert find_clouds([]) == [], "they do not sign in without a proof"
    monkeypatch.setenv(proof, "secret")
    (found,) = find_clouds([])
    assert (found.place, found.missing) == (
        f"AZURE_CLIENT_ID, AZURE_TENANT_ID, {proof}",
        "the subscription: set AZURE_SUBSCRIPTION_ID",
    )
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", SUBSCRIPTION)
    monkeypatch.setenv("AZURE_DEFAULTS_GROUP", "mine")
    (found,) = find_clouds([], ["azure:westeurope"])
    assert found.settings == {"subscription": SUBSCRIPTION, "resource_group": "mine", "regions": ["westeurope"]}
    assert "secret" not in cloud_tables([found])


def test_a_container_with_an_identity_in_aws_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/a/file")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    (found,) = find_clouds([])
    assert (found.kind, found.settings) == ("aws", {"regions": ["us-east-1"]})
    assert found.place == "AWS_WEB_IDENTITY_TOKEN_FILE (the identity of this machine)"


class Metadata(BaseHTTPRequestHandler):
    """The metadata services of three clouds."""

    answers: ClassVar[dict[str, str]] = {
        "PUT /latest/api/token": "a-token",
        "GET /latest/meta-data/iam/security-credentials/": "mover\n",
        "GET /latest/meta-data/placement/region": "eu-west-1",
        "GET /computeMetadata/v1/instance/service-accounts/default/email": "mover@p.iam.gserviceaccount.com",
        "GET /computeMetadata/v1/project/project-id": "my-project-1",
        "GET /computeMetadata/v1/instance/zone": "projects/1/zones/europe-west4-a",
        "GET /metadata/instance/compute": json.dumps(
            {"location": "westeurope", "subscriptionId": SUBSCRIPTION, "resourceGroupName": "mine"}
        ),
        "GET /metadata/identity/oauth2/token": json.dumps({"access_token": "secret"}),
    }
    refused: ClassVar[set[str]] = set()

    def _answer(self) -> None:
        what = f"{self.command} {self.path.partition('?')[0]}"
        marks = ("X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token", "Metadata-Flavor", "Metadata")
        is_known = any(self.headers.get(mark) for mark in marks) and what not in self.refused
        body = self.answers.get(what, "").encode() if is_known else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def metadata(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(machine_identity, "LINK_LOCAL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(Metadata, "refused", set())
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_identity_of_an_instance_in_aws_is_found(home: Path, metadata: str) -> None:
    assert find_clouds([]) == [], "no metadata service is asked on a machine that is not in a cloud"
    write(home / "firmware" / "sys_vendor", "Amazon EC2\n")
    (found,) = find_clouds([])
    assert (found.kind, found.settings) == ("aws", {"regions": ["eu-west-1"]})
    assert found.place == "the metadata service of this machine (role mover)"
    Metadata.refused.add("GET /latest/meta-data/iam/security-credentials/")
    assert find_clouds([]) == [], "it has no instance profile"


def test_the_identity_of_a_vm_at_google_is_found(home: Path, metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata)
    (found,) = find_clouds([])
    assert (found.kind, found.settings) == ("gcp", {"project": "my-project-1"})
    assert "mover@p.iam.gserviceaccount.com" in found.place


def test_the_managed_identity_of_a_vm_in_azure_is_found(home: Path, metadata: str) -> None:
    write(home / "firmware" / "chassis_asset_tag", machine_identity.AZURE_TAG)
    (found,) = find_clouds([])
    assert found.settings == {"subscription": SUBSCRIPTION, "resource_group": "mine", "regions": ["westeurope"]}
    assert found.place == "the metadata service of this machine (managed identity)"
    Metadata.refused.add("GET /metadata/identity/oauth2/token")
    assert find_clouds([]) == [], "it has no identity"


def test_the_diff_only_adds(home: Path) -> None:
    path = home / "config.toml"
    path.write_text('[fleet]\nhome_rate = "1Gbit/s"\n')
    tables = cloud_tables([FoundCloud("gcp", "a file", {"project": "my-project-1"})])
    lines = list(table_diff(str(path), tables))
    assert lines[-3:] == ["+", "+[gcp]", '+project = "my-project-1"']
    assert not any(line.startswith("-") for line in lines[1:])
    append_tables(str(path), tables)
    assert path.read_text().startswith('[fleet]\nhome_rate = "1Gbit/s"\n\n[gcp]\n')


def test_init_writes_clouds_only_if_it_is_told_to(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["init", "-y"]) == 1
    said = capsys.readouterr()
    assert "+[aws]" in said.out and "hint: --write adds aws" in said.err
    assert "no place for gateways" not in said.out
    assert not (home / "config.toml").exists()
    main(["init", "--write"])
    assert (home / "config.toml").read_text() == '[aws]\nregions = ["us-east-1"]\n'
    assert "secret" not in "".join(capsys.readouterr())


def test_regions_that_the_user_names_take_the_place_of_those_of_the_tools(home: Path) -> None:
    write(home / ".aws" / "credentials", "[default]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n")
    write(home / ".aws" / "config", "[default]\nregion = eu-west-1\n")
    key = {"project_id": "my-project-1"}
    write(home / ".config" / "gcloud" / "application_default_credentials.json", json.dumps(key))
    log_in_to_azure(home)
    write(home / ".azure" / "config", "[defaults]\ngroup = mine\n")
    named = ["aws:us-east-1", "aws:us-west-2", "azure:eastus", "gcp:us-east4", "aws:us-east-1"]
    tables = [dict(cloud.settings)["regions"] for cloud in find_clouds([], named)]
    assert tables == [["us-east-1", "us-west-2"], ["us-east4"], ["eastus"]]
    for wrong in ("site:lab", "us-east-1"):
        with pytest.raises(UsageError, match="--region"):
            find_clouds([], [wrong])


def test_a_cloud_whose_machines_would_find_no_program_is_reported(tmp_path: Path) -> None:
    sites = Sites(clouds=(Cloud("gcp", ("gcp:us-east4",), {"project": "p", "endpoint": "http://127.0.0.1:9"}),))
    found = list(available(JobControl(state_dir=str(tmp_path), gateway="gateway"), sites))
    last = found[-1]
    assert isinstance(last, Unusable) and (last.place, "program_url" in (last.hint or "")) == ("gcp", True)
    assert "machines in a cloud cannot download the gateway program" in last.reason


def test_a_region_without_a_machine_left_and_one_without_a_readable_quota_are_caveats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a region would be missing without a word, and another would be available and unusable at once."""
    offers = tuple(Offer(f"azure:{name}", "Standard_D4s_v5", usd_per_s=0.0001) for name in ("eastus", "westeurope"))
    member = SiteMember("azure", tuple(offer.region for offer in offers), {"kind": "azure"})
    denied = CallRefused(Refusal("permission", "azure:westeurope: AuthorizationFailed", "Microsoft.Compute/skus/read"))
    failure = _Failure(member, "azure:westeurope", denied)
    found = Survey(offers, {"azure:eastus": 0, "azure:westeurope": None}, (failure,), ())
    monkeypatch.setattr("tradewind.engine.setup.survey", lambda *_: found)
    monkeypatch.setattr("tradewind.engine.setup.members_of", lambda *_: [])
    said = list(available(JobControl(state_dir=str(tmp_path)), NO_SITES))
    assert said == [
        Caveat("azure:eastus", "no machine is left, because the quota is used up", MORE),
        "azure:westeurope  no known limit, 1 machine type, from $0.36 per hour",
        Caveat(
            "azure:westeurope",
            "the quota cannot be read: AuthorizationFailed",
            "the missing permission is Microsoft.Compute/skus/read",
        ),
    ]


def test_each_missing_permission_is_one_line_whatever_the_number_of_places() -> None:
    regions = ("eu-west-1", "us-east-1", "us-east-2", "us-west-2", "sa-east-1")
    answers = [PermissionAnswer(region, "ec2:RunInstances", False) for region in regions]
    answers += [PermissionAnswer(region, "ec2:DescribeVolumes", region != "us-east-1") for region in regions]
    answers.append(PermissionAnswer("us-east-1", "ec2:GetConsoleOutput", False, loss="no log"))
    answers += [PermissionAnswer("us-east-1", name, None, "nothing is there") for name in ("ec2:A", "ec2:B")]
    answers.append(PermissionAnswer("us-west-2", "ec2:C", None, "no answer", is_error=True))
    answers.append(PermissionAnswer("us-east-1", "ec2:D", True))
    assert list(_of_permissions("aws", answers)) == [
        Unusable(
            "aws",
            "the permission ec2:RunInstances is missing in eu-west-1, us-east-1, us-east-2 and 2 others",
            ADD,
        ),
        Unusable("aws", "the permission ec2:DescribeVolumes is missing in us-east-1", ADD),
        Caveat("aws", "the permission ec2:GetConsoleOutput is missing in us-east-1: no log", ADD),
        Note("aws", "1 of 7 permissions are granted"),
        Note("aws", "not checked: ec2:A, ec2:B (nothing is there)"),
        Caveat("aws", "1 permission could not be checked: no answer", None),
    ]
    assert list(_of_permissions("ssh", ())) == []


def test_a_question_about_permissions_that_fails_is_a_caveat() -> None:
    refused = CallRefused(Refusal("permission", "the API is disabled", "the IAM API"))
    assert list(_of_permissions("gcp", refused)) == [
        Caveat("gcp", "its permissions cannot be checked: the API is disabled", "this needs the IAM API")
    ]
