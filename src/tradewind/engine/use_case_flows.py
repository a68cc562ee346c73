"""Flows files of use cases, whose hosts do not exist: examples to plan with, and to change into one's own."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tradewind.engine.flows import problem_document
from tradewind.errors import UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.files import USER_FILE_BYTES_MAX, write_user_file
from tradewind.model.flows import flows_from_document
from tradewind.model.toml import parse_toml
from tradewind.placement.problem import FloatArray, Flow, PlacementProblem

__all__ = ["write_flows"]

CENTS_PER_USD = 100.0
MACHINE_TIME = "1h"
"""In this time, a flow of 2 GB ends even on a slow path."""
RTT_DIGITS = 3
"""Round trips are rounded to microseconds."""
UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "KB"), (1, "B"))
SOURCE_PORT, FIRST_LISTEN_PORT = 443, 20_000
HEADER = """\
# A generated use case. The hosts below .example do not exist: replace them with yours.
# A destination connects to its source through the proxies, at its own address `listen`.
"""


def write_flows(problem: PlacementProblem, catalog: Catalog, path: Path) -> dict[str, Any]:
    """Write the flows file of a generated problem, and return the problem document of that file.

    The document differs from `problem` in machines and prices, which are the catalog's, and has rounded round trips.
    Raises ConfigError, and UsageError for a problem that is too large for a flows file.
    """
    content = _flows_text(problem).encode()
    if len(content) > USER_FILE_BYTES_MAX:
        raise UsageError(
            f"a flows file has at most {USER_FILE_BYTES_MAX} bytes, and these flows need {len(content)}",
            hint="generate fewer flows",
        )
    flows = flows_from_document(parse_toml(content, str(path)), str(path))
    document = problem_document(flows, catalog, flows.regions, str(path))
    write_user_file(path, content)
    return document


def _flows_text(problem: PlacementProblem) -> str:
    names = [region.name for region in problem.regions]
    lines = [
        HEADER,
        f'budget = "{problem.budget_cents / CENTS_PER_USD:.10g}USD"',
        'period = "1d"',
        f'machine_time = "{MACHINE_TIME}"',
        f"max_instances = {max(region.max_instances for region in problem.regions)}",
        *(["slow_start = true"] if problem.slow_start else []),
        f"regions = {json.dumps(names)}",
    ]
    for number, flow in enumerate(problem.flows):
        lines += ["", "[[flow]]", *_flow_lines(flow, names, FIRST_LISTEN_PORT + number)]
    return "\n".join(lines) + "\n"


def _flow_lines(flow: Flow, names: Sequence[str], listen_port: int) -> Iterator[str]:
    yield f'name = "{flow.id}"'
    source = f"{flow.src_host}.example:{SOURCE_PORT}"
    yield from _end_lines("source", source, flow.src_region, flow.src_last_mile_mbps)
    yield f"source_rtt_ms = {_rtt_table(names, flow.rtt_to_region_ms)}"
    yield from _end_lines("destination", f"{flow.dst_host}.example", flow.dst_region, flow.dst_last_mile_mbps)
    yield f"destination_rtt_ms = {_rtt_table(names, flow.rtt_from_region_ms)}"
    yield f"rtt_ms = {round(flow.rtt_direct_ms, RTT_DIGITS)}"
    yield f'size = "{_size_text(round(flow.size_bytes))}"'
    yield f'listen = "127.0.0.1:{listen_port}"'


def _end_lines(side: str, text: str, region: str | None, last_mile_mbps: float) -> Iterator[str]:
    yield f'{side} = "{text}"'
    yield f'{side}_region = "{region}"'
    if math.isfinite(last_mile_mbps):
        yield f'{side}_rate = "{last_mile_mbps:g}Mbit/s"'


def _size_text(size_bytes: int) -> str:
    """Return a size exactly, in the largest unit of which it is a multiple."""
    scale, unit = next((scale, unit) for scale, unit in UNITS if size_bytes % scale == 0)
    return f"{size_bytes // scale}{unit}"


def _rtt_table(names: Sequence[str], rtt_ms: FloatArray) -> str:
    pairs = zip(names, rtt_ms.tolist(), strict=True)
    return "{" + ", ".join(f"{json.dumps(name)} = {round(each_ms, RTT_DIGITS)}" for name, each_ms in pairs) + "}"
