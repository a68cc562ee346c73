"""A warning if tenants share places: the jobs of each can then read and overwrite the data of the others."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, func, select

from tradewind.service.settings import TENANT, ServiceSettings
from tradewind.service.tables import tenants

__all__ = ["warn_of_shared_places"]

_LOG = logging.getLogger("tradewind.service")


def warn_of_shared_places(connection: Connection, settings: ServiceSettings) -> None:
    """Log which places the tenants share, if there are several tenants."""
    count = connection.execute(select(func.count()).select_from(tenants)).scalar_one()
    if count > 1 and settings.shared_places:
        _LOG.warning(
            "jobs of all %s tenants may use %s; with %s in a place, each tenant has a part of its own",
            f"{count:,}",
            ", ".join(settings.shared_places),
            TENANT,
        )
