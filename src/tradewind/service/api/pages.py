"""The number of entries of a page, which is the same for all lists."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from tradewind.service.limits import PAGE_MAX

__all__ = ["Limit"]

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
