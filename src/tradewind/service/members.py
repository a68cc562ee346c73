"""Members: people whom the OIDC issuer identifies. The operator's table turns claims into a tenant and a role."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import func, insert, select, update

from tradewind.service.auth import MEMBER_PREFIX, ROLES, SCOPES_OF_ROLE, Sender
from tradewind.service.database import ServiceDatabase, database_unix_ms, record_change
from tradewind.service.limits import MEMBER_SEEN_S, MEMBERS_PER_TENANT_MAX, RATES_MAX
from tradewind.service.oidc import IssuerUnavailable, TokenIssuer
from tradewind.service.problems import ApiProblem
from tradewind.service.settings import OidcSettings
from tradewind.service.tables import members, tenants

__all__ = ["Members"]

#: Control characters and lone surrogates.
_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
#: Maximum length of a subject (OpenID Connect Core, 2).
SUBJECT_LENGTH_MAX = 255


class Members:
    """The members of all tenants. Any thread may use it."""

    def __init__(self, database: ServiceDatabase, settings: OidcSettings) -> None:
        self._database, self._settings = database, settings
        self._issuer = TokenIssuer(settings.issuer, settings.audience, database.now_unix_ms)
        self._lock = threading.Lock()
        #: When a member's last request was recorded, least recent first.
        self._seen_s: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def sender_of(self, token: str) -> Sender | None:
        """Return the sender of an OIDC token; None if the token is not valid.

        Raises ApiProblem: 403 if its claims give no tenant and role, or the member is blocked; 503 if the issuer does
        not answer.
        """
        try:
            claims = self._issuer.claims_of(token)
        except IssuerUnavailable:
            raise ApiProblem(503, "the issuer of the token does not answer", headers={"Retry-After": "10"}) from None
        if claims is None or not _is_plain(claims["sub"]) or len(claims["sub"]) > SUBJECT_LENGTH_MAX:
            return None
        tenant, role = self._tenant(claims), self._role(claims)
        if tenant is None or role is None:
            raise ApiProblem(403, "the claims of the token give no tenant and role", hint="ask the operator")
        member_id = sha256(f"{self._settings.issuer}\0{claims['sub']}".encode()).hexdigest()[:32]
        if not self._is_admitted(tenant, member_id, claims["sub"], role):
            # The same answer as for an unknown tenant, so that nobody learns which exist.
            raise ApiProblem(403, "the claims of the token give no tenant and role", hint="ask the operator")
        return Sender(MEMBER_PREFIX + member_id, tenant, role, SCOPES_OF_ROLE[role])

    def _tenant(self, claims: Mapping[str, Any]) -> str | None:
        """Return the tenant; None for a value that is not in the table, or for several tenants."""
        table = dict(self._settings.tenants)
        values = _values(claims, self._settings.tenant_claim)
        found = {table[value] for value in values if value in table} if table else set(values)
        return found.pop() if len(found) == 1 else None

    def _role(self, claims: Mapping[str, Any]) -> str | None:
        """Return the highest role that the table gives."""
        table = dict(self._settings.roles)
        found = [table[value] for value in _values(claims, self._settings.role_claim) if value in table]
        return max(found, key=ROLES.index, default=None)

    def _is_admitted(self, tenant: str, member_id: str, subject: str, role: str) -> bool:
        """Record a member; return False for a blocked one, or one too many, or an unknown tenant."""
        this = (members.c.tenant == tenant) & (members.c.id == member_id)
        with self._database.read() as connection:
            row = connection.execute(select(members).where(this)).mappings().first()
        if row is not None and row["blocked_unix_ms"] is not None:
            return False
        if row is not None and row["role"] == role and not self._is_due((tenant, member_id, role)):
            return True
        with self._database.write() as connection:
            now = database_unix_ms(connection)
            if row is not None:
                connection.execute(update(members).where(this).values(role=role, last_unix_ms=now))
                return True
            if connection.execute(select(tenants.c.name).where(tenants.c.name == tenant)).first() is None:
                return False
            if connection.execute(select(members.c.id).where(this)).first() is not None:
                return True  # Another request has just recorded it.
            count = select(func.count()).where(members.c.tenant == tenant)
            if connection.execute(count).scalar_one() >= MEMBERS_PER_TENANT_MAX:
                return False
            connection.execute(
                insert(members).values(
                    tenant=tenant,
                    id=member_id,
                    issuer=self._settings.issuer,
                    subject=subject,
                    role=role,
                    first_unix_ms=now,
                    last_unix_ms=now,
                )
            )
            record_change(connection, tenant, MEMBER_PREFIX + member_id, "member.join", member_id, {"role": role})
        return True

    def _is_due(self, name: tuple[str, str, str]) -> bool:
        with self._lock:
            now_s, then_s = time.monotonic(), self._seen_s.pop(name, float("-inf"))
            is_due = now_s - then_s > MEMBER_SEEN_S
            self._seen_s[name] = now_s if is_due else then_s
            if len(self._seen_s) > RATES_MAX:
                self._seen_s.popitem(last=False)
            return is_due


def _values(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts of a claim, which is one or a list; `a.b` is claim `b` of the object `a`."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
    values = found if isinstance(found, list) else [found]
    if not all(_is_plain(one) for one in values if isinstance(one, str)):
        return []
    return [one for one in values if isinstance(one, str)]


def _is_plain(text: str) -> bool:
    """Return whether a text is not empty, and has neither control characters nor lone surrogates.

    PostgreSQL keeps no NUL, and no database keeps a surrogate.
    """
    return bool(text) and not _UNNAMEABLE.search(text)
