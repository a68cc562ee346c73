"""Tokens and roles: who sends a request, for which tenant, and what it may do.

A token is random and long, so the database keeps its SHA-256; a slow hash would add nothing. A role gives scopes, and a
token may be limited to some of them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from hashlib import sha256
from pathlib import Path

from fastapi import Depends, Request
from sqlalchemy import Connection, insert, select, update

from tradewind.errors import UsageError
from tradewind.model.records import dataclass, field
from tradewind.service.database import ServiceDatabase, database_unix_ms, record_change
from tradewind.service.problems import ApiProblem
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import audit, members, tenants, tokens

__all__ = [
    "ANYBODY",
    "MEMBER_PREFIX",
    "ROLES",
    "SCOPES_OF_ROLE",
    "Sender",
    "ensure_admin",
    "is_still_allowed",
    "known_sender",
    "known_tokens",
    "needs",
    "new_token",
    "renew_admin",
    "require_not_revoked",
    "token_digest",
]

#: Roles with their scopes; each role has those of the earlier ones.
_VIEWER = frozenset({"jobs:read"})
_OPERATOR = _VIEWER | {"jobs:write"}
_TENANT_ADMIN = _OPERATOR | {"connections", "webhooks", "tokens", "members", "audit:read"}
SCOPES_OF_ROLE: dict[str, frozenset[str]] = {
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "tenant_admin": _TENANT_ADMIN,
    "service_admin": _TENANT_ADMIN | {"tenants", "metrics:read"},
}
ROLES = tuple(SCOPES_OF_ROLE)
#: Tenant of the admin token.
FIRST_TENANT = "default"
#: Id of the admin token.
ADMIN_ID = "admin"
TOKEN_PREFIX = "tw1_"
#: Senders with OIDC tokens have ids that begin so.
MEMBER_PREFIX = "member-"
TOKEN_BYTES = 32
#: A complete token.
_TOKEN = re.compile(re.escape(TOKEN_PREFIX) + r"[A-Za-z0-9_-]{43}")
#: Maximum length of a token in a request.
TOKEN_LENGTH_MAX = 256
#: Permissions of other users, none of which a file with a token has.
OTHERS = 0o077


@dataclass(frozen=True)
class Sender:
    """The token that sent a request: its id, its tenant, its role, its scopes, and its digest.

    The id of an OIDC token is `member-` and the id of its member; it has no digest.
    """

    token: str
    tenant: str
    role: str
    scopes: frozenset[str]
    digest: str | None = field(default=None, repr=False, compare=False)


def new_token() -> str:
    """Return a new secret."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token, as the database keeps it."""
    return sha256(token.encode()).hexdigest()


def ensure_admin(database: ServiceDatabase, settings: ServiceSettings) -> bool:
    """Make the admin token of a new database; return whether it is new.

    The file is written first: a server that was killed in between records the token of the file. Raises UsageError for
    a file that others may know.
    """
    path = settings.admin_token
    with database.write() as connection:
        if connection.execute(select(tokens.c.id).where(tokens.c.id == ADMIN_ID)).first() is not None:
            return False
        token = _kept_token(path)
        if token is None:
            token = new_token()
            _replace(path, token)
        now = database_unix_ms(connection)
        connection.execute(insert(tenants).values(name=FIRST_TENANT, created_unix_ms=now))
        connection.execute(
            insert(tokens).values(
                id=ADMIN_ID,
                tenant=FIRST_TENANT,
                name="admin.token",
                digest=token_digest(token),
                role="service_admin",
                scopes=json.dumps(sorted(SCOPES_OF_ROLE["service_admin"])),
                created_unix_ms=now,
            )
        )
    return True


def renew_admin(database: ServiceDatabase, settings: ServiceSettings) -> None:
    """Replace the admin token; the old one ends at once, also at servers that run.

    The new file gets its name last. After a kill in between, it is to be done again. Raises UsageError.
    """
    token = new_token()
    part = _written(settings.admin_token, token)
    with database.write() as connection:
        change = update(tokens).where(tokens.c.id == ADMIN_ID).values(digest=token_digest(token))
        if connection.execute(change).rowcount == 0:
            raise UsageError("there is no admin token", hint="start the server once: it makes one")
        record_change(connection, FIRST_TENANT, "service", "token.rotate", ADMIN_ID)
    part.replace(settings.admin_token)


def _kept_token(path: Path) -> str | None:
    """Return the token in a file; None without a complete one. Raises UsageError if others may know it, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="remove it: the server makes a new one") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & OTHERS or found.st_uid != os.geteuid():
            raise UsageError(f"{path}: others may know the token", hint="remove it: the server makes a new one")
        text = os.read(descriptor, TOKEN_LENGTH_MAX).decode(errors="replace").strip()
    finally:
        os.close(descriptor)
    return text if _TOKEN.fullmatch(text) else None


def _replace(path: Path, token: str) -> None:
    _written(path, token).replace(path)


def _written(path: Path, token: str) -> Path:
    """Write a token beside the file that it is for, and return where. So the file is never incomplete."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    return part


def sender_of(database: ServiceDatabase, token: str) -> Sender | None:
    """Return the sender of a token; None if it is unknown, expired or revoked."""
    query = select(tokens, database.clock_ms.label("now_unix_ms")).where(tokens.c.digest == token_digest(token))
    with database.read() as connection:
        row = connection.execute(query).mappings().first()
    if row is None or row["revoked_unix_ms"] is not None:
        return None
    if row["expires_unix_ms"] is not None and row["expires_unix_ms"] <= row["now_unix_ms"]:
        return None
    scopes = SCOPES_OF_ROLE.get(row["role"], frozenset()) & frozenset(json.loads(row["scopes"]))
    return Sender(row["id"], row["tenant"], row["role"], scopes, row["digest"])


def require_not_revoked(connection: Connection, sender: Sender) -> None:
    """Raise ApiProblem 401 if a sender's token was revoked or replaced while the request waited, or the member blocked.

    What outlives a token must not be made so: many requests may wait when it is revoked.
    """
    valid = select(tokens.c.id).where(tokens.c.digest == sender.digest, tokens.c.revoked_unix_ms.is_(None))
    if sender.token.startswith(MEMBER_PREFIX):
        this = members.c.tenant == sender.tenant, members.c.id == sender.token.removeprefix(MEMBER_PREFIX)
        valid = select(members.c.id).where(*this, members.c.blocked_unix_ms.is_(None))
    if connection.execute(valid).first() is None:
        raise ApiProblem(401, "the token was revoked just now", headers={"WWW-Authenticate": "Bearer"})


def known_tokens(connection: Connection, tenant: str, sender: str) -> set[str]:
    """Return the ids of the tokens whose secrets a sender has been shown, also through such tokens: by the audit log.

    They were made, or have replaced another one. The log of each tenant is read once.
    """
    shown: dict[str, dict[str, list[tuple[str, str]]]] = {}
    found: set[str] = set()
    asking = [(tenant, sender)]
    while asking:
        tenant, sender = asking.pop()
        if tenant not in shown:
            shown[tenant] = _shown_tokens(connection, tenant)
        fresh = [one for one in shown[tenant].get(sender, ()) if one[1] not in found]
        found.update(token for _, token in fresh)
        asking += fresh
    return found


def _shown_tokens(connection: Connection, tenant: str) -> dict[str, list[tuple[str, str]]]:
    """Return the tokens that each sender of a tenant has been shown: their tenants and ids."""
    query = select(audit.c.token, audit.c.action, audit.c.target, audit.c.detail).where(
        audit.c.tenant == tenant, audit.c.action.in_(("token.make", "token.rotate"))
    )
    shown: dict[str, list[tuple[str, str]]] = {}
    for sender, action, target, text in connection.execute(query):
        detail = json.loads(text)
        token = target if action == "token.make" else detail.get("new")
        if token is not None:
            shown.setdefault(sender, []).append((detail.get("tenant", tenant), token))
    return shown


def is_still_allowed(request: Request, scope: str) -> bool:
    """Return whether the token of a request that goes on is still valid and has the scope. Counts for no limit."""
    try:
        found = _found(request)
    except ApiProblem:
        return False
    return found is not None and scope in found.scopes


def _found(request: Request) -> Sender | None:
    """Return the sender of a request's token; None without a valid one. Raises ApiProblem for one of a member."""
    service = request.app.state.service
    sent = request.headers.getlist("authorization")
    kind, _, token = (sent[0] if len(sent) == 1 else "").partition(" ")
    token = token.strip()
    if kind.lower() != "bearer":  # Of two tokens, a proxy in front may have seen the other one.
        return None
    if token.startswith(TOKEN_PREFIX) and token.isascii() and len(token) <= TOKEN_LENGTH_MAX:
        return sender_of(service.database, token)
    if service.members is None:
        return None
    found: Sender | None = service.members.sender_of(token)
    return found


def known_sender(request: Request) -> Sender:
    """Return the sender of a request by its token. A refused one counts for its address. Raises ApiProblem."""
    service = request.app.state.service
    address = request.client.host if request.client else ""
    try:
        found = _found(request)
    except ApiProblem:
        service.refused.require(address)
        raise
    if found is None:
        service.refused.require(address)
        raise ApiProblem(
            401,
            "the token is missing, unknown, expired or revoked",
            hint="send Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return found


def _sender(request: Request) -> Sender:
    service, found = request.app.state.service, known_sender(request)
    request.state.sender = found
    service.rates.require(found.token)
    service.tenant_rates.require(found.tenant)
    return found


#: Dependency for requests that need a valid token, whatever its scopes.
ANYBODY: Sender = Depends(_sender)


class _Needs:
    """A dependency that returns the sender if its token has a scope."""

    def __init__(self, scope: str) -> None:
        self._scope = scope

    def __call__(self, request: Request) -> Sender:
        """Return the sender. Raises ApiProblem."""
        sender = _sender(request)
        if self._scope not in sender.scopes:
            raise ApiProblem(403, f"the token lacks the scope {self._scope}", hint="use a token of a higher role")
        return sender


def needs(scope: str) -> Sender:
    """Return the dependency for requests that need a scope."""
    found: Sender = Depends(_Needs(scope))
    return found
