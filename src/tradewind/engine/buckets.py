"""Buckets and containers: list those of an account, make one, remove one.

Each function replaces this process by a task of the gateway program, and returns only with an error. `gateway` is the
path of the program, None to find it.
"""

from __future__ import annotations

import os
import re
from typing import Any, NoReturn

from tradewind.engine.store_places import store_spec
from tradewind.engine.tasks import BUCKET_NAME, become, parse_place
from tradewind.errors import UsageError
from tradewind.model.document import to_document
from tradewind.model.store import Access
from tradewind.model.url import Location, parse_account

__all__ = ["become_bucket_listing", "become_bucket_removal", "become_new_bucket", "parse_account", "parse_bucket"]

PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
"""Variables that Google's own tools read for the project, in order."""


def become_bucket_listing(
    gateway: str | None,
    account: Location,
    access: Access,
    project: str | None,
    *,
    long: bool,
    as_json: bool,
    quiet: bool,
) -> NoReturn:
    """List the buckets of an account. `project` is for Google Cloud. Raises UsageError, GatewayError."""
    if account.kind == "gs":
        project = _project(project, "lists buckets by project")
    store = to_document(store_spec(account.root, account, access))
    become(gateway, {"task": "buckets", "store": store, **_named(project), "long": long, "json": as_json}, quiet=quiet)


def become_new_bucket(
    gateway: str | None, url: str, access: Access, project: str | None, *, as_json: bool, quiet: bool
) -> NoReturn:
    """Make a bucket. `project` is for Google Cloud. Raises UsageError, GatewayError."""
    place = parse_bucket(url)
    if place.kind == "gs":
        project = _project(project, "makes buckets in a project")
    store = to_document(store_spec(place.root, place, access))
    task = {"task": "make_bucket", "store": store, **_named(project), "json": as_json}
    become(gateway, task, mute=quiet and not as_json, quiet=quiet)


def become_bucket_removal(
    gateway: str | None, url: str, access: Access, *, force: bool, as_json: bool, quiet: bool
) -> NoReturn:
    """Remove a bucket; with `force` delete its objects first. Raises UsageError, GatewayError."""
    place = parse_bucket(url)
    store = to_document(store_spec(place.root, place, access))
    task = {"task": "remove_bucket", "store": store, "force": force, "json": as_json}
    become(gateway, task, mute=quiet and not as_json, quiet=quiet)


def parse_bucket(url: str) -> Location:
    """Parse the URL of a bucket. Raises UsageError, UrlError."""
    place = parse_place(url)
    if place.kind in ("file", "mem"):
        meant = f"s3://{url}" if re.fullmatch(BUCKET_NAME, url) else "s3://BUCKET"
        raise UsageError(f"{url} is not a bucket", hint=f"write {meant}, gs://BUCKET or az://ACCOUNT/CONTAINER")
    if place.key:
        raise UsageError(f"{url} names an object, not a bucket", hint=f"write {place.root}")
    return place


def _project(given: str | None, what: str) -> str:
    project = given or next(filter(None, map(os.environ.get, PROJECT_VARIABLES)), None)
    if project is None:
        raise UsageError(
            f"Google Cloud {what}, and none is set", hint="name it with --project, or in GOOGLE_CLOUD_PROJECT"
        )
    return project


def _named(project: str | None) -> dict[str, Any]:
    return {"project": project} if project else {}
