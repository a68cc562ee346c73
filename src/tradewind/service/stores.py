"""Names of stores, and of places in them, as ownership, limits and bans use them.

A store is named by its URL, such as `s3://bucket`. That is the bucket which the server's own settings lead to. A bucket
of a connection at another server has that server in front: `s3://host:port/bucket`. Bucket names have no colon.

Host and port tell servers apart. A connection that leads where the server's own settings lead has the plain URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tradewind.engine.aws_profile import s3_endpoint
from tradewind.model.url import Location, parse_url
from tradewind.service.scheduler.jobs import SITE, Resource

__all__ = ["LOCAL", "SERVERS", "is_elsewhere", "real_place", "store_and_path", "store_of", "stores_of"]

_SLASHES = re.compile("/+")
#: Store of local files.
LOCAL = "local"
#: The site of the servers' own processes: its active jobs are limited by `--jobs` of all of them.
SERVERS = Resource(SITE, "servers")
#: The variable that names the server's own endpoint of a kind of store. That of S3 may also be in a file.
ENDPOINT_VARIABLES = {"gs": "STORAGE_EMULATOR_HOST", "az": "AZURE_STORAGE_ENDPOINT"}
#: Names of this host, which are one server at each port.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: S3 has many host names in each partition.
S3_HOST = "s3.amazonaws.com"
R2_DOMAIN = ".r2.cloudflarestorage.com"
#: Segments of a place before its key, if a server is in front.
PARTS = {"s3": 2, "az": 3}


def store_of(place: Location) -> str:
    """Return the name of a place's store at the server's own settings: its bucket as a URL, or `local`."""
    return LOCAL if place.kind == "file" else place.root


def store_and_path(name: str) -> tuple[str, str]:
    """Return the store of a place that `real_place` named, and the path in it without slashes at its ends."""
    if not is_elsewhere(name):
        place = parse_url(name, cwd="/")
        return store_of(place), place.key.strip("/")
    kind, _, rest = name.partition("://")
    parts = rest.split("/", PARTS[kind])
    return f"{kind}://{'/'.join(parts[: PARTS[kind]])}", "/".join(parts[PARTS[kind] :]).strip("/")


def is_elsewhere(name: str) -> bool:
    """Return whether a store or place is at a server other than that of the server's own settings."""
    return not name.startswith("/") and ":" in name.partition("://")[2].partition("/")[0]


def stores_of(request: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the stores that a job reads from and writes to."""
    named = (request.get("connections") or {}).get("stores")
    source, *ends = named or [store_and_path(text)[0] for text in (request["source"], *request["destination"])]
    return source, tuple(dict.fromkeys(ends))


def real_place(text: str, endpoint: str | None, *, is_connected: bool) -> str:
    """Return the name of a place, so that two names of one place are equal, and those of two servers differ.

    `endpoint` is that of the place's connection, None for the public cloud; without a connection
    (`is_connected` False), the server's own settings apply.
    """
    place = parse_url(text, cwd="/")
    if place.kind in ("file", "guest"):
        return text
    own = _own_server(place)
    server = _server(endpoint or _public_endpoint(place)) if is_connected else own
    bucket = place.root.rpartition("/")[2]
    # Servers that keep objects as files take several slashes as one. Elsewhere two jobs only wait without need.
    path = _SLASHES.sub("/", f"/{place.key}") if place.key else ""
    if place.kind != "az":
        # The others are one kind of store at different hosts.
        roots = [f"s3://{bucket}", f"gs://{bucket}"]
        if server.endswith(f"{R2_DOMAIN}:443"):
            roots.append(f"r2://{server.partition('.')[0]}/{bucket}")
        for root in roots:
            if _own_server(parse_url(root)) == server:
                return root + path
        return f"s3://{server}/{bucket}{path}"
    return place.root + path if own == server else f"az://{server}/{place.root.partition('://')[2]}{path}"


def _own_server(place: Location) -> str:
    """Return the server that the server's own settings lead to."""
    endpoint = None
    if place.kind == "s3":
        configured = s3_endpoint(None)
        endpoint = None if configured is None else configured.url
    elif place.kind in ENDPOINT_VARIABLES:
        endpoint = os.environ.get(ENDPOINT_VARIABLES[place.kind])
    return _server(endpoint or _public_endpoint(place))


def _public_endpoint(place: Location) -> str:
    account = place.root.split("/")[2]
    return {
        "s3": f"https://{S3_HOST}",
        "gs": "https://storage.googleapis.com",
        "az": f"https://{account}.blob.core.windows.net",
        "r2": f"https://{account}{R2_DOMAIN}",
    }[place.kind]


def _server(endpoint: str) -> str:
    """Return host and port of an endpoint, in one form for each server."""
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    for domain in ("amazonaws.com", "amazonaws.com.cn"):
        if host.endswith(f".{domain}"):
            return f"s3.{domain}:443"
    if host in LOOPBACK:
        host = LOOPBACK[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
