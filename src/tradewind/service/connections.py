"""Connections: places of tenants with credentials of their own, and the credentials of the jobs that use them.

A secret is sealed in the database, together with the place that it is for, so that it cannot be used for another one.
It is opened only for a run of a job, and given to the processes of that run. Such a job uses no credentials of the
server. Its places are recorded as those of the stores, so that ownership, limits and bans apply as to others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from tradewind.errors import StateError, TradewindError, Unauthorised, UsageError
from tradewind.fleet.given import AwsKey, GivenCredentials
from tradewind.model.records import dataclass
from tradewind.model.store import Access
from tradewind.model.url import parse_url
from tradewind.service.auth import Sender, require_not_revoked
from tradewind.service.database import ServiceDatabase, database_unix_ms, record_change
from tradewind.service.down_stores import AskedStore
from tradewind.service.endpoints import require_endpoint
from tradewind.service.limits import CONNECTIONS_PER_TENANT_MAX, PROOF_S
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduling_tables import schedules
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.stores import real_place, store_and_path, store_of
from tradewind.service.tables import ENDED, connections, jobs

__all__ = [
    "CONNECTION_NAME",
    "ConnectionBook",
    "ConnectionUse",
    "ResolvedPlace",
    "checked_place",
    "destination_names",
    "is_of_connection",
    "named_in_error",
    "proven_connections",
    "require_connections",
    "require_one_secret",
]

CONNECTION_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
SCHEME = "connection:"
#: Buckets and accounts become parts of host names, so they may have nothing that ends one.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_NAMES = {
    "az": re.compile(r"[a-z0-9]{3,24}/[a-z0-9$][a-z0-9-]{2,62}"),
    "r2": re.compile(r"[0-9a-f]{32}/[a-z0-9-]{3,63}"),
}
#: A prefix is taken literally, so it has no wildcard.
_PREFIX = re.compile(r"[^\x00-\x1f\x7f*?\[\]]*")


@dataclass(frozen=True)
class ConnectionUse:
    """The needs of the engine for a job with connections: credentials, and the access of each side."""

    credentials: GivenCredentials
    source: Access
    destinations: tuple[Access, ...]


@dataclass(frozen=True)
class ResolvedPlace:
    """A place of a request in its resolved form; its connection, if it has one; and the endpoint of that."""

    url: str
    connection: str | None = None
    endpoint: str | None = None

    @property
    def is_connected(self) -> bool:
        """Return whether the place is reached with the credentials of a connection."""
        return self.connection is not None


def checked_place(text: str) -> str:
    """Return the place of a new connection: a bucket, or a prefix that ends in `/`. Raises UsageError."""
    place = parse_url(text, cwd="/")
    if place.kind not in ("s3", "gs", "az", "r2") or place.endpoint is not None:
        raise UsageError(f"{text}: not a bucket or prefix", hint="for example s3://bucket/prefix/")
    name = place.root.partition("://")[2]
    if not _NAMES.get(place.kind, _BUCKET).fullmatch(name) or ".." in name:
        raise UsageError(f"{name}: not the name of a bucket or container of {place.kind}://")
    key = place.key.rstrip("/")
    if not _PREFIX.fullmatch(key) or {".", ".."}.intersection(key.split("/")) or key.startswith("/"):
        raise UsageError(f"{text}: the prefix has wildcards, control characters, or a part . or ..")
    return f"{place.root}/{key}/" if key else f"{place.root}/"


def is_of_connection(text: str) -> bool:
    """Return whether a place of a request is one of a connection: `connection:NAME/PATH`."""
    return text.startswith(SCHEME)


class ConnectionBook:
    """The connections of all tenants. Any thread may use it."""

    def __init__(self, database: ServiceDatabase, sealer: Sealer, settings: ServiceSettings) -> None:
        self._database, self._sealer, self._settings = database, sealer, settings

    def make(
        self, sender: Sender, name: str, place: str, endpoint: str | None, region: str | None, secret: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Record a connection, and return its row. Raises ApiProblem 409, UsageError."""
        if endpoint is not None:
            endpoint = require_endpoint(endpoint, self._settings.allow_endpoints, place)
        tenant = sender.tenant
        row = {"tenant": tenant, "name": name, "place": checked_place(place), "endpoint": endpoint, "region": region}
        sealed = self._sealer.seal(json.dumps(secret), tenant, _label(row))
        with self._database.write() as connection:
            require_not_revoked(connection, sender)
            if self._row(connection, tenant, name) is not None:
                raise ApiProblem(409, f"there is a connection {name}", hint="PUT its secret to replace that")
            count = select(func.count()).select_from(connections).where(connections.c.tenant == tenant)
            if connection.execute(count).scalar_one() >= CONNECTIONS_PER_TENANT_MAX:
                raise ApiProblem(409, f"the tenant has {CONNECTIONS_PER_TENANT_MAX} connections", hint="delete one")
            now_ms = database_unix_ms(connection)
            made = {**row, "created_unix_ms": now_ms, "replaced_unix_ms": now_ms}
            connection.execute(insert(connections).values(**made, sealed=sealed))
            record_change(connection, tenant, sender.token, "connection.make", name, {"place": row["place"]})
        return made

    def replace(self, sender: Sender, name: str, secret: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace the secret of a connection. Runs that have begun keep the old one. Raises ApiProblem 404."""
        with self._database.write() as connection:
            require_not_revoked(connection, sender)
            row = _required(self._row(connection, sender.tenant, name))
            values = {
                "sealed": self._sealer.seal(json.dumps(secret), sender.tenant, _label(row)),
                "replaced_unix_ms": database_unix_ms(connection),
                "written_unix_ms": None,
            }
            connection.execute(update(connections).where(*_is(sender.tenant, name)).values(**values))
            record_change(connection, sender.tenant, sender.token, "connection.replace", name)
        return {**row, **values}

    def note_written(self, tenant: str, request: Mapping[str, Any]) -> None:
        """Record that a job has written to the connections that are its destinations. Raises StateError.

        Where a guest reads the source, only the guest says what was written, which proves nothing.
        """
        if (request.get("guest") or {}).get("side") == "source":
            return
        names = sorted({name for name in destination_names(request) if name is not None})
        if names:
            with self._database.write_rows() as connection:
                mine = connections.c.tenant == tenant, connections.c.name.in_(names)
                connection.execute(update(connections).where(*mine).values(written_unix_ms=self._database.clock_ms))

    def remove(self, sender: Sender, name: str) -> None:
        """Delete a connection. Raises ApiProblem 404; 409 while jobs that have not ended, or schedules, use it."""
        with self._database.write() as connection:
            locked = select(connections.c.name).where(*_is(sender.tenant, name)).with_for_update()
            if connection.execute(locked).first() is None:
                raise ApiProblem(404, "no such connection")
            used = _users(connection, sender.tenant, name)
            if used:
                raise ApiProblem(409, f"{used} uses the connection {name}", hint="cancel or delete it first")
            connection.execute(delete(connections).where(*_is(sender.tenant, name)))
            record_change(connection, sender.tenant, sender.token, "connection.delete", name)

    def get(self, tenant: str, name: str) -> Mapping[str, Any]:
        """Return a connection of a tenant. Raises ApiProblem 404, also for one of another tenant."""
        with self._database.read() as connection:
            return _required(self._row(connection, tenant, name))

    def page(self, tenant: str, after: str, limit: int) -> list[Mapping[str, Any]]:
        """Return connections of a tenant by name, after the name `after`."""
        query = select(connections).where(connections.c.tenant == tenant, connections.c.name > after)
        with self._database.read() as connection:
            return [dict(row) for row in connection.execute(query.order_by(connections.c.name).limit(limit)).mappings()]

    def stores(self, tenant: str) -> frozenset[str]:
        """Return the stores of a tenant's connections, and those of the server that it may use, as limits name them."""
        query = select(connections.c.place, connections.c.endpoint).where(connections.c.tenant == tenant)
        with self._database.read() as connection:
            own = connection.execute(query).all()
        places = [real_place(row.place, row.endpoint, is_connected=True) for row in own]
        places += [real_place(text, None, is_connected=False) for text in self._settings.stores_of(tenant)]
        return frozenset(store_and_path(place)[0] for place in places)

    def place_of(self, tenant: str, text: str) -> ResolvedPlace:
        """Return the place that `connection:NAME/PATH` names. Raises UsageError."""
        name, _, path = text.removeprefix(SCHEME).partition("/")
        if {".", ".."}.intersection(path.split("/")):
            raise UsageError(f"{text}: the path has a part . or ..")
        with self._database.read() as connection:
            row = self._row(connection, tenant, name)
        if row is None:
            raise UsageError(f"no connection {name!r}", hint="`GET /v1/connections` lists yours")
        return ResolvedPlace(f"{row['place']}{path}", name, row["endpoint"])

    def use_of(self, tenant: str, request: Mapping[str, Any]) -> ConnectionUse | None:
        """Return the credentials of a job's connections; None for a job without any.

        Raises UsageError if one was deleted, has another place or endpoint now, or one that is allowed no more.
        """
        named = request.get("connections")
        if named is None:
            return None
        names = {name for name in (named["source"], *named["destination"]) if name is not None}
        with self._database.read() as connection:
            rows = {name: self._row(connection, tenant, name) for name in sorted(names)}
        sides = [(request["source"], named["source"])]
        sides += zip(request["destination"], named["destination"], strict=True)
        # Jobs of earlier versions have not recorded endpoints.
        endpoints = named.get("endpoints", {})
        for name, row in rows.items():
            if row is not None and row["endpoint"] != endpoints.get(name, row["endpoint"]):
                raise UsageError(f"connection {name} has another endpoint than when the job was submitted")
        accesses = [Access() if name is None else self._access(rows[name], name, place) for place, name in sides]
        secrets = {name: self._opened(row) for name, row in rows.items() if row is not None}
        return ConnectionUse(_credentials(secrets), accesses[0], tuple(accesses[1:]))

    def asked_stores(self, tenant: str, request: Mapping[str, Any]) -> list[AskedStore]:
        """Return the stores that a job reaches, and how. Deleted connections are left out. Raises StateError."""
        named = request.get("connections") or {}
        places = [parse_url(text, cwd="/") for text in (request["source"], *request["destination"])]
        names = [named.get("source"), *(named.get("destination") or [None] * len(places[1:]))]
        stores = named.get("stores") or [store_of(place) for place in places]
        with self._database.read() as connection:
            rows = {name: self._row(connection, tenant, name) for name in names if name is not None}
        asked = []
        for place, name, store in zip(places, names, stores, strict=True):
            row = None if name is None else rows[name]
            if place.kind in ("file", "guest") or (name is not None and row is None):
                continue
            own = {} if row is None else {"tenant": tenant, "endpoint": row["endpoint"], "region": row["region"]}
            asked.append(AskedStore(store, place.root, **own))
        return asked

    def _access(self, row: Mapping[str, Any] | None, name: str, place: str) -> Access:
        if row is None:
            raise UsageError(f"connection {name} was deleted", hint="make it again, with the same place")
        if not place.startswith(row["place"]):
            raise UsageError(f"connection {name} has another place than when the job was submitted")
        if row["endpoint"] is not None:
            require_endpoint(row["endpoint"], self._settings.allow_endpoints, row["place"])
        profile = name if _kind(row) in ("s3", "r2") else None
        return Access(row["endpoint"], row["region"], profile, is_given=True)

    def _opened(self, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            secret: dict[str, Any] = json.loads(self._sealer.open(row["sealed"], row["tenant"], _label(row)))
        except StateError as error:
            # Trying again does not help, unlike with a database that does not answer.
            raise UsageError(str(error), hint=error.hint) from None
        return {**secret, "kind": _kind(row)}

    def _row(self, connection: Connection, tenant: str, name: str) -> Mapping[str, Any] | None:
        found = connection.execute(select(connections).where(*_is(tenant, name))).mappings().first()
        return None if found is None else dict(found)


def require_connections(connection: Connection, tenant: str, request: Mapping[str, Any]) -> None:
    """Raise ApiProblem 409 if a connection of a new job was deleted meanwhile; else it stays while the job is open."""
    named = request.get("connections") or {"source": None, "destination": []}
    for name in sorted({name for name in (named["source"], *named["destination"]) if name is not None}):
        query = select(connections.c.name).where(*_is(tenant, name)).with_for_update(read=True)
        if connection.execute(query).first() is None:
            raise ApiProblem(409, f"connection {name} was deleted")


def destination_names(request: Mapping[str, Any]) -> list[str | None]:
    """Return the name of each destination's connection; None for a place that is reached with the server's keys."""
    named = request.get("connections")
    return [None] * len(request["destination"]) if named is None else list(named["destination"])


def proven_connections(connection: Connection, now_ms: int, tenants: Collection[str]) -> set[tuple[str, str]]:
    """Return the connections of tenants that have written in the last PROOF_S, as tenant and name."""
    query = select(connections.c.tenant, connections.c.name).where(
        connections.c.tenant.in_(tenants), connections.c.written_unix_ms > now_ms - PROOF_S * 1000
    )
    return {(tenant, name) for tenant, name in connection.execute(query)} if tenants else set()


def require_one_secret(kinds: Mapping[str, str]) -> None:
    """Raise UsageError if connections, with their kinds by name, need two secrets of Google or of Azure in one job."""
    for kind, cloud in (("gs", "Google Cloud Storage"), ("az", "Azure")):
        if sum(one == kind for one in kinds.values()) > 1:
            raise UsageError(
                f"a job can use one connection to {cloud}", hint="copy in two jobs, or make one connection for both"
            )


def named_in_error(error: TradewindError | OSError, request: Mapping[str, Any]) -> TradewindError | OSError:
    """Return an error of a run; if a store has refused the credentials, with the names of the job's connections."""
    named = request.get("connections")
    if named is None or not isinstance(error, Unauthorised):
        return error
    names = dict.fromkeys(name for name in (named["source"], *named["destination"]) if name is not None)
    return Unauthorised(
        f"connection {' or '.join(names)}: {error}", hint="replace its secret, or give its key the permission"
    )


def _may_submit(now_ms: int) -> ColumnElement[bool]:
    """Return the condition that a schedule may submit jobs: at a time, of its queue, or for events."""
    is_counted_down = schedules.c.count.is_not(None) & (schedules.c.submitted >= schedules.c.count)
    has_ended = schedules.c.end_unix_ms.is_not(None) & (schedules.c.end_unix_ms < now_ms)
    has_events = (schedules.c.cron == "") & ~is_counted_down & ~has_ended
    return schedules.c.next_unix_ms.is_not(None) | (schedules.c.queued != "[]") | has_events


def _users(connection: Connection, tenant: str, name: str) -> str | None:
    """Return what uses a connection, for messages; None if nothing does."""
    now_ms = database_unix_ms(connection)
    open_jobs = select(jobs.c.id, jobs.c.request).where(
        jobs.c.tenant == tenant, jobs.c.state.not_in(ENDED), jobs.c.request.contains('"connections"')
    )
    timed = select(schedules.c.id, schedules.c.request).where(
        schedules.c.tenant == tenant,
        _may_submit(now_ms),
        schedules.c.request.contains('"connections"'),
    )
    for what, query in (("job", open_jobs), ("schedule", timed)):
        for user, text in connection.execute(query):
            named = json.loads(text).get("connections") or {"source": None, "destination": []}
            if name in (named["source"], *named["destination"]):
                return f"{what} {user}"
    return None


def _credentials(secrets: Mapping[str, Mapping[str, Any]]) -> GivenCredentials:
    require_one_secret({name: secret["kind"] for name, secret in secrets.items()})
    aws = {
        name: AwsKey(secret["access_key_id"], secret["secret_access_key"], secret.get("session_token"))
        for name, secret in secrets.items()
        if secret["kind"] in ("s3", "r2")
    }
    others = [secret for secret in secrets.values() if secret["kind"] not in ("s3", "r2")]
    google = next((json.dumps(one["service_account"]) for one in others if one["kind"] == "gs"), None)
    azure: Mapping[str, Any] = next((one for one in others if one["kind"] == "az"), {})
    return GivenCredentials(aws, google, azure.get("account_key"), azure.get("sas"))


def _kind(row: Mapping[str, Any]) -> str:
    return str(row["place"].partition("://")[0])


def _label(row: Mapping[str, Any]) -> str:
    """Return the name of a secret for its seal, with all that says where the secret is sent."""
    return f"connection {row['name']} {json.dumps([row['place'], row['endpoint'], row['region']])}"


def _is(tenant: str, name: str) -> tuple[Any, Any]:
    return connections.c.tenant == tenant, connections.c.name == name


def _required(row: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if row is None:
        raise ApiProblem(404, "no such connection")
    return row
