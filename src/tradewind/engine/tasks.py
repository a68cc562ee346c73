"""Tasks on stores that need no job: list, sum up, print, write, compare, explain, and check access.

Each function runs a task of the gateway program. Most replace this process by it, so that its output, exit code and
signals are directly the user's; these functions return only with an error. `gateway` is the path of the program, None
to find it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tradewind.engine.attributes import checked, checked_class, checked_lock
from tradewind.engine.patterns import Existence, Pattern, gateway_existence, pattern_of
from tradewind.engine.request import Options, refuse_remote_name, resolve
from tradewind.engine.store_places import directory_place, listing_place, object_place, store_spec
from tradewind.errors import SourceNotFound, Unavailable, UsageError
from tradewind.model.document import to_document
from tradewind.model.job import (
    AttributeRules,
    ByteRange,
    Comparison,
    NameGlob,
    ObjectFilter,
    ObjectLock,
    PrefixSelection,
)
from tradewind.model.plan import local_plan
from tradewind.model.records import replace
from tradewind.model.store import Access, StoreSpec
from tradewind.model.url import Kind, Location, parse_url

__all__ = [
    "become",
    "become_check",
    "become_explanation",
    "become_listing",
    "become_presign",
    "become_stat",
    "become_sum",
    "become_upload",
    "clouds_findings",
    "find_gateway",
    "find_pattern",
    "parse_place",
    "refuse_file",
    "store_answers",
    "store_findings",
    "write_objects",
]

#: Clouds with credentials of their own; R2 takes those of S3.
CLOUDS: tuple[Kind, ...] = ("s3", "gs", "az")
#: The clouds' own time limits are 4 s for credentials and 4 s for the clock; all clouds are checked at the same time.
CLOUDS_TIMEOUT_S = 20.0


#: A name that a bucket may have, and a file too.
BUCKET_NAME = r"[a-z0-9][a-z0-9.-]+"


def find_gateway() -> str:
    """Return the path of the gateway program. Raises GatewayError if it is missing."""
    from tradewind.gateway.binary import find_gateway

    return find_gateway()


def refuse_file(place: Location, hint: str) -> None:
    """Raise UsageError if a place that must be a directory is a local file."""
    if place.kind == "file" and os.path.isfile(place.key.rstrip("/")):
        raise UsageError(f"{place.key.rstrip('/')} is a file, not a directory", hint=hint)


def parse_place(text: str) -> Location:
    """Return a place that is not a pipe. Raises UrlError, UsageError."""
    place = parse_url(text, cwd=os.getcwd())
    if place.kind == "pipe":
        raise UsageError("standard input and output are not stores", hint="only `tradewind cp` takes -")
    return place


def become_listing(
    gateway: str | None,
    url: str,
    access: Access,
    rules: ObjectFilter,
    *,
    recursive: bool,
    long: bool,
    human: bool,
    as_json: bool,
    quiet: bool,
) -> NoReturn:
    """List an object, what is below a directory, or what matches a pattern. Raises UsageError, GatewayError."""
    store, prefix, rules = _listed(gateway, url, access, rules, below=recursive, folders=not recursive)
    become(
        gateway,
        {
            "task": "ls",
            "store": to_document(store),
            "prefix": prefix,
            "recursive": recursive,
            "filter": to_document(rules),
            "long": long,
            "human": human,
            "json": as_json,
        },
        quiet=quiet,
    )


def become_sum(
    gateway: str | None,
    url: str,
    access: Access,
    rules: ObjectFilter,
    *,
    depth: int,
    human: bool,
    as_json: bool,
    quiet: bool,
) -> NoReturn:
    """Count objects and sum sizes, also of folders up to `depth` levels below. Raises UsageError, GatewayError."""
    store, prefix, rules = _listed(gateway, url, access, rules, below=True)
    task = {"task": "du", "store": to_document(store), "prefix": prefix, "human": human, "json": as_json}
    become(gateway, {**task, "filter": to_document(rules), **({"depth": depth} if depth else {})}, quiet=quiet)


def become_stat(gateway: str | None, url: str, access: Access, *, as_json: bool, quiet: bool) -> NoReturn:
    """Print what a store states about one object. Raises UsageError, GatewayError."""
    store, key = object_place(parse_place(url), access)
    become(gateway, {"task": "stat", "store": to_document(store), "key": key, "json": as_json}, quiet=quiet)


def become_presign(
    gateway: str | None, url: str, access: Access, *, expires_s: int, as_json: bool, quiet: bool
) -> NoReturn:
    """Print an address that reads one object for `expires_s` seconds. Raises UsageError, GatewayError."""
    place = parse_place(url)
    if place.kind in ("file", "mem"):
        raise UsageError(f"{url} cannot be signed", hint="presign supports objects of s3://, r2:// and az://")
    if place.kind == "gs":
        raise UsageError(
            f"{url} cannot be signed: a token of Google Cloud cannot sign an address",
            hint="`gcloud storage sign-url` signs with a service account",
        )
    store, key = object_place(place, access)
    task = {"task": "presign", "store": to_document(store), "key": key, "expires_s": expires_s, "json": as_json}
    become(gateway, task, quiet=quiet)


def find_pattern(gateway: str | None, url: str, access: Access) -> Pattern | None:
    """Return the pattern that a place is; None if it has no wildcards, or if something has exactly this name.

    Raises UsageError, GatewayError, and the errors of the store.
    """
    return pattern_of(parse_place(url), lambda place: store_spec(place.root, place, access), _existence(gateway))


def _existence(gateway: str | None) -> Existence:
    return gateway_existence(lambda: gateway or find_gateway())


def _listed(
    gateway: str | None, url: str, access: Access, rules: ObjectFilter, *, below: bool, folders: bool = False
) -> tuple[StoreSpec, str, ObjectFilter]:
    """Return store, prefix and rules to list a place. With `folders` a pattern may match directories only."""
    pattern = find_pattern(gateway, url, access)
    if pattern is None:
        place = parse_place(url)
        if place.is_directory:
            refuse_file(place, "leave out the slash at its end")
        _refuse_bare_bucket(url, place)
        return *listing_place(place, access), rules
    limited = replace(rules, within=NameGlob(pattern.glob, below)) if folders else pattern.rules(rules, below=below)
    return *directory_place(pattern.folder, access), limited


def _refuse_bare_bucket(text: str, place: Location) -> None:
    """Raise SourceNotFound for a missing path that looks like the name of a bucket."""
    name = text.removesuffix("/")
    if place.kind == "file" and re.fullmatch(BUCKET_NAME, name) and not os.path.lexists(name):
        raise SourceNotFound(f"{text}: no such file or directory", hint=f"for a bucket write its kind: s3://{text}")


def become_check(
    gateway: str | None,
    source: str,
    destination: str,
    source_access: Access,
    destination_access: Access,
    rules: ObjectFilter,
    *,
    compare: Comparison,
    read: bool,
    one_way: bool,
    as_json: bool,
    quiet: bool,
) -> NoReturn:
    """Compare two trees. Raises UsageError, GatewayError."""
    sides = []
    if pattern := find_pattern(gateway, source, source_access):
        rules = pattern.rules(rules, below=True)
        source = str(pattern.folder)
    for text, access in ((source, source_access), (destination, destination_access)):
        place = parse_place(text)
        if place.kind == "file" and os.path.isfile(place.key):
            hint = "check compares directories: name the directory, and the file with --include"
            raise UsageError(f"{text} is a file, not a directory", hint=hint)
        sides.append(directory_place(place, access))
    (left, left_prefix), (right, right_prefix) = sides
    become(
        gateway,
        {
            "task": "check",
            "source": to_document(left),
            "source_prefix": left_prefix,
            "destination": to_document(right),
            "destination_prefix": right_prefix,
            "filter": to_document(rules),
            "compare": compare,
            "read": read,
            "one_way": one_way,
            "json": as_json,
        },
        quiet=quiet,
    )


def become_upload(
    gateway: str | None,
    destination: str,
    access: Access,
    *,
    chunk_bytes: int,
    storage_class: str | None,
    object_lock: ObjectLock,
    attributes: AttributeRules,
    as_json: bool,
    quiet: bool,
) -> NoReturn:
    """Write standard input to one object. Raises UsageError, GatewayError."""
    refuse_remote_name(destination)
    place = parse_url(destination, cwd=os.getcwd())
    if place.kind == "pipe":
        raise UsageError("copying standard input to standard output does nothing")
    if place.is_directory:
        raise UsageError("standard input has no name", hint="end the destination with a name, not with /")
    lock = checked_lock(object_lock, [place])
    chosen_class = checked_class(storage_class, [place.kind])
    store, key = object_place(place, access)
    become(
        gateway,
        {
            "task": "put",
            "store": to_document(store),
            "key": key,
            "chunk_bytes": chunk_bytes,
            **({"storage_class": chosen_class} if chosen_class else {}),
            **({"object_lock": to_document(lock)} if lock is not None else {}),
            "attributes": to_document(checked(attributes, [place.kind])),
            "json": as_json,
        },
        quiet=quiet,
    )


def write_objects(
    gateway: str | None,
    urls: Sequence[str],
    access: Access,
    *,
    part: ByteRange | None = None,
    whole: bool = False,
    quiet: bool,
) -> int:
    """Write objects to standard output, one task for each run of URLs in one store; return the exit code.

    A URL with wildcards is what it matches, in the order of keys, as a task of its own. `part` limits the output to
    these bytes of each object. With `whole` the one URL is an object, and it is a failure if the reader goes away
    before the end. Raises UsageError, GatewayError.
    """
    from tradewind.gateway.task import run_task

    options = {**({"range": to_document(part)} if part else {}), **({"whole": True} if whole else {})}
    tasks: list[dict[str, object]] = []
    keys: list[str] = []
    for url in urls:
        if not whole and (pattern := find_pattern(gateway, url, access)):
            spec, below = directory_place(pattern.folder, access)
            rules = pattern.rules(ObjectFilter(), below=False)
            chosen = {"below": below, "filter": to_document(rules)}
            tasks.append({"task": "cat", "store": to_document(spec), "keys": [], **chosen, **options})
            continue
        spec, key = object_place(parse_place(url), access)
        store = to_document(spec)
        if not tasks or tasks[-1]["store"] != store or "below" in tasks[-1]:
            keys = []
            tasks.append({"task": "cat", "store": store, "keys": keys, **options})
        keys.append(key)
    binary = gateway or find_gateway()
    for task in tasks:
        code = run_task(binary, task, quiet=quiet)
        if code != 0:
            return code
    return 0


def become_explanation(
    gateway: str | None,
    name: str,
    sources: Sequence[str],
    destinations: Sequence[str],
    options: Options,
    *,
    quiet: bool,
) -> NoReturn:
    """Explain why a key is selected or not and, for sync, how the destinations compare. Raises UsageError."""
    job = resolve(tuple(sources), tuple(destinations), options, local_plan(), exists=_existence(gateway))
    rules = options.filter
    if isinstance(job.selection, PrefixSelection):
        rules = job.selection.filter  # It has the wildcards of the source, too.
    task = {"task": "explain", "name": name, "filter": to_document(rules), "job": to_document(job)}
    become(gateway, task, quiet=quiet)


def clouds_findings(gateway: str | None, access: Access) -> list[dict[str, Any]]:
    """Return credentials and clocks of each cloud, as found by the gateway program, which uses them.

    A cloud whose settings are refused has one failed line.

    Raises GatewayError.
    """
    from tradewind.gateway.task import ask_task

    elsewhere = Access(anonymous=access.anonymous, ca_file=access.ca_file)  # The endpoint is an S3-compatible server's.
    clouds: list[Any] = []
    refused: list[dict[str, Any]] = []
    for scheme in CLOUDS:
        root = f"{scheme}://"
        try:
            spec = store_spec(root, Location(scheme, root, ""), access if scheme == "s3" else elsewhere)
            clouds.append(to_document(spec))
        except UsageError as error:
            refused.append(
                {"level": "fail", "url": root, "check": "credentials", "message": str(error), "hint": error.hint}
            )
    task = {"task": "doctor", "stores": [], "clouds": clouds, "json": True}
    return [*refused, *ask_task(gateway or find_gateway(), task, timeout_s=CLOUDS_TIMEOUT_S)]


def store_findings(
    gateway: str | None, urls: Sequence[str], access: Access, heed: Callable[[dict[str, Any]], None]
) -> int:
    """Pass to `heed` whether stores answer, with which credentials, and their clocks; return the exit code.

    Raises UsageError, GatewayError.
    """
    from tradewind.gateway.task import follow_task

    stores = [to_document(directory_place(parse_place(url), access)[0]) for url in urls]
    return follow_task(gateway or find_gateway(), {"task": "doctor", "stores": stores, "json": True}, heed)


def store_answers(gateway: str | None, url: str, access: Access, *, timeout_s: float) -> bool:
    """Return whether a store answers within a time, in whatever way: also a refusal is an answer.

    Raises UsageError, GatewayError.
    """
    from tradewind.gateway.task import exit_code_of_task

    stores = [to_document(directory_place(parse_place(url), access)[0])]
    code = exit_code_of_task(
        gateway or find_gateway(), {"task": "doctor", "stores": stores, "json": True}, timeout_s=timeout_s
    )
    return code not in (None, Unavailable.exit_code)


def become(gateway: str | None, task: dict[str, Any], *, mute: bool = False, quiet: bool = False) -> NoReturn:
    """Replace this process by a task; with `mute` its output is discarded, with `quiet` its messages but errors.

    Raises GatewayError.
    """
    from tradewind.gateway.task import become_task

    become_task(gateway or find_gateway(), task, mute=mute, quiet=quiet)
