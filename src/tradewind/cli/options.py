"""Options that several verbs share: access to stores, object filters, goals."""

from __future__ import annotations

import argparse
import math
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from io import StringIO
from typing import Any

from tradewind.cli.arguments import add_setting, typed
from tradewind.cli.config import SETTINGS
from tradewind.errors import UsageError
from tradewind.model.files import read_user_file
from tradewind.model.job import FilterRule, ObjectFilter
from tradewind.model.plan import ROUTES_ASKED_MAX, check_routes
from tradewind.model.store import Access
from tradewind.model.units import parse_bytes, parse_duration_s, parse_usd

#: In a list with one value per destination: use the default for this destination.
NOT_FOR_THIS = "-"
_SIDE = ("endpoint", "region", "profile", "path_style", "no_sign", "ca_bundle", "requester_pays")


class RuleAction(argparse.Action):
    """Collects --include, --exclude, --filter-from and --exclude-from in the order given."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        """Add the rules. argparse calls this for each option."""
        assert isinstance(values, str)
        rules = list(namespace.rules or ())
        if option == "--filter-from":
            rules += read_rules(values)
        elif option == "--exclude-from":
            # In git, a name without a match is included whatever the first rule is.
            namespace.includes_unmatched |= not rules
            rules += read_ignore_file(values)
        else:
            rules.append(FilterRule("include" if option == "--include" else "exclude", values))
        namespace.rules = rules


def add_filter_arguments(parser: ArgumentParser) -> None:
    """Add --include, --exclude, --filter-from, --exclude-from, sizes and times."""
    parser.set_defaults(includes_unmatched=False)
    group = parser.add_argument_group(
        "which objects",
        "Rules have the meaning of .gitignore, where --include GLOB is written !GLOB. They match the name relative to\n"
        "the source: *.log matches in any folder, /*.log only at the top, a/*.log only in a. A rule that matches a\n"
        "folder covers everything below it: tmp matches files and folders of that name, tmp/ only folders. * and ?\n"
        "stay within a folder, ** between slashes crosses folders. [a-z] and [[:digit:]] are classes; a backslash\n"
        "quotes the next character. The last match wins, but nothing below an excluded folder can be included again:\n"
        "--exclude 'tmp/*' --include tmp/keep keeps tmp/keep, --exclude tmp --include tmp/keep does not. Excluded\n"
        "folders are not listed, as far as the store allows it. An object without a match is included. Unlike in\n"
        "git, it is excluded if the first rule is --include, or --exclude '*' (then a later --include works in every\n"
        "folder), unless that rule comes from --exclude-from.",
    )
    group.add_argument("--include", dest="rules", metavar="GLOB", action=RuleAction, help="include matching objects")
    group.add_argument("--exclude", dest="rules", metavar="GLOB", action=RuleAction, help="exclude matching objects")
    group.add_argument(
        "--filter-from",
        dest="rules",
        metavar="FILE",
        action=RuleAction,
        help="read rules from a file: `+ GLOB` or `- GLOB` per line",
    )
    group.add_argument(
        "--exclude-from",
        dest="rules",
        metavar="FILE",
        action=RuleAction,
        help="read rules from a file in the syntax of .gitignore",
    )
    group.add_argument("--min-size", metavar="SIZE", type=typed(parse_bytes), help="minimum size")
    group.add_argument("--max-size", metavar="SIZE", type=typed(parse_bytes), help="maximum size")
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
        help="modified before: 2025-01-31, 2025-01-31T12:00:00Z, or 7d for more than 7 days ago",
    )


def object_filter(args: Namespace) -> ObjectFilter:
    """Return the filter from the arguments of `add_filter_arguments`."""
    rules = tuple(args.rules or ())
    measures = (args.min_size, args.max_size, args.newer, args.older)
    return ObjectFilter(rules, *measures, includes_unmatched=args.includes_unmatched)


RULES_HINT = "--filter-from takes a text file with one rule, `+ GLOB` or `- GLOB`, per line"
IGNORE_FILE_HINT = "--exclude-from takes a text file in the syntax of .gitignore"


def _read_text(path: str, hint: str) -> str:
    try:
        return read_user_file(path).decode()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8", hint=hint) from None


def _in_shell(option: str, path: str) -> str:
    from shlex import quote  # Needed for few errors, and slow to import.

    return f"{option} {quote(path)}"


def read_rules(path: str) -> list[FilterRule]:
    """Return the rules of a file, `+ GLOB` or `- GLOB`, in order; skip empty lines and comments. Raises UsageError."""
    rules = []
    for number, line in enumerate(StringIO(_read_text(path, RULES_HINT), newline=None), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        sign, _, glob = text.partition(" ")
        if sign not in ("+", "-") or not glob.strip():
            raise UsageError(
                f"{path}:{number}: neither `+ GLOB` nor `- GLOB`: {text}",
                hint=f"a file in the syntax of .gitignore is read with {_in_shell('--exclude-from', path)}",
            )
        rules.append(FilterRule("include" if sign == "+" else "exclude", glob.strip()))
    if not rules:
        # An empty file usually comes from a failed command; selecting everything would be a surprise.
        raise UsageError(f"{path}: the file has no rules", hint="leave out --filter-from to include everything")
    return rules


def read_ignore_file(path: str) -> list[FilterRule]:
    """Return the rules of a file in the syntax of `.gitignore`, as git reads it. Raises UsageError.

    A pattern with `!` becomes an include. Lines that git never matches with anything, such as `/`, are left out.
    """
    text = _read_text(path, IGNORE_FILE_HINT)
    if "\0" in text:
        raise UsageError(f"{path}: not a text file", hint=IGNORE_FILE_HINT)
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    lines = [line for line in lines if line and not line.startswith("#")]
    if lines and all(line.startswith(("+ ", "- ")) for line in lines):
        raise UsageError(
            f"{path}: rules with + and - are not in the syntax of .gitignore",
            hint=f"read the file with {_in_shell('--filter-from', path)}",
        )
    rules = []
    for line in map(_without_trailing_spaces, lines):
        glob = line.removeprefix("!")
        if not glob.strip("/"):
            continue
        if not glob.strip().strip("/"):
            # A name of white space; a backslash shows that it is meant.
            glob = re.sub(r"\s", r"\\\g<0>", glob, count=1)
        rules.append(FilterRule("include" if line.startswith("!") else "exclude", glob))
    if not rules:
        raise UsageError(f"{path}: the file has no rules", hint="leave out --exclude-from to include everything")
    return rules


def _without_trailing_spaces(line: str) -> str:
    """Return a line without the spaces at its end. A space after a backslash stays, and so do those before it."""
    length = at = 0
    while at < len(line):
        quoted = line[at] == "\\"
        at += 2 if quoted else 1
        if quoted or line[at - 1] != " ":
            length = at
    return line[:length]


def parse_time_ms(text: str) -> int:
    """Return the Unix time [ms] of `2025-01-31`, `2025-01-31T12:00:00Z`, or of `7d` ago. Raises UsageError.

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


def add_side_arguments(
    parser: ArgumentParser, side: str, title: str, *, short: bool = False, repeated: bool = False
) -> None:
    """Add --src-* or --dst-*; with `short` also the names without the side, for verbs with one store.

    With `repeated`, options with a value may be given once per destination; see `accesses`.
    """
    words = (
        "Give each VALUE once for all DST, or once per DST in the same order, with - for a DST that needs none.\n"
        "Local files need none of these options."
    )
    group = parser.add_argument_group(title, words if repeated else None)
    for name in _SIDE:
        flag = name.replace("_", "-")
        flags = [f"--{side}-{flag}"]
        if short and name != "profile":
            flags.insert(0, f"--{flag}")
        setting = f"{side}_{name}"
        help_text = SETTINGS[setting].help.rpartition(", ")[0]  # The group's title names the side.
        add_setting(group, setting, *flags, repeated=repeated, words=help_text)


def access(args: Namespace, side: str, *, fsync: bool = False, follow_symlinks: bool = False) -> Access:
    """Return the access to a side, from arguments and settings."""
    return _access({name: getattr(args, f"{side}_{name}") for name in _SIDE}, fsync, follow_symlinks)


def accesses(args: Namespace, side: str, places: Sequence[str], *, fsync: bool = False) -> tuple[Access, ...]:
    """Return the access to each of several places of one side.

    Raises UsageError if a flag is given neither once nor once per place.
    """
    given: dict[str, list[Any]] = {}
    for name in _SIDE:
        content = getattr(args, f"{side}_{name}")
        if not isinstance(content, list):
            given[name] = [content] * len(places)
        elif len(content) == 1:
            given[name] = content * len(places)
        elif len(content) == len(places):
            given[name] = [None if one == NOT_FOR_THIS else one for one in content]
        else:
            flag = f"--{side}-{name.replace('_', '-')}"
            raise UsageError(
                f"{flag} was given {len(content)} times for {len(places)} places",
                hint="give it once for all, or once for each in the same order, with - where none is needed",
            )
    _refuse_one_endpoint_for_all(getattr(args, f"{side}_endpoint"), side, places)
    return tuple(
        _access({name: content[index] for name, content in given.items()}, fsync, False) for index in range(len(places))
    )


def _refuse_one_endpoint_for_all(endpoint: Any, side: str, places: Sequence[str]) -> None:
    """Raise UsageError for one endpoint and several clouds, because no server speaks several clouds' protocols.

    An endpoint from the settings is not refused.
    """
    if not isinstance(endpoint, list) or len(endpoint) > 1 or len(places) < 2:
        return
    from tradewind.model.url import parse_url

    kinds = {parse_url(place, cwd="/").kind for place in places} - {"file", "mem", "pipe"}
    if len(kinds) > 1:
        raise UsageError(
            f"--{side}-endpoint was given once for stores of different kinds: {' and '.join(sorted(kinds))}",
            hint=f"give --{side}-endpoint once for each place in the same order, with - where none is needed",
        )


def _access(given: dict[str, Any], fsync: bool, follow_symlinks: bool) -> Access:
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


def add_store_arguments(parser: ArgumentParser, *, many: bool = False) -> None:
    """Add the URL and the options of access to its store."""
    parser.add_argument("urls" if many else "url", metavar="URL", nargs="+" if many else None, help="place or path")
    add_side_arguments(parser, "src", "access to the store (settings: src_*)", short=True)


def add_project(parser: ArgumentParser) -> None:
    """Add --project."""
    parser.add_argument(
        "--project", metavar="ID", help="Google Cloud project of the buckets (default: GOOGLE_CLOUD_PROJECT)"
    )


def add_human(parser: ArgumentParser) -> None:
    """Add -h for readable sizes, in verbs with `H_IS_HELP = False`."""
    parser.add_argument("-h", "--human", action="store_true", help="show sizes in kB, MB, … (1 kB = 1000 bytes)")


__all__ = ["COST_EXAMPLES", "parse_cost", "parse_machines", "parse_ratio"]

#: Options that set a goal.
GOAL_OPTIONS = {"--max-cost", "--min-throughput", "--deadline"}
COST_EXAMPLES = "2.50USD in total, or 0.03USD/GB on average"


def parse_cost(text: str) -> tuple[str, float]:
    """Parse a cost: `2.50USD` or `$2.50` in total, `0.03USD/GB` on average. Raises UsageError."""
    amount, slash, unit = text.partition("/")
    if slash and unit.strip() != "GB":
        raise UsageError(f"a cost is in USD or USD/GB, not {text!r}", hint=COST_EXAMPLES)
    try:
        usd = parse_usd(amount)
    except UsageError as error:
        what = f"a price per GB needs a number and a unit, not {text!r}" if slash else str(error)
        raise UsageError(what, hint=COST_EXAMPLES) from None
    return ("usd_per_gb" if slash else "usd"), usd


def parse_machines(text: str) -> int:
    """Parse a number of machines, at least 1. Raises UsageError."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"a number of machines, at least 1, not {text!r}")
    return int(text)


def parse_routes(text: str) -> int:
    """Parse a number of routes that a user may ask for. Raises UsageError."""
    if not text.isdecimal():
        raise UsageError(f"a number of routes, 1 to {ROUTES_ASKED_MAX}, not {text!r}")
    return check_routes(int(text))


def parse_ratio(text: str) -> float:
    """Parse a compression ratio: bytes sent per byte of data, above 0 and at most 1. Raises UsageError."""
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio <= 1:
        raise UsageError(f"a compression ratio is above 0 and at most 1, not {text!r}", hint="for example 0.6")
    return ratio


def goal_options(args: Namespace) -> list[str]:
    """Return the given options that set a goal. At most one is allowed."""
    given = {"--max-cost": args.max_cost, "--min-throughput": args.min_throughput, "--deadline": args.deadline}
    return [name for name, value in given.items() if value is not None]


def parse_plot(text: str) -> str:
    """Parse the name of a picture file. Raises UsageError if its format cannot be drawn."""
    from tradewind.render.picture import check_picture_path

    check_picture_path(text)
    return text
