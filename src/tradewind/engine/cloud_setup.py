"""The clouds that `tradewind init` finds: by the variables and files of their own tools on this machine.

Nothing is asked over the network, and no secret is read into the tables. `init` then asks the providers themselves.
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
from tradewind.errors import UsageError
from tradewind.model.records import dataclass
from tradewind.model.region import Region

__all__ = ["FoundCloud", "cloud_tables", "find_clouds", "table_diff"]

#: Largest file of another tool that is read.
FILE_BYTES_MAX = 1 << 20


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
    is_there = any(key in section for key in ("aws_access_key_id", "role_arn", "sso_session", "sso_start_url"))
    return FoundCloud("aws", config_file(), settings) if is_there else None


def _gcp(regions: list[str]) -> FoundCloud | None:
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    path = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )
    document = _json(path)
    if not document:
        return None
    project = os.environ.get("GOOGLE_CLOUD_PROJECT") or document.get("project_id") or document.get("quota_project_id")
    if not isinstance(project, str):
        return FoundCloud("gcp", path, {}, "the project: set GOOGLE_CLOUD_PROJECT")
    return FoundCloud("gcp", path, {"project": project, **({"regions": regions} if regions else {})})


def _azure(regions: list[str]) -> FoundCloud | None:
    folder = os.environ.get("AZURE_CONFIG_DIR") or os.path.expanduser("~/.azure")
    path = os.path.join(folder, "azureProfile.json")
    subscriptions = _json(path).get("subscriptions")
    if not isinstance(subscriptions, list):
        return None
    ids = [one.get("id") for one in subscriptions if isinstance(one, dict) and one.get("isDefault")]
    if not ids or not isinstance(ids[0], str):
        return None
    defaults = configparser.ConfigParser(interpolation=None)
    try:
        defaults.read_string(_text(os.path.join(folder, "config")) or "")
    except configparser.Error:
        return FoundCloud("azure", path, {}, "the defaults of az, whose file cannot be read")
    group, region = (defaults.get("defaults", name, fallback=None) for name in ("group", "location"))
    if not group or not (regions or region):
        words = "the resource group and region: `az config set defaults.group=GROUP defaults.location=REGION`"
        return FoundCloud("azure", path, {}, words)
    where = regions or [str(region)]
    return FoundCloud("azure", path, {"subscription": ids[0], "resource_group": group, "regions": where})


def _kubernetes(_: list[str]) -> FoundCloud | None:
    path = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or os.path.expanduser("~/.kube/config")
    if not os.path.isfile(path):
        return None
    return FoundCloud("kubernetes", path, {}, "region and image of each cluster: see docs/guides/kubernetes.md")


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
