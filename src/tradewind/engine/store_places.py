"""The store of a place, and the key or prefix of the place in it.

A store has one root: a bucket, a container or a directory. Its endpoint and region come from the options, from the URL
or from AWS's configuration.
"""

from __future__ import annotations

import os

from tradewind.errors import UsageError
from tradewind.model.store import Access, StoreSpec
from tradewind.model.url import Location


def store_spec(root: str, place: Location, access: Access) -> StoreSpec:
    """Return the store of a place. Settings that do not apply to it, such as an endpoint for files, are left out."""
    if place.kind == "guest":
        if not access.has_guest:
            raise UsageError(
                f"{place}: only jobs of the transfer service have guests", hint="see `tradewind send --help`"
            )
        return StoreSpec("mem:")  # The guest's gateway replaces it.
    if place.kind in ("file", "mem"):
        return StoreSpec(
            root,
            fsync=access.fsync,
            follow_symlinks=access.follow_symlinks,
            resolved_root=access.resolved_root,
            extra=place.options,
        )
    if place.kind == "gs" and access.requester_pays:
        raise UsageError(f"{root}: requester pays is supported only at S3", hint="leave out --src-requester-pays")
    endpoint, region = _endpoint(place, access)
    return StoreSpec(
        root,
        endpoint=endpoint,
        region=region,
        profile=access.profile,
        path_style=access.path_style,
        anonymous=access.anonymous,
        requester_pays=access.requester_pays,
        ca_file=None if access.ca_file is None else os.path.abspath(access.ca_file),
        hides_words=access.hides_words,
        lending=access.lending,
        role=access.role,
    )


def _endpoint(place: Location, access: Access) -> tuple[str | None, str | None]:
    """Return endpoint and region as given, else from AWS's configuration for this store. Raises UsageError."""
    endpoint, region = access.endpoint or place.endpoint, _store_region(place, access)
    if place.kind == "s3":
        endpoint, region = _s3_endpoint(place, access, endpoint, region)
    if endpoint is not None and not access.is_given:
        _refuse_credentials(endpoint)
    return endpoint, region


def _s3_endpoint(
    place: Location, access: Access, endpoint: str | None, region: str | None
) -> tuple[str | None, str | None]:
    from tradewind.engine.aws_profile import refuse_missing_profile, refuse_unknown_profile, s3_endpoint
    from tradewind.engine.unsupported_stores import refuse_unsupported

    if access.is_given:
        refuse_unsupported(place.root, endpoint, None, is_given=True)
        return endpoint, region
    if access.profile:
        refuse_unknown_profile(access.profile)
    elif not access.anonymous:
        refuse_missing_profile()
    if endpoint is None and (configured := s3_endpoint(access.profile)):
        endpoint = configured.url
        if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
            region = region or configured.region
    refuse_unsupported(place.root, endpoint, access.profile)
    return endpoint, region


def _store_region(place: Location, access: Access) -> str | None:
    """Return the region under the store's own name: `aws:us-east-1` is us-east-1 at S3.

    For a compatible server such a region states the server's location, not the server's own name for its region, so it
    is not passed on.
    """
    provider, colon, name = (access.region or "").partition(":")
    if not colon:
        return access.region or place.region
    at_s3 = provider == "aws" and place.kind == "s3" and not (access.endpoint or place.endpoint)
    return name if at_s3 else place.region


def _refuse_credentials(endpoint: str) -> None:
    """Raise UsageError without repeating the endpoint, which would appear in messages, logs and the job's folder."""
    address = endpoint.partition("://")[2] or endpoint
    if "@" in address.partition("/")[0]:
        raise UsageError(
            "the endpoint holds a user name or password", hint="credentials come from the cloud's own chain"
        )
    if "?" in address or "#" in address:
        raise UsageError(
            "the endpoint has a query, which may hold a signature",
            hint="write the part before the ?; credentials come from the cloud's own chain",
        )


def directory_place(place: Location, access: Access) -> tuple[StoreSpec, str]:
    """Return store and prefix (empty or ending in `/`) of a directory."""
    if place.kind == "file":
        return store_spec(_file_root(place.key), place, access), ""
    if place.kind == "guest":
        return store_spec(place.root, place, access), ""
    prefix = place.key if place.key.endswith("/") or not place.key else place.key + "/"
    return store_spec(place.root, place, access), prefix


def listing_place(place: Location, access: Access) -> tuple[StoreSpec, str]:
    """Return store and key of a place as typed: the gateway lists an object of that name and everything below it."""
    if place.kind == "file":
        shown = object_place if os.path.isfile(place.key) else directory_place
        return shown(place, access)
    return store_spec(place.root, place, access), place.key


def object_place(place: Location, access: Access) -> tuple[StoreSpec, str]:
    """Return store and key of a single object. Raises UsageError for a directory."""
    if place.is_directory:
        if place.kind == "file" and os.path.isfile(place.key.rstrip("/")):
            raise UsageError(
                f"{place.key.rstrip('/')} is a file, not a directory", hint="leave out the slash at its end"
            )
        what = f"{place.root} is a bucket" if not place.key and place.kind != "file" else f"{place} is a directory"
        raise UsageError(
            f"{what}, not an object", hint="name one object in it; cp, mv and rm take everything in it with -r"
        )
    if place.kind == "file":
        folder, _, name = place.key.rpartition("/")
        return store_spec(_file_root(folder or "/"), place, access), name
    return store_spec(place.root, place, access), place.key


def _file_root(path: str) -> str:
    """Return `file://` and the unchanged path: the contract's file roots are not percent-encoded. Raises UsageError."""
    if any(part in (".", "..") for part in path.split("/")):
        path = os.path.realpath(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{path!r}: the path of a directory must be UTF-8", hint="rename it, or bind-mount it"
        ) from None
    return "file://" + (path.rstrip("/") or "/")
