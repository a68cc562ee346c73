"""Measure the links of a sky: the campaign with its cost in advance, then its probes, which yield one result after
another.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from tradewind.engine.skies import sky_of
from tradewind.errors import CeilingReached, UsageError
from tradewind.measure.campaign import MeasuredLink, Quote
from tradewind.measure.emulated import measure_sky, sky_campaign, write_measured
from tradewind.measure.probe import ProbeSettings
from tradewind.model.sites import CONFIRM_ABOVE_USD
from tradewind.model.units import format_count

__all__ = ["Measurement", "probe_settings"]

#: Connections of one hop for which the catalog has rates.
CONNECTIONS_MAX = 64
#: Longest time for each part of a probe [s].
PROBE_S_MAX = 60.0
#: Shortest time that counts [s].
PROBE_S_MIN = 0.001


class Measurement:
    """Probes between gateways on the machines of a sky. Only `run` starts machines. See `Engine.measure`."""

    def __init__(
        self,
        sky_file: str,
        links: Sequence[str],
        settings: ProbeSettings,
        *,
        max_cost_usd: float | None,
        state_dir: str,
        gateway: str,
    ) -> None:
        self._sky_file, self._settings, self._max_cost_usd = sky_file, settings, max_cost_usd
        self._state_dir, self._gateway = state_dir, gateway
        self._campaign = sky_campaign(sky_file, links, settings, state_dir=state_dir)
        #: The links measured so far.
        self.measured: list[MeasuredLink] = []

    @property
    def quote(self) -> Quote:
        """Rounds, time and cost in advance."""
        return self._campaign.quote

    @property
    def needs_confirmation(self) -> bool:
        """Return whether it may cost more than CONFIRM_ABOVE_USD, without a budget."""
        return self._max_cost_usd is None and self.quote.usd_most > CONFIRM_ABOVE_USD

    @property
    def regions(self) -> tuple[str, ...]:
        """All probed regions; each has one machine."""
        return tuple(map(str, self._campaign.regions))

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Items without a known price; they count as free."""
        return tuple(self._campaign.unpriced)

    @property
    def egress_usd(self) -> float:
        """Cost of the bytes that the probes have sent so far [USD]."""
        return sum(link.usd for link in self.measured)

    @property
    def machines_usd(self) -> float:
        """Cost of the machines, once they have ended [USD]."""
        return self._campaign.machines_usd

    def run(self) -> Generator[MeasuredLink, None, None]:
        """Start the sky if it is not running, and the machines; yield each link as soon as it is known.

        Raises CeilingReached before a round that could exceed the budget, UsageError for a budget where a price is not
        known; GatewayError, SkyError.
        """
        with sky_of(self._sky_file, self._state_dir) as sky:
            for link in measure_sky(
                self._campaign,
                sky,
                state_dir=self._state_dir,
                gateway=self._gateway,
                max_cost_usd=self._max_cost_usd,
            ):
                self.measured.append(link)
                yield link
        wanted = len(self._campaign.pairs)
        if len(self.measured) < wanted:
            raise CeilingReached(
                f"{len(self.measured)} of {format_count(wanted, 'link')} measured; "
                "the next round could exceed --max-cost",
                hint="raise it, or measure fewer links",
            )

    def write(self, path: str) -> None:
        """Write the results as a table for `tradewind catalog import`, dated today. Raises ConfigError."""
        write_measured(path, self.measured, self._settings, self._sky_file)


def probe_settings(connections: int, warm_up_s: float, measure_s: float) -> ProbeSettings:
    """Return the settings of a probe. Raises UsageError for a value out of range."""
    if not 1 <= connections <= CONNECTIONS_MAX:
        raise UsageError(f"a probe has 1 to {CONNECTIONS_MAX} connections, not {connections}")
    if not (0 <= warm_up_s <= PROBE_S_MAX and PROBE_S_MIN <= measure_s <= PROBE_S_MAX):
        raise UsageError(f"a probe warms up and measures for at most {PROBE_S_MAX:g} s each")
    return ProbeSettings(connections, warm_up_s, measure_s)
