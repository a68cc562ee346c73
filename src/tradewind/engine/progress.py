"""Progress as lines of text. Pure: events in, lines out."""

from __future__ import annotations

from tradewind.model.amounts import format_usd
from tradewind.model.event import Progress
from tradewind.model.units import format_bytes, format_count, format_duration, format_rate

#: So many of the busiest hops are shown.
HOPS_SHOWN = 4
#: Rates of hops are means over about so many of the last reports.
SMOOTHING = 0.3


class ProgressLines:
    """Turns one progress report after the other into lines: two for the job, then the busiest hops."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._elapsed_s = 0.0

    def update(self, progress: Progress) -> list[str]:
        """The lines for this report."""
        self._measure(progress)
        return [*job_lines(progress), *self._hop_lines(progress)]

    def _measure(self, progress: Progress) -> None:
        span_s = progress.elapsed_s - self._elapsed_s
        if span_s <= 0:
            return
        for hop in progress.hops:
            rate = (hop.bytes - self._bytes.get(hop.name, 0)) / span_s
            before = self._rates.get(hop.name, rate)
            self._rates[hop.name] = before + SMOOTHING * (rate - before)
            self._bytes[hop.name] = hop.bytes
        self._elapsed_s = progress.elapsed_s

    def _hop_lines(self, progress: Progress) -> list[str]:
        if len(progress.hops) == 1 and "→" not in progress.hops[0].name:
            return []
        busiest = sorted(progress.hops, key=lambda hop: (-self._rates.get(hop.name, 0.0), hop.name))[:HOPS_SHOWN]
        width = max((len(hop.name) for hop in busiest), default=0)
        return [
            f"  {hop.name:<{width}}  {format_rate(self._rates.get(hop.name, 0.0)) if hop.up else 'down'}"
            for hop in busiest
        ]


def job_lines(progress: Progress) -> list[str]:
    """Two lines: objects and bytes done of total (`≥` while still listing); rate, time left, cost if any, errors."""
    least = "" if progress.listed else "≥"
    first = (
        f"{progress.objects_done:,}/{least}{progress.objects_total:,} objects   "
        f"{format_bytes(progress.bytes_done)}/{least}{format_bytes(progress.bytes_total)}"
    )
    if progress.objects_skipped:
        first += f"   {progress.objects_skipped:,} already there"
    parts = [format_rate(progress.bytes_per_s)]
    if progress.listed and progress.bytes_per_s > 0:
        left_s = (progress.bytes_total - progress.bytes_done) / progress.bytes_per_s
        parts.append(f"{format_duration(max(0.0, left_s))} left")
    else:
        parts.append(format_duration(progress.elapsed_s))
    if progress.cost_usd > 0:
        parts.append(format_usd(progress.cost_usd))
    parts.append(format_count(progress.objects_failed, "error"))
    if progress.retries:
        parts.append(format_count(progress.retries, "retry", "retries"))
    return [first, "   ".join(parts)]


def plain_line(progress: Progress) -> str:
    """One line for a log."""
    return ", ".join(" ".join(line.split()) for line in job_lines(progress))
