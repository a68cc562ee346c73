"""Commands that a machine in Azure runs: to delete itself, and to see whether it is about to be evicted.

A machine that shuts itself down in Azure is only stopped: its hardware stays reserved, and is billed. Therefore it
asks Resource Manager to delete it, with a token of its own identity from the metadata service. What belongs to the
machine is deleted with it. The identity needs the permission `Microsoft.Compute/virtualMachines/delete` and no other.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

__all__ = ["EVICTION_S", "deleting_command", "eviction_command"]

#: Azure announces the eviction of a spot machine at least this long before (Scheduled Events of Azure).
EVICTION_S = 30

METADATA = "http://169.254.169.254/metadata"
TOKEN_VERSION = "2018-02-01"
EVENTS_VERSION = "2020-07-01"
DELETE_VERSION = "2024-07-01"


def deleting_command(endpoint: str, machine_id: str, identity: str) -> str:
    """Return the shell command with which a machine deletes itself."""
    query = urlencode({"api-version": TOKEN_VERSION, "resource": f"{endpoint}/", "msi_res_id": identity})
    target = f"{endpoint}{quote(machine_id)}?api-version={DELETE_VERSION}&forceDeletion=true"
    # The token is passed on standard input, so that no list of processes shows it.
    return (
        f"curl -fsS -m 20 --noproxy '*' -H Metadata:true '{METADATA}/identity/oauth2/token?{query}'"
        """ | sed -n 's/.*"access_token" *: *"\\([^"]*\\)".*/header = "Authorization: Bearer \\1"/p'"""
        f" | curl -fsS -m 60 -K - -X DELETE '{target}'"
    )


def eviction_command() -> str:
    """Return the shell command that succeeds once Azure has announced that it evicts the machine."""
    return (
        f"curl -fsS -m 5 --noproxy '*' -H Metadata:true '{METADATA}/scheduledevents?api-version={EVENTS_VERSION}'"
        """ | grep -Eq '"EventType" *: *"(Preempt|Terminate)"'"""
    )
