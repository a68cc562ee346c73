"""The flows file of an action of `tradewind accelerate`: `--flows FILE`, or just FILE."""

from __future__ import annotations

from argparse import Namespace

from tradewind.errors import UsageError

__all__ = ["flows_file"]


def flows_file(args: Namespace) -> str | None:
    """Return the flows file that is named; None if none is. Raises UsageError if there are several."""
    if len(args.arguments) > 1:
        raise UsageError(f"accelerate {args.action} takes one flows file", hint="leave out the others")
    if args.arguments and args.flows is not None:
        raise UsageError(f"accelerate {args.action}: two flows files", hint="name the flows file once")
    named: str | None = next(iter(args.arguments), args.flows)
    return named
