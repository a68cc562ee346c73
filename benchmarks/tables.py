"""Results as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Spread

OURS = "tradewind"
GB = 1_000_000_000


@dataclass(frozen=True)
class Entry:
    """The results of one tool in one cell."""

    tool: str
    spread: Spread
    server_cpu_s: Sequence[float] = ()
    """CPU that the store server spent on each run."""
    roles: dict[str, dict[str, float]] = field(default_factory=dict)
    """Per gateway: ``cpu_s_per_gb`` and ``rss_bytes``."""


@dataclass(frozen=True)
class Cell:
    """One task for several tools."""

    title: str
    objects: int
    size_bytes: int
    entries: tuple[Entry, ...]


def markdown(cells: Sequence[Cell], header: str) -> str:
    """Return one table per cell."""
    return "\n\n".join([header, *(_cell(cell) for cell in cells)]) + "\n"


def as_json(cells: Sequence[Cell], about: dict[str, Any]) -> str:
    """Return all measurements, run by run."""
    return json.dumps({"about": about, "cells": [_cell_document(cell) for cell in cells]}, indent=1) + "\n"


def machine() -> dict[str, Any]:
    """Return the facts about this machine that the figures depend on."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    cores = sum(line.startswith("processor") for line in _lines("/proc/cpuinfo"))
    return {"cpu": model, "cores": cores, "kernel": platform.release(), "python": platform.python_version()}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _cell(cell: Cell) -> str:
    lines = [f"### {cell.title}: {_volume(cell)}", "", *_head(cell)]
    lines += [_row(cell, entry) for entry in cell.entries]
    lines += _ratios(cell)
    roles = [(entry.tool, entry.roles) for entry in cell.entries if entry.roles]
    for tool, each in roles:
        shares = ", ".join(
            f"{name} {role['cpu_s_per_gb']:.2f} ({role['rss_bytes'] / 2**20:.0f} MiB)" for name, role in each.items()
        )
        lines += ["", f"{tool}, CPU-s/GB and peak memory by role: {shares}."]
    return "\n".join(lines)


def _ratios(cell: Cell) -> list[str]:
    """Return ratios of tradewind's figures to those of the others.

    With one entry of ours, compare it with the best other one; otherwise compare each of ours with each of the others.
    """
    good = [entry for entry in cell.entries if not entry.spread.failure]
    ours = [entry for entry in good if entry.tool.startswith(OURS)]
    others = [entry for entry in good if not entry.tool.startswith(OURS)]
    if not ours or not others:
        return []
    if len(ours) == 1:
        wall = ours[0].spread.wall_s / min(other.spread.wall_s for other in others)
        cpu = ours[0].spread.cpu_s / min(other.spread.cpu_s for other in others)
        return ["", f"Ours to the best of the others: wall ×{wall:.2f}, client CPU ×{cpu:.2f}."]
    lines = []
    for entry in ours:
        ratios = ", ".join(
            f"{other.tool}: wall ×{entry.spread.wall_s / other.spread.wall_s:.2f}, "
            f"CPU ×{entry.spread.cpu_s / other.spread.cpu_s:.2f}"
            for other in others
        )
        lines += ["", f"{entry.tool}, to {ratios}."]
    return lines


def _head(cell: Cell) -> list[str]:
    rate = "MB/s" if cell.size_bytes else "objects/s"
    extra = " objects/s |" if cell.objects > 1 and cell.size_bytes else ""
    dashes = "---:|" if extra else ""
    return [
        f"| tool | wall s (least–most) | {rate} |{extra} client CPU s | CPU-s/GB | peak MiB | server CPU s |",
        f"|---|---:|---:|{dashes}---:|---:|---:|---:|",
    ]


def _row(cell: Cell, entry: Entry) -> str:
    spread = entry.spread
    if spread.failure:
        return f"| {entry.tool} | {spread.failure} |" + " |" * (6 if cell.objects > 1 and cell.size_bytes else 5)
    least, most = spread.wall_range_s
    per_s = cell.size_bytes / 1e6 / spread.wall_s if cell.size_bytes else cell.objects / spread.wall_s
    columns = [entry.tool, f"{spread.wall_s:.2f} ({least:.2f}–{most:.2f})", f"{per_s:,.0f}"]
    if cell.objects > 1 and cell.size_bytes:
        columns.append(f"{cell.objects / spread.wall_s:,.0f}")
    per_gb = f"{spread.cpu_s / cell.size_bytes * GB:.2f}" if cell.size_bytes else "–"
    server = f"{statistics.median(entry.server_cpu_s):.2f}" if entry.server_cpu_s else "–"
    columns += [f"{spread.cpu_s:.2f}", per_gb, f"{spread.rss_bytes / 2**20:.0f}", server]
    return "| " + " | ".join(columns) + " |"


def _volume(cell: Cell) -> str:
    size = f"{cell.size_bytes / GB:.2f} GB"
    if cell.objects == 1:
        return size
    return f"{cell.objects:,} objects" + (f", {size}" if cell.size_bytes else "")


def _cell_document(cell: Cell) -> dict[str, Any]:
    return {
        "title": cell.title,
        "objects": cell.objects,
        "size_bytes": cell.size_bytes,
        "tools": {
            entry.tool: {
                "runs": [run.__dict__ for run in entry.spread.runs],
                "server_cpu_s": list(entry.server_cpu_s),
                "roles": entry.roles,
            }
            for entry in cell.entries
        },
    }
