"""`/v1/me`, `/v1/tenants`, `/v1/tokens` and `/v1/audit`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tradewind.service.api.pages import Limit, OpaqueCursor, number_of
from tradewind.service.auth import (
    ADMIN_ID,
    ANYBODY,
    ROLES,
    SCOPES_OF_ROLE,
    Sender,
    needs,
    new_token,
    require_not_revoked,
    token_digest,
)
from tradewind.service.database import database_clock_ms, database_unix_ms, record_change
from tradewind.service.limits import (
    PAGE_DEFAULT,
    TENANTS_MAX,
    TOKEN_S_DEFAULT,
    TOKEN_S_MAX,
    TOKENS_PER_TENANT_MAX,
)
from tradewind.service.problems import ApiProblem
from tradewind.service.shared_places import warn_of_shared_places
from tradewind.service.tables import audit, tenants, tokens

__all__ = ["NewToken", "has_rights_of", "require_few_tokens", "router", "valid_token"]

router = APIRouter(prefix="/v1", tags=["tenants"])
TENANTS, TOKENS, AUDIT = needs("tenants"), needs("tokens"), needs("audit:read")
NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
Scope = Literal[
    "jobs:read",
    "jobs:write",
    "connections",
    "webhooks",
    "tokens",
    "members",
    "audit:read",
    "tenants",
    "metrics:read",
]
Role = Literal["viewer", "operator", "tenant_admin", "service_admin"]


class SenderView(BaseModel):
    """The token that sent the request: its id, its tenant, its role, and its scopes."""

    token: str
    tenant: str
    role: str
    scopes: list[str]


class TenantRequest(BaseModel):
    """A new tenant."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME)


class TenantView(BaseModel):
    """A tenant."""

    name: str
    created_unix_ms: int


class TenantPage(BaseModel):
    """Tenants by name. `next` is the cursor of the next page; null on the last one."""

    tenants: list[TenantView]
    next: str | None


class TokenRequest(BaseModel):
    """A new token. Without `scopes` it has all rights of its role. Only a service admin may give `tenant`."""

    model_config = ConfigDict(extra="forbid")

    role: Role
    name: str = Field("", max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")
    scopes: list[Scope] | None = Field(None, max_length=16)
    expires_s: int = Field(TOKEN_S_DEFAULT, ge=1, le=TOKEN_S_MAX, description="lifetime [s]")
    tenant: str | None = Field(None, pattern=NAME)


class TokenView(BaseModel):
    """A token without its secret."""

    id: str
    tenant: str
    name: str
    role: str
    scopes: list[str]
    created_unix_ms: int
    expires_unix_ms: int | None
    revoked_unix_ms: int | None


class NewToken(TokenView):
    """A new token with its secret, which is shown only once."""

    token: str


class TokenPage(BaseModel):
    """Tokens by id. `next` is the cursor of the next page; null on the last one."""

    tokens: list[TokenView]
    next: str | None


class AuditEntry(BaseModel):
    """One change."""

    id: str
    at_unix_ms: int
    token: str
    action: str
    target: str
    detail: dict[str, Any]


class AuditPage(BaseModel):
    """Changes, newest first. `next` is the cursor of the next page; null on the last one."""

    entries: list[AuditEntry]
    next: str | None


@router.get("/me", response_model=SenderView)
def me(sender: Sender = ANYBODY) -> dict[str, Any]:
    """Show the token that sends the request, without its secret."""
    return {
        "token": sender.token,
        "tenant": sender.tenant,
        "role": sender.role,
        "scopes": sorted(sender.scopes),
    }


@router.post("/tenants", status_code=201, response_model=TenantView)
def make_tenant(body: TenantRequest, request: Request, sender: Sender = TENANTS) -> dict[str, Any]:
    """Make a tenant."""
    service = request.app.state.service
    try:
        with service.database.write() as connection:
            made = {"name": body.name, "created_unix_ms": database_unix_ms(connection)}
            count = connection.execute(select(func.count()).select_from(tenants)).scalar_one()
            if count >= TENANTS_MAX:
                raise ApiProblem(409, f"there are {TENANTS_MAX:,} tenants")
            connection.execute(insert(tenants).values(**made))
            if count == 1:
                warn_of_shared_places(connection, service.settings)
            record_change(connection, sender.tenant, sender.token, "tenant.make", body.name)
    except IntegrityError:
        raise ApiProblem(409, f"tenant {body.name} exists") from None
    return made


@router.get("/tenants", response_model=TenantPage)
def list_tenants(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=NAME)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = TENANTS,
) -> dict[str, Any]:
    """List all tenants."""
    query = select(tenants).where(tenants.c.name > (cursor or "")).order_by(tenants.c.name).limit(limit + 1)
    with request.app.state.service.database.read() as connection:
        rows = [dict(row) for row in connection.execute(query).mappings()]
    return {"tenants": rows[:limit], "next": rows[limit - 1]["name"] if len(rows) > limit else None}


@router.post("/tokens", status_code=201, response_model=NewToken)
def make_token(body: TokenRequest, request: Request, response: Response, sender: Sender = TOKENS) -> dict[str, Any]:
    """Make a token. It can have no more rights than the one that makes it."""
    tenant = body.tenant or sender.tenant
    if tenant != sender.tenant and "tenants" not in sender.scopes:
        raise ApiProblem(403, "a token for another tenant needs a service admin")
    scopes = SCOPES_OF_ROLE[body.role] if body.scopes is None else SCOPES_OF_ROLE[body.role] & frozenset(body.scopes)
    if ROLES.index(body.role) > ROLES.index(sender.role) or not scopes <= sender.scopes:
        raise ApiProblem(403, "a token cannot have more rights than the one that makes it")
    secret = new_token()
    with request.app.state.service.database.write() as connection:
        require_not_revoked(connection, sender)
        now = database_unix_ms(connection)
        made = {
            "id": secrets.token_hex(8),
            "tenant": tenant,
            "name": body.name,
            "role": body.role,
            "scopes": json.dumps(sorted(scopes)),
            "created_unix_ms": now,
            "expires_unix_ms": now + body.expires_s * 1000,
            "revoked_unix_ms": None,
        }
        if connection.execute(select(tenants.c.name).where(tenants.c.name == tenant)).first() is None:
            raise ApiProblem(404, "no such tenant")
        require_few_tokens(connection, tenant, now)
        connection.execute(insert(tokens).values(**made, digest=token_digest(secret)))
        detail = {"role": body.role, "tenant": tenant}
        record_change(connection, sender.tenant, sender.token, "token.make", str(made["id"]), detail)
        if tenant != sender.tenant:
            record_change(connection, tenant, "service", "token.make", str(made["id"]), {"role": body.role})
    response.headers["Cache-Control"] = "no-store"
    return {**made, "scopes": sorted(scopes), "token": secret}


@router.get("/tokens", response_model=TokenPage)
def list_tokens(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=r"^[a-z0-9]{1,32}$")] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = TOKENS,
) -> dict[str, Any]:
    """List the tokens of the tenant, without their secrets."""
    query = (
        select(tokens)
        .where(tokens.c.tenant == sender.tenant, tokens.c.id > (cursor or ""))
        .order_by(tokens.c.id)
        .limit(limit + 1)
    )
    with request.app.state.service.database.read() as connection:
        rows = [{**row, "scopes": json.loads(row["scopes"])} for row in connection.execute(query).mappings()]
    return {"tokens": rows[:limit], "next": rows[limit - 1]["id"] if len(rows) > limit else None}


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(
    token_id: Annotated[str, Path(pattern=r"^[a-z0-9]{1,32}$")], request: Request, sender: Sender = TOKENS
) -> None:
    """Revoke a token of the tenant at once. The admin token of the server cannot be revoked here."""
    if token_id == ADMIN_ID:
        raise ApiProblem(409, "the admin token of the server cannot be revoked")
    with request.app.state.service.database.write() as connection:
        valid_token(connection, sender, token_id)
        connection.execute(
            update(tokens).where(tokens.c.id == token_id).values(revoked_unix_ms=database_clock_ms(connection))
        )
        record_change(connection, sender.tenant, sender.token, "token.revoke", token_id)


def require_few_tokens(connection: Connection, tenant: str, now_ms: int) -> None:
    """Raise ApiProblem 409 if a tenant may have no further valid token."""
    valid = select(func.count()).where(
        tokens.c.tenant == tenant, tokens.c.revoked_unix_ms.is_(None), tokens.c.expires_unix_ms > now_ms
    )
    if connection.execute(valid).scalar_one() >= TOKENS_PER_TENANT_MAX:
        raise ApiProblem(409, f"the tenant has {TOKENS_PER_TENANT_MAX:,} valid tokens", hint="revoke one")


def valid_token(connection: Connection, sender: Sender, token_id: str) -> dict[str, Any]:
    """Return a valid token of the sender's tenant. Raises ApiProblem 404, and 403 if it has more rights."""
    found = select(tokens).where(
        tokens.c.id == token_id, tokens.c.tenant == sender.tenant, tokens.c.revoked_unix_ms.is_(None)
    )
    row = connection.execute(found).mappings().first()
    if row is None:
        raise ApiProblem(404, "no such token")
    if not has_rights_of(sender, row):
        raise ApiProblem(403, "the token has more rights than yours")
    return {name: row[name] for name in TokenView.model_fields}


def has_rights_of(sender: Sender, token: Mapping[Any, Any]) -> bool:
    """Return whether a sender has at least the rights of a token."""
    scopes = SCOPES_OF_ROLE.get(token["role"], frozenset()) & frozenset(json.loads(token["scopes"]))
    return ROLES.index(token["role"]) <= ROLES.index(sender.role) and scopes <= sender.scopes


@router.get("/audit", response_model=AuditPage)
def list_audit(
    request: Request,
    cursor: OpaqueCursor | None = None,
    action: Annotated[str | None, Query(pattern=r"^[a-z.-]{1,64}$")] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = AUDIT,
) -> dict[str, Any]:
    """List changes by tokens of the tenant, and their refused requests, newest first."""
    service, label = request.app.state.service, (sender.tenant, "audit")
    query = select(audit).where(audit.c.tenant == sender.tenant).order_by(audit.c.number.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(audit.c.number < number_of(cursor, service.sealer, *label))
    if action is not None:
        query = query.where(audit.c.action == action)
    with service.database.read() as connection:
        rows = list(connection.execute(query).mappings())
    entries = [
        {**row, "id": service.sealer.opaque(row["number"], *label), "detail": json.loads(row["detail"])}
        for row in rows[:limit]
    ]
    return {"entries": entries, "next": entries[-1]["id"] if len(rows) > limit else None}
