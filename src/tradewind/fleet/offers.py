"""The offers and quotas of a provider for the machines that a fleet is about to order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from tradewind.errors import ProviderRefused
from tradewind.fleet.calls import CALL_S, InFlight, each_of
from tradewind.fleet.provider import CallRefused, Offer, Provider
from tradewind.model.plan import PlannedGateway
from tradewind.model.units import format_count

__all__ = ["OfferBook"]


class OfferBook:
    """The offers of the regions in which a fleet has ordered machines. `may_rent` limits them to those agreed to."""

    def __init__(self, provider: Provider, in_flight: InFlight, may_rent: Callable[[Offer], bool]) -> None:
        self.by_region: dict[str, tuple[Offer, ...]] = {}
        self._provider, self._in_flight, self._may_rent = provider, in_flight, may_rent

    def look_up(self, fresh: Sequence[PlannedGateway]) -> None:
        """Get the provider's offers for new machines. Raises ProviderRefused if a region's quota is too small."""
        names: dict[str, list[str]] = {}
        for gateway in fresh:
            names.setdefault(gateway.region, []).append(gateway.name)
        if not names:
            return
        regions = sorted(names)
        each_of(regions, lambda region: self._check_quota(region, names[region]))
        with suppress(CallRefused):
            found = self._in_flight.within(CALL_S, "list offers", lambda: self._provider.offers(regions))
            for region in regions:
                self.by_region[region] = tuple(
                    offer for offer in found if offer.region == region and self._may_rent(offer)
                )

    def _check_quota(self, region: str, names: Sequence[str]) -> None:
        try:
            quota = self._in_flight.within(CALL_S, "read the quota", lambda: self._provider.quota(region))
        except CallRefused:
            return  # The launch call reports a quota that is used up.
        if quota is not None and len(names) > quota.left:
            raise ProviderRefused(
                f"the plan needs {format_count(len(names), 'machine')} in {region}, which has {quota.left} left",
                hint="use fewer machines: --max-vms, or --machines of `fleet up`",
                kind="quota",
                regions=dict.fromkeys(names[quota.left :], region),
            )
