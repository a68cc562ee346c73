"""Options that several verbs share: how a side is reached, which objects, how to copy."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from tradewind.cli.arguments import add_setting, typed
from tradewind.errors import UsageError
from tradewind.model.job import FilterRule, ObjectFilter
from tradewind.model.store import Access
from tradewind.model.units import parse_bytes, parse_duration_s

_SIDE = ("endpoint", "region", "profile", "path_style", "no_sign", "ca_bundle", "requester_pays")


class RuleAction(argparse.Action):
    """Gathers --include, --exclude and --filter-from in the order given."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        """Called by argparse for each."""
        assert isinstance(values, str)
        rules = list(namespace.rules or ())
        if option == "--filter-from":
            rules += read_rules(values)
        else:
            rules.append(FilterRule("include" if option == "--include" else "exclude", values))
        namespace.rules = rules


def add_filter_arguments(parser: ArgumentParser) -> None:
    """--include, --exclude, --filter-from, sizes and times."""
    group = parser.add_argument_group(
        "which objects",
        "Globs match the name relative to the source: * within a folder, ** across. Rules are read in order and the\n"
        "last that matches wins; with no match an object is taken, unless the first rule is --include.",
    )
    group.add_argument("--include", dest="rules", metavar="GLOB", action=RuleAction, help="take what matches")
    group.add_argument("--exclude", dest="rules", metavar="GLOB", action=RuleAction, help="leave what matches")
    group.add_argument(
        "--filter-from",
        dest="rules",
        metavar="FILE",
        action=RuleAction,
        help="rules from a file: `+ GLOB` or `- GLOB` a line",
    )
    group.add_argument("--min-size", metavar="SIZE", type=typed(parse_bytes), help="at least so long")
    group.add_argument("--max-size", metavar="SIZE", type=typed(parse_bytes), help="at most so long")
    group.add_argument(
        "--newer",
        metavar="TIME",
        type=typed(parse_time_ms),
        help="modified since: 2025-01-31, 2025-01-31T12:00:00Z, or 7d for the last 7 days",
    )
    group.add_argument(
        "--older",
        metavar="TIME",
        type=typed(parse_time_ms),
        help="modified before: 2025-01-31, 2025-01-31T12:00:00Z, or 7d for longer ago than 7 days",
    )


def object_filter(args: Namespace) -> ObjectFilter:
    """The filter that the arguments of `add_filter_arguments` describe."""
    return ObjectFilter(tuple(args.rules or ()), args.min_size, args.max_size, args.newer, args.older)


def read_rules(path: str) -> list[FilterRule]:
    """Rules of a file, in order: `+ GLOB` or `- GLOB`; empty lines and lines with # are skipped. Raises UsageError."""
    rules = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                text = line.strip()
                if not text or text.startswith("#"):
                    continue
                sign, _, glob = text.partition(" ")
                if sign not in ("+", "-") or not glob.strip():
                    raise UsageError(f"{path}:{number}: neither `+ GLOB` nor `- GLOB`: {text}")
                rules.append(FilterRule("include" if sign == "+" else "exclude", glob.strip()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8") from None
    return rules


def parse_time_ms(text: str) -> int:
    """Milliseconds since the Unix epoch of `2025-01-31`, `2025-01-31T12:00:00Z`, or of `7d` ago. Raises UsageError.

    A time without a zone is local.
    """
    import time
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        pass
    else:
        return round(moment.timestamp() * 1000)
    try:
        return round((time.time() - parse_duration_s(text)) * 1000)
    except UsageError:
        raise UsageError(
            f"neither a date nor a duration: {text}", hint="2025-01-31, 2025-01-31T12:00:00Z or 7d"
        ) from None


def add_side_arguments(parser: ArgumentParser, side: str, title: str, *, short: bool = False) -> None:
    """--src-* or --dst-*; with `short` also the same names without the side, for verbs with one store."""
    group = parser.add_argument_group(title)
    for name in _SIDE:
        flag = name.replace("_", "-")
        flags = [f"--{side}-{flag}"]
        if short and name != "profile":
            flags.insert(0, f"--{flag}")
        add_setting(group, f"{side}_{name}", *flags)


def access(args: Namespace, side: str, *, fsync: bool = False, follow_symlinks: bool = False) -> Access:
    """How a side is reached, from arguments and settings."""
    given = {name: getattr(args, f"{side}_{name}") for name in _SIDE}
    return Access(
        endpoint=given["endpoint"],
        region=given["region"],
        profile=given["profile"],
        path_style=given["path_style"],
        anonymous=given["no_sign"],
        requester_pays=given["requester_pays"],
        ca_file=given["ca_bundle"],
        fsync=fsync,
        follow_symlinks=follow_symlinks,
    )
