"""`tradewind sync`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.terminal import can_ask
from tradewind.cli.transferring import add_transfer_arguments, options_from, transfer
from tradewind.model.records import replace

USAGE = "[OPTION]… SRC DST | SRC --to DST [--to DST]…"
HELP = """\
Copy everything that is missing or differs at DST, always the contents of SRC, with or without a trailing slash.

Compares size and checksum if both listings state one, else size and time. Between local directories a copy keeps its
time, so a different time is a change; elsewhere an older time at DST is a change, and so is another time in an object's
metadata than that of its file, if the file was changed after the object was written. Never deletes without --delete.
--delete deletes only after all copies are proven, and nothing if the source is missing, empty or could not be listed
completely. On a terminal it asks first. Deleting more than half of the objects at DST needs -y or --max-delete."""
EXAMPLES = """\
  tradewind sync /data s3://bucket/data
  tradewind sync s3://bucket/data gs://other/data --delete --max-delete 100
  tradewind sync /data s3://bucket/data --compare checksum --dry-run"""

HINTS = {
    **dict.fromkeys(("-r", "-R", "--recursive"), "leave it out: sync always copies everything below SRC"),
    **dict.fromkeys(
        ("-a", "--archive"), "leave it out: sync copies a whole tree; --preserve mode,owner,time keeps these attributes"
    ),
    "-n": "write --dry-run to copy nothing, or --ignore-existing to replace nothing",
    **dict.fromkeys(("--no-clobber", "--no-overwrite"), "write --ignore-existing"),
    "--flatten": "use `tradewind cp --flatten`: a sync keeps the directories of names",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add --compare, --delete and all options of a transfer."""
    parser.add_argument(
        "--compare",
        choices=["auto", "checksum", "size", "time"],
        default="auto",
        help="auto (the default): checksums where listings state them, else size and time; checksum: request it per "
        "object if listings state none, and read local files; size: size alone; time: size and time",
    )
    parser.add_argument("--delete", action="store_true", help="delete objects at DST that SRC does not have")
    from tradewind.cli.arguments import add_setting

    add_setting(parser, "max_delete", metavar="N")
    add_transfer_arguments(parser, copies=False)


def run(args: Namespace) -> int:
    """Sync."""
    options = replace(
        options_from(args, recursive=True),
        compare=args.compare,
        delete=args.delete,
        max_delete=args.max_delete if args.delete else None,
        delete_over_half=args.yes or "max_delete" in args.typed,
        ask_delete=args.delete and _asks_before_deleting(args),
    )
    return transfer(args, options)


def _asks_before_deleting(args: Namespace) -> bool:
    """Return whether `--delete` must ask before it deletes, and there is a terminal to ask at."""
    silent = args.yes or args.json or args.quiet or args.dry_run or args.detach
    return not silent and can_ask()
