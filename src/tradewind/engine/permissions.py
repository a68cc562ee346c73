"""Asks the clouds and clusters of the configuration which permissions of the smallest policies are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tradewind.errors import TradewindError
from tradewind.fleet.calls import CALL_S, InFlight, each_of
from tradewind.fleet.provider import Checking, PermissionAnswer
from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.engine.survey import SiteMember

__all__ = ["Answers", "asked_permissions", "counted", "grouped"]

Answers = Sequence[PermissionAnswer] | TradewindError
#: Places that one line names.
PLACES_MAX = 3


def asked_permissions(control: JobControl, members: Sequence[SiteMember]) -> dict[str, Answers]:
    """Ask all providers that can tell, concurrently, and return their answers, or why there are none.

    Nothing is made or changed.
    """
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.providers import make_provider

    journal, in_flight = FleetJournal(control.store.state_dir), InFlight()

    def ask(member: SiteMember) -> Answers:
        try:
            provider = make_provider(member.document, control.gateway, journal)
            if not isinstance(provider, Checking):
                return ()
            return in_flight.within(CALL_S, "ask for permissions", provider.permissions)
        except TradewindError as error:
            return error

    return {member.name: answers for member, answers in zip(members, each_of(members, ask), strict=True)}


def grouped(
    answers: Sequence[PermissionAnswer], of: Callable[[PermissionAnswer], str]
) -> Iterator[tuple[str, list[PermissionAnswer]]]:
    """Yield groups of answers for which a function returns the same, with that."""
    found: dict[str, list[PermissionAnswer]] = {}
    for answer in answers:
        found.setdefault(of(answer), []).append(answer)
    yield from found.items()


def counted(answers: Sequence[PermissionAnswer]) -> str:
    """Return the places of answers in words."""
    places = list(dict.fromkeys(answer.place for answer in answers))
    shown = ", ".join(places[:PLACES_MAX])
    more = len(places) - PLACES_MAX
    return shown if more <= 0 else f"{shown} and {format_count(more, 'other')}"
