"""Options for what an object has beside its bytes: storage class, content type, metadata and tags."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress

from tradewind.cli.arguments import typed
from tradewind.cli.options import parse_time_ms
from tradewind.errors import UsageError
from tradewind.model.job import AttributeRules, ObjectLock, Preserve, Retention
from tradewind.model.units import parse_duration_s

RULE = """\
Objects keep their source's content type, encoding, language, disposition, cache control and metadata. The options
below set some of them. Files have no attributes: the content type of an uploaded file follows from the extension of
its name. Its time of modification becomes the metadata mtime, and is restored, as in rclone."""

_MODES = "--object-lock-mode governance or compliance"
PRESERVED = ("mode", "owner", "time")


def add_attribute_arguments(parser: ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("attributes of the objects that are written", RULE)
    group.add_argument("--content-type", metavar="TYPE", help="content type to write, for example text/html")
    group.add_argument("--cache-control", metavar="TEXT", help="cache control to write, for example max-age=3600")
    group.add_argument(
        "--metadata", action="append", default=[], metavar="NAME=VALUE", help="metadata to write; can be repeated"
    )
    group.add_argument(
        "--metadata-directive",
        choices=("keep", "replace"),
        default="keep",
        help="source attributes that no option sets: keep copies them (default), replace drops them",
    )
    group.add_argument("--storage-class", dest="storage_class", metavar="CLASS", help="storage class to write")
    group.add_argument(
        "--object-lock-mode",
        type=str.lower,
        choices=("governance", "compliance"),
        help="protect each object that is written until --retain-until: governance lets users with a permission of "
        "their own shorten it, compliance lets nobody. The bucket needs S3 Object Lock",
    )
    group.add_argument(
        "--retain-until",
        type=typed(parse_end_s),
        metavar="TIME",
        help="end of the protection: 2030-01-31, 2030-01-31T12:00:00Z, or 30d for 30 days from now",
    )
    group.add_argument(
        "--legal-hold",
        action="store_true",
        help="protect each object that is written until its legal hold is removed. The bucket needs S3 Object Lock",
    )
    group.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="tag to write; can be repeated")
    group.add_argument(
        "--tags",
        choices=("auto", "keep", "drop"),
        help="auto: keep the source's tags where both stores can (S3, Azure), and count objects that lose theirs in "
        "the summary; keep: as auto, but objects whose tags cannot be kept fail; drop: do not read tags. "
        "Default: auto, or drop with --tag",
    )
    group.add_argument(
        "--preserve",
        type=typed(parse_preserve),
        default=Preserve(),
        metavar="LIST",
        help="attributes of files to keep: mode, owner and time, separated by commas. Default: time. An object keeps "
        "them in its metadata (mode, uid, gid, mtime), as in rclone, and a file gets them from there. owner needs root "
        "where files are written. setuid, setgid and sticky bits need root, and both mode and owner",
    )


def attribute_rules(args: Namespace) -> AttributeRules:
    """Return the rules of the arguments. Raises UsageError."""
    if not (args.quiet or args.json):
        for text in args.metadata:
            _note_list(text)
    return AttributeRules(
        directive=args.metadata_directive,
        content_type=args.content_type,
        cache_control=args.cache_control,
        metadata=named_values("--metadata", args.metadata),
    )


def object_lock(args: Namespace) -> ObjectLock:
    """Return the protection of new objects. Raises UsageError."""
    mode, until_unix_s = args.object_lock_mode, args.retain_until
    if (mode is None) != (until_unix_s is None):
        given, missing = ("--object-lock-mode", "--retain-until TIME") if mode else ("--retain-until", _MODES)
        raise UsageError(
            f"{given} needs {missing}", hint="for example --object-lock-mode governance --retain-until 30d"
        )
    retention = None if mode is None or until_unix_s is None else Retention(mode, until_unix_s)
    return ObjectLock(retention, args.legal_hold)


def parse_end_s(text: str) -> int:
    """Return the Unix time [s] of `2030-01-31`, `2030-01-31T12:00:00Z`, or of `30d` from now. Raises UsageError.

    A time without a zone is local.
    """
    import time

    with suppress(UsageError):
        return int(time.time() + parse_duration_s(text))
    return parse_time_ms(text) // 1000


def parse_preserve(text: str) -> Preserve:
    """Return what is kept. Raises UsageError."""
    names = text.split(",")
    for name in names:
        if name not in PRESERVED:
            raise UsageError(f"{name!r} is not one of {', '.join(PRESERVED)}", hint="for example --preserve mode,time")
    return Preserve(*(name in names for name in PRESERVED))


def named_values(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the values of NAME=VALUE by name. Raises UsageError, also for a name that is set twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, content = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}: not NAME=VALUE", hint=f"for example {option} project=alpha")
        if name in found:
            raise UsageError(f"{option} {name}: set twice", hint="set each name once")
        found[name] = content
    return found


def _note_list(text: str) -> None:
    """Print a note about a value that looks like a list of names and values, as other tools take."""
    if re.search(r"[,;][^,;=\s]+=", text):
        print(f"note: --metadata {text} sets one name; for several, repeat --metadata", file=sys.stderr)
