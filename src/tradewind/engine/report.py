"""Reports of a job: its plan, its progress, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tradewind.model.document import to_document
from tradewind.model.event import EARLIER_RUN, Progress, StageLimits, Summary, is_copied_by_store
from tradewind.model.ledger import Ledger, LedgerLine
from tradewind.model.plan import Plan, local_plan
from tradewind.model.records import dataclass
from tradewind.model.units import format_bytes, format_count, format_duration, format_gbps, format_rate, format_usd
from tradewind.model.url import as_typed

if TYPE_CHECKING:
    from tradewind.model.overlay import UnicastOverlay

#: Meanings of proof names (docs/concepts/integrity.md). A proof in a summary is `SOURCE → DESTINATION`.
PROOF_WORDS = {
    "crc64nvme": "CRC64NVME",
    "crc32c": "CRC32C",
    "md5": "MD5",
    "parts-md5": "the MD5 of each part",
    "read-back": "reading back",
    "length": "length",
}


#: Columns of the ledger's table that hold words; the others hold numbers.
TEXT_COLUMNS = 3


def proof_words(name: str) -> str:
    """Return `by CRC64NVME of both sides`, `by length at the source, MD5 at the destination`."""
    if name == EARLIER_RUN:
        return "in an earlier run"
    if is_copied_by_store(name):
        return f"copied by the store itself ({name})"
    source, _, destination = name.partition(" → ")
    one, other = (PROOF_WORDS.get(part, part) for part in (source, destination))
    return f"by {one} on both sides" if one == other else f"by {one} at the source, {other} at the destination"


def summary_lines(
    summary: Summary, plan: Plan, ceiling_usd_per_gb: float | None = None, cost: JobCost | None = None
) -> list[str]:
    """Return objects, bytes, time, rate, retries, and proofs; with prices, also predicted and metered cost."""
    progress = summary.progress
    retries = format_count(progress.retries, "retry", "retries")
    lines = [
        f"moved   {format_count(progress.objects_done, 'object')}, {format_bytes(progress.bytes_done)} in "
        f"{format_duration(progress.elapsed_s)} ({format_rate(progress.bytes_per_s)}), {retries}"
    ]
    rest = [
        f"{count:,} {what}"
        for count, what in (
            (progress.objects_skipped, "already there"),
            (summary.objects_deleted, "deleted"),
            (summary.objects_not_deleted, "not deleted"),
            (progress.objects_failed, "failed"),
            (summary.tags_dropped, "without the tags of their sources"),
            (summary.attributes_ignored, "with unreadable mode, owner or time in the metadata"),
        )
        if count
    ]
    if progress.bytes_earlier:
        rest.insert(0, f"{format_bytes(progress.bytes_earlier)} of it in earlier runs")

    if progress.duplicate_bytes:
        rest.append(f"{format_bytes(progress.duplicate_bytes)} sent twice because a route stood still or was slow")
    if rest:
        lines.append(f"also    {', '.join(rest)}")
    lines += saved_lines(progress)
    proofs = sorted(summary.proofs.items(), key=lambda item: (-item[1], item[0]))
    if proofs:
        lines.append("proven  " + ", ".join(f"{count:,} {proof_words(name)}" for name, count in proofs))
    if plan.overlay is not None:
        promised, carried = plan.overlay.throughput_gbps, progress.bytes_per_s * 8e-9
        lines.append(f"rate    {format_gbps(promised)} predicted, {format_gbps(carried)} actual")
    lines += cost_lines(cost or job_cost(Ledger(), plan, progress, ceiling_usd_per_gb, 0.0))
    if len(summary.destinations) > 1:
        lines += [
            f"        {as_typed(end.url)}: {format_count(end.objects, 'object')}, "
            f"{format_bytes(end.bytes)}, {end.failed:,} failed"
            for end in summary.destinations
        ]
    return lines


def saved_lines(progress: Progress) -> list[str]:
    """Return one line with the bytes that deduplication and compression saved; none if they saved nothing.

    The bytes are sums over the routes. Each ratio is the bytes left by the bytes before; compression comes second.
    """
    carried_bytes = sum(route.bytes for route in progress.hops)
    deduplicated_bytes = sum(route.deduplicated_bytes for route in progress.hops)
    compressed_bytes = sum(route.saved_bytes for route in progress.hops) - deduplicated_bytes
    before, words = carried_bytes, []
    for saved_bytes, means in ((deduplicated_bytes, "deduplication"), (compressed_bytes, "compression")):
        if saved_bytes > 0:
            left_bytes = before - saved_bytes
            words.append(f"{format_bytes(saved_bytes)} by {means} (ratio {left_bytes / before:.2f})")
            before = left_bytes
    return [f"saved   {', '.join(words)}, of {format_bytes(carried_bytes)}"] if words else []


def plan_lines(
    verb: str,
    source: str,
    destinations: tuple[str, ...],
    plan: Plan,
    ceiling_usd_per_gb: float | None = None,
    copied_by_store: int = 0,
) -> list[str]:
    """Return two lines that are shown before the start: the job, and its path with the price, if there is one.

    `copied_by_store` is the number of destinations whose store is expected to copy by itself. The lead counts as a
    gateway only if bytes pass through it. A single gateway on another machine only lists the source before there is a
    plan, so there is no path to show: only the first line is returned.
    """
    words = {"cp": "copy", "mv": "move", "sync": "sync"}
    first = f"{words.get(verb, verb):<7} {source} → {', '.join(destinations)}"
    if not plan.stations():
        if plan.gateways[0].region != local_plan().gateways[0].region:
            return [first]
        return [first, f"via     {_path_without_stations(len(destinations), copied_by_store)}"]
    passed = {name for route in plan.routes for name in route.nodes}
    relays = {name for route in plan.routes for name in route.nodes[1:-1]}
    path = (
        f"{format_count(len(passed), 'gateway')} ({len(relays)} relaying) on {format_count(len(plan.routes), 'route')}"
    )
    if plan.overlay is not None:
        return [first, f"plan    {plan.overlay}"]
    price = _usd_per_gb(plan, ceiling_usd_per_gb)
    if plan.mean_usd_per_gb == 0:
        return [first, f"via     {path}"]
    if price < plan.mean_usd_per_gb:
        return [first, f"via     {path}; at most {format_usd(price)} per GB, by --max-cost"]
    return [first, f"via     {path}; {format_usd(price)} per GB"]


def _path_without_stations(destinations: int, copied_by_store: int) -> str:
    """Return the path of the bytes if there are no gateways on other machines, in words."""
    if not copied_by_store:
        return "this machine, no gateways in between"
    if copied_by_store == destinations:
        return "the store, which copies by itself; this machine only where the store refuses"
    return f"this machine; to {copied_by_store} of {destinations} destinations the store copies by itself"


@dataclass(frozen=True, slots=True)
class JobCost:
    """Predicted cost of a job, and its metered cost so far at list prices [USD]."""

    predicted_usd: float
    metered_usd: float
    lines: tuple[LedgerLine, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the document for `--json`."""
        lines = [{**to_document(line), "usd": line.usd} for line in self.lines]
        return {"predicted_usd": self.predicted_usd, "metered_usd": self.metered_usd, "lines": lines}


def job_cost(ledger: Ledger, plan: Plan, progress: Progress, ceiling_usd_per_gb: float | None, now_s: float) -> JobCost:
    """Return the cost of a job; `now_s` is Unix time.

    The predicted cost is that of the first plan. If that was made while the source was being listed, it is that of the
    same plan for the bytes that are listed by now. For a handwritten plan it is the egress of the bytes that were
    moved.
    """
    predicted = ledger.predicted_usd
    if predicted is None and plan.overlay is not None:
        predicted = usd_of_more(plan.overlay, progress.bytes_total / 1e9)
    if predicted is None:
        predicted = _usd_per_gb(plan, ceiling_usd_per_gb) * progress.bytes_done / 1e9
    lines = ledger.lines(now_s)
    return JobCost(predicted, sum(line.usd for line in lines) if lines else progress.cost_usd, lines)


def usd_of_more(overlay: UnicastOverlay, volume_gb: float) -> float:
    """Return the cost of a plan [USD] if it moves more than its volume. Its machines start only once."""
    cost, factor = overlay.cost, max(1.0, volume_gb / overlay.volume_gb)
    time_s = overlay.boot_s + overlay.transfer_s * factor
    return cost.machines_usd * time_s / overlay.time_s + (cost.egress_usd + cost.requests_usd) * factor


#: What the limit of each stage counts, and the stage as the slowest one.
_STAGES = {"read": ("reads", "reading"), "network": ("connections", "the network"), "write": ("writes", "writing")}


def limits_lines(limits: StageLimits | None) -> list[str]:
    """Return the line with the limits on concurrent requests; no line if they are unknown."""
    stages = {stage: getattr(limits, stage, None) for stage in _STAGES}
    parts = [f"{limit.now} of {limit.max} {_STAGES[stage][0]}" for stage, limit in stages.items() if limit is not None]
    if limits is None or not parts:
        return []
    return [f"limits  {', '.join(parts)} at once{_slowest(limits)}"]


def _slowest(limits: StageLimits) -> str:
    """Return the end of the line: what limits the rate, and the relay that says so if nothing else shows it."""
    if limits.slowest not in _STAGES:
        return ""
    hop, what = limits.slowest_hop, _STAGES[limits.slowest][1]
    if hop is None:
        return f"; {what} limits the rate now"
    by_whom = f", relay {hop.gateway} says" if hop.by_relay else ""
    return f"; {what} from {hop.gateway} to {hop.peer} limits the rate now{by_whom}"


def cost_lines(cost: JobCost) -> list[str]:
    """Return the line with the cost; no line for a job without cost."""
    if cost.predicted_usd == 0 and cost.metered_usd == 0:
        return []
    return [f"cost    {format_usd(cost.predicted_usd)} predicted, {format_usd(cost.metered_usd)} metered"]


def ledger_table(cost: JobCost) -> list[str]:
    """Return a heading and the lines of the ledger, in columns; one line if nothing was charged."""
    if not cost.lines:
        return ["nothing that this job used has a price"]
    rows = [("run", "kind", "what", "quantity", "unit price", "cost")]
    for line in cost.lines:
        count = f"{line.quantity:,.0f}" if line.quantity >= 1000 else f"{line.quantity:.4g}"
        quantity = format_usd(line.quantity) if line.unit == "USD" else f"{count} {line.unit}"
        price = "" if line.unit == "USD" else f"{format_usd(line.unit_usd)}/{line.unit}"
        rows.append((str(line.run), line.kind, line.what, quantity, price, format_usd(line.usd)))
    return in_columns(rows, TEXT_COLUMNS)


def in_columns(rows: Sequence[Sequence[str]], text_columns: int) -> list[str]:
    """Return rows as lines with columns of equal width. Those after `text_columns` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) if at < text_columns else cell.rjust(width) for at, (cell, width) in enumerate(row))
        for row in (list(zip(row, widths, strict=True)) for row in rows)
    ]


def _usd_per_gb(plan: Plan, ceiling_usd_per_gb: float | None) -> float:
    """Return the average cost of a GB: by the routes' shares, or less if a ceiling excludes expensive routes."""
    mean = plan.mean_usd_per_gb
    return mean if ceiling_usd_per_gb is None else min(mean, ceiling_usd_per_gb)


#: Number of the busiest hops shown.
HOPS_SHOWN = 4
#: Number of reports over which rates of hops are averaged.
SMOOTHING = 0.3


class ProgressLines:
    """Turns progress reports into lines: two for the job, then the busiest hops."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._elapsed_s = 0.0

    def update(self, progress: Progress) -> list[str]:
        """Return the lines for this report."""
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
    """Return two lines: objects and bytes done of total (`≥` while listing); rate, time left, cost if any, errors."""
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
    """Return one line for a log."""
    return ", ".join(" ".join(line.split()) for line in job_lines(progress))
