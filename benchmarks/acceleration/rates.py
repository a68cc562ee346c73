"""Figs. 3 and 4 of the CloudPilot paper in the emulated WAN: the rate of one flow on each kind of path."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.acceleration.chains import Entry, forward, serving
from benchmarks.acceleration.ground import Machine, largest_hop, network_of, predicted_mbps, set_windows
from testbed.sky import send, sink, valid
from tradewind.errors import SkyInvalid
from tradewind.placement.use_cases import Places
from tradewind.sky.running import Sky

SCALE = 0.05
CLOUDS_FILE = "rtt_2022-04.csv"
PROXY_PORT, FORWARDING_PORT, SINK_PORT = 6000, 6001, 5000
TUPLES = 24
"""Of Fig. 4, each with three paths; the paper has over 75."""
TOGETHER = 4
"""Flows at the same time, each with machines of its own."""
GAIN_MIN = 1.2
"""A tuple of Fig. 4 has proxies that gain at least this by the model."""
SEED, DRAWS_MAX = 4, 10_000


@dataclass(frozen=True)
class Timing:
    """Time for which a flow sends [s]."""

    warmup_s: float = 8.0
    seconds: float = 4.0


QUICK = Timing(1.0, 0.5)


@dataclass(frozen=True)
class Tuple:
    """Regions of a source, a destination, and the proxies of each kind of path."""

    name: str
    src: str
    dst: str
    one: str
    two: tuple[str, str]
    note: str = ""


@dataclass(frozen=True)
class Way:
    """A kind of path, and the program in the proxies' places."""

    name: str
    proxies: int
    program: str = ""


DIRECT = Way("direct", 0)
FORWARDING = Way("forwarding", 1)
ONE, TWO = Way("one split", 1, "Tradewind"), Way("two splits", 2, "Tradewind")
FIGURE_3 = (DIRECT, FORWARDING, ONE, TWO, Way("one split", 1, "HAProxy"), Way("two splits", 2, "HAProxy"))
FIGURE_4 = (DIRECT, ONE, TWO)
TABLE_1 = (
    Tuple(
        "a", "aws:me-south-1", "aws:us-west-1", "gcp:europe-west2", ("gcp:europe-west2", "gcp:us-west1"),
        "Bahrain for Israel, of which the tables have no round trips",
    ),
    Tuple("b", "aws:eu-west-2", "aws:us-west-2", "gcp:northamerica-northeast1", ("gcp:europe-west2", "gcp:us-west1")),
    Tuple("c", "aws:us-east-2", "aws:ap-south-1", "gcp:europe-west2", ("gcp:us-east4", "gcp:asia-south1")),
    Tuple("d", "gcp:us-east1", "gcp:us-west1", "gcp:us-central1", ("gcp:us-east1", "gcp:us-west1")),
)  # fmt: skip
"""The regions of Table 1, in the clouds that it names."""

LOCAL_MS = 0.5
"""Round trip within a region."""
Rtt = Callable[[str, str], float]
Row = dict[str, object]


def clouds_rtt(folder: Path) -> Rtt:
    """Return the round trips between regions of AWS, Azure and Google of 2022 [ms]. Raises FileNotFoundError."""
    known: dict[tuple[str, str], float] = {}
    with (folder / CLOUDS_FILE).open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            known[row["src"], row["dst"]] = float(row["min_rtt_ms"])
    return lambda a, b: LOCAL_MS if a == b else known.get((a, b)) or known[b, a]


def places_rtt(places: Places) -> Rtt:
    """Return the round trips of CloudPilot's regions: the mean of both directions, of which a sky has one."""
    number = {name: at for at, name in enumerate(places.names)}
    return lambda a, b: float(places.rtt_ms[number[a], number[b]] + places.rtt_ms[number[b], number[a]]) / 2


def sampled_tuples(places: Places, count: int, seed: int = SEED) -> list[Tuple]:
    """Return random tuples of five different regions whose proxies gain by the model; fewer after `DRAWS_MAX` draws."""
    rng, rtt_ms = np.random.default_rng(seed), places_rtt(places)
    found: list[Tuple] = []
    for _ in range(DRAWS_MAX):
        src, dst, one, p, q = (places.names[at] for at in rng.permutation(len(places.names))[:5])
        candidate = Tuple(f"t{len(found)}", src, dst, one, (p, q))
        least_mbps = GAIN_MIN * predicted_mbps(_hops_ms(candidate, 0, rtt_ms), SCALE)
        if all(predicted_mbps(_hops_ms(candidate, proxies, rtt_ms), SCALE) > least_mbps for proxies in (1, 2)):
            found.append(candidate)
        if len(found) == count:
            break
    return found


def _proxies(one: Tuple, count: int) -> tuple[str, ...]:
    return ((), (one.one,), one.two)[count]


def _hops_ms(one: Tuple, proxies: int, rtt_ms: Rtt) -> list[float]:
    regions = [one.src, *_proxies(one, proxies), one.dst]
    return [rtt_ms(a, b) for a, b in pairwise(regions)]


def measure_rates(
    figure: str, tuples: Sequence[Tuple], ways: Sequence[Way], rtt_ms: Rtt, timing: Timing, done: set[str], round_: int
) -> Iterator[Row]:
    """Yield a row for each tuple and way that is not in `done`, a set of keys. Several tuples run at the same time.

    A row whose emulator was late in every attempt has `invalid`, and no rate.
    """
    for start in range(0, len(tuples), TOGETHER):
        batch = tuples[start : start + TOGETHER]
        wanted = [
            (way, [one for one in batch if _key(figure, one, way, round_) not in done]) for way in ways
        ]  # fmt: skip
        if not any(left for _, left in wanted):
            continue
        machines = {one.name: _machines(one) for one in batch}
        every = [machine for few in machines.values() for machine in few.values()]
        pairs = [(f"{one.name}{a}", f"{one.name}{b}") for one in batch for a, b in LINKED]
        with Sky.up(network_of(every, pairs, rtt_ms, SCALE)) as sky:
            set_windows(sky, every, SCALE)
            for way, left in wanted:
                for one, rate in zip(left, _rates(sky, way, [machines[one.name] for one in left], timing), strict=True):
                    yield _row(figure, one, way, rtt_ms, round_, rate)


LINKED = (("src", "dst"), ("src", "one"), ("one", "dst"), ("src", "first"), ("first", "last"), ("last", "dst"))
ROLES = ((), ("one",), ("first", "last"))


def _machines(one: Tuple) -> dict[str, Machine]:
    regions = {"src": one.src, "dst": one.dst, "one": one.one, "first": one.two[0], "last": one.two[1]}
    return {role: Machine(f"{one.name}{role}", region, role == "last") for role, region in regions.items()}


def _key(figure: str, one: Tuple, way: Way, round_: int) -> str:
    return f"{figure}/{one.name}/{way.name}/{way.program}/{round_}"


def _row(figure: str, one: Tuple, way: Way, rtt_ms: Rtt, round_: int, rate: Mapping[str, object]) -> Row:
    hops_ms = _hops_ms(one, way.proxies, rtt_ms)
    # A proxy that splits nothing adds up the round trips.
    modelled = hops_ms if way.program or not way.proxies else [sum(hops_ms)]
    return {
        "key": _key(figure, one, way, round_),
        "figure": figure,
        "tuple": one.name,
        "regions": [one.src, *_proxies(one, way.proxies), one.dst],
        "way": way.name,
        "program": way.program,
        "round": round_,
        "rtt_ms": hops_ms,
        "predicted_mbps": predicted_mbps(modelled, SCALE),
        **rate,
    }


def _rates(sky: Sky, way: Way, chosen: Sequence[Mapping[str, Machine]], timing: Timing) -> list[Mapping[str, object]]:
    """Measure one flow of each set of machines, at the same time."""
    roles = ROLES[way.proxies]
    with ExitStack() as stack:
        first_hops, entries = [], {}
        port = PROXY_PORT if way.program else FORWARDING_PORT
        for machines in chosen:
            address = stack.enter_context(sink(sky, machines["dst"].in_sky, port=SINK_PORT))
            for role in reversed(roles):
                entries[machines[role].in_sky] = [Entry(port, address)]
                address = f"{sky.machines[machines[role].in_sky].address}:{port}"
            first_hops.append(address)
        if way.program:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="tradewind-chains-")))
            stack.enter_context(serving(sky, way.program, entries, folder))
        else:
            for machine, (entry,) in entries.items():
                forward(sky, machine, entry)
        flows = list(zip(chosen, first_hops, strict=True))
        senders = ["src", *(roles if way.program else ())]
        try:
            return valid(sky, partial(_together, sky, flows, senders, timing))
        except SkyInvalid as error:
            return [{"invalid": str(error)} for _ in chosen]


def _together(
    sky: Sky, flows: Sequence[tuple[Mapping[str, Machine], str]], senders: Sequence[str], timing: Timing
) -> list[Mapping[str, object]]:
    with ThreadPoolExecutor(len(flows)) as threads:
        return list(threads.map(lambda flow: _one(sky, flow[0], flow[1], senders, timing), flows))


def _one(
    sky: Sky, machines: Mapping[str, Machine], to: str, senders: Sequence[str], timing: Timing
) -> Mapping[str, object]:
    """Return the rate of one flow, and what the kernel says of each hop in the middle of the measurement."""
    hops: list[dict[str, float]] = []

    def look() -> None:
        for role in senders:
            if hop := largest_hop(sky, machines[role]):
                hops.append({"window_bytes": hop.window_bytes, "rtt_ms": hop.rtt_ms})

    timer = threading.Timer(timing.warmup_s + timing.seconds / 2, look)
    timer.start()
    mbps = send(sky, machines["src"].in_sky, to, seconds=timing.seconds, warmup_s=timing.warmup_s)
    timer.join()
    return {"measured_mbps": mbps, "hops": hops}
