"""Short flows over 200 ms in the emulated WAN, with and without connections that proxies keep ready for each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.acceleration import short_flows
from testbed.sky import valid
from tradewind.acceleration.proxies import stop
from tradewind.acceleration.scene import CLIENT, SERVER, scene
from tradewind.errors import SkyInvalid
from tradewind.gateway.binary import find_gateway
from tradewind.sky.running import Sky

NEAR, FAR = "near-1", "far-1"
PORT, HOP_PORT, SERVER_PORT = 6000, 4430, 7000
CLIENTS = "10.77.0.0/16"
PAUSE_S = 1.5
"""Before each flow or burst: time for the proxies to open connections again."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A path, and the settings of the proxies' machines."""

    name: str
    pool: int | None
    """Connections that are kept ready; None for the direct path."""
    control: str = "cubic"
    after_idle: int = 1
    """`tcp_slow_start_after_idle`."""


SETTINGS = (
    Setting("direct", None),
    Setting("two proxies", 0),
    Setting("two proxies, pool", 4),
    Setting("two proxies, pool, no slow start after idle", 4, after_idle=0),
    Setting("two proxies, pool, bbr", 4, control="bbr"),
)
SIZES = (1, 100_000, 1_000_000)
POOLS = (0, 1, 2, 4, 8)
BURSTS = (4, 8)


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    settings: Sequence[Setting] = SETTINGS
    sizes: Sequence[int] = SIZES
    flows: int = 7
    """Flows of a size, one after the other."""
    pools: Sequence[int] = POOLS
    bursts: Sequence[int] = BURSTS
    rounds: int = 3
    """Bursts of a size."""


QUICK = Extent(SETTINGS[:3], (1,), 2, (4,), (4,), 1)


def measure_pools(extent: Extent, done: set[str], round_: int) -> Iterator[Row]:
    """Yield a row for each setting and size, and for each pool and burst, that is not in `done`."""
    keys = {f"pools/{one.name}/{size}/{round_}": (one, size) for one in extent.settings for size in extent.sizes}
    bursts = {f"pools/burst/{pool}/{burst}/{round_}": (pool, burst) for pool in extent.pools for burst in extent.bursts}
    if done >= {*keys, *bursts}:
        return
    with Sky.up(scene()) as sky, TemporaryDirectory(prefix="tradewind-pools-") as place, _server(sky) as server:
        names = ["--name", "near", "far"]
        identities = [find_gateway(), "identity", "--out", f"{place}/fleet", *names]
        subprocess.run(identities, check=True, capture_output=True)
        for key, (one, size) in keys.items():
            if key not in done:
                about = {"setting": one.name, "size_bytes": size, "pool": one.pool}
                yield {"key": key, "figure": "pools", **about, **_measured(sky, one, server, Path(place), size, extent)}
        for key, (pool, burst) in bursts.items():
            if key not in done:
                about = {"burst": burst, "size_bytes": 1, "pool": pool}
                setting = Setting("burst", pool)
                taken = _measured(sky, setting, server, Path(place), 1, extent, burst)
                yield {"key": key, "figure": "pools", **about, **taken}


def _measured(
    sky: Sky, one: Setting, server: str, place: Path, size: int, extent: Extent, burst: int = 0
) -> Mapping[str, Any]:
    try:
        return valid(sky, partial(_flows, sky, one, server, place, size, extent, burst))
    except SkyInvalid as error:
        return {"invalid": str(error)}


def _flows(
    sky: Sky, one: Setting, server: str, place: Path, size: int, extent: Extent, burst: int
) -> Mapping[str, Any]:
    """Measure a first flow, which finds no connection ready, and then the others."""
    for machine in (NEAR, FAR):
        sky.set_machine(machine, congestion_control=one.control)
        after_idle = f"echo {one.after_idle} > /proc/sys/net/ipv4/tcp_slow_start_after_idle"
        sky.run(machine, ["sh", "-c", after_idle], check=True)
    if one.pool is None:
        cold = _fetch(sky, server, size, 1, 1)
        return {"cold_ms": cold, "warm_ms": _fetch(sky, server, size, 1, extent.flows)}
    with _proxies(sky, one.pool, server, place) as (entry, status):
        cold = _fetch(sky, entry, size, 1, 1)
        warm = _fetch(sky, entry, size, burst or 1, extent.rounds if burst else extent.flows)
    (hop,) = status["hops"].values()
    counts = {name: hop[name] for name in ("taken", "missed", "dead", "dialed")}
    return {"cold_ms": cold, "warm_ms": warm, **counts}


@contextmanager
def _proxies(sky: Sky, pool: int, server: str, place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run two proxies within the block. Yield the address of the first, and its status, empty until the block ends."""
    near, far = (sky.machines[machine].address for machine in (NEAR, FAR))
    limits = {"pool": pool, "drain_timeout_ms": 1_000}
    last = {
        "listeners": [{"listen": f"{far}:{HOP_PORT}", "way": "hop"}],
        "allow": [server],
        "identity": f"{place}/fleet/far",
        "limits": limits,
    }
    forward = {"listen": f"{near}:{PORT}", "way": "forward", "destination": server, "clients": [CLIENTS]}
    first = {
        "listeners": [forward],
        "allow": [server],
        "identity": f"{place}/fleet/near",
        "proxies": {"far": f"{far}:{HOP_PORT}"},
        "routes": [{"destination": server, "through": ["far"]}],
        "limits": limits,
    }
    status: dict[str, Any] = {}
    with _split(sky, FAR, last, place), _split(sky, NEAR, first, place) as process:
        yield f"{near}:{PORT}", status
        process.terminate()
        assert process.stdout is not None
        status |= json.loads(process.stdout.readline())


@contextmanager
def _split(sky: Sky, machine: str, document: Mapping[str, Any], place: Path) -> Iterator[subprocess.Popen[str]]:
    file = place / f"{machine}.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    with _running(sky, machine, [find_gateway(), "split", "--config", str(file)]) as process:
        yield process


@contextmanager
def _server(sky: Sky) -> Iterator[str]:
    with _running(sky, SERVER, [sys.executable, short_flows.__file__, "serve", str(SERVER_PORT)]):
        yield f"{sky.machines[SERVER].address}:{SERVER_PORT}"


@contextmanager
def _running(sky: Sky, machine: str, words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a program within the block, from its first line on."""
    process = sky.popen(machine, words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"{words[0]} did not start in {machine}")
        yield process
    finally:
        stop(process)


def _fetch(sky: Sky, address: str, size: int, burst: int, rounds: int) -> list[list[float]]:
    counts = map(str, (size, burst, rounds, PAUSE_S))
    words = [sys.executable, short_flows.__file__, "fetch", address, *counts]
    said = sky.run(CLIENT, words, check=True, capture_output=True, text=True).stdout
    times: list[list[float]] = json.loads(said)
    if len(times) != burst * rounds:
        raise RuntimeError(f"{burst * rounds - len(times)} flows failed")
    return times
