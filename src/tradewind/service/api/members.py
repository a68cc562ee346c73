"""`/v1/members`: people of the tenant whom the OIDC issuer identifies."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel
from sqlalchemy import Connection, select, update

from tradewind.service.api.pages import Limit
from tradewind.service.api.tenants import has_rights_of
from tradewind.service.auth import MEMBER_PREFIX, ROLES, Sender, known_tokens, needs
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import PAGE_DEFAULT
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import members, tokens

__all__ = ["router"]

router = APIRouter(prefix="/v1/members", tags=["tenants"])
MEMBERS = needs("members")
MemberId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class MemberView(BaseModel):
    """A member. `role` is that of the last token."""

    id: str
    issuer: str
    subject: str
    role: str
    first_unix_ms: int
    last_unix_ms: int
    blocked_unix_ms: int | None


class MemberPage(BaseModel):
    """Members by id. `next` is the cursor of the next page; null on the last one."""

    members: list[MemberView]
    next: str | None


@router.get("", response_model=MemberPage)
def list_members(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$")] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = MEMBERS,
) -> dict[str, Any]:
    """List the members of the tenant. A member appears with its first request."""
    query = select(members).where(members.c.tenant == sender.tenant, members.c.id > (cursor or ""))
    with request.app.state.service.database.read() as connection:
        rows = [dict(row) for row in connection.execute(query.order_by(members.c.id).limit(limit + 1)).mappings()]
    return {"members": rows[:limit], "next": rows[limit - 1]["id"] if len(rows) > limit else None}


@router.post("/{member_id}/block", response_model=MemberView)
def block(member_id: MemberId, request: Request, sender: Sender = MEMBERS) -> dict[str, Any]:
    """Refuse all tokens of a member at once, and revoke those that the member has made with your rights or less."""
    return _changed(member_id, request, sender, "block", is_blocked=True)


@router.post("/{member_id}/unblock", response_model=MemberView)
def unblock(member_id: MemberId, request: Request, sender: Sender = MEMBERS) -> dict[str, Any]:
    """Accept tokens of a blocked member again."""
    return _changed(member_id, request, sender, "unblock", is_blocked=False)


def _changed(member_id: str, request: Request, sender: Sender, action: str, *, is_blocked: bool) -> dict[str, Any]:
    this = (members.c.tenant == sender.tenant) & (members.c.id == member_id)
    with request.app.state.service.database.write() as connection:
        row = connection.execute(select(members).where(this)).mappings().first()
        if row is None:
            raise ApiProblem(404, "no such member")
        if ROLES.index(row["role"]) > ROLES.index(sender.role):
            raise ApiProblem(403, "the member has more rights than your token")
        blocked = database_unix_ms(connection) if is_blocked else None
        connection.execute(update(members).where(this).values(blocked_unix_ms=blocked))
        detail = {} if blocked is None else {"revoked": _revoked(connection, member_id, sender, blocked)}
        record_change(connection, sender.tenant, sender.token, f"member.{action}", member_id, detail)
    return {**row, "blocked_unix_ms": blocked}


def _revoked(connection: Connection, member_id: str, sender: Sender, now_ms: int) -> list[str]:
    """Revoke the tokens whose secrets a member knows, and return their ids.

    Those with more rights than the sender's stay, and those of other tenants unless the sender may make such.
    """
    known = known_tokens(connection, sender.tenant, MEMBER_PREFIX + member_id)
    valid = select(tokens).where(tokens.c.revoked_unix_ms.is_(None), tokens.c.expires_unix_ms > now_ms)
    if "tenants" not in sender.scopes:
        valid = valid.where(tokens.c.tenant == sender.tenant)
    rows = connection.execute(valid.order_by(tokens.c.id)).mappings().all()
    ids = [row["id"] for row in rows if row["id"] in known and has_rights_of(sender, row)]
    for token_id in ids:
        connection.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_unix_ms=now_ms))
    return ids
