"""`tradewind init`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tradewind.cli.terminal import can_ask, confirm, printable
from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.engine.engine import Engine
    from tradewind.engine.setup import FoundHost
    from tradewind.model.hosts import SshHost
    from tradewind.model.sites import Cloud, Sites

USAGE = "[OPTION]…"
HELP = """\
Find hosts and clouds that can run gateways, and add them to the configuration. Tradewind takes the hosts from
~/.ssh/config, or from the file that `config` in the table [ssh] names, logs in to each without asking for a password,
and starts nothing. For each cloud and cluster of the configuration it prints the smallest policy or role that suffices;
it applies none. It asks each of them which permissions of that policy are missing, and names these; nothing is made. At
the end it lists the regions where machines are available, and their number.

It also looks for credentials of clouds in the variables and files that the clouds' own tools use. If the configuration
has no table for such a cloud, it shows one as a diff.

It asks before it adds anything. With -y it adds hosts without asking, and with --write also clouds. Without a terminal
and without these options it writes nothing. It never changes what the file already contains."""
EXAMPLES = """\
  tradewind init
  tradewind init -y
  tradewind init --write
  tradewind init --write --region aws:us-east-1 --region aws:eu-west-1"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "--write", action="store_true", help="add hosts and the tables of clouds to the configuration without asking"
    )
    parser.add_argument(
        "--region",
        action="append",
        metavar="REGION",
        default=[],
        help="region in which machines may be rented, such as aws:us-east-1; can be repeated. Default: the region of "
        "the cloud's own settings, and for Google all regions",
    )


def run(args: Namespace) -> int:
    """Find, write and check. Return 1 if no place for gateways is found, or one of the configuration cannot be used."""
    from tradewind.engine.engine import Engine
    from tradewind.model.records import replace
    from tradewind.model.sites import NO_SITES

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        configured = args.configuration.sites()
        sites = NO_SITES if configured is None else configured
        found = _add_hosts(args, engine, sites)
        sites = replace(sites, hosts=replace(sites.hosts, hosts=(*sites.hosts.hosts, *found)))
        added = _add_clouds(args, sites)
        sites = replace(sites, clouds=(*sites.clouds, *(added or ())))
        _show_policies(args, sites)
        if not sites:
            if added is None:
                return 1
            _say(args, "no place for gateways was found; docs/guides/fleet.md shows how to add hosts and clouds")
            return 1
        return _show_available(args, engine, sites)


def _add_hosts(args: Namespace, engine: Engine, sites: Sites) -> tuple[SshHost, ...]:
    """Show the hosts that were found, add the usable ones to the configuration if the user agrees, and return them."""
    from tradewind.engine.setup import append_tables, find_hosts, host_tables

    hosts = find_hosts(engine.control, sites.hosts)
    for found in hosts:
        _show_host(args, found)
    usable = tuple(found.host for found in hosts if found.error is None)
    if not usable:
        return ()
    tables, path, count = host_tables(usable), args.configuration.path, format_count(len(usable), "host")
    _say(args, "", *tables.splitlines())
    if not (args.yes or args.write) and not can_ask():
        print(f"hint: -y adds {count} to {path}", file=sys.stderr)
        return usable
    if not (args.yes or args.write):
        confirm(f"Add {count} to {path}?")
    append_tables(path, tables)
    _say(args, f"added {count} to {path}; correct their regions and addresses there")
    return usable


def _add_clouds(args: Namespace, sites: Sites) -> tuple[Cloud, ...] | None:
    """Show the clouds that were found, write their tables if the user agrees, and return them. Raises ConfigError.

    Returns None if nobody can be asked: a hint then names the option that writes them.
    """
    from tradewind.engine.cloud_setup import cloud_tables, find_clouds, table_diff
    from tradewind.engine.setup import append_tables
    from tradewind.model.sites import read_sites
    from tradewind.model.toml import parse_toml

    found = find_clouds([cloud.kind for cloud in sites.clouds], args.region)
    for one in found:
        if args.json:
            why = {} if one.missing is None else {"missing": one.missing}
            print(json.dumps({"cloud": one.kind, "found": one.place, **why}))
        else:
            lack = "" if one.missing is None else f"; its table needs {one.missing}"
            print(printable(f"{one.kind}  credentials in {one.place}{lack}"))
    tables, path = cloud_tables(found), args.configuration.path
    if not tables:
        return ()
    added = read_sites(parse_toml(tables.encode(), path), path).clouds
    _say(args, "", *table_diff(path, tables))
    names = " and ".join(cloud.kind for cloud in added)
    if not args.write and not (can_ask() and not args.yes):
        print(f"hint: --write adds {names} to {path}", file=sys.stderr)
        return None
    if not args.write:
        confirm(f"Add {names} to {path}? Transfers may then rent machines there")
    append_tables(path, tables)
    _say(args, f"added {names} to {path}")
    return added


def _show_host(args: Namespace, found: FoundHost) -> None:
    good = found.error is None
    if args.json:
        why = {} if good else {"error": str(found.error)}
        print(json.dumps({"host": found.host.name, "region": found.host.region, "usable": good, **why}))
        return
    what = "gateways can run there" if good else str(found.error)
    print(printable(f"{'ok' if good else 'BAD':<4} {found.host.name}  {what}"))


def _show_policies(args: Namespace, sites: Sites) -> None:
    from tradewind.engine.setup import policies

    for kind, text in policies(sites):
        if args.json:
            print(json.dumps({"policy": kind, "text": text}))
        else:
            print(f"\nthe smallest policy for {kind}:\n\n{text}")


def _show_available(args: Namespace, engine: Engine, sites: Sites) -> int:
    """Show what the configured places offer. Return 1 if one of them cannot be used, or if no machine is left."""
    from tradewind.engine.setup import Note, Unusable, available

    is_usable, left = True, False
    for one in available(engine.control, sites):
        if isinstance(one, str):
            left = True
            print(json.dumps({"available": one}) if args.json else one)
            continue
        if isinstance(one, Note):
            print(json.dumps({"provider": one.place, "note": one.what}) if args.json else f"{one.place}  {one.what}")
            continue
        if isinstance(one, Unusable):
            is_usable = False
            print(f"error: {one.place} cannot be used: {one.reason}", file=sys.stderr)
        else:
            print(f"warning: {one.place}: {one.reason}", file=sys.stderr)
        if one.hint:
            print(f"hint: {one.hint}", file=sys.stderr)
    return 0 if is_usable and left else 1


def _say(args: Namespace, *lines: str) -> None:
    if not args.json:
        print("\n".join(lines))
