"""The links that have limits or bans, or have run jobs, as the scheduler of any replica has recorded them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from tradewind.model.records import dataclass, field
from tradewind.service.database import database_unix_ms
from tradewind.service.link_tables import tuned_links
from tradewind.service.scheduler.jobs import LINK
from tradewind.service.scheduling_tables import bans, resource_limits
from tradewind.service.tables import ACTIVE, jobs

__all__ = ["LinkState", "link_states"]


@dataclass
class LinkState:
    """A link `START>END`: its limit, its bans and maintenance windows, and what runs on it.

    `rate_gbps` is the sum of the rates that active jobs were granted; `tuning` is what the scheduler has decided last.
    """

    name: str
    jobs: int = 0
    rate_gbps: float = 0.0
    limit: Mapping[str, Any] | None = None
    bans: list[Mapping[str, Any]] = field(default_factory=list)
    tuning: Mapping[str, Any] | None = None


class _Links(defaultdict[str, LinkState]):
    def __missing__(self, name: str) -> LinkState:
        found = self[name] = LinkState(name)
        return found


def link_states(connection: Connection) -> list[LinkState]:
    """Return the links that have rules, or have run jobs, by name."""
    found = _Links()
    for row in connection.execute(select(tuned_links)).mappings():
        found[row["link"]].tuning = {name: value for name, value in row.items() if name != "link"}
    limits = select(resource_limits).where(resource_limits.c.kind == LINK)
    for row in connection.execute(limits).mappings():
        found[row["name"]].limit = {name: row[name] for name in ("active", "rate_gbps", "usd_per_day")}
    not_over = bans.c.end_unix_ms.is_(None) | (bans.c.end_unix_ms > database_unix_ms(connection))
    for row in connection.execute(select(bans).where(bans.c.kind == LINK, not_over)).mappings():
        found[row["name"]].bans.append(dict(row))
    active = select(jobs.c.granted).where(jobs.c.state.in_(ACTIVE), jobs.c.granted.is_not(None))
    for text in connection.execute(active).scalars():
        granted = json.loads(text)
        for name in granted["links"]:
            found[name].jobs += 1
            found[name].rate_gbps += granted["rate_gbps"]
    return sorted(found.values(), key=lambda link: link.name)
