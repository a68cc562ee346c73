"""`tradewind cp`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from itertools import chain, takewhile

from tradewind.cli.attributes import attribute_rules, object_lock
from tradewind.cli.options import access, accesses
from tradewind.cli.streams import require_input, require_output
from tradewind.cli.transferring import add_transfer_arguments, options_from, split_paths, transfer
from tradewind.errors import UsageError

USAGE = "[OPTION]… SRC… DST | SRC… --to DST [--to DST]…"
HELP = """\
Copy one object, or with -r everything below a prefix, and prove that every byte arrived.

One object copied to x/ becomes x/NAME; copied to x, it becomes x. -r copies the contents of a directory, with or
without a trailing slash; --as-subdir adds its name. Several sources, files or directories, keep their names and need
a DST that ends in /; two with the same name are refused. --to names several destinations. The result never depends on
whether the destination exists. A prefix means a directory: s3://b/te never matches test/. `-` is standard input (one
destination) or standard output.

A SRC with a * or ?, quoted for the shell, copies the objects that it matches, with -r also what is below directories
that it matches: * and ? match within a directory, ** across. Names at DST are relative to the last directory before
the first wildcard. If SRC exists as typed, only that is copied."""
EXAMPLES = """\
  tradewind cp report.pdf s3://bucket/reports/            # lands in reports/report.pdf
  tradewind cp -r s3://bucket/data gs://other/copy        # the contents of data/
  tradewind cp -r logs/ az://account/container/logs --exclude '*.tmp' --exclude cache/
  tradewind cp -r s3://here/x s3://there/x --src-profile lab --dst-endpoint https://minio.lab:9000
  tradewind cp *.log s3://bucket/logs/ --to s3://other/logs/
  tradewind cp 's3://bucket/2024-*/*.csv' tables/         # lands in tables/2024-01/a.csv
  pg_dump db | tradewind cp - s3://bucket/db.sql
  tradewind cp -r /data s3://bucket/data --topology two-routes.json --max-cost 5USD"""

HINTS = dict.fromkeys(
    ("-f", "--force"), "leave it out: what the destination has is replaced, unless --ignore-existing is given"
)

#: Options of a copy from standard input and to standard output, in addition to those of its store.
PUT_OPTIONS = frozenset(
    (
        *("--chunk-size", "--storage-class", "--fsync", "--content-type", "--cache-control", "--metadata"),
        *("--object-lock-mode", "--retain-until", "--legal-hold"),
    )
)
WRITE_OUT_OPTIONS = frozenset(("--follow-symlinks",))
VERB_OPTIONS = frozenset(("--to", "--recursive", "--quiet", "--verbose", "--json", "--yes", "--config", "--profile"))


def add_arguments(parser: ArgumentParser) -> None:
    """Add -r and all options of a transfer."""
    parser.add_argument("-r", "--recursive", action="store_true", help="copy everything below SRC")
    add_transfer_arguments(parser)


def run(args: Namespace) -> int:
    """Copy."""
    split_paths(args)
    pipes = "-" in args.sources or "-" in args.destinations
    if pipes and args.detach:
        raise UsageError("--detach closes standard input and output")
    if args.source == "-":
        _refuse_others(args, PUT_OPTIONS, "dst", "from standard input")
        require_input()
        return _put(args)
    if pipes:
        _refuse_others(args, WRITE_OUT_OPTIONS, "src", "to standard output")
        return _write_out(args)
    recursive = args.recursive or args.files_from is not None
    return transfer(args, options_from(args, recursive=recursive))


def _refuse_others(args: Namespace, own: frozenset[str], side: str, what: str) -> None:
    """Raise UsageError for an option that does not apply to a pipe. Ignoring it silently would mislead the user."""
    words = takewhile(lambda word: word != "--", args.words)
    # The only short option that a pipe does not have may stand among others, as in -qn.
    for word in chain(words, ["--ignore-existing"] * args.ignore_existing):
        option = word.partition("=")[0]
        refused = option.startswith("--") and option not in own | VERB_OPTIONS and not option.startswith(f"--{side}-")
        if refused and not option.startswith(f"--no-{side}-"):
            raise UsageError(
                f"{option} does not apply to a copy {what}",
                hint="leave it out, or copy a file: the option needs a job that can be resumed",
            )


def _put(args: Namespace) -> int:
    """Copy standard input to one object."""
    from tradewind.engine.tasks import become_upload

    if len(args.destinations) != 1 or len(args.sources) != 1 or args.recursive:
        raise UsageError("standard input is one object and goes to one destination")
    (reached,) = accesses(args, "dst", args.destinations, fsync=args.fsync)
    become_upload(
        args.gateway,
        args.destinations[0],
        reached,
        chunk_bytes=args.chunk_size,
        storage_class=args.storage_class,
        object_lock=object_lock(args),
        attributes=attribute_rules(args),
        as_json=args.json,
        quiet=args.quiet,
    )


def _write_out(args: Namespace) -> int:
    """Copy one object to standard output."""
    from tradewind.engine.tasks import write_objects

    if args.destinations != ["-"] or len(args.sources) != 1 or args.recursive:
        raise UsageError("standard output takes one object", hint="`tradewind cat` writes several")
    require_output()
    return write_objects(args.gateway, [args.source], access(args, "src"), whole=True, quiet=args.quiet)
