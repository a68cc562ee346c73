"""The demo in a sky: copy the same files over the direct path and a planned overlay, side by side, and kill a relay."""

from __future__ import annotations

import queue
import threading
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.cli.terminal import Terminal
from tradewind.engine.demonstration import REGIONS, SINK, SOURCE, Racer, SkyRace
from tradewind.engine.report import proof_words
from tradewind.engine.sample_files import SampleFiles, affordable_bytes, choose_sample, compare, trees_of
from tradewind.errors import JobFailed, TradewindError
from tradewind.model.event import Event, Notice, ObjectFailed, Progress, Summary
from tradewind.model.plan import Plan
from tradewind.model.units import format_bytes, format_count, format_duration, format_gbps, format_rate, format_usd

__all__ = ["require_same", "run_in_sky"]

#: Default volume. The direct path takes about a minute for it.
DEFAULT_BYTES = 240_000_000
#: The busiest relay is killed when this fraction of the bytes has arrived over the overlay.
KILL_AT = 0.35
#: Maximum number of differences that are listed.
DIFFERENCES_NAMED_MAX = 10
BAR_CHARACTERS = 24
#: Maximum wait for the threads that follow jobs, after the jobs have ended.
FOLLOWER_S = 10.0


#: A transfer and its next event; None after the last event, an error if the transfer failed.
Update = tuple[Racer, Event | TradewindError | None]


def run_in_sky(args: Namespace, place: Path, terminal: Terminal) -> int:
    """Run the demo. Return 0 only if every file arrived over both transfers and all trees are identical.

    Raises:
        SkyUnavailable: this host cannot run a sky. Nothing was printed or done yet.
        TransferError: a transfer failed, or a copy differs.
    """
    with SkyRace(place, args.gateway) as race:
        sample = choose_sample(trees_of(args.tree), affordable_bytes(args.size or DEFAULT_BYTES, place, copies=2))
        terminal.say(f"1. Files: {sample}.")
        plans = race.plans(sample.bytes)
        _introduce(race, plans, terminal)
        with race.started(sample, plans) as racers:
            try:
                _watch(racers, sample, terminal)
            finally:
                terminal.end()
            return _end(racers, sample, race.late(), terminal)


def _introduce(race: SkyRace, plans: Mapping[str, Plan], terminal: Terminal) -> None:
    clouds = sorted({region.provider for region in REGIONS})
    terminal.say(
        f"2. Sky: {len(REGIONS)} regions of {len(clouds)} clouds ({', '.join(clouds)}) as namespaces of this host,"
        " real TCP between them,",
        f"   {SOURCE} → {SINK} {race.rtt_ms:.0f} ms; round trips are real, rates scaled by {race.network.scale:g}."
        " There are two such skies, one for each transfer.",
    )
    for name, plan in plans.items():
        overlay = plan.overlay
        assert overlay is not None
        terminal.say(
            f"   {name:<8} planned {format_gbps(overlay.throughput_gbps)} for {format_usd(overlay.cost.total_usd)}:",
            *(f"            {route.share:4.0%}  {' → '.join(route.nodes)}" for route in plan.routes),
        )


def _watch(racers: Sequence[Racer], sample: SampleFiles, terminal: Terminal) -> None:
    """Show both transfers until they end, and kill the overlay's busiest relay. Raises the error of a failed one."""
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
    """Put the events of one job into the queue, and finally None or its error."""
    try:
        for event in racer.job.events():
            updates.put((racer, event))
    except TradewindError as error:
        updates.put((racer, error))
    else:
        updates.put((racer, None))


def _kill_busiest(racer: Racer, terminal: Terminal) -> None:
    victim, share = racer.busiest_relay()
    racer.job.crash(victim)
    so_far = format_gbps(racer.progress.bytes_per_s * 8e-9)
    terminal.say(
        f"3. At {format_bytes(racer.progress.bytes_done)} of the overlay, {so_far} so far: the relay",
        f"   {victim} is killed. It carried {share:.0%}; the other routes take that over.",
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
    """Return the relays of a route, given the lead's name for it."""
    between = route.split(" → ")[1:-1]
    return " → ".join(between) or "direct"


def require_same(sample: SampleFiles, copy: Path, terminal: Terminal, whose: str = "") -> None:
    """Raise JobFailed if any file differs, after printing the first differences."""
    differences = list(compare(sample, copy))
    for difference in differences[:DIFFERENCES_NAMED_MAX]:
        terminal.warn(f"   DIFFERENT: {difference}")
    if differences:
        of = format_count(len(sample.names), "file")
        raise JobFailed(f"{whose}{len(differences)} of {of} differ from their originals")
