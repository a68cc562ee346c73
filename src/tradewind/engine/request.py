"""Resolve the arguments of a transfer into the contract's `JobSpec`.

The slash rules live here: a prefix means a directory; one object to `x/` lands in `x/name`, to `x` it is called `x`;
nothing depends on whether the destination exists. Several sources (see `sources`) need a destination that ends in `/`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from tradewind.engine.attributes import checked, checked_class, checked_lock, checked_preserve, treatment_of_tags
from tradewind.engine.option_values import check_values
from tradewind.engine.patterns import Existence, Pattern, looks_like_pattern, pattern_of
from tradewind.engine.sources import several_sources
from tradewind.engine.store_places import directory_place, object_place, store_spec
from tradewind.errors import UsageError
from tradewind.model.codec import AUTO, check_codec
from tradewind.model.job import (
    DEFAULT_CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    MIN_FILE_CHUNK_BYTES,
    AttributeRules,
    Comparison,
    Deletion,
    JobSpec,
    ListSelection,
    ObjectFilter,
    ObjectLock,
    ObjectSelection,
    PrefixSelection,
    Preserve,
    Selection,
    SeveralSelection,
    SourceTags,
    Target,
    VerifyMode,
)
from tradewind.model.plan import Plan
from tradewind.model.program import DEDUP_WINDOW_BYTES_MAX, DEDUP_WINDOW_BYTES_MIN
from tradewind.model.records import dataclass, field, replace
from tradewind.model.store import Access, StoreSpec
from tradewind.model.units import format_count
from tradewind.model.url import Location, as_typed, parse_url

#: A URL or a local path.
UrlOrPath = str | os.PathLike[str]
#: Mover of the bytes: this machine; a sky; the user's own hosts; or the sky or the hosts if possible.
Via = Literal["local", "sky", "fleet", "auto"]
#: Maximum destinations of one job; each chunk is held until all have it.
DESTINATIONS_MAX = 16
#: Maximum sources that a message names.
SOURCES_NAMED_MAX = 3


@dataclass(frozen=True)
class Options:
    """Options of a transfer. The defaults are those of the command line.

    - `recursive`: everything below the source; `as_subdir` puts it below the source's name at the destination
    - `filter`, `files_from`: select objects (`files_from`: a file with one relative key per line,
      or `-` for standard input)
    - `compare`: None copies everything; otherwise only objects that differ are copied
    - `ignore_existing`: copies only objects whose names the destination does not have, and never replaces one
    - `flatten`: leaves out the directories of the names; of objects with the same name, only the first one is copied
    - `delete`: deletes objects at the destinations that the source does not have (needs `compare`). Nothing is deleted
      if that would be more than `max_delete` objects, or, without `delete_over_half`, more than half of a destination
    - `ask_delete`: delete nothing yet; the job fails with `summary.to_delete`, and Client.resume confirms it
    - `delete_source`: deletes each source object after its verified copy
    - `verify`: `read` reads back objects without a checksum from their store
    - `chunk_bytes`: chunk and part size; `concurrency`: maximum requests in flight to one store
    - `read_requests_start`, `write_requests_start`: requests in flight of each gateway at first, to the source and to a
      destination; from then on they tune themselves, up to `concurrency`. None: 16
    - `storage_class`, `attributes`, `tags`: written with each object
    - `object_lock`: retention and legal hold of each object that is written; only for buckets with S3 Object Lock
    - `source_tags`: treatment of the source's tags: `auto` keeps them where both stores can, `keep` fails where one
      cannot, `drop` never reads them. None: `drop` if `tags` are given, else `auto`
    - `preserve`: what copies keep of files: mode, owner (files only by root) and time
    - `compress`: between gateways; without gateways there is nothing to compress. `codec` is `lz4`, `zstd`,
      `zstd:LEVEL` (1 to 9), or `auto`: a sample of each chunk decides. A chunk that would not get shorter is sent raw
    - `deduplicate`: between gateways; bytes that the receiving one still has from this run are not sent again.
      `dedup_window_bytes`: how many new bytes it keeps in memory; None: 256 MiB
    - `max_cost_usd`, `max_usd_per_gb`: ceilings on the cost, and on the average egress price, of a plan with prices;
      `max_bytes`: ceiling on bytes sent. They hold over all runs of the job, and bytes that were lost and sent again
      count each time; requests that a gateway repeats to its destination store do not
    - `limit_bytes_per_s`: maximum rate over all routes
    - `stall_s`: stop (resumable) if no route works, or a store is unreachable or returns only errors, for this time
    - `duplicate_fraction_max`: fraction of the bytes that may be sent a second time, over another route, while a route
      stands still (0: none)
    - `store_work_s`: maximum time for a store to copy or complete one object, plus 1 s per 4 MiB; None: 1 h
    - `report_file`: one JSON verdict per object
    - `source`, `destination`: access to each side; for several destinations one for all, or one for each
    """

    recursive: bool = False
    as_subdir: bool = False
    filter: ObjectFilter = field(default_factory=ObjectFilter)
    files_from: str | None = None
    compare: Comparison | None = None
    ignore_existing: bool = False
    flatten: bool = False
    delete: bool = False
    max_delete: int | None = None
    delete_over_half: bool = False
    ask_delete: bool = False
    delete_source: bool = False
    verify: VerifyMode = "auto"
    allow_empty: bool = False
    server_side_copy: bool = True
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    concurrency: int | None = None
    read_requests_start: int | None = None
    write_requests_start: int | None = None
    storage_class: str | None = None
    object_lock: ObjectLock = field(default_factory=ObjectLock)
    attributes: AttributeRules = field(default_factory=AttributeRules)
    tags: Mapping[str, str] = field(default_factory=dict)
    source_tags: SourceTags | None = None
    preserve: Preserve = field(default_factory=Preserve)
    compress: bool = False
    codec: str = AUTO
    deduplicate: bool = False
    dedup_window_bytes: int | None = None
    max_cost_usd: float | None = None
    max_usd_per_gb: float | None = None
    max_bytes: int | None = None
    limit_bytes_per_s: int | None = None
    stall_s: int = 60
    duplicate_fraction_max: float = 0.02
    store_work_s: int | None = None
    dry_run: bool = False
    report_file: str | None = None
    source: Access = field(default_factory=Access)
    destination: Access | tuple[Access, ...] = field(default_factory=Access)

    def __post_init__(self) -> None:
        """Raise UsageError for a value of another type, an unknown one, or one out of range."""
        check_values(self)


def place_texts(places: UrlOrPath | Sequence[UrlOrPath]) -> tuple[str, ...]:
    """Return one place or several as text. Raises UsageError for anything else."""
    several = (places,) if isinstance(places, (str, os.PathLike)) else places
    if isinstance(several, (bytes, Mapping)) or not isinstance(several, Iterable):
        raise UsageError(f"a place is a URL or a path, or a list of these, not {places!r}")
    return tuple(_place_text(place) for place in several)


def _place_text(place: UrlOrPath) -> str:
    text = os.fspath(place) if isinstance(place, os.PathLike) else place
    if not isinstance(text, str):
        raise UsageError(f"a place is a URL or a path, not {place!r}")
    return text


def resolve(
    source: str | Sequence[str],
    destinations: tuple[str, ...],
    options: Options,
    plan: Plan,
    *,
    exists: Existence,
) -> JobSpec:
    """Return the job for these arguments. Reads the file system only for local sources.

    `exists` looks up a source in a store that may be a pattern. Raises UsageError, and the errors of `exists`.
    """
    if not 1 <= len(destinations) <= DESTINATIONS_MAX:
        raise UsageError(f"a job has 1 to {DESTINATIONS_MAX} destinations, not {len(destinations)}")
    _check_options(options)
    cwd = os.getcwd()
    sources = (source,) if isinstance(source, str) else source
    starts = [parse_url(text, cwd=cwd) for text in sources]
    if not starts:
        raise UsageError("no source")
    for text in (*sources, *destinations):
        refuse_remote_name(text)
    for start in starts:
        _refuse_named_link(start, options)
    ends = [parse_url(text, cwd=cwd) for text in destinations]
    _check_chunk(options, ends, plan)
    if any(start.kind == "pipe" for start in starts) or any(end.kind == "pipe" for end in ends):
        raise UsageError("a job cannot read or write a pipe", hint="`tradewind cp - DST` and `tradewind cp SRC -` can")
    reached = _reached(options.destination, len(ends))
    pattern = _pattern(starts, options, exists)
    if pattern is not None:
        store, selection, targets = _of_pattern(pattern, ends, reached, options)
    elif len(starts) == 1:
        store, selection, targets = _of_one(starts[0], ends, reached, options)
    else:
        store, selection, targets = _of_several(starts, ends, reached, options)
    price = _ceiling_price(options, plan)
    return JobSpec(
        source=store,
        selection=selection,
        targets=targets,
        compare="existing" if options.ignore_existing else options.compare,
        flatten=options.flatten,
        delete=Deletion(options.max_delete, options.delete_over_half, options.ask_delete) if options.delete else None,
        delete_source=options.delete_source,
        verify=options.verify,
        allow_empty=options.allow_empty,
        server_side_copy=options.server_side_copy and plan.lead == plan.routes[0].nodes[0],
        chunk_bytes=options.chunk_bytes,
        storage_class=checked_class(options.storage_class, [end.kind for end in ends]),
        object_lock=checked_lock(options.object_lock, ends),
        attributes=checked(options.attributes, [end.kind for end in ends]),
        tags=options.tags,
        source_tags=treatment_of_tags(options.source_tags, options.tags, starts[0], ends),
        preserve=checked_preserve(options.preserve, options.attributes, ends),
        compress=options.compress,
        codec=options.codec,
        deduplicate=options.deduplicate,
        ceiling_usd_per_gb=price,
        ceiling_usd=options.max_cost_usd,
        ceiling_bytes=options.max_bytes,
        rate_limit_bytes_per_s=options.limit_bytes_per_s,
        stall_s=options.stall_s,
        duplicate_fraction_max=options.duplicate_fraction_max,
        dry_run=options.dry_run,
        report_file=None if options.report_file is None else os.path.abspath(options.report_file),
    )


#: Places without a folder of this machine or a bucket: an object there has the last part of its source's name.
IN_MEMORY = ("mem", "guest")
_Resolved = tuple[StoreSpec, Selection, tuple[Target, ...]]


def _of_one(start: Location, ends: Sequence[Location], reached: Sequence[Access], options: Options) -> _Resolved:
    tree = _is_tree(start, options)
    selection = _selection(start, tree, options)
    store = directory_place(start, options.source)[0] if tree else object_place(start, options.source)[0]
    targets = tuple(_target(start, end, tree, options, access) for end, access in zip(ends, reached, strict=True))
    for target, end in zip(targets, ends, strict=True):
        _refuse_overlap(store, selection, target, end, moves=options.delete_source)
    return store, selection, targets


def _pattern(starts: Sequence[Location], options: Options, exists: Existence) -> Pattern | None:
    """Return the pattern that the source is; None if it is none. Raises UsageError for one of several sources."""
    for start in filter(looks_like_pattern, starts):
        pattern = pattern_of(start, lambda place: store_spec(place.root, place, options.source), exists)
        if pattern is not None and len(starts) > 1:
            raise UsageError(
                f"{start} is a pattern, so it cannot be one of several sources", hint="give it as the only source"
            )
        if pattern is not None:
            return pattern
    return None


def _of_pattern(pattern: Pattern, ends: Sequence[Location], reached: Sequence[Access], options: Options) -> _Resolved:
    for refused, option in ((options.files_from is not None, "--files-from"), (options.as_subdir, "--as-subdir")):
        if refused:
            raise UsageError(f"{option} needs a directory, and {pattern.place} is a pattern")
    below = options.recursive or options.compare is not None
    for end in ends:
        if not below and not end.is_directory:
            raise UsageError(f"{end}: a pattern needs a directory as destination", hint=f"write {end}/")
    store, prefix = directory_place(pattern.folder, options.source)
    selection = PrefixSelection(prefix, pattern.rules(options.filter, below=below))
    targets = tuple(Target(*directory_place(end, access)) for end, access in zip(ends, reached, strict=True))
    for target, end in zip(targets, ends, strict=True):
        _refuse_overlap(store, selection, target, end, moves=options.delete_source)
    return store, selection, targets


def _of_several(
    starts: Sequence[Location], ends: Sequence[Location], reached: Sequence[Access], options: Options
) -> _Resolved:
    if options.compare is not None:
        raise UsageError(f"{len(starts)} sources: a sync has one", hint="name several destinations with --to DST")
    if options.files_from is not None:
        raise UsageError("--files-from names objects of one source", hint="name one SRC")
    for end in ends:
        if not end.is_directory:
            named = ", ".join(map(str, starts[:SOURCES_NAMED_MAX])) + (", …" if len(starts) > SOURCES_NAMED_MAX else "")
            raise UsageError(f"{end}: several sources ({named}) need a directory as destination", hint=f"write {end}/")
    holder, selection = several_sources(starts, recursive=options.recursive, object_filter=options.filter)
    targets = tuple(Target(*directory_place(end, access)) for end, access in zip(ends, reached, strict=True))
    return directory_place(holder, options.source)[0], selection, targets


def _reached(destination: Access | tuple[Access, ...], count: int) -> tuple[Access, ...]:
    if isinstance(destination, Access):
        return (destination,) * count
    if len(destination) != count:
        raise UsageError(
            f"{format_count(count, 'destination')}, but {format_count(len(destination), 'set')} of access options"
        )
    return destination


def refuse_remote_name(text: str) -> None:
    """Raise UsageError for a path that is rather rclone's REMOTE:PATH or scp's USER@HOST:PATH. A file or directory of
    that name is accepted.

    Nobody wants a new directory `minio:bucket`, least of all at the end of `mv`. Times in names, such as `log-12:30`,
    are no remotes.
    """
    # Most paths have no colon, and compiling the expressions takes longer than all else here.
    if ":" not in text or os.path.lexists(text.partition("/")[0]):
        return
    if re.fullmatch(r"(?s)[\w.-]+@[\w.-]+:.*", text):
        raise UsageError(
            f"{text}: neither a URL nor a likely path",
            hint=f"files of another host need a mount, or a command there; write ./{text} for a path",
        )
    if remote := re.fullmatch(r"(?s)[A-Za-z][A-Za-z0-9_-]+:([A-Za-z].*)", text):
        ours = remote[1] if text.startswith("file:") else f"s3://{remote[1]} with a profile and an endpoint"
        raise UsageError(
            f"{text}: neither a URL nor a likely path",
            hint=f"write {ours}, or ./{text} for a path",
        )


def _refuse_named_link(start: Location, options: Options) -> None:
    """Raise UsageError for a link to a directory whose contents would be deleted, unless it is typed with a slash."""
    if not options.delete_source or start.kind != "file" or start.is_directory:
        return
    if os.path.islink(start.key) and os.path.isdir(start.key):
        raise UsageError(
            f"{start} is a symbolic link: moving it would empty the directory that it leads to",
            hint=f"to move what is in that directory, write {start}/ (the link itself stays)",
        )


def _is_tree(start: Location, options: Options) -> bool:
    """Return whether the source is everything below a directory. Reads the file system only for a local path."""
    tree = options.recursive or options.compare is not None or options.files_from is not None or start.kind == "mem"
    if start.kind != "file":
        return tree
    try:
        mode = os.stat(start.key).st_mode
    except OSError:
        return tree  # The lead reports the error: not found, or forbidden.
    if stat.S_ISDIR(mode) and not tree:
        raise UsageError(f"{start} is a directory", hint="add -r to include what is in it")
    if stat.S_ISREG(mode) and tree:
        if options.compare is not None or options.files_from is not None or start.is_directory:
            raise UsageError(f"{start} is a file, not a directory", hint="to copy one file: tradewind cp FILE DST")
        return False
    return tree


def _selection(start: Location, tree: bool, options: Options) -> Selection:
    if not tree:
        if options.filter != ObjectFilter():
            raise UsageError("filters apply only to the objects of a directory", hint="add -r")
        return ObjectSelection(object_place(start, options.source)[1])
    prefix = directory_place(start, options.source)[1]
    if options.files_from is not None:
        return ListSelection(prefix, os.path.abspath(options.files_from), options.filter)
    return PrefixSelection(prefix, options.filter)


def _target(start: Location, end: Location, tree: bool, options: Options, access: Access) -> Target:
    if tree:
        store, prefix = directory_place(_below(end, start) if options.as_subdir else end, access)
        return Target(store, prefix)
    if options.as_subdir:
        raise UsageError("--as-subdir needs a directory", hint="to copy into a directory end DST with /")
    if end.is_directory:
        end = replace(end, key=_with_slash(end.key) + _name_of(start)) if end.kind not in IN_MEMORY else end
    elif end.kind == "file" and os.path.isdir(end.key):
        raise UsageError(f"{end} is a directory", hint=f"to copy into it write {end}/")
    if end.kind in IN_MEMORY:
        return Target(store_spec(end.root, end, access), _name_of(start))
    store, key = object_place(end, access)
    return Target(store, key)


def _name_of(start: Location) -> str:
    if not start.name:
        raise UsageError(f"{start} has no name", hint="end the destination with a name, not with /")
    return start.name


def _below(end: Location, start: Location) -> Location:
    if start.kind == "file":
        name = os.path.basename(os.path.realpath(start.key))
    else:
        name = start.name or start.root.rpartition("/")[2]
    return replace(end, key=_with_slash(end.key) + name + "/")


def _with_slash(key: str) -> str:
    return key if not key or key.endswith("/") else key + "/"


def _refuse_overlap(store: StoreSpec, selection: Selection, target: Target, end: Location, *, moves: bool) -> None:
    """Refuse overlaps that the names show. The lead compares identities before it starts (`lead/places.rs`)."""
    if isinstance(selection, SeveralSelection):
        return  # The lead compares each object with its destination.
    if isinstance(selection, ObjectSelection):
        same, inwards, outwards = selection.key == target.key, False, False
        ours, theirs = store, target.store
        if end.kind == "file" and ours.url.startswith("file:"):
            same = _local_path(ours, selection.key) == _local_path(theirs, target.key)
            theirs = ours
    elif end.kind == "file" and store.url.startswith("file:"):
        ours = theirs = store
        one, other = _local_path(store, ""), _local_path(target.store, "")
        same = one == other
        inwards, outwards = other.startswith(one.rstrip("/") + "/"), one.startswith(other.rstrip("/") + "/")
    else:
        ours, theirs = store, target.store
        same = selection.prefix == target.key
        inwards, outwards = target.key.startswith(selection.prefix), selection.prefix.startswith(target.key)
    if isinstance(selection, PrefixSelection) and selection.filter.within and selection.filter.within.is_level:
        inwards = False  # A pattern of one directory never matches copies in a directory below.
    if (ours.url, ours.endpoint) != (theirs.url, theirs.endpoint) or ours.url == "mem:":
        return
    if same:
        raise UsageError(f"source and destination are the same: {end}", hint="choose another destination")
    # A job with a list of names never lists its own copies.
    if outwards or (inwards and (moves or not isinstance(selection, ListSelection))):
        raise UsageError(
            f"source and destination overlap: {end}",
            hint="choose places that do not contain each other",
        )


def _local_path(store: StoreSpec, key: str) -> str:
    return os.path.realpath(os.path.join(as_typed(store.url), key))


def _check_options(options: Options) -> None:
    if options.files_from is not None and not options.files_from.strip():
        raise UsageError("an empty path of a list of names", hint="is a shell variable unset?")
    if options.ignore_existing and options.compare not in (None, "auto"):
        raise UsageError(
            f"--ignore-existing compares names only, --compare {options.compare} does not", hint="leave out one of them"
        )
    if options.flatten and options.compare is not None:
        raise UsageError("a sync keeps the directories of names", hint="use `tradewind cp --flatten`")
    if options.delete and options.compare is None:
        raise UsageError("deletion needs a comparison", hint="use `tradewind sync --delete`")
    if options.delete and options.files_from is not None:
        raise UsageError(
            "--delete compares whole directories, and --files-from names objects", hint="leave one of them out"
        )
    if options.max_delete is not None and not options.delete:
        raise UsageError("--max-delete needs --delete")
    check_codec(options.codec)
    window = options.dedup_window_bytes
    if window is not None and not DEDUP_WINDOW_BYTES_MIN <= window <= DEDUP_WINDOW_BYTES_MAX:
        raise UsageError(f"a window of {window} bytes for deduplication: must be 1 MiB to 64 GiB")


def _check_chunk(options: Options, ends: list[Location], plan: Plan) -> None:
    """Refuse a chunk size that a store or the lead does not accept. Files and memory take any size."""
    least, why = MIN_CHUNK_BYTES, "S3 does not accept smaller parts"
    if all(end.kind in ("file", *IN_MEMORY) for end in ends):
        least, why = MIN_FILE_CHUNK_BYTES, "the overhead of smaller chunks is too high"
    if options.chunk_bytes < least:
        asked = format_count(options.chunk_bytes, "byte")
        raise UsageError(f"chunks of {asked}: must be at least {_in_binary_units(least)}", hint=why)
    memory_bytes = next(gateway.limits.memory_bytes for gateway in plan.gateways if gateway.name == plan.lead)
    most = min(MAX_CHUNK_BYTES, memory_bytes // 2)
    if options.chunk_bytes > most:
        raise UsageError(
            f"chunks of {_in_binary_units(options.chunk_bytes)}: must be at most {_in_binary_units(most)}",
            hint="a gateway needs memory for two chunks",
        )


def _in_binary_units(size_bytes: int) -> str:
    return f"{size_bytes >> 20}MiB" if size_bytes % (1 << 20) == 0 else f"{size_bytes >> 10}KiB"


def _ceiling_price(options: Options, plan: Plan) -> float | None:
    """Return the maximum average price: the user's, or with a ceiling in USD the plan's own."""
    dearest = max(route.usd_per_gb for route in plan.routes)
    if options.max_cost_usd is None and options.max_usd_per_gb is None:
        return None
    if dearest == 0:
        raise UsageError("a cost ceiling needs routes with prices", hint="give usd_per_gb in --topology FILE")
    if options.max_usd_per_gb is not None:
        return options.max_usd_per_gb
    return plan.mean_usd_per_gb
