"""`/v1/sites`: the names under which tenants send and receive data."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from tradewind.service.auth import Sender, needs
from tradewind.service.sites import tenant_place

__all__ = ["router"]

router = APIRouter(prefix="/v1/sites", tags=["sites"])
READ = needs("jobs:read")


class SiteView(BaseModel):
    """A site, and the place of the tenant's data there that jobs may use: a path, a URL or `connection:NAME/PATH`."""

    name: str
    place: str


class SitePage(BaseModel):
    """All sites, by name."""

    sites: list[SiteView]


@router.get("", response_model=SitePage)
def sites(request: Request, sender: Sender = READ) -> dict[str, Any]:
    """List the sites with the places of the tenant's own data."""
    known = request.app.state.service.settings.sites
    return {"sites": [{"name": name, "place": tenant_place(known, name, sender.tenant)} for name in sorted(known)]}
