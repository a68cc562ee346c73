"""`tradewind demo`: a transfer of real files during which a relay is killed, with a commentary.

It uses an emulated WAN if the host permits it (`demo_sky`), otherwise gateways on this machine; or emulated clouds
(`demo_cloud`); or downloads through split proxies (`demo_accelerate`).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from tradewind.cli.arguments import typed
from tradewind.cli.demo_accelerate import run_accelerated
from tradewind.cli.demo_cloud import run_cloud
from tradewind.cli.demo_sky import require_same, run_in_sky
from tradewind.cli.terminal import Terminal
from tradewind.engine.demonstration import LOCAL_RATE_BYTES_PER_S, LOCAL_VICTIM, start_local
from tradewind.engine.report import summary_lines
from tradewind.engine.running import RunningJob
from tradewind.engine.sample_files import SampleFiles, affordable_bytes, choose_sample, trees_of
from tradewind.engine.skies import why_no_sky
from tradewind.errors import JobFailed
from tradewind.model.event import Progress, Summary
from tradewind.model.units import format_bytes, format_rate, parse_bytes

USAGE = "[OPTION]…"
HELP = """\
As root, copy real files of this machine through an emulated WAN: five regions of three clouds with their round trips
and scaled rates. The same files go over the direct path and over a planned overlay, side by side, and the busiest
relay is killed during the transfer. The demo compares rate and cost with the prediction, and every byte of both copies
with the original. Without root and /dev/net/tun, or with --local, a larger tree goes through five gateways on this
machine over two routes with mutual TLS, and one relay is killed. The demo needs no account and no server, and removes
its temporary folder at the end.

With --cloud, as root and from a checkout of the source code, stand-ins of AWS and Google Cloud run on this host, whose
machines really boot. Objects go from an S3 bucket to a GCS bucket through rented machines; one is killed and replaced,
and `fleet sweep` finds nothing afterwards. Where `make clusters` has built Kubernetes, the relay runs in a cluster.

With --accelerate, as root, curl and git fetch over 200 ms of an emulated WAN: directly, with larger windows at both
ends (which costs nothing), and through one and two split proxies. Times are compared with the prediction, and every
byte with the original."""
EXAMPLES = """\
  sudo tradewind demo
  tradewind demo --local --size 300MB
  sudo .venv/bin/tradewind demo --cloud
  sudo tradewind demo --accelerate
  tradewind demo --tree ~/src --keep"""

#: Default volume of the demo without a sky. It is reduced if the disk is too small.
DEFAULT_BYTES = 1_200_000_000
#: The relay is killed when this fraction of the bytes has arrived.
KILL_AT = 0.35


def add_arguments(parser: ArgumentParser) -> None:
    """Add the volume, the trees and the place."""
    parser.add_argument(
        "--size",
        metavar="SIZE",
        type=typed(parse_bytes),
        help="approximate volume (default 240MB; with --local 1.2GB, with --cloud or --accelerate 40MB)",
    )
    parser.add_argument("--cloud", action="store_true", help="rent machines of emulated clouds on this host")
    parser.add_argument("--accelerate", action="store_true", help="download over a long path, also by split proxies")
    parser.add_argument("--tree", metavar="DIR", action="append", help="copy files from this folder; can be repeated")
    parser.add_argument("--local", action="store_true", help="run on this machine alone, without an emulated WAN")
    parser.add_argument("--keep", action="store_true", help="keep the copy")


def run(args: Namespace) -> int:
    """Run the demo. Return 0 only if every file arrived and both trees are identical."""
    if args.accelerate:
        return run_accelerated(args)
    if args.cloud:
        return run_cloud(args)
    place = Path(tempfile.mkdtemp(prefix="tradewind-demo-"))
    try:
        return _in_sky_or_here(args, place)
    finally:
        if args.keep:
            if not args.quiet:
                print(f"The copy is in {place / 'copy'}", file=sys.stderr)
        else:
            shutil.rmtree(place, ignore_errors=True)


def _in_sky_or_here(args: Namespace, place: Path) -> int:
    terminal = Terminal(quiet=args.quiet)
    if not args.local:
        reason = why_no_sky()
        if reason is None:
            return run_in_sky(args, place, terminal)
        terminal.say(f"No emulated WAN here ({reason}): the demo runs on this machine alone.")
    return _story(args, place, terminal)


def _story(args: Namespace, place: Path, terminal: Terminal) -> int:
    sample = choose_sample(trees_of(args.tree), affordable_bytes(args.size or DEFAULT_BYTES, place, copies=1))
    terminal.say(f"1. Files: {sample}.")
    copy = place / "copy"
    job = start_local(place, sample, copy, args.gateway)
    try:
        terminal.say(
            "2. Routes: source → north → sink (60%) and source → south → sink (40%), mutual TLS 1.3 on every hop,",
            f"   by a CA made for this run. {len(job.gateways)} processes: {', '.join(job.gateways)}.",
            f"   The rate is limited to {format_rate(LOCAL_RATE_BYTES_PER_S)} so that you can watch it.",
        )
        _watch(job, sample, terminal)
    except KeyboardInterrupt:
        # The job will not be resumed, and it must not write into the folder that is removed next.
        job.kill()
        raise
    finally:
        terminal.end()
        job.close()
    return _end(job, sample, copy, terminal)


def _watch(job: RunningJob, sample: SampleFiles, terminal: Terminal) -> None:
    killed = False
    for event in job.events():
        if isinstance(event, Summary):
            break
        if isinstance(event, Progress) and not killed and event.bytes_done >= KILL_AT * sample.bytes:
            killed = True
            job.crash(LOCAL_VICTIM)
            terminal.say(
                f"3. At {format_bytes(event.bytes_done)}: the relay {LOCAL_VICTIM} is killed. The other route takes"
                " over its share."
            )
        terminal.event(event)
    if not killed and job.summary is not None and job.summary.outcome == "done":
        raise JobFailed("the job ended before a relay could be killed", hint="use more data: tradewind demo --size 2GB")


def _end(job: RunningJob, sample: SampleFiles, copy: Path, terminal: Terminal) -> int:
    assert job.summary is not None
    terminal.say("4. The lead's report:", *(f"   {line}" for line in summary_lines(job.summary, job.plan)))
    job.result()
    began = time.monotonic()
    require_same(sample, copy, terminal)
    terminal.say(
        f"5. Compared without Tradewind, byte by byte: all {len(sample.names):,} files are identical, and there is no"
        f" extra file ({time.monotonic() - began:.1f} s)."
    )
    return 0
