"""The console of an instance."""

from __future__ import annotations

from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.provider import CallRefused, Machine

__all__ = ["console_of"]

#: Code of EC2 for the latest console of an instance that has none but the kept one.
NO_LATEST = "UnsupportedOperation"


def console_of(api: AwsApi, machine: Machine, bytes_max: int) -> str:
    """Return the end of a machine's console. Raises CallRefused."""
    region, _, name = machine.id.partition("/")
    try:
        answer = api.ec2(region, "get_console_output", InstanceId=name, Latest=True)
    except CallRefused as error:
        if not error.refusal.reason.startswith(NO_LATEST):
            raise
        answer = {}
    if not answer.get("Output"):
        # Only Nitro instances show the latest. Others, and terminated ones, show what EC2 has kept.
        answer = api.ec2(region, "get_console_output", InstanceId=name)
    return str(answer.get("Output", ""))[-bytes_max:]
