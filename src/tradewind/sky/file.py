"""Sky files: regions, machines and links, by hand or from a grid, resolved into an `EmulatedNetwork`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from tradewind.catalog.tables import GBPS_MAX, RTT_MS_MAX, read_rows
from tradewind.errors import SkyFileError, TradewindError
from tradewind.model.document import read_json
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import parse_rate
from tradewind.sky.network import EmulatedNetwork, MachineSpec, Path, Pipe

__all__ = ["MACHINES_MAX", "network_from_document", "read_sky_file"]

#: Maximum machines of one sky. Each is a namespace, a TUN device and a queue; 64 were run on two cores.
MACHINES_MAX = 200
REGIONS_MAX = 100
#: Default queue of one pipe: at least this long, and at least one round trip.
QUEUE_MS_MIN = 50.0
QUEUE_PACKETS_MIN = 64
MTU_BYTES = 1500
RATE_BPS_MIN, RATE_BPS_MAX = 8_000, 100_000_000_000
#: Default round trip between machines of one region.
LOCAL_RTT_MS = 1.0
LOCAL_RATE = "10Gbit/s"
CONGESTION_CONTROLS = ("cubic", "bbr", "reno")
SHARINGS = ("pair", "machine", "regions")

_TOP = {"description", "scale", "seed", "mtu", "congestion_control", "regions", "grid", "links", "local", "shared_by"}
_REGION = {"machines", "name", "egress", "ingress", "congestion_control", "inbound"}
_GRID = {"rates", "rate_column", "rtts", "rtt_column"}
_LINK = {"rtt_ms", "rate", "queue_ms", "loss"}


@dataclass(frozen=True, slots=True)
class _Link:
    """Known figures of one ordered pair of regions; `rate_bps` before scaling."""

    rtt_ms: float | None = None
    rate_bps: float | None = None
    queue_ms: float | None = None
    loss: float = 0.0


FORMAT = "the format: docs/reference/sky.md"


def read_sky_file(path: str | os.PathLike[str]) -> EmulatedNetwork:
    """Read and check a sky file; paths in it are relative to it. Raises SkyFileError."""
    file = FilePath(path)
    try:
        document = read_json(file, object_pairs_hook=_once)
    except OSError as error:
        raise SkyFileError(f"{path}: {error.strerror}", hint=FORMAT) from error
    except ValueError as error:
        raise SkyFileError(f"{path}: not JSON: {error}", hint=FORMAT) from error
    except SkyFileError as error:
        raise SkyFileError(f"{path}: {error}") from None
    try:
        return network_from_document(document, file.parent)
    except SkyFileError as error:
        raise SkyFileError(f"{path}: {error}", hint=error.hint or FORMAT) from None


def network_from_document(document: Any, folder: FilePath) -> EmulatedNetwork:
    """Return the network of a sky file's JSON; table paths are relative to `folder`. Raises SkyFileError."""
    _known(document, "the file", _TOP)
    scale = _number(document, "scale", 1e-6, 1000.0, 1.0)
    mtu_bytes = _whole(document, "mtu", 576, 9000, MTU_BYTES)
    machines = tuple(_machines(document, scale))
    links = _links(document, folder, {machine.region for machine in machines})
    sharing = document.get("shared_by", "machine")
    if sharing not in SHARINGS:
        raise SkyFileError(f"shared_by: {sharing!r} is not one of {', '.join(SHARINGS)}")
    pipes, paths = _joined(machines, links, sharing, scale, mtu_bytes)
    seed = _whole(document, "seed", 0, 2**53, 1)
    return EmulatedNetwork(machines, pipes, paths, mtu_bytes, seed, scale)


def _machines(document: Any, scale: float) -> Iterator[MachineSpec]:
    regions = _known(document.get("regions"), "regions", None)
    if not 0 < len(regions) <= REGIONS_MAX:
        raise SkyFileError(f"regions: between 1 and {REGIONS_MAX}, not {len(regions)}")
    default_control = _control(document, "cubic")
    names: set[str] = set()
    for number, (text, entry) in enumerate(regions.items(), 1):
        region = _region(text)
        _known(entry, text, _REGION)
        prefix = entry.get("name", f"{region.provider}-{region.name}".lower())
        egress, ingress = (_cap(entry, which, scale) for which in ("egress", "ingress"))
        inbound = entry.get("inbound", True)
        if not isinstance(inbound, bool):
            raise SkyFileError(f"{text}: inbound must be true or false, not {inbound!r}")
        for index in range(1, _whole(entry, "machines", 1, MACHINES_MAX, 1) + 1):
            name = f"{prefix}-{index}"
            if not _is_name(name) or name in names:
                raise SkyFileError(f"{text}: {name!r} is not a unique, valid name", hint="a-z, 0-9 and -, at most 63")
            names.add(name)
            if len(names) > MACHINES_MAX:
                raise SkyFileError(f"more than {MACHINES_MAX} machines")
            control = _control(entry, default_control)
            yield MachineSpec(name, region, f"10.77.{number}.{index}", control, egress, ingress, inbound)


def _links(document: Any, folder: FilePath, regions: set[Region]) -> dict[tuple[Region, Region], _Link]:
    links: dict[tuple[Region, Region], _Link] = {}
    if "grid" in document:
        _add_grid(links, _known(document["grid"], "grid", _GRID), folder, regions)
    local = _known(document.get("local", {}), "local", _LINK)
    for region in regions:
        links[region, region] = _overlaid(_Link(LOCAL_RTT_MS, parse_rate(LOCAL_RATE) * 8.0), local, "local")
    entries = document.get("links", [])
    if not isinstance(entries, list):
        raise SkyFileError("links must be a list")
    for number, entry in enumerate(entries, 1):
        where = f"link {number}"
        _known(entry, where, _LINK | {"between", "from", "to"})
        for pair in _pairs(entry, where, regions):
            links[pair] = _overlaid(links.get(pair, _Link()), entry, where)
    for (src, dst), link in links.items():
        for what, value in (("rate", link.rate_bps), ("rtt_ms", link.rtt_ms)):
            if value is None:
                raise SkyFileError(f"{src} → {dst} has no {what}", hint="give it in links, or use a grid that has it")
    return links


def _pairs(entry: Any, where: str, regions: set[Region]) -> list[tuple[Region, Region]]:
    both = entry.get("between")
    if both is not None and "from" not in entry and "to" not in entry:
        if not isinstance(both, list) or len(both) != 2:
            raise SkyFileError(f"{where}: `between` needs a list of two regions")
        ends = [_region(text) for text in both]
        pairs = [(ends[0], ends[1]), (ends[1], ends[0])]
    elif both is None and "from" in entry and "to" in entry:
        pairs = [(_region(entry["from"]), _region(entry["to"]))]
    else:
        raise SkyFileError(f"{where}: needs either `between`, or `from` and `to`")
    for region in pairs[0]:
        if region not in regions:
            raise SkyFileError(f"{where}: {region} is not in regions")
    if pairs[0][0] == pairs[0][1]:
        raise SkyFileError(f"{where}: both ends are the same region", hint="`local` is for machines of one region")
    return pairs


def _overlaid(link: _Link, entry: Mapping[str, Any], where: str) -> _Link:
    if "rtt_ms" in entry:
        link = replace(link, rtt_ms=_number(entry, "rtt_ms", 0.0, RTT_MS_MAX))
    if "rate" in entry:
        link = replace(link, rate_bps=_rate_bps(entry["rate"], where))
    if "queue_ms" in entry:
        link = replace(link, queue_ms=_number(entry, "queue_ms", 0.1, 10_000.0))
    if "loss" in entry:
        link = replace(link, loss=_number(entry, "loss", 0.0, 1.0))
    return link


def _add_grid(
    links: dict[tuple[Region, Region], _Link], grid: Mapping[str, Any], folder: FilePath, regions: set[Region]
) -> None:
    """Add rates and round trips of this sky's pairs, from tables with the columns src and dst."""
    columns = {"rates": [grid.get("rate_column", "received_gbps"), "gbps"], "rtts": []}
    columns["rtts"] = [grid.get("rtt_column", "rtt_ms"), "avg_rtt_ms", "min_rtt_ms"]
    try:
        for table in ("rates", "rtts"):
            if table not in grid:
                continue
            high = GBPS_MAX if table == "rates" else RTT_MS_MAX
            for row in read_rows(folder / str(grid[table]), [["src"], ["dst"], columns[table]]):
                pair = (row.region("src"), row.region("dst"))
                if pair[0] == pair[1] or not regions.issuperset(pair):
                    continue
                value = row.number(*columns[table], low=0.0, high=high)
                link = links.get(pair, _Link())
                if table == "rates":
                    links[pair] = replace(link, rate_bps=value * 1e9)
                else:
                    links[pair] = replace(link, rtt_ms=value)
    except SkyFileError:
        raise
    except TradewindError as error:
        raise SkyFileError(f"grid: {error}", hint=error.hint) from None


def _joined(
    machines: tuple[MachineSpec, ...],
    links: Mapping[tuple[Region, Region], _Link],
    sharing: str,
    scale: float,
    mtu_bytes: int,
) -> tuple[tuple[Pipe, ...], tuple[Path, ...]]:
    """Return a path for every ordered pair of machines whose regions are linked, and the pipes that paths share."""
    pipes: list[Pipe] = []
    known: dict[tuple[object, object], int] = {}
    paths = []
    for i, src in enumerate(machines):
        for j, dst in enumerate(machines):
            link = links.get((src.region, dst.region))
            if i == j or link is None:
                continue
            assert link.rate_bps is not None and link.rtt_ms is not None, "_links has checked"
            key: tuple[object, object] = (i, j) if sharing == "pair" or src.region == dst.region else (i, dst.region)
            if sharing == "regions" and src.region != dst.region:
                key = (src.region, dst.region)
            if key not in known:
                known[key] = len(pipes)
                queue_ms = link.queue_ms or max(QUEUE_MS_MIN, link.rtt_ms)
                pipes.append(_scaled_pipe(link.rate_bps, scale, queue_ms, mtu_bytes, f"{src.region} → {dst.region}"))
            paths.append(Path(i, j, known[key], round(link.rtt_ms * 500), link.loss))
    return tuple(pipes), tuple(paths)


def _cap(entry: Mapping[str, Any], which: str, scale: float) -> Pipe | None:
    if which not in entry:
        return None
    return _scaled_pipe(_rate_bps(entry[which], which), scale, QUEUE_MS_MIN, MTU_BYTES, which)


def _scaled_pipe(rate_bps: float, scale: float, queue_ms: float, mtu_bytes: int, where: str) -> Pipe:
    scaled_bps = rate_bps * scale
    if not RATE_BPS_MIN <= scaled_bps <= RATE_BPS_MAX:
        raise SkyFileError(
            f"{where}: {scaled_bps:.0f} bit/s after scaling is not between {RATE_BPS_MIN} and {RATE_BPS_MAX}"
        )
    queue_bytes = max(scaled_bps / 8 * queue_ms / 1e3, QUEUE_PACKETS_MIN * mtu_bytes)
    return Pipe(round(scaled_bps), round(queue_bytes))


def _rate_bps(text: Any, where: str) -> float:
    if not isinstance(text, str):
        raise SkyFileError(f"{where}: a rate is a string like '5Gbit/s', not {text!r}")
    try:
        return parse_rate(text) * 8.0
    except TradewindError as error:
        raise SkyFileError(f"{where}: {error}", hint=error.hint) from None


def _control(entry: Mapping[str, Any], default: str) -> str:
    name = entry.get("congestion_control", default)
    if name not in CONGESTION_CONTROLS:
        raise SkyFileError(f"congestion_control: {name!r} is not one of {', '.join(CONGESTION_CONTROLS)}")
    return str(name)


def _region(text: Any) -> Region:
    try:
        return Region.parse(str(text))
    except ValueError as error:
        raise SkyFileError(str(error)) from None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 63 and all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in text)


def _known(document: Any, where: str, known: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise SkyFileError(f"{where} must be an object")
    for key in document:
        if known is not None and key not in known:
            raise SkyFileError(f"{where}: unknown entry {key!r}", hint="known: " + ", ".join(sorted(known)))
    return document


def _number(entry: Mapping[str, Any], key: str, low: float, high: float, default: float | None = None) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SkyFileError(f"{key} must be a number, not {value!r}")
    if not low <= value <= high:
        raise SkyFileError(f"{key}: {value} is not between {low:g} and {high:g}")
    return float(value)


def _whole(entry: Mapping[str, Any], key: str, low: int, high: int, default: int) -> int:
    value = _number(entry, key, low, high, default)
    if not value.is_integer():
        raise SkyFileError(f"{key} must be a whole number, not {value:g}")
    return int(value)


def _once(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries as a dict; refuse duplicates, of which JSON would silently keep the last."""
    found: dict[str, Any] = {}
    for key, value in entries:
        if key in found:
            raise SkyFileError(f"{key!r} appears twice")
        found[key] = value
    return found
