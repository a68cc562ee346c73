"""Questions to the configured providers: what they offer, and how many machines the account may still start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tradewind.errors import TradewindError
from tradewind.fleet.calls import CALL_S, InFlight, each_of
from tradewind.fleet.provider import CallRefused, Offer, Provider, Quota
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region
from tradewind.model.sites import CLOUDS, SSH, Sites

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.fleet.site_catalog import Supply

__all__ = ["SiteMember", "Survey", "members_of", "survey"]

T = TypeVar("T")

#: Maximum number of concurrent questions about offers and quotas.
QUESTIONS_AT_ONCE_MAX = 64


@dataclass(frozen=True, slots=True)
class SiteMember:
    """A provider of the configuration, with the regions that belong to it. Its document lacks what launching needs."""

    name: str
    regions: tuple[str, ...]
    document: Mapping[str, Any]


def members_of(sites: Sites, known_regions: Collection[Region]) -> list[SiteMember]:
    """Return the providers of a configuration. A region with hosts of the user belongs to these, not to its cloud.

    A cloud without a list of regions has all `known_regions` of its provider.
    """
    members, taken = [], set[str]()
    if sites.hosts.hosts:
        members.append(SiteMember(SSH, tuple(sites.hosts.regions), {"kind": SSH, **sites.hosts.document()}))
        taken.update(sites.hosts.regions)
    for cloud in sites.clouds:
        regions = cloud.regions or tuple(str(region) for region in known_regions if region.provider == cloud.kind)
        own = tuple(region for region in regions if region not in taken)
        taken.update(own)
        members.append(SiteMember(cloud.kind, own, {"kind": cloud.kind, "programs": [], **cloud.settings}))
    return [member for member in members if member.regions]


@dataclass(frozen=True, slots=True)
class _Failure:
    """A question that was not answered; without a region it was about the whole provider."""

    member: SiteMember
    region: str | None
    error: TradewindError

    @property
    def place(self) -> str:
        """Return the region, or the provider."""
        return self.region or self.member.name

    @property
    def reason(self) -> str:
        """Return why, without the place, which some providers name first."""
        return str(self.error).removeprefix(f"{self.place}: ")

    @property
    def hides_only_the_quota(self) -> bool:
        """True if a permission to read a cloud's quota is missing: its machines can be rented nevertheless.

        Without a login nothing can.
        """
        error = self.error
        refused = isinstance(error, CallRefused) and error.refusal.lacks_permission
        return refused and self.region is not None and self.member.name in CLOUDS

    @property
    def regions(self) -> set[str]:
        """Return all regions that it concerns."""
        return {self.region} if self.region else set(self.member.regions)


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers of all providers. `left` is the number of machines that regions still allow; None if unknown.

    `kinds` has the kind of provider by region. `warnings` are what providers want a user to know before machines are
    rented.
    """

    offers: tuple[Offer, ...]
    left: Mapping[str, int | None]
    failures: tuple[_Failure, ...]
    warnings: tuple[str, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)

    def supplies(self, needed: Collection[str] = ()) -> dict[Region, Supply]:
        """Return what can be rented in each region. One without a machine left is in it only if it is needed."""
        from tradewind.fleet.site_catalog import Supply

        by_region: dict[str, list[Offer]] = {}
        for offer in self.offers:
            by_region.setdefault(offer.region, []).append(offer)
        fatal = (failure for failure in self.failures if not failure.hides_only_the_quota)
        failed = {region for failure in fatal for region in failure.regions}
        return {
            Region.parse(region): Supply(tuple(found), self.left.get(region), self.kinds.get(region, ""))
            for region, found in by_region.items()
            if region not in failed and (self.left.get(region) != 0 or region in needed)
        }

    def notes(self, needed: Collection[str] = ()) -> Iterator[str]:
        """Yield the warnings, and what a plan does without. Raises the error of a provider or region that is needed."""
        yield from self.warnings
        for failure in self.failures:
            if failure.hides_only_the_quota:
                yield f"the quota of {failure.place} cannot be read: {failure.reason}"
            elif failure.regions & set(needed):
                raise failure.error
            else:
                yield f"the plan does without {failure.place}: {failure.reason}"


def survey(control: JobControl, members: Sequence[SiteMember]) -> Survey:
    """Ask all providers for offers and quotas, concurrently, each question under a time limit."""
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.providers import make_provider

    journal = FleetJournal(control.store.state_dir)
    connected = each_of(
        members, lambda member: _attempt(lambda: make_provider(member.document, control.gateway, journal))
    )
    questions, failures, warnings = list[_Question](), list[_Failure](), list[str]()
    for member, provider in zip(members, connected, strict=True):
        if isinstance(provider, TradewindError):
            failures.append(_Failure(member, None, provider))
            continue
        questions += [_Question(member, provider, region) for region in (None, *member.regions)]
        if warning := getattr(provider, "warning", None):
            warnings.append(f"{member.name}: {warning}")
    in_flight = InFlight()
    answers = each_of(questions, lambda question: _attempt(lambda: question.ask(in_flight)), QUESTIONS_AT_ONCE_MAX)
    offers: list[Offer] = []
    left: dict[str, int | None] = {}
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(answer, TradewindError):
            failures.append(_Failure(question.member, question.region, answer))
        elif isinstance(answer, tuple):
            offers += [offer for offer in answer if not offer.spot or question.member.document.get("spot")]
        elif question.region is not None:
            left[question.region] = None if answer is None else answer.left
    kinds = {region: str(member.document["kind"]) for member in members for region in member.regions}
    return Survey(tuple(offers), left, tuple(failures), tuple(warnings), kinds)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to a provider: about its offers, or about the quota of a region."""

    member: SiteMember
    provider: Provider
    region: str | None

    def ask(self, in_flight: InFlight) -> tuple[Offer, ...] | Quota | None:
        """Return the answer. Raises CallRefused, also if there is none in time."""
        region, name = self.region, self.member.name
        if region is None:
            regions = self.member.regions
            return in_flight.within(CALL_S, f"{name}: list offers", lambda: tuple(self.provider.offers(regions)))
        return in_flight.within(CALL_S, f"{name}: read the quota of {region}", lambda: self.provider.quota(region))


def _attempt(call: Callable[[], T]) -> T | TradewindError:
    """Return the answer of a call, or its error."""
    try:
        return call()
    except TradewindError as error:
        return error
