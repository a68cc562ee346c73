"""The links that the scheduler has granted to a job: its plan may have no others."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from tradewind.service.job_routes import JobRoutes

if TYPE_CHECKING:
    from tradewind.service.jobs import JobRow
    from tradewind.service.scheduler.jobs import Resource

__all__ = ["RoutesNotGranted", "granted_links", "require_granted"]


class RoutesNotGranted(Exception):
    """The plan of a job has links that the scheduler has not granted."""

    def __init__(self, routes: JobRoutes) -> None:
        super().__init__()
        self.routes = routes


def require_granted(row: JobRow, routes: JobRoutes | None, closed: Collection[Resource] = ()) -> None:
    """Raise RoutesNotGranted if a job's plan has links that it was not granted.

    They include the links of its last plan, unless that is `closed`: it could alternate between two.
    """
    granted = granted_links(row)
    if routes is not None and not set(routes.links) <= set(granted):
        before = JobRoutes.of_text(row.routes)
        if before is not None and not before.uses(closed):
            routes = routes.with_links(before.links)
        raise RoutesNotGranted(routes)


def granted_links(row: JobRow) -> list[str]:
    """Return the links that the scheduler has granted to a job."""
    links: list[str] = [] if row.granted is None else json.loads(row.granted)["links"]
    return links
