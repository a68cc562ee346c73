"""The demo in the sky: the same files by the direct path and by a planned overlay, side by side, a relay killed."""

from __future__ import annotations

import queue
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.catalog.load import load_catalog
from tradewind.cli.demo_sample import SampleFiles, affordable_bytes, choose_sample, require_same, trees_of
from tradewind.cli.terminal import Terminal
from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import planned_launch
from tradewind.engine.provisioning import chunk_bytes_for, pace_bytes_per_s, plan_beside_direct, with_memory_for
from tradewind.engine.report import proof_words
from tradewind.engine.request import Options
from tradewind.engine.running import RunningJob
from tradewind.errors import JobFailed, TradewindError
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.fleet.sky_world import sky_world
from tradewind.model.event import Event, Notice, ObjectFailed, Progress, Summary
from tradewind.model.job import MIN_FILE_CHUNK_BYTES
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.plan import Plan
from tradewind.model.region import Region
from tradewind.model.units import format_bytes, format_duration, format_gbps, format_rate, format_usd
from tradewind.sky.file import network_from_document
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

__all__ = ["run_in_sky"]

#: The route of the Skyplane paper's first figure, its two relays, and one of a third cloud.
SOURCE, SINK = Region.parse("azure:canadacentral"), Region.parse("gcp:asia-northeast1")
REGIONS = {
    SOURCE: "toronto",
    SINK: "tokyo",
    Region.parse("azure:japaneast"): "saitama",
    Region.parse("azure:westus2"): "quincy",
    Region.parse("aws:us-west-2"): "oregon",
}
#: 4 Gbit/s become 40 Mbit/s: two such skies at once stay far below what two busy cores can emulate.
SCALE = 0.01
#: At the direct path's rate this takes about a minute.
DEFAULT_BYTES = 240_000_000
#: The overlay may cost so many times what the direct path costs.
COST_FACTOR = 1.8
#: The busiest relay is killed when this part of the bytes has come over the overlay.
KILL_AT = 0.35
BAR_CHARACTERS = 24
#: Threads that follow jobs end within so long after their jobs.
FOLLOWER_S = 10.0


@dataclass
class Racer:
    """One of the two transfers."""

    name: str
    plan: Plan
    job: RunningJob
    sky: Sky
    copy: Path
    progress: Progress = field(default_factory=Progress)
    ended: bool = False

    @property
    def overlay(self) -> UnicastOverlay:
        """The plan by region."""
        assert self.plan.overlay is not None
        return self.plan.overlay


#: A transfer and what it says; None when it has no more to say, an error if it broke.
Update = tuple[Racer, Event | TradewindError | None]


def run_in_sky(args: Namespace, place: Path, terminal: Terminal) -> int:
    """Tells the story. Exit code 0 only if every file arrived both ways and all trees are the same.

    Raises:
        SkyUnavailable: this host cannot run a sky; nothing was said or done yet.
        TransferError: a transfer failed, or a copy differs.
    """
    catalog = load_catalog()
    network = network_from_document(sky_world(catalog, list(REGIONS), SCALE, names=REGIONS), place)
    with ExitStack() as stack:
        skies = [stack.enter_context(Sky.up(network)) for _ in range(2)]
        sample = choose_sample(trees_of(args.tree), affordable_bytes(args.size or DEFAULT_BYTES, place, copies=2))
        terminal.say(f"1. Files: {sample}.")
        plans = _plans(network, sample)
        _introduce(network, plans, terminal)
        racers = stack.enter_context(_started(args, place, sample, skies, plans))
        try:
            _watch(racers, sample, terminal)
        finally:
            terminal.end()
        late = [reason for sky in skies if (reason := sky.stats().invalid) is not None]
        return _end(racers, sample, late, terminal)


def _plans(network: EmulatedNetwork, sample: SampleFiles) -> tuple[Plan, Plan]:
    """Direct with one machine at each end, and the fastest overlay for COST_FACTOR times its price."""
    catalog, volume_gb = sky_catalog(network, load_catalog()), sample.bytes / 1e9
    return plan_beside_direct(catalog, SOURCE, SINK, volume_gb, cost_factor=COST_FACTOR, machines_per_region=1)


def _introduce(network: EmulatedNetwork, plans: tuple[Plan, Plan], terminal: Terminal) -> None:
    clouds = sorted({region.provider for region in REGIONS})
    ends = {network.machines.index(machine): machine.region for machine in network.machines}
    rtt_ms = next(path.delay_us * 2e-3 for path in network.paths if (ends[path.src], ends[path.dst]) == (SOURCE, SINK))
    terminal.say(
        f"2. Sky: {len(REGIONS)} regions of {len(clouds)} clouds ({', '.join(clouds)}) as namespaces of this host,"
        " real TCP between them,",
        f"   {SOURCE} → {SINK} {rtt_ms:.0f} ms; round trips are real, rates scaled by {network.scale:g}. There"
        " are two such skies, one for each transfer.",
    )
    for name, plan in zip(("direct", "overlay"), plans, strict=True):
        overlay = plan.overlay
        assert overlay is not None
        terminal.say(
            f"   {name:<8} planned {format_gbps(overlay.throughput_gbps)} for {format_usd(overlay.cost.total_usd)}:",
            *(f"            {route.share:4.0%}  {' → '.join(route.nodes)}" for route in plan.routes),
        )


@contextmanager
def _started(
    args: Namespace, place: Path, sample: SampleFiles, skies: Sequence[Sky], plans: tuple[Plan, Plan]
) -> Iterator[list[Racer]]:
    """Both transfers, under way; ended with the block, at once if it is left early."""
    (place / "files").write_text("".join(f"{name}\n" for name in sample.names), encoding="utf-8")
    control = JobControl(state_dir=str(place / "state"), gateway=args.gateway)
    racers: list[Racer] = []
    try:
        for name, plan, sky in zip(("direct", "overlay"), plans, skies, strict=True):
            chunk_bytes = chunk_bytes_for(plan, SCALE, MIN_FILE_CHUNK_BYTES)
            roomy = with_memory_for(plan, chunk_bytes)
            options = Options(
                recursive=True,
                files_from=str(place / "files"),
                verify="read",
                chunk_bytes=chunk_bytes,
                limit_bytes_per_s=pace_bytes_per_s(plan),
            )
            launch = planned_launch(roomy, {"kind": "sky", "sky": str(sky.folder)})
            copy = place / "copy" / name
            job = control.start("/", f"{copy}/", options, launch, verb="demo")
            racers.append(Racer(name, plan, job, sky, copy))
        yield racers
    except BaseException:
        # Nothing is to be resumed, and nothing may be written any more into what is removed next.
        for racer in racers:
            racer.job.kill()
        raise
    finally:
        for racer in racers:
            racer.job.close()


def _watch(racers: Sequence[Racer], sample: SampleFiles, terminal: Terminal) -> None:
    """Both to their ends; kills the overlay's busiest relay on the way. Raises the error of one that broke."""
    updates: queue.SimpleQueue[Update] = queue.SimpleQueue()
    followers = [threading.Thread(target=_follow, args=(racer, updates), daemon=True) for racer in racers]
    for follower in followers:
        follower.start()
    killed = False
    while not all(racer.ended for racer in racers):
        racer, event = updates.get()
        if isinstance(event, TradewindError):
            raise event
        if event is None:
            racer.ended = True
        elif isinstance(event, Summary):
            racer.progress = event.progress
            terminal.say(f"   {racer.name}: {event.outcome} after {format_duration(event.progress.elapsed_s)}")
        elif isinstance(event, Progress):
            racer.progress = event
            if racer.name == "overlay" and not killed and event.bytes_done >= KILL_AT * sample.bytes:
                killed = True
                _kill_busiest(racer, terminal)
            terminal.live(
                [_line(each, sample) for each in racers], "; ".join(_line(each, sample, 0) for each in racers)
            )
        elif isinstance(event, ObjectFailed):
            terminal.event(event)
        elif isinstance(event, Notice):
            terminal.say(f"   {racer.name}: {event.message}")
    for follower in followers:
        follower.join(FOLLOWER_S)
    if not killed and all(racer.job.summary is not None for racer in racers):
        raise JobFailed(
            "the overlay transfer ended before a relay could be killed",
            hint="use more data: tradewind demo --size 500MB",
        )


def _follow(racer: Racer, updates: queue.SimpleQueue[Update]) -> None:
    """Hands the events of one job on, and last None or its error."""
    try:
        for event in racer.job.events():
            updates.put((racer, event))
    except TradewindError as error:
        updates.put((racer, error))
    else:
        updates.put((racer, None))


def _kill_busiest(racer: Racer, terminal: Terminal) -> None:
    carried = {
        relay: sum(route.share for route in racer.plan.routes if relay in route.nodes[1:-1])
        for route in racer.plan.routes
        for relay in route.nodes[1:-1]
    }
    victim = max(sorted(carried), key=lambda relay: carried[relay])
    racer.job.crash(victim)
    so_far = format_gbps(racer.progress.bytes_per_s * 8e-9)
    terminal.say(
        f"3. At {format_bytes(racer.progress.bytes_done)} of the overlay, {so_far} so far: the relay",
        f"   {victim} is killed. It carried {carried[victim]:.0%}; the other routes take that over.",
    )


def _line(racer: Racer, sample: SampleFiles, bar_characters: int = BAR_CHARACTERS) -> str:
    part = min(1.0, racer.progress.bytes_done / sample.bytes)
    full = round(part * bar_characters)
    bar = f"{'█' * full}{'░' * (bar_characters - full)}  " if bar_characters else ""
    return (
        f"{racer.name:<8} {bar}{part:4.0%}  {format_rate(racer.progress.bytes_per_s)}"
        f"  {format_duration(racer.progress.elapsed_s)}"
    )


def _end(racers: Sequence[Racer], sample: SampleFiles, late: Sequence[str], terminal: Terminal) -> int:
    proofs = [racer.job.result().summary.proofs for racer in racers]
    terminal.say("4. " + _table_head(), *(f"   {_row(racer)}" for racer in racers))
    quickest = racers[0].progress.elapsed_s / racers[1].progress.elapsed_s
    terminal.say(f"   Although it lost a relay, the overlay was {quickest:.1f} times as fast as the direct path.")
    words = sorted({proof_words(name) for proof in proofs for name in proof})
    terminal.say(f"   Proven by Tradewind, each file: {'; '.join(words)}.")
    for reason in late:
        terminal.warn(f"   INVALID as a measurement: {reason}. The bytes count, the times do not.")
    began_s = time.monotonic()
    for racer in racers:
        require_same(sample, racer.copy, terminal, f"{racer.name}: ")
    terminal.say(
        f"5. Compared without Tradewind, byte by byte: all {len(sample.names):,} files are identical in both "
        f"copies, and there is no extra file ({time.monotonic() - began_s:.1f} s)."
    )
    return 0


def _table_head() -> str:
    return f"{'':<8} {'time':>8}  {'rate':>14}  {'predicted':>14}  {'cost':>9}  {'predicted':>9}  by the routes"


def _row(racer: Racer) -> str:
    progress, overlay = racer.progress, racer.overlay
    routes: list[Any] = sorted(progress.hops, key=lambda hop: -hop.bytes)
    carried = ", ".join(f"{_middle(hop.name)} {hop.bytes / max(1, progress.bytes_done):.0%}" for hop in routes)
    spent = racer.job.spent_usd()
    return (
        f"{racer.name:<8} {format_duration(progress.elapsed_s):>8}  {format_gbps(progress.bytes_per_s * 8e-9):>14}"
        f"  {format_gbps(overlay.throughput_gbps):>14}  {format_usd(spent):>9}"
        f"  {format_usd(overlay.cost.total_usd):>9}  {carried}"
    )


def _middle(route: str) -> str:
    """The relays of a route, by the name that the lead gives it."""
    between = route.split(" → ")[1:-1]
    return " → ".join(between) or "direct"
