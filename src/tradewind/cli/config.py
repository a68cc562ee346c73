"""Settings: flag > TRADEWIND_* > profile > config.toml > default; and `tradewind config show`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tradewind.errors import ConfigError, GatewayError, UsageError
from tradewind.model.codec import COMPRESSIONS, parse_compression
from tradewind.model.files import config_folder, read_user_file
from tradewind.model.job import MIN_CHUNK_BYTES
from tradewind.model.records import dataclass
from tradewind.model.toml import parse_toml
from tradewind.model.units import parse_bytes, parse_duration_s, parse_rate

if TYPE_CHECKING:
    from tradewind.model.sites import Sites

USAGE = "[OPTION]… show"
HELP = """\
Show each setting, its value and its origin. A flag overrides TRADEWIND_*, which overrides the profile, which overrides
config.toml."""
EXAMPLES = """\
  tradewind config show
  TRADEWIND_LIMIT_RATE=100MB/s tradewind config show
  tradewind config show --profile lab --json"""

#: Tables that say where gateways may run. They are read only by commands that use them.
SITE_TABLES = ("ssh", "fleet", "aws", "kubernetes", "azure", "gcp")
#: Identity of gateways that use that of their own machines.
MACHINE = "machine"
#: Maximum of a count: more than any real one, and within the gateway's 64 bits.
COUNT_MAX = 10**15
#: Values are padded to at most this width. A longer one shifts its origin to the right.
VALUE_COLUMNS_MAX = 40
#: Variables that are not settings: the choice of settings, another program, a secret that must not be in config.toml.
NO_SETTINGS = frozenset(
    {
        "TRADEWIND_CONFIG",
        "TRADEWIND_PROFILE",
        "TRADEWIND_WAN",
        "TRADEWIND_GCP_API_KEY",
        "TRADEWIND_PROXY_TOKEN",
        "TRADEWIND_SERVICE_TOKEN",
        "TRADEWIND_PROGRAMS",
    }
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `parse` converts text into the value; `default` is text, or None for unset.

    If a setting without a default is not given, `find` looks up the effective value, or `unset` describes it.
    """

    name: str
    parse: Callable[[str], Any]
    help: str
    default: str | None = None
    unset: str = "not set"
    find: Callable[[], SettingOrigin | None] = lambda: None

    @property
    def variable(self) -> str:
        """Name of its environment variable."""
        return "TRADEWIND_" + self.name.upper()


def parse_switch(text: str) -> bool:
    """Parse `yes`/`no`, `true`/`false`, `on`/`off` or `1`/`0`. Raises UsageError."""
    lower = text.strip().lower()
    if lower in ("1", "true", "yes", "on"):
        return True
    if lower in ("0", "false", "no", "off"):
        return False
    raise UsageError(f"must be yes or no, not {text!r}")


def parse_count(text: str) -> int:
    """Parse a whole number from 0 to `COUNT_MAX`. Raises UsageError."""
    digits = text.strip()
    if not digits.isdecimal():
        raise UsageError(f"must be a whole number, not {text!r}")
    if len(digits.lstrip("0")) > len(str(COUNT_MAX)) or int(digits) > COUNT_MAX:
        raise UsageError(f"must be a whole number up to {COUNT_MAX}, not {text!r}")
    return int(digits)


def parse_requests(text: str) -> int:
    """Parse a number of requests in flight, 1 to `STORE_REQUESTS_MAX`. Raises UsageError."""
    from tradewind.model.program import STORE_REQUESTS_MAX

    count = parse_count(text)
    if not 1 <= count <= STORE_REQUESTS_MAX:
        raise UsageError(f"must be 1 to {STORE_REQUESTS_MAX}, not {text!r}")
    return count


def parse_time_limit_s(text: str) -> float:
    """Parse a duration of at most a day. Raises UsageError."""
    from tradewind.model.program import TIMEOUT_S_MAX

    limit_s = parse_duration_s(text)
    if limit_s > TIMEOUT_S_MAX:
        raise UsageError(f"must be at most 24h, not {text!r}")
    return limit_s


def parse_percent(text: str) -> float:
    """Parse `2%` or `2` as the fraction 0.02, from 0 to 1. Raises UsageError."""
    try:
        fraction = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        fraction = -1.0
    if not 0.0 <= fraction <= 1.0:
        raise UsageError(f"a percentage from 0% to 100%, not {text!r}")
    return fraction


def parse_chunk_bytes(text: str) -> int:
    """Parse a size of at least 5MiB. Raises UsageError."""
    size = parse_bytes(text)
    if size < MIN_CHUNK_BYTES:
        raise UsageError(f"chunks must be at least 5MiB, not {text}", hint="S3 does not accept smaller parts")
    return size


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise UsageError(f"must be {' or '.join(choices)}, not {text!r}")
        return text

    return parse


def _variable(name: str) -> SettingOrigin | None:
    return SettingOrigin(os.environ[name], name) if os.environ.get(name) else None


def _state_dir() -> SettingOrigin:
    from tradewind.model.files import state_home

    return SettingOrigin(state_home(), "default")


def _gateway() -> SettingOrigin | None:
    from tradewind.engine.tasks import find_gateway

    try:
        return SettingOrigin(find_gateway(), "found")
    except GatewayError:
        return None


def _side_settings(side: str, words: str) -> list[Setting]:
    return [
        Setting(f"{side}_endpoint", str, f"address of a compatible server, {words}", unset="the cloud's own"),
        Setting(
            f"{side}_region", str, f"region of the store, {words}", unset="from the cloud's own variables or the store"
        ),
        Setting(
            f"{side}_profile",
            str,
            f"credential profile of the cloud's own configuration, {words}",
            unset="the cloud's default chain",
            find=lambda: _variable("AWS_PROFILE"),
        ),
        Setting(
            f"{side}_path_style",
            parse_switch,
            f"put the bucket into the path instead of the host name, {words}",
            unset="yes with an endpoint, else no",
        ),
        Setting(f"{side}_no_sign", parse_switch, f"send no credentials (public buckets), {words}", "no"),
        Setting(
            f"{side}_ca_bundle",
            str,
            f"PEM file with a private CA, {words}",
            unset="the system's",
            find=lambda: _variable("AWS_CA_BUNDLE"),
        ),
        Setting(f"{side}_requester_pays", parse_switch, f"agree to pay for someone else's bucket, {words}", "no"),
        Setting(
            f"{side}_role",
            str,
            f"AWS role to assume for the limited sessions of gateways on other machines, {words}",
            unset="limited sessions of the user, which need long-lived keys",
        ),
        Setting(
            f"{side}_identity",
            _one_of("lent", MACHINE),
            f"credentials of gateways on other machines: lent by this one, or those of their own {MACHINE}, {words}",
            "lent",
        ),
    ]


#: All settings. Each can be set in config.toml, in one of its profiles, or in the environment.
SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in [
        Setting("chunk_size", parse_chunk_bytes, "chunk and part size, at least 5MiB", "16MiB"),
        Setting(
            "concurrency",
            parse_requests,
            "maximum requests in flight to one store, 1 to 1024 (64 unless set)",
            unset="64",
        ),
        Setting(
            "limit_rate",
            parse_rate,
            "maximum bytes per second over all routes, e.g. 100MB/s or 800Mbit/s",
            unset="no limit",
        ),
        Setting(
            "verify", _one_of("auto", "read"), "read: read back objects without a checksum from their store", "auto"
        ),
        Setting("storage_class", str, "storage class to write", unset="the bucket's own"),
        Setting(
            "compress",
            parse_compression,
            f"compression between gateways: {COMPRESSIONS}; auto decides for each chunk by a sample",
            "off",
        ),
        Setting(
            "dedup",
            _one_of("on", "off"),
            "deduplication between gateways: do not send bytes that the receiving gateway still has from this job",
            "off",
        ),
        Setting(
            "dedup_window",
            parse_bytes,
            "with --dedup on: memory of each receiving gateway for bytes that it keeps, 1MiB to 64GiB (default 256MiB)",
            unset="256MiB",
        ),
        Setting(
            "stall",
            parse_time_limit_s,
            "stop (resumable) if no route works, or a store is unreachable or returns only errors, for this time",
            "60s",
        ),
        Setting(
            "duplicates",
            parse_percent,
            "maximum volume to send a second time over another route while a route stands still (0: none)",
            "2%",
        ),
        Setting(
            "store_work",
            parse_time_limit_s,
            "time limit for a store to copy or complete an object, plus 1 s per 4 MiB (default 1h)",
            unset="1h",
        ),
        Setting("max_delete", parse_count, "delete nothing if more than N objects would be deleted", unset="no limit"),
        Setting(
            "jobs_prune_after",
            parse_duration_s,
            "after each transfer, remove jobs of this age that cannot be resumed, such as 30d",
            unset="the last 1,000 are kept",
        ),
        *_side_settings("src", "source side"),
        *_side_settings("dst", "destination side"),
        Setting(
            "state_dir",
            str,
            "folder of jobs and catalog ($XDG_STATE_HOME/tradewind unless set)",
            find=_state_dir,
        ),
        Setting(
            "gateway",
            str,
            "path of the gateway program (found automatically unless set)",
            unset="not found",
            find=_gateway,
        ),
    ]
}


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """The text of a setting's value and its place; `text` is None if the setting is not set."""

    text: str | None
    place: str


class Configuration:
    """Settings from the environment and config.toml. The constructor raises ConfigError if the file is invalid."""

    def __init__(self, path: str | None = None, profile: str | None = None) -> None:
        self.path = path or os.environ.get("TRADEWIND_CONFIG") or config_path()
        self._file = _read(self.path, required=path is not None)
        self.profile = profile or os.environ.get("TRADEWIND_PROFILE") or self._file.get("profile")
        self._profile = self._chosen_profile()
        _check_names({name: content for name, content in self._file.items() if name not in SITE_TABLES}, self.path)
        for name, table in self._profiles().items():
            _check_names(table, f"{self.path} [profiles.{name}]")

    def origin(self, name: str) -> SettingOrigin:
        """Return the origin of a setting's value, ignoring flags."""
        setting = SETTINGS[name]
        if setting.variable in os.environ:
            return SettingOrigin(os.environ[setting.variable], setting.variable)
        for table, place in ((self._profile, f"profile {self.profile}"), (self._file, self.path)):
            if name in table:
                return SettingOrigin(_text(table[name]), place)
        return SettingOrigin(setting.default, "default")

    def value(self, name: str) -> Any:
        """Return the parsed value; None if it is not set. Raises ConfigError."""
        origin = self.origin(name)
        if origin.text is None:
            return None
        try:
            return SETTINGS[name].parse(origin.text)
        except UsageError as error:
            raise ConfigError(f"{name} from {origin.place}: {error}", hint=error.hint) from None

    def sites(self) -> Sites | None:
        """Return where gateways may run; None if no table of the file says anything about it. Raises ConfigError."""
        tables = {name: self._file[name] for name in SITE_TABLES if name in self._file}
        if not tables:
            return None
        from tradewind.model.sites import read_sites

        return read_sites(tables, self.path)

    def _chosen_profile(self) -> Mapping[str, Any]:
        if self.profile is None:
            return {}
        profiles = self._profiles()
        if self.profile not in profiles:
            raise ConfigError(
                f"{self.path} has no profile {self.profile!r}",
                hint=f"add a section [profiles.{self.profile}]; name a profile of a cloud with --src-profile",
            )
        return profiles[self.profile]

    def _profiles(self) -> dict[str, Mapping[str, Any]]:
        profiles = self._file.get("profiles", {})
        if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
            raise ConfigError(f"{self.path}: profiles must be tables", hint="write a profile as [profiles.NAME]")
        return profiles


def config_path() -> str:
    """Return `$XDG_CONFIG_HOME/tradewind/config.toml`, by default below `~/.config`."""
    return os.path.join(config_folder(), "config.toml")


def unknown_variables() -> list[str]:
    """Return a warning for each `TRADEWIND_*` variable that is not a setting, with the nearest one that is."""
    known = {setting.variable for setting in SETTINGS.values()} | NO_SETTINGS
    lines = []
    for variable in sorted(set(filter(_is_ours, os.environ)) - known):
        from difflib import get_close_matches

        near = get_close_matches(variable, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "`tradewind config show` lists all settings"
        lines.append(f"warning: {variable} is not a setting and is ignored; {hint}")
    return lines


def _is_ours(variable: str) -> bool:
    return variable.startswith("TRADEWIND_")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action."""
    parser.add_argument("action", metavar="ACTION", choices=["show"], help="show: print each setting and its origin")


def run(args: Namespace) -> int:
    """Print the settings on standard output."""
    configuration: Configuration = args.configuration
    for name in SETTINGS:
        configuration.value(name)
    rows = list(_rows(configuration))
    if args.json:
        import json

        for name, origin, unset in rows:
            row = {"setting": name, "value": _shown(name, origin), "origin": origin.place}
            print(json.dumps(row if origin.text is not None else {**row, "unset": unset}))
        return 0
    width = max(len(name) for name in SETTINGS)
    shown = [_shown(name, origin) or f"({unset})" for name, origin, unset in rows]
    value_width = min(max(map(len, shown)), VALUE_COLUMNS_MAX)
    for (name, origin, _), value in zip(rows, shown, strict=True):
        print(f"{name:<{width}}  {value:<{value_width}}  {origin.place}")
    return 0


def _rows(configuration: Configuration) -> Iterator[tuple[str, SettingOrigin, str]]:
    """Yield each setting's name, its value with the origin, and the text for an unset value.

    An endpoint that no setting of ours defines has a row for each cloud whose own configuration defines one.
    """
    for name, setting in SETTINGS.items():
        origin = configuration.origin(name)
        if origin.text is None and name.endswith("_endpoint"):
            profile = configuration.value(name.replace("_endpoint", "_profile"))
            found = list(_endpoints_of_clouds(profile))
            if found:
                yield from ((name, origin, "") for origin in found)
                continue
        yield name, (origin if origin.text is not None else setting.find() or origin), setting.unset


def _endpoints_of_clouds(profile: str | None) -> Iterator[SettingOrigin]:
    from tradewind.engine.aws_profile import s3_endpoint

    if endpoint := s3_endpoint(profile):
        yield SettingOrigin(_without_credentials(endpoint.url), f"{endpoint.place}, s3:// only")
    for variable, scheme in (("STORAGE_EMULATOR_HOST", "gs"), ("AZURE_STORAGE_ENDPOINT", "az")):
        if os.environ.get(variable):
            yield SettingOrigin(_without_credentials(os.environ[variable]), f"{variable}, {scheme}:// only")


def _shown(name: str, origin: SettingOrigin) -> str | None:
    """Return a value without the credentials that an endpoint may contain, although a transfer would refuse these."""
    if origin.text is not None and name.endswith("_endpoint"):
        return _without_credentials(origin.text)
    return origin.text


def _without_credentials(url: str) -> str:
    """Return an address without user name, password, query and fragment."""
    scheme, separator, rest = url.rpartition("://")
    address = rest.partition("#")[0].partition("?")[0]
    host, slash, path = address.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _check_names(table: Mapping[str, Any], place: str) -> None:
    known = {*SETTINGS, "profile", "profiles"}
    for name, content in table.items():
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`tradewind config show` lists all settings"
            raise ConfigError(f"{place}: unknown setting {name!r}", hint=hint)
        if isinstance(content, (list, dict)) and name != "profiles":
            raise ConfigError(f"{place}: {name} must be one value")


def _text(content: object) -> str:
    if isinstance(content, bool):
        return "yes" if content else "no"
    return str(content)


def _read(path: str, *, required: bool) -> dict[str, Any]:
    try:
        content = read_user_file(path)
    except FileNotFoundError:
        if required:
            hint = "leave out --config for the default file, or name a TOML file with settings"
            raise ConfigError(f"--config {path}: no such file", hint=hint) from None
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="the configuration is a TOML file") from None
    return parse_toml(content, path)
