"""Options that say which credentials gateways on rented machines get."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Literal

from tradewind.cli.arguments import add_setting
from tradewind.cli.config import MACHINE
from tradewind.model.records import replace
from tradewind.model.store import Access, Lending

__all__ = ["add_lending_arguments", "with_lending"]

_TITLE = "credentials of gateways on other machines (docs/reference/credentials.md)"
_WORDS = (
    "By default each gets temporary credentials that are limited to its part of this transfer. Gateways on this\n"
    "machine get those of this machine."
)


def add_lending_arguments(parser: ArgumentParser) -> None:
    """Add --share-keys, --src-role, --src-identity and those of the destination."""
    group = parser.add_argument_group(_TITLE, _WORDS)
    group.add_argument(
        "--share-keys",
        action="store_true",
        help="send them this machine's credentials of the stores as they are, without limits",
    )
    for side in ("src", "dst"):
        add_setting(group, f"{side}_role", metavar="ARN")
        add_setting(group, f"{side}_identity", metavar="lent|machine")


def with_lending(access: Access, args: Namespace, side: Literal["src", "dst"]) -> Access:
    """Return the access with what gateways get, from the arguments of `add_lending_arguments`."""
    lending: Lending = "whole" if args.share_keys else "scoped"
    if getattr(args, f"{side}_identity") == MACHINE:
        lending = "machine"
    return replace(access, lending=lending, role=getattr(args, f"{side}_role"))
