"""The mark of a machine: a file in its folder, by which any process of the user finds it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tradewind.fleet.provider import NAME_TAG, LaunchOrder, Lease, Machine
from tradewind.model.hosts import SshHost

__all__ = ["folder_id", "machine_of", "mark_of", "parsed_object"]

#: Name of a machine's folder. It is a name here, too: that of a local socket.
_FOLDER = re.compile("[0-9a-f]{24}")
#: Time after which a machine that has not written its process id counts as ended.
STARTING_S = 30.0


def mark_of(order: LaunchOrder, place: int) -> dict[str, Any]:
    """Return the mark of a machine that is about to start at a place of its host."""
    return {
        "region": order.region,
        "type": order.type,
        "place": place,
        "launched_unix_s": time.time(),
        "lease_s": order.lease.seconds,
        "owner": order.lease.owner,
        "tags": order.tags,
    }


def machine_of(host: SshHost, line: Sequence[str]) -> tuple[Machine, int] | None:
    """Return the machine of a line of the host, and its place there; None for a line of another kind or version."""
    if line[0] != "machine" or len(line) < 4 or not _FOLDER.fullmatch(line[1]):
        return None
    mark = parsed_object(line[3])
    try:
        assert mark is not None
        launched_s, tags = float(mark["launched_unix_s"]), dict(mark["tags"])
        texts = [*tags, *tags.values(), mark["region"], mark["type"] or "", mark["owner"]]
        assert all(isinstance(text, str) for text in texts)
        never_began = line[2] == "starting" and time.time() - launched_s > STARTING_S
        machine = Machine(
            f"{host.name}/{line[1]}",
            tags[NAME_TAG],
            mark["region"],
            mark["type"],
            host.name,
            launched_unix_s=launched_s,
            running_unix_s=launched_s,
            ended=line[2].startswith("ended") or never_began,
            addresses={"network": host.address},
            inbound=host.inbound,
            lease=Lease(int(mark["lease_s"]), mark["owner"]),
            tags=tags,
        )
        return machine, int(mark["place"])
    except (AssertionError, KeyError, OverflowError, TypeError, ValueError):
        return None


def parsed_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None for any other text."""
    with suppress(RecursionError, ValueError):
        found = json.loads(text)
        return found if isinstance(found, dict) else None
    return None


def folder_id(machine_id: str) -> str:
    """Return the name of a machine's folder on its host."""
    return machine_id.rpartition("/")[2]
