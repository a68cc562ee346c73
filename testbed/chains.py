"""Topology documents for ``tradewind cp --topology``, optionally with proxies in their hops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def chain(*relays: str, connections: int = 8, plain: bool = False) -> Document:
    """Return one route: source, the relays, sink."""
    nodes = ["source", *relays, "sink"]
    return _document([nodes], connections, plain)


def twin(connections: int = 4) -> Document:
    """Return two routes that share no gateway: each role exists twice, so that any one gateway may die."""
    return _document([["source-a", "relay-a", "sink-a"], ["source-b", "relay-b", "sink-b"]], connections, False)


def diamond(connections: int = 4, plain: bool = False) -> Document:
    """Return two routes from one source to one sink, each over its own relay."""
    return _document([["source", "relay-a", "sink"], ["source", "relay-b", "sink"]], connections, plain)


def with_limits(document: Document, **limits: int) -> Document:
    """Return the document with named limits set on every gateway."""
    for gateway in document["gateways"].values():
        gateway["limits"] = limits
    return document


def with_detour(document: Document, start: str, end: str, listen: str, dial: str) -> Document:
    """Return the document with ``end`` listening at ``listen`` while ``start`` dials ``dial``."""
    document["gateways"][end]["listen"] = listen
    document.setdefault("hops", []).append({"from": start, "to": end, "address": dial})
    return document


def write(document: Document, path: Path) -> Path:
    """Write the file for ``--topology``."""
    path.write_text(json.dumps(document))
    return path


def _document(routes: list[list[str]], connections: int, plain: bool) -> Document:
    gateways = {name: {"role": name.partition("-")[0]} for nodes in routes for name in nodes}
    share = 1 / len(routes)
    document: Document = {
        "connections": connections,
        "gateways": gateways,
        "routes": [{"nodes": nodes, "share": share} for nodes in routes],
    }
    if plain:
        document["plain"] = True
    return document
