"""The demo of flow acceleration: the same downloads directly, with tuned ends, and through split proxies."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tradewind.cli.terminal import Terminal
from tradewind.engine.acceleration_race import LINK_MBPS, RTT_MS, SCALE, WAYS, AccelerationRace, Fetched
from tradewind.engine.skies import why_no_sky
from tradewind.errors import SkyUnavailable, UsageError
from tradewind.model.units import format_bytes

__all__ = ["run_accelerated"]

#: Default size of the file. The direct path takes about half a minute for it.
DEFAULT_BYTES = 40_000_000
#: Smallest file: the repository, half its size, still has bytes in each of its files.
SIZE_BYTES_MIN = 1_000_000


def run_accelerated(args: Namespace) -> int:
    """Run the demo. Return 0 only if every download arrived and equals the original.

    Raises:
        UsageError: another option does not fit.
        SkyUnavailable: this host cannot run a sky, or has no curl.
        JobFailed, VerificationMismatch: a download failed, or its bytes differ.
        GatewayError: a proxy did not start.
    """
    for option in ("cloud", "local", "tree", "keep"):
        if getattr(args, option):
            raise UsageError(f"demo --accelerate takes no --{option}", hint="`tradewind demo --help` shows the options")
    size_bytes = args.size or DEFAULT_BYTES
    if size_bytes < SIZE_BYTES_MIN:
        raise UsageError(f"--size is less than {format_bytes(SIZE_BYTES_MIN)}", hint="omit it, or give a larger size")
    if (reason := why_no_sky()) is not None:
        raise SkyUnavailable(f"demo --accelerate needs an emulated WAN: {reason}", hint="use sudo on a Linux host")
    terminal = Terminal(quiet=args.quiet)
    with (
        tempfile.TemporaryDirectory(prefix="tradewind-demo-") as place,
        AccelerationRace(Path(place), args.gateway, size_bytes) as race,
    ):
        _introduce(race, terminal)
        fetched = []
        for way in WAYS:
            for each in race.fetch(way):
                terminal.say(_row(each))
                fetched.append(each)
        _conclude(fetched, race, terminal)
    return 0


def _introduce(race: AccelerationRace, terminal: Terminal) -> None:
    what = ", ".join(f"{program} {format_bytes(size)}" for program, size in race.programs.items())
    terminal.say(
        f"1. Sky: a client and a server {RTT_MS:.0f} ms apart, and three cloud regions on the way: near, halfway, far.",
        f"   Each link carries {LINK_MBPS:.0f} Mbit/s. Rates and windows are scaled by {SCALE:g}, times are not.",
        f"2. Real programs, one after the other: {what}, from a plain HTTP server.",
        "   `direct` receives into at most 6 MiB (scaled), Linux's default for many years. `tuned` raises tcp_rmem and",
        f"   tcp_wmem to 64 MiB (scaled) and uses {race.tuned_control}: this is free. `one split` goes through a proxy",
        "   at halfway, `two splits` through near and far, with mutual TLS between them.",
        "",
        f"   {'':<14} {'':<10} {'time':>7}  {'rate':>12}  {'predicted':>12}  measured/predicted",
    )


def _row(fetched: Fetched) -> str:
    return (
        f"   {fetched.way.name:<14} {fetched.program:<10} {fetched.elapsed_s:>5.1f} s  {fetched.mbps:>5.1f} Mbit/s"
        f"  {fetched.predicted_mbps:>5.1f} Mbit/s  {fetched.mbps / fetched.predicted_mbps:.2f}"
    )


def _conclude(fetched: Sequence[Fetched], race: AccelerationRace, terminal: Terminal) -> None:
    times_s = {each.way.name: each.elapsed_s for each in fetched if each.program == "curl"}
    gains = {name: times_s["direct"] / elapsed_s for name, elapsed_s in times_s.items()}
    terminal.say(
        "",
        "   The prediction is one window per round trip on the slowest hop. Handshakes and slow start are not in it,",
        "   so short downloads stay below.",
        f"3. curl: {gains['direct, tuned']:.1f} times as fast as direct by tuning alone, which costs nothing;"
        f" {gains['one split']:.1f} times through one proxy,",
        f"   {gains['two splits']:.1f} times through two. Proxies are for ends that cannot be tuned.",
    )
    if (late := race.late()) is not None:
        terminal.warn(f"   INVALID as a measurement: {late}. The bytes count, the times do not.")
    terminal.say(f"4. Compared without Tradewind: the bytes of all {len(fetched)} downloads equal the originals.")
