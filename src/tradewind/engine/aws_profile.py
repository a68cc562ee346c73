"""The endpoint of an `s3://` store according to AWS's own variables and configuration file.

Source: AWS SDKs and Tools Reference Guide, "Service-specific endpoints". The first of these that is set wins:
`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `endpoint_url` of `s3` in the profile's `services` section, `endpoint_url` of
the profile. `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS` or `ignore_configured_endpoint_urls` turns them all off. Credentials
are not read here: the gateway finds them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from tradewind.errors import UsageError
from tradewind.model.records import dataclass

#: Maximum size of a configuration file; a larger one is not AWS's.
CONFIG_BYTES_MAX = 1 << 20
#: Starts of sections that are not profiles.
NOT_PROFILES = ("services ", "sso-session ")
#: Maximum number of profiles that a hint names.
PROFILES_SHOWN_MAX = 8

_Section = dict[str, "str | dict[str, str]"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint, the region for which its profile signs (None: not given), and the source of the endpoint."""

    url: str
    region: str | None
    place: str


def s3_endpoint(profile: str | None) -> Endpoint | None:
    """Return the endpoint for `profile`, or for AWS's default profile if None. Reads at most one small file."""
    if _is_true(os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")):
        return None
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if os.environ.get(variable):
            return Endpoint(os.environ[variable], None, variable)
    path = config_file()
    sections = read_sections(path)
    name, chosen = _chosen(sections, profile)
    if not chosen or _is_true(_text(chosen, "ignore_configured_endpoint_urls")):
        return None
    region = _text(chosen, "region")
    services = _text(chosen, "services")
    of_s3 = sections.get(f"services {services}", {}).get("s3") if services else None
    if isinstance(of_s3, Mapping) and of_s3.get("endpoint_url"):
        return Endpoint(of_s3["endpoint_url"], region, f"{path} [services {services}]")
    url = _text(chosen, "endpoint_url")
    return Endpoint(url, region, f"{path} [{_header(name)}]") if url else None


def refuse_missing_profile() -> None:
    """Raise UsageError if credentials come from the profile in `AWS_PROFILE`, and it does not exist.

    Keys in the environment win over a profile, and a profile called `default` need not exist.
    """
    profile = os.environ.get("AWS_PROFILE")
    if profile and profile != "default" and not os.environ.get("AWS_ACCESS_KEY_ID"):
        refuse_unknown_profile(profile, origin=" (AWS_PROFILE)")


def refuse_unknown_profile(profile: str, *, origin: str = "") -> None:
    """Raise UsageError if neither of AWS's two files has `profile`. Reads at most two small files.

    `origin` says in the message where the name comes from.
    """
    places = (config_file(), credentials_file())
    sections = [name for path in places for name in read_sections(path)]
    known = dict.fromkeys(name.removeprefix("profile ") for name in sections if not name.startswith(NOT_PROFILES))
    if profile in known:
        return
    from difflib import get_close_matches

    near = get_close_matches(profile, list(known), n=1)
    shown = ", ".join(list(known)[:PROFILES_SHOWN_MAX])
    hint = f"did you mean {near[0]}?" if near else f"these profiles exist: {shown}" if shown else "run `aws configure`"
    raise UsageError(f"no AWS profile {profile}{origin} in {places[0]} or {places[1]}", hint=hint)


def address_switch(profile: str | None) -> str | None:
    """Return the name of AWS's variable or entry that asks for FIPS or dual-stack addresses, if one is on.

    Source: AWS SDKs and Tools Reference Guide, "Dual-stack and FIPS endpoints". A variable wins over the profile.
    """
    _, chosen = _chosen(read_sections(config_file()), profile)
    for entry in ("use_fips_endpoint", "use_dualstack_endpoint"):
        variable = f"AWS_{entry.upper()}"
        if os.environ.get(variable):
            if _is_true(os.environ[variable]):
                return variable
        elif chosen and _is_true(_text(chosen, entry)):
            return entry
    return None


def config_file() -> str:
    """Return `AWS_CONFIG_FILE`, by default `~/.aws/config`."""
    return os.environ.get("AWS_CONFIG_FILE") or os.path.join(os.path.expanduser("~"), ".aws", "config")


def credentials_file() -> str:
    """Return `AWS_SHARED_CREDENTIALS_FILE`, by default `~/.aws/credentials`."""
    given = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    return given or os.path.join(os.path.expanduser("~"), ".aws", "credentials")


def read_sections(path: str) -> dict[str, _Section]:
    """Return sections by name, such as `profile work`; none for a file that is missing or not text.

    Indented lines below `s3 =` are entries of `s3`. Lines that cannot be parsed are skipped, as AWS's tools do.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(CONFIG_BYTES_MAX).splitlines()
    except OSError:
        return {}
    sections: dict[str, _Section] = {}
    section: _Section = {}
    nested: dict[str, str] | None = None
    for line in lines:
        text = line.partition(" #")[0].partition(" ;")[0].strip()
        if not text or text[0] in "#;":
            continue
        if text[0] == "[" and text[-1] == "]":
            name = " ".join(text[1:-1].replace('"', "").replace("'", "").split())
            section, nested = sections.setdefault(name, {}), None
            continue
        key, equals, content = (part.strip() for part in text.partition("="))
        if not equals:
            continue
        if line[0].isspace() and nested is not None:
            nested[key.lower()] = content
        elif content:
            section[key.lower()], nested = content, None
        else:
            nested = {}
            section[key.lower()] = nested
    return sections


def _chosen(sections: Mapping[str, _Section], profile: str | None) -> tuple[str, _Section | None]:
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    return name, sections.get(f"profile {name}") or (sections.get(name) if name == "default" else None)


def _header(name: str) -> str:
    return name if name == "default" else f"profile {name}"


def _text(section: _Section, key: str) -> str | None:
    content = section.get(key)
    return content if isinstance(content, str) else None


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
