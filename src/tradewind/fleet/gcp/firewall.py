"""The two firewall rules of a fleet: who may reach the control ports and the data ports of its machines.

Rules have no labels. Their names begin with PREFIX, and their descriptions have the fleet's tags as JSON.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any

from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.calls import each_of
from tradewind.fleet.gcp.api import ComputeApi, unix_s
from tradewind.fleet.provider import FLEET_TAG, OWNER_TAG, CallRefused, Leftover
from tradewind.model.gcp import GcpSettings

__all__ = ["PREFIX", "FleetRules", "delete_rule", "network_tag", "rule_leftovers", "stale_rules"]

PREFIX = "tradewind-"
#: A rule that has just been changed cannot be changed again yet. Attempts, and the first wait between them, which
#: doubles.
TRIES_MAX = 5
WAIT_S = 0.5
#: Timeout of the deletion of a rule. One that takes longer is reported as a leftover.
DELETE_S = 20.0
#: Rules of a fleet without machines are clutter after this time.
STALE_S = 3600.0


def network_tag(fleet_id: str) -> str:
    """Return the network tag of a fleet's machines, for which its rules are."""
    return PREFIX + sha256(fleet_id.encode()).hexdigest()[:16]


class FleetRules:
    """The rules of one fleet. Its methods raise CallRefused."""

    def __init__(self, api: ComputeApi, settings: GcpSettings, network: str, fleet_id: str, owner: str) -> None:
        self._api, self._settings, self._network = api, settings, network
        self._tag = network_tag(fleet_id)
        self._description = json.dumps({FLEET_TAG: fleet_id, OWNER_TAG: owner})

    def make(self) -> None:
        """Make the rules that do not exist. Nothing waits for them: a machine needs longer to boot."""
        if self._settings.control in ("public", "private") and self._settings.home_cidr is not None:
            self._insert("control", {"sourceRanges": [self._settings.home_cidr]}, CONTROL_PORT)
        self._insert("data", self._sources(()), DATA_PORT)

    def open_data(self, addresses: Collection[str]) -> None:
        """Let the data ports be reached from these addresses, from machines of the fleet in the same network, and
        from home.
        """
        name = f"{self._tag}-data"
        for tries in range(TRIES_MAX):
            try:
                self._api.patch(f"global/firewalls/{name}", self._sources(addresses))
                return
            except CallRefused as error:
                if "not found" in str(error):
                    self._insert("data", self._sources(addresses), DATA_PORT)
                    return
                if error.refusal.kind not in ("throttled", "transient") or tries == TRIES_MAX - 1:
                    raise
                time.sleep(error.refusal.pause_s(WAIT_S * 2**tries))

    def delete(self) -> None:
        """Delete the rules. One that does not exist is not an error. Both are tried, even if one fails."""
        each_of(("control", "data"), lambda purpose: delete_rule(self._api, f"{self._tag}-{purpose}"))

    def _sources(self, addresses: Collection[str]) -> dict[str, Any]:
        home = [] if self._settings.home_cidr is None else [self._settings.home_cidr]
        ranges = [*home, *self._settings.peer_cidrs, *(f"{address}/32" for address in sorted(addresses))]
        return {"sourceRanges": list(dict.fromkeys(ranges)), "sourceTags": [self._tag]}

    def _insert(self, purpose: str, sources: Mapping[str, Any], port: int) -> None:
        body = {
            "name": f"{self._tag}-{purpose}",
            "description": self._description,
            "network": self._network,
            "direction": "INGRESS",
            "allowed": [{"IPProtocol": "tcp", "ports": [str(port)]}],
            "targetTags": [self._tag],
            **sources,
        }
        try:
            self._api.insert("global/firewalls", body, uuid.uuid4())
        except CallRefused as error:
            if "already exists" not in str(error):
                raise


def delete_rule(api: ComputeApi, name: str) -> None:
    """Delete a rule, and return when it is gone. Raises CallRefused."""
    for tries in range(TRIES_MAX):
        try:
            operation = api.delete(f"global/firewalls/{name}")
            if operation is not None:
                api.wait(operation, DELETE_S)
            return
        except CallRefused as error:
            if error.refusal.kind not in ("throttled", "transient") or tries == TRIES_MAX - 1:
                raise
            time.sleep(error.refusal.pause_s(WAIT_S * 2**tries))


def rule_leftovers(api: ComputeApi) -> list[Leftover]:
    """Return all rules of ours."""
    return [leftover for leftover, _ in _ours(api)]


def stale_rules(api: ComputeApi, living: Collection[str]) -> list[str]:
    """Return the ids of rules that were made STALE_S ago for fleets that are not among the living ones.

    The machines of a fleet that was begun just now may not be listed yet.
    """
    now_s = time.time()
    return [
        leftover.id
        for leftover, made_s in _ours(api)
        if leftover.tags[FLEET_TAG] not in living and made_s is not None and now_s - made_s > STALE_S
    ]


def _ours(api: ComputeApi) -> Iterator[tuple[Leftover, float | None]]:
    """Yield all rules of ours, with the time at which each was made."""
    for rule in api.listed("global/firewalls", f'name eq "{PREFIX}.*"'):
        name = str(rule.get("name"))
        try:
            tags = json.loads(str(rule.get("description", "")))
        except (ValueError, RecursionError):
            continue  # A rule of somebody else.
        is_named = isinstance(tags, dict) and all(isinstance(tags.get(tag, ""), str) for tag in (FLEET_TAG, OWNER_TAG))
        if name.startswith(PREFIX) and is_named and FLEET_TAG in tags:
            leftover = Leftover(f"global/firewalls/{name}", "firewall rule", "gcp:global", tags)
            yield leftover, unix_s(rule.get("creationTimestamp"))
