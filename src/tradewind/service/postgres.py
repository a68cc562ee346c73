"""PostgreSQL as the service's database: the checked URL, and the pool of connections."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from tradewind.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["checked_url", "postgres_engine", "shown_url"]

#: Connections of one server that stay open, and further ones under load. A PostgreSQL server allows 100 by default.
CONNECTIONS = 6
CONNECTIONS_MORE = 14
#: Maximum wait for a free connection of the pool, and for the answer of an unreachable server [s].
FREE_S = 10.0
CONNECT_S = 5
#: Limits of a session. A server that freezes within a transaction must not hold up the others.
SESSION = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "15s",
    "statement_timeout": "30s",
    "tcp_user_timeout": "15s",
}


def checked_url(text: str) -> str:
    """Return the URL of a database, without a password. Raises UsageError; no message repeats the URL."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    example = "for example postgresql://tradewind@db.example/tradewind?sslmode=verify-full"
    if not text.startswith(("postgresql://", "postgres://")):
        raise UsageError("--database: not a postgresql:// URL", hint=example)
    try:
        parts = conninfo_to_dict(text)
    except psycopg.Error:
        raise UsageError("--database: the URL is not valid", hint=example) from None
    if parts.get("password") or parts.get("sslpassword"):
        raise UsageError(
            "--database: the URL has a password, which other users of this machine can see",
            hint="set PGPASSWORD, or PGPASSFILE to a file with it",
        )
    hosts = parts.get("hostaddr") or parts.get("host") or os.environ.get("PGHOST", "")
    is_encrypted = parts.get("sslmode") or os.environ.get("PGSSLMODE")
    if not is_encrypted and not all(_is_local(host) for host in str(hosts).split(",")):
        raise UsageError(
            "--database: the URL does not say how the connection is encrypted", hint="add ?sslmode=verify-full"
        )
    return text


def shown_url(text: str) -> str:
    """Return the URL of a database for messages: server and name, without options."""
    return text.partition("?")[0]


def postgres_engine(url: str) -> Engine:
    """Return the pool of connections to a database. libpq reads the password from its variables and files."""
    import psycopg
    from sqlalchemy import create_engine, event

    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(url, connect_timeout=CONNECT_S, application_name="tradewind serve"),
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS_MORE,
        pool_timeout=FREE_S,
        pool_pre_ping=True,  # The first request after a restart of the database succeeds.
    )
    event.listen(engine, "connect", _set_up)
    return engine


def _set_up(connection: Any, record: object) -> None:
    for name, value in SESSION.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    connection.commit()


def _is_local(host: str) -> bool:
    if host in ("", "localhost") or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
