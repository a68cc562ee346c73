"""`/v1/tokens/…/rotate` and `/v1/tokens/revoke-all`: replace tokens."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import insert, select, update

from tradewind.service.api.tenants import NewToken, has_rights_of, require_few_tokens, valid_token
from tradewind.service.auth import ADMIN_ID, Sender, needs, new_token, require_not_revoked, token_digest
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import ROTATION_S_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import tokens

__all__ = ["router"]

router = APIRouter(prefix="/v1/tokens", tags=["tenants"])
TOKENS = needs("tokens")


class Rotation(BaseModel):
    """How a token is replaced."""

    model_config = ConfigDict(extra="forbid")

    overlap_s: int = Field(0, ge=0, le=ROTATION_S_MAX, description="time for which the old token stays valid [s]")


class Revoked(BaseModel):
    """The number of revoked tokens."""

    revoked: int


@router.post("/{token_id}/rotate", status_code=201, response_model=NewToken)
def rotate(
    token_id: Annotated[str, Path(pattern=r"^[a-z0-9]{1,32}$")],
    body: Rotation,
    request: Request,
    response: Response,
    sender: Sender = TOKENS,
) -> dict[str, Any]:
    """Replace a token by a new one with the same rights and lifetime. The old one expires after `overlap_s`."""
    if token_id == ADMIN_ID:
        raise ApiProblem(409, "the admin token of the server cannot be rotated here")
    secret = new_token()
    with request.app.state.service.database.write() as connection:
        require_not_revoked(connection, sender)
        now = database_unix_ms(connection)
        old = valid_token(connection, sender, token_id)
        if old["expires_unix_ms"] <= now:
            raise ApiProblem(409, "the token has expired", hint="make a new one")
        if body.overlap_s:  # Else the new one takes the place of the old one.
            require_few_tokens(connection, sender.tenant, now)
        lifetime_ms = old["expires_unix_ms"] - old["created_unix_ms"]
        made = {**old, "id": secrets.token_hex(8), "created_unix_ms": now, "expires_unix_ms": now + lifetime_ms}
        connection.execute(insert(tokens).values(**made, digest=token_digest(secret)))
        end_ms = now + body.overlap_s * 1000
        ended = {"revoked_unix_ms": now} if body.overlap_s == 0 else {}
        kept_ms = min(end_ms, old["expires_unix_ms"])
        connection.execute(update(tokens).where(tokens.c.id == token_id).values(expires_unix_ms=kept_ms, **ended))
        record_change(connection, sender.tenant, sender.token, "token.rotate", token_id, {"new": made["id"]})
    response.headers["Cache-Control"] = "no-store"
    return {**made, "scopes": json.loads(made["scopes"]), "token": secret}


@router.post("/revoke-all", response_model=Revoked)
def revoke_all(request: Request, sender: Sender = TOKENS) -> dict[str, int]:
    """Revoke all tokens of the tenant at once, except the sender's, the server's, and those with more rights."""
    found = select(tokens.c.id, tokens.c.role, tokens.c.scopes).where(
        tokens.c.tenant == sender.tenant,
        tokens.c.revoked_unix_ms.is_(None),
        tokens.c.id.not_in((ADMIN_ID, sender.token)),
    )
    with request.app.state.service.database.write() as connection:
        now, rows = database_unix_ms(connection), connection.execute(found).mappings().all()
        ids = [row["id"] for row in rows if has_rights_of(sender, row)]
        for token_id in ids:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_unix_ms=now))
        record_change(connection, sender.tenant, sender.token, "token.revoke-all", "", {"revoked": len(ids)})
    return {"revoked": len(ids)}
