"""The clouds that `tradewind init` finds: by the variables and files of their own tools on this machine.

Only on a machine of a cloud, and without other credentials for it, the cloud's metadata service is asked for the
machine's identity. No secret is read into the tables. `init` then asks the providers themselves.
"""

from __future__ import annotations

import configparser
import difflib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tradewind.engine.aws_profile import config_file, credentials_file, read_sections
from tradewind.engine.machine_identity import machine_identity
from tradewind.errors import UsageError
from tradewind.fleet.kubernetes.kubeconfig import contexts_of, kubeconfig_paths
from tradewind.model.records import dataclass
from tradewind.model.region import Region

__all__ = ["FoundCloud", "cloud_tables", "find_clouds", "table_diff"]

#: Largest file of another tool that is read.
FILE_BYTES_MAX = 1 << 20
#: Variables by which containers in AWS get the identity of their task or pod.
AWS_IDENTITIES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
#: Variables by which a program signs in to Azure: these, and one of the proofs.
AZURE_SIGN_IN = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID")
AZURE_PROOFS = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE")


@dataclass(frozen=True, slots=True)
class FoundCloud:
    """A cloud with credentials on this machine, where they are, and the settings of its table.

    `missing` says what nobody but the user knows; then there is no table.
    """

    kind: str
    place: str
    settings: Mapping[str, str | list[str]]
    missing: str | None = None


def find_clouds(known: Collection[str], regions: Collection[str] = ()) -> list[FoundCloud]:
    """Return the clouds that have credentials on this machine, without those whose tables are `known`.

    Their tables name those of `regions` (`aws:us-east-1`) that are theirs, else the region of the cloud's own settings.
    Raises UsageError for a region of no cloud.
    """
    finders = {"aws": _aws, "gcp": _gcp, "azure": _azure, "kubernetes": _kubernetes}
    named: dict[str, list[str]] = {kind: [] for kind in finders}
    for region in map(_region, dict.fromkeys(regions)):
        named[region.provider].append(region.name)
    found = (find(named[kind]) for kind, find in finders.items() if kind not in known)
    return [cloud for cloud in found if cloud is not None]


def _region(text: str) -> Region:
    """Return a region of a cloud whose table may name regions. Raises UsageError."""
    hint = "for example --region aws:us-east-1"
    try:
        region = Region.parse(text)
    except ValueError as error:
        raise UsageError(f"--region: {error}", hint=hint) from None
    if region.provider not in ("aws", "gcp", "azure"):
        raise UsageError(f"--region takes regions of aws, gcp and azure, not {text}", hint=hint)
    return region


def cloud_tables(clouds: Collection[FoundCloud]) -> str:
    """Return the tables of the clouds that miss nothing, as TOML."""
    lines = list[str]()
    for cloud in clouds:
        if cloud.missing is None:
            lines += [
                f"[{cloud.kind}]",
                *(f"{name} = {json.dumps(value)}" for name, value in cloud.settings.items()),
                "",
            ]
    return "\n".join(lines)


def table_diff(path: str, added: str) -> Iterator[str]:
    """Yield the lines of a unified diff of a configuration file and the same with tables at its end."""
    before = _text(path) or ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    after = before + gap + added
    yield from difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="")


def _aws(regions: list[str]) -> FoundCloud | None:
    name = os.environ.get("AWS_PROFILE")
    settings: dict[str, str | list[str]] = {} if name is None else {"profile": name}
    sections = read_sections(config_file())
    section = sections.get("default" if name in (None, "default") else f"profile {name}", {})
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or section.get("region")
    if regions or isinstance(region, str):
        settings["regions"] = regions or [str(region)]
    credentials = credentials_file()
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return FoundCloud("aws", "AWS_ACCESS_KEY_ID", settings)
    if f"[{name or 'default'}]" in (_text(credentials) or "").split("\n"):
        return FoundCloud("aws", credentials, settings)
    if any(key in section for key in ("aws_access_key_id", "role_arn", "sso_session", "sso_start_url")):
        return FoundCloud("aws", config_file(), settings)
    variable = next((one for one in AWS_IDENTITIES if os.environ.get(one)), None)
    if variable is not None:
        return FoundCloud("aws", f"{variable} (the identity of this machine)", settings)
    identity = machine_identity("aws")
    if identity is None:
        return None
    if "regions" not in settings and identity.region:
        settings["regions"] = [identity.region]
    return FoundCloud("aws", f"the metadata service of this machine ({identity.name})", settings)


def _gcp(regions: list[str]) -> FoundCloud | None:
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    path = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )
    document = _json(path)
    if not document:
        return _gcp_of_this_machine(regions)
    project = os.environ.get("GOOGLE_CLOUD_PROJECT") or document.get("project_id") or document.get("quota_project_id")
    if not isinstance(project, str):
        return FoundCloud("gcp", path, {}, "the project: set GOOGLE_CLOUD_PROJECT")
    return FoundCloud("gcp", path, {"project": project, **({"regions": regions} if regions else {})})


def _gcp_of_this_machine(regions: list[str]) -> FoundCloud | None:
    identity = machine_identity("gcp")
    if identity is None:
        return None
    project = os.environ.get("GOOGLE_CLOUD_PROJECT") or identity.project or ""
    place = f"the metadata service of this machine ({identity.name})"
    return FoundCloud("gcp", place, {"project": project, **({"regions": regions} if regions else {})})


def _azure(regions: list[str]) -> FoundCloud | None:
    folder = os.environ.get("AZURE_CONFIG_DIR") or os.path.expanduser("~/.azure")
    path = os.path.join(folder, "azureProfile.json")
    subscription, place, identity = _azure_subscription(path), path, None
    if subscription is None or all(os.environ.get(name) for name in AZURE_SIGN_IN):
        # The variables count before the sign-in of az.
        place = _azure_variables() or place
        subscription = os.environ.get("AZURE_SUBSCRIPTION_ID") or subscription
    if place == path and subscription is None:
        if (identity := machine_identity("azure")) is None:
            return None
        place, subscription = f"the metadata service of this machine ({identity.name})", identity.subscription
    if subscription is None:
        return FoundCloud("azure", place, {}, "the subscription: set AZURE_SUBSCRIPTION_ID")
    defaults = configparser.ConfigParser(interpolation=None)
    try:
        defaults.read_string(_text(os.path.join(folder, "config")) or "")
    except configparser.Error:
        return FoundCloud("azure", place, {}, "the defaults of az, whose file cannot be read")
    group, region = (
        os.environ.get(f"AZURE_DEFAULTS_{name.upper()}") or defaults.get("defaults", name, fallback=None)
        for name in ("group", "location")
    )
    if identity is not None:
        group, region = group or identity.resource_group, region or identity.region
    if not group or not (regions or region):
        words = "the resource group and region: `az config set defaults.group=GROUP defaults.location=REGION`"
        return FoundCloud("azure", place, {}, words)
    where = regions or [str(region)]
    return FoundCloud("azure", place, {"subscription": subscription, "resource_group": group, "regions": where})


def _azure_subscription(path: str) -> str | None:
    """Return the default subscription of az; None if nobody is signed in."""
    subscriptions = _json(path).get("subscriptions")
    found = subscriptions if isinstance(subscriptions, list) else []
    ids = (one.get("id") for one in found if isinstance(one, dict) and one.get("isDefault"))
    first = next(ids, None)
    return first if isinstance(first, str) else None


def _azure_variables() -> str | None:
    """Return the variables that sign a program in to Azure, in words; None if they are not complete."""
    if not all(os.environ.get(name) for name in AZURE_SIGN_IN):
        return None
    proof = next((name for name in AZURE_PROOFS if os.environ.get(name)), None)
    return None if proof is None else ", ".join((*AZURE_SIGN_IN, proof))


def _kubernetes(_: list[str]) -> FoundCloud | None:
    paths = [path for path in kubeconfig_paths() if os.path.isfile(path)]
    if not paths:
        return None
    contexts = dict.fromkeys(context for path in paths for context in contexts_of(path) or ())
    named = f" ({', '.join(contexts)})" if contexts else ""
    lack = f"region and image of each cluster{named}: see docs/guides/kubernetes.md"
    return FoundCloud("kubernetes", ", ".join(paths), {}, lack)


def _json(path: str) -> dict[str, Any]:
    try:
        found = json.loads(_text(path) or "null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: str) -> str | None:
    """Return the text of a file; None if it is missing, too large or not text. az begins its files with a mark."""
    try:
        if os.path.getsize(path) > FILE_BYTES_MAX:
            return None
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
