"""Flows files: the TCP flows of a user, the regions where proxies may run, and the budget of a period.

docs/reference/flows-file.md describes the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeVar, get_args

from tradewind.errors import ConfigError, UsageError
from tradewind.model.files import read_user_file
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region
from tradewind.model.toml import parse_toml
from tradewind.model.units import parse_bytes, parse_duration_s, parse_rate_gbps, parse_usd

__all__ = [
    "CONTROLS",
    "HERE",
    "LOSS_MAX",
    "WAYS_IN",
    "CongestionControl",
    "FlowEnd",
    "FlowsFile",
    "Sizes",
    "WantedFlow",
    "WayIn",
    "flows_from_document",
    "parse_address",
    "read_flows",
]

T = TypeVar("T")
CongestionControl = Literal["reno", "cubic", "bbr"]
WayIn = Literal["port", "socks5", "connect", "sni", "transparent", "run"]
WAYS_IN: tuple[str, ...] = get_args(WayIn)
CONTROLS: tuple[str, ...] = get_args(CongestionControl)

HERE = "here"
"""Name of this machine as an end of a flow."""
FORMAT = "docs/reference/flows-file.md describes the format"
#: Most flows of a file, regions, sizes of a flow, and repetitions of one transfer in a period.
FLOWS_MAX, REGIONS_MAX, SIZES_MAX, TIMES_MAX = 10_000, 200, 100, 1_000_000
#: Most instances in a region, longest period, and longest round trip of a file.
INSTANCES_MAX, PERIOD_S_MAX, RTT_MS_MAX = 10_000, 366 * 86_400.0, 60_000.0
#: Largest loss of a path: beyond it, the models of TCP do not hold.
LOSS_MAX = 0.1
#: Most networks and tokens of clients of a flow.
CLIENTS_MAX = 1_000
#: Longest name of a flow.
NAME_CHARS_MAX = 100
PORT_MAX = 65_535
MBITS_PER_GBIT = 1e3
#: Interval and time of comparisons with the direct path, and the shortest time in which it can be judged.
COMPARE_EVERY_S, COMPARE_S, COMPARE_S_MIN = 300.0, 10.0, 3.0
#: Least limit of a client (crates/split).
LIMITED_BYTES_PER_S_MIN = 1024
BYTES_PER_S_PER_GBPS = 1.25e8
#: Connections that are kept ready for each hop, and most of them (crates/split).
POOL, POOL_MAX = 8, 64
PERIOD = "30d"
"""Period of a file that has none."""

_TOP = {
    "budget",
    "period",
    "regions",
    "machine_time",
    "machine_types",
    "max_instances",
    "window",
    "proxy_window",
    "compare_every",
    "compare_time",
    "shared_last_miles",
    "slow_start",
    "proxy_congestion_control",
    "pool",
    "client_rate",
    "destination_rate",
    "flow",
}
_END = ("region", "at", "rtt_ms", "rate")
_FLOW = {
    "name",
    "source",
    "destination",
    *(f"source_{key}" for key in _END),
    *(f"destination_{key}" for key in _END),
    "rtt_ms",
    "loss",
    "congestion_control",
    "size",
    "sizes",
    "every",
    "way_in",
    "listen",
    "clients",
    "tokens",
}


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """The source or the destination of a flow, and where it is: in a region, at coordinates, or by its round trips."""

    text: str
    """As the file has it: `HOST:PORT`, `HOST`, a region, or `here`."""
    address: tuple[str, int | None] | None = None
    """Host and port; None for a region and for `here`."""
    region: Region | None = None
    at: tuple[float, float] | None = None
    """Latitude and longitude [degrees]."""
    rtt_ms: Mapping[Region, float] = field(default_factory=dict)
    """Round trips to regions."""
    rate_mbps: float | None = None
    """Rate of its last mile; None if nothing limits it."""

    @property
    def is_here(self) -> bool:
        """Return whether it is this machine."""
        return self.text == HERE


@dataclass(frozen=True, slots=True)
class Sizes:
    """A number of transfers of one size."""

    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class WantedFlow:
    """A flow of the file: the same transfers again and again, one after the other."""

    name: str
    source: FlowEnd
    destination: FlowEnd
    sizes: tuple[Sizes, ...]
    times: float
    """Number of times that all `sizes` are sent within a period."""
    rtt_ms: float | None = None
    """Round trip between its ends, if the file has it."""
    loss: float = 0.0
    """Part of the packets that the direct path loses, 0 to LOSS_MAX."""
    congestion_control: CongestionControl = "cubic"
    """Congestion control of the sender."""
    way_in: WayIn = "port"
    listen: str | None = None
    """`HOST:PORT` on which the way in listens, if the file has it."""
    clients: tuple[str, ...] = ()
    """Networks of the clients that may connect; empty for any."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each client's token, in hexadecimal, by the client's name; empty if clients need none."""

    @property
    def transfers(self) -> float:
        """Transfers within a period."""
        return self.times * sum(sizes.count for sizes in self.sizes)

    @property
    def period_bytes(self) -> float:
        """Bytes within a period."""
        return self.times * sum(sizes.size_bytes * sizes.count for sizes in self.sizes)


@dataclass(frozen=True, slots=True)
class FlowsFile:
    """The flows of a user, and what proxies for them may cost."""

    budget_usd: float
    """For one period."""
    period_s: float
    flows: tuple[WantedFlow, ...]
    regions: tuple[Region, ...] = ()
    """Where proxies may run; empty for the regions of the configured clouds."""
    machine_s: float | None = None
    """Time for which a proxy runs in a period; None for all of it."""
    machine_types: tuple[str, ...] = ()
    """Machine types of proxies; empty for the cheapest of each region."""
    max_instances: int = 1
    window_bytes: int | None = None
    """Window of the hosts at the ends; None for Linux's default."""
    proxy_window_bytes: int | None = None
    """Window between two proxies; None for that of tuned machines."""
    compare_every_s: float = COMPARE_EVERY_S
    """Interval at which a running flow is compared with its direct path."""
    compare_s: float = COMPARE_S
    """Time of one comparison."""
    shared_last_miles: bool = False
    """True if the flows of a host share its last mile."""
    pool: int = POOL
    """Connections that proxies keep ready for each hop; 0 for none."""
    slow_start: bool = False
    """True if predicted times include handshakes and slow start."""
    proxy_congestion_control: CongestionControl = "bbr"
    """Congestion control that proxies ask their kernels for."""
    client_bytes_per_s: int | None = None
    """Limit of one client address in each direction at the entrance of its flows; None for no limit."""
    destination_bytes_per_s: int | None = None
    """Limit of one destination in each direction at each entrance of its flows; None for no limit."""


def read_flows(path: str | PathLike[str]) -> FlowsFile:
    """Read and check a flows file. Raises ConfigError, which names file, table and key."""
    place = str(path)
    try:
        return flows_from_document(parse_toml(read_user_file(path), place), place)
    except FileNotFoundError:
        raise ConfigError(f"{place}: no such file", hint=FORMAT) from None
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}", hint=FORMAT) from None
    except ConfigError as error:
        error.hint = error.hint or FORMAT
        raise


def flows_from_document(document: Mapping[str, Any], place: str) -> FlowsFile:
    """Return the flows of a file's table. `place` names it in errors. Raises ConfigError."""
    table = _Table(document, place, _TOP)
    period_s = table.amount("period", parse_duration_s, PERIOD)
    if not 0 < period_s <= PERIOD_S_MAX:
        raise table.wrong("period", f"more than 0 and at most {PERIOD_S_MAX / 86_400:g} days", document["period"])
    machine_s = table.optional("machine_time", parse_duration_s)
    if machine_s is not None and not 0 < machine_s <= period_s:
        raise table.wrong("machine_time", "more than 0 and at most the period", document["machine_time"])
    entries = table.array("flow", FLOWS_MAX)
    if not entries:
        raise ConfigError(f"{place}: there is no flow", hint="begin each flow with [[flow]]")
    flows = tuple(_flow(entry, f"{place}: flow {number}", period_s) for number, entry in enumerate(entries, 1))
    names = [flow.name for flow in flows]
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ConfigError(f"{place}: two flows are called {twice!r}", hint="give each flow another name")
    return FlowsFile(
        table.amount("budget", parse_usd),
        period_s,
        flows,
        tuple(table.region_of("regions", text) for text in table.array("regions", REGIONS_MAX)),
        machine_s,
        tuple(table.text_of("machine_types", text) for text in table.array("machine_types", REGIONS_MAX)),
        table.whole("max_instances", 1, 1, INSTANCES_MAX),
        table.optional("window", _window),
        table.optional("proxy_window", _window),
        *_comparison(table),
        table.switch("shared_last_miles"),
        table.whole("pool", POOL, 0, POOL_MAX),
        table.switch("slow_start"),
        table.choice("proxy_congestion_control", CONTROLS, "bbr"),
        table.optional("client_rate", _limited_bytes_per_s),
        table.optional("destination_rate", _limited_bytes_per_s),
    )


def _limited_bytes_per_s(text: str) -> int:
    bytes_per_s = round(parse_rate_gbps(text) * BYTES_PER_S_PER_GBPS)
    if bytes_per_s < LIMITED_BYTES_PER_S_MIN:
        least = LIMITED_BYTES_PER_S_MIN
        raise UsageError(f"{text} is less than {least} bytes per second", hint="for example 100Mbit/s")
    return bytes_per_s


def _comparison(table: _Table) -> tuple[float, float]:
    every_s = table.amount("compare_every", parse_duration_s, f"{COMPARE_EVERY_S}s")
    time_s = table.amount("compare_time", parse_duration_s, f"{COMPARE_S}s")
    if not COMPARE_S_MIN <= time_s <= every_s / 2 or every_s > PERIOD_S_MAX:
        raise ConfigError(
            f"{table.place}: compare_time must be at least {COMPARE_S_MIN:g} s and at most half of compare_every",
            hint='for example compare_every = "5min" and compare_time = "10s"',
        )
    return every_s, time_s


def _flow(entry: Any, place: str, period_s: float) -> WantedFlow:
    if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
        place = f"{place} ({entry['name']:.{NAME_CHARS_MAX}})"
    table = _Table(entry, place, _FLOW)
    name = table.text("name")
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise table.wrong("name", f"at most {NAME_CHARS_MAX} printable characters", name)
    every_s = table.optional("every", parse_duration_s)
    times = 1.0 if every_s is None else period_s / every_s if every_s > 0 else 0.0
    if not 1 <= times <= TIMES_MAX:
        raise table.wrong("every", f"a time that fits 1 to {TIMES_MAX:,} times into the period", entry["every"])
    source, destination = _end(table, "source"), _end(table, "destination")
    if source.text == destination.text:
        raise ConfigError(f"{place}: source and destination are both {source.text!r}")
    return WantedFlow(
        name,
        source,
        destination,
        _sizes(table),
        times,
        table.number("rtt_ms", 0.0, RTT_MS_MAX),
        table.number("loss", 0.0, LOSS_MAX) or 0.0,
        table.choice("congestion_control", CONTROLS, "cubic"),
        table.choice("way_in", WAYS_IN, "port"),
        _listen(table),
        tuple(table.text_of("clients", text) for text in table.array("clients", CLIENTS_MAX)),
        table.texts("tokens", CLIENTS_MAX),
    )


def _end(table: _Table, side: str) -> FlowEnd:
    text = table.text(side)
    address, region = None, None
    if text != HERE:
        try:
            address = parse_address(text)
        except UsageError as error:
            if ":" not in text:
                raise table.wrong(side, "HOST:PORT, a region, or here", text) from None
            try:
                region = Region.parse(text)
            except ValueError:
                raise ConfigError(f"{table.place}: {side}: {error}", hint=error.hint) from None
    key = f"{side}_region"
    if (named := table.optional(key, lambda name: table.region_of(key, name))) is not None:
        if region is not None:
            raise ConfigError(f"{table.place}: {side} is a region already", hint=f"leave out {key}")
        region = named
    rate_gbps = table.optional(f"{side}_rate", parse_rate_gbps)
    return FlowEnd(
        text,
        address,
        region,
        table.coordinates(f"{side}_at"),
        table.round_trips(f"{side}_rtt_ms"),
        None if rate_gbps is None else rate_gbps * MBITS_PER_GBIT,
    )


def parse_address(text: str) -> tuple[str, int | None]:
    """Return host and port of `HOST:PORT`, `[IPV6]:PORT` or `HOST`. Raises UsageError."""
    hint = "for example files.example.org:443 or [2001:db8::7]:443"
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        port = port.removeprefix(":") if bracket else "?"
    else:
        host, colon, port = text.partition(":")
        if not colon:
            port = ""
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= PORT_MAX):
        raise UsageError(f"{text!r} has no port from 1 to {PORT_MAX}", hint=hint)
    if not host or any(character.isspace() or character in "/@?#" for character in host):
        raise UsageError(f"{text!r} is not HOST:PORT", hint=hint)
    return host, int(port) if port else None


def _sizes(table: _Table) -> tuple[Sizes, ...]:
    if table.has("size") == table.has("sizes"):
        raise ConfigError(f"{table.place}: needs either size or sizes", hint='for example size = "2 GB"')
    if table.has("size"):
        return (Sizes(table.amount("size", _size), 1),)
    found = []
    for number, entry in enumerate(table.array("sizes", SIZES_MAX), 1):
        inner = _Table(entry, f"{table.place}: sizes {number}", {"size", "count"})
        found.append(Sizes(inner.amount("size", _size), inner.whole("count", 1, 1, TIMES_MAX)))
    if not found:
        raise ConfigError(f"{table.place}: sizes is empty")
    return tuple(found)


def _listen(table: _Table) -> str | None:
    if not table.has("listen"):
        return None
    text = table.text("listen")
    try:
        _, port = parse_address(text)
    except UsageError as error:
        hint = "without `listen`, a flow of this machine gets a free loopback port"
        raise ConfigError(f"{table.place}: listen: {error}", hint=hint) from None
    if port is None:
        raise table.wrong("listen", "HOST:PORT", text)
    return text


def _size(text: str) -> int:
    size_bytes = parse_bytes(text)
    if size_bytes < 1:
        raise UsageError(f"a size must be more than zero, not {text!r}")
    return size_bytes


_window = _size


class _Table:
    """Reads a table of the file. `place` names it in errors. All methods raise ConfigError."""

    def __init__(self, entry: Any, place: str, keys: set[str]) -> None:
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{place} must be a table", hint=FORMAT)
        if unknown := sorted(entry.keys() - keys):
            raise ConfigError(f"{place}: unknown key {unknown[0]!r}", hint=f"known: {', '.join(sorted(keys))}")
        self._entry, self.place = entry, place

    def has(self, key: str) -> bool:
        """Return whether the table has a key."""
        return key in self._entry

    def wrong(self, key: str, what: str, value: object) -> ConfigError:
        """Return the error of a value that is not what it must be."""
        return ConfigError(f"{self.place}: {key} must be {what}, not {value!r:.80}")

    def text(self, key: str) -> str:
        """Return a text."""
        return self.text_of(key, self._entry.get(key))

    def text_of(self, key: str, value: Any) -> str:
        """Return a value of a key if it is a text."""
        if not isinstance(value, str) or not value.strip():
            raise (
                self.wrong(key, "text", value) if value is not None else ConfigError(f"{self.place}: {key} is missing")
            )
        return value.strip()

    def amount(self, key: str, parse: Callable[[str], T], default: str | None = None) -> T:
        """Return an amount with its unit."""
        text = self.text_of(key, self._entry.get(key, default))
        try:
            return parse(text)
        except UsageError as error:
            raise ConfigError(f"{self.place}: {key}: {error}", hint=error.hint) from None

    def optional(self, key: str, parse: Callable[[str], T]) -> T | None:
        """Return an amount; None if the table does not have it."""
        return self.amount(key, parse) if self.has(key) else None

    def array(self, key: str, most: int) -> Sequence[Any]:
        """Return a list; empty if the table does not have it."""
        value = self._entry.get(key, [])
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key, f"a list of at most {most:,} entries", value)
        return value

    def number(self, key: str, least: float, most: float) -> float | None:
        """Return a number; None if the table does not have it."""
        return self._number(key, self._entry[key], least, most) if self.has(key) else None

    def _number(self, key: str, value: Any, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.wrong(key, f"a number from {least:g} to {most:g}", value)
        return float(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        """Return a whole number."""
        value = self._entry.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most:,}", value)
        return value

    def switch(self, key: str) -> bool:
        """Return true or false; false if the table does not have it."""
        value = self._entry.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def choice(self, key: str, choices: Sequence[str], default: str) -> Any:
        """Return one of several words."""
        value = self._entry.get(key, default)
        if value not in choices:
            raise self.wrong(key, f"one of {', '.join(choices)}", value)
        return value

    def region_of(self, key: str, value: Any) -> Region:
        """Return a value of a key as a region."""
        try:
            return Region.parse(self.text_of(key, value))
        except ValueError as error:
            raise ConfigError(f"{self.place}: {key}: {error}") from None

    def coordinates(self, key: str) -> tuple[float, float] | None:
        """Return latitude and longitude [degrees]; None if the table does not have them."""
        if not self.has(key):
            return None
        value = self._entry[key]
        if not isinstance(value, list) or len(value) != 2:
            raise self.wrong(key, "latitude and longitude, such as [52.5, 13.4]", value)
        return self._number(key, value[0], -90.0, 90.0), self._number(key, value[1], -180.0, 180.0)

    def texts(self, key: str, most: int) -> dict[str, str]:
        """Return texts by name; empty if the table does not have them."""
        value = self._entry.get(key, {})
        if not isinstance(value, Mapping) or len(value) > most:
            raise self.wrong(key, f"a table of at most {most:,} texts", value)
        return {name: self.text_of(f"{key}.{name}", text) for name, text in value.items()}

    def round_trips(self, key: str) -> dict[Region, float]:
        """Return round trips by region [ms]; empty if the table does not have them."""
        value = self._entry.get(key, {})
        if not isinstance(value, Mapping) or len(value) > REGIONS_MAX:
            raise self.wrong(key, 'a table such as {"aws:us-east-1" = 20}', value)
        return {
            self.region_of(key, name): self._number(f"{key}.{name}", number, 0.0, RTT_MS_MAX)
            for name, number in value.items()
        }
