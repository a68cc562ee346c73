"""`tradewind sky up|down|status|exec|set`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from tradewind.engine.skies import change_sky, running_sky, start_sky
from tradewind.errors import UsageError
from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.sky.running import Sky
    from tradewind.sky.statistics import SkyStats

USAGE = "[OPTION]… up FILE | down FILE | status FILE | exec FILE MACHINE -- COMMAND… | set FILE CHANGE…"
HELP = """\
Run the machines of FILE as network namespaces on this host, joined by an emulated WAN with real kernel TCP. Needs root,
Linux and /dev/net/tun.

  up      start the sky; it runs until `down`
  down    kill the processes in its machines and remove it
  status  show machines, addresses, links, and the lateness of the emulator
  exec    run a command in a machine: with its network, but the files and users of the host
  set     change it live:
            link A B [rate=20Mbit/s] [rtt=80ms] [loss=1%] [queue=500kB] [up|down]    both directions
            path A B …                                                               from A to B only
            machine A [egress=1Gbit/s] [ingress=1Gbit/s] [cc=bbr]
            freeze A | thaw A | vanish A | restore A
          A and B are machines, regions or `*`. Rates are those on the wire, not scaled."""
EXAMPLES = """\
  tradewind sky up world.json
  tradewind sky exec world.json aws-us-east-1-1 -- ip address
  tradewind sky set world.json link aws:us-east-1 azure:westus rate=20Mbit/s loss=0.1%
  tradewind sky set world.json freeze aws-us-east-1-1
  tradewind sky status world.json --json
  tradewind sky down world.json"""

ACTIONS = ("up", "down", "status", "exec", "set")
#: Maximum number of paths to show without --json.
LINKS_SHOWN_MAX = 60


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the file, and the action's words."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help="up, down, status, exec or set")
    parser.add_argument("file", metavar="FILE", help="sky file, as JSON: docs/reference/sky.md")
    parser.add_argument(
        "--foreground", action="store_true", help="up: stay in the foreground, and remove the sky on Ctrl-C"
    )
    parser.add_argument("rest", metavar="WORD", nargs="*", help="exec: machine and command; set: the change")


def run(args: Namespace) -> int:
    """Run the action."""
    if args.action in ("up", "down", "status") and args.rest:
        raise UsageError(f"sky {args.action} takes no {args.rest[0]!r}", hint="`tradewind sky --help` shows the usage")
    if args.action == "up":
        return _up(args)
    sky = running_sky(args.file, args.state_dir)
    if args.action == "down":
        sky.down()
        return 0
    if args.action == "status":
        return _status(args, sky)
    if args.action == "exec":
        return _exec(args, sky)
    change_sky(sky, args.rest)
    return 0


def _up(args: Namespace) -> int:
    sky = start_sky(args.file, args.state_dir, detached=not args.foreground)
    if not args.quiet:
        _print_machines(args, sky)
    if not args.foreground:
        return 0
    import sys

    sys.stdout.flush()
    with sky:
        sky.wait()
    return 0


def _exec(args: Namespace, sky: Sky) -> int:
    words = [word for index, word in enumerate(args.rest) if not (index <= 1 and word == "--")]
    if len(words) < 2:
        raise UsageError("sky exec needs a machine and a command", hint="`tradewind sky exec FILE MACHINE -- COMMAND…`")
    import os

    command = sky.command(words[0], words[1:])
    sky.check_running(words[0])
    os.execv(command[0], command)


def _status(args: Namespace, sky: Sky) -> int:
    machines, links, stats = sky.describe(), sky.links(), sky.stats()
    if args.json:
        print(json.dumps(_document(sky, machines, links, stats)))
        return 0
    _print_machines(args, sky)
    shown = links if len(links) <= LINKS_SHOWN_MAX else []
    carried = {(path.src, path.dst): path for path in stats.paths}
    width = max((len(machine) for machine in machines), default=0)
    for link in shown:
        path = carried.get((link["src"], link["dst"]))
        waiter = (
            ""
            if path is None
            else f"  {format_count(path.packets, 'packet')}, {path.queue_drops:,} dropped, {path.lost:,} lost"
        )
        print(f"{link['src']:<{width}} → {link['dst']:<{width}}  {_link_words(link)}{waiter}")
    if not shown:
        print(f"{format_count(len(links), 'link')}: `tradewind sky status --json` lists them")
    print(f"late {stats.lateness_mean_ms:.3f} ms on average, {stats.lateness_max_ms:.1f} ms at worst", end="")
    print(f"; INVALID: {stats.invalid}" if stats.invalid else "")
    return 0


def _link_words(link: dict[str, Any]) -> str:
    words = f"{link['rate_bps'] / 1e6:8.1f} Mbit/s  {link['delay_us'] / 1e3:7.1f} ms one way"
    if link["loss"]:
        words += f"  loss {link['loss']:.4%}"
    return words if link["up"] else f"{words}  DOWN"


def _print_machines(args: Namespace, sky: Sky) -> None:
    machines = sky.describe()
    if args.json:
        print(json.dumps({"machines": [_machine_document(machine) for machine in machines.values()]}))
        return
    width = max(len(name) for name in machines)
    for machine in machines.values():
        state = "" if machine.state == "running" else f"  {machine.state}"
        print(f"{machine.name:<{width}}  {machine.address:<12}  {machine.region}{state}")
    if not sky.realtime:
        print("note: no real-time scheduling: packets may be half a millisecond late")


def _document(sky: Sky, machines: Any, links: list[dict[str, Any]], stats: SkyStats) -> dict[str, Any]:
    return {
        "pid": sky.pid,
        "realtime": sky.realtime,
        "machines": [_machine_document(machine) for machine in machines.values()],
        "links": links,
        "lateness_mean_ms": stats.lateness_mean_ms,
        "lateness_max_ms": stats.lateness_max_ms,
        "invalid": stats.invalid,
        "paths": [{name: getattr(path, name) for name in ("src", "dst", *_COUNTS)} for path in stats.paths],
    }


_COUNTS = ("packets", "wire_bytes", "queue_drops", "lost", "cut")


def _machine_document(machine: Any) -> dict[str, str]:
    return {
        "name": machine.name,
        "region": str(machine.region),
        "address": machine.address,
        "netns": machine.netns,
        "state": machine.state,
    }
