"""Settings of one server, as checked by its command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tradewind.model.records import dataclass, field
from tradewind.service.limits import LEASE_S_DEFAULT

__all__ = ["ServiceSettings"]


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a server.

    - `state`: folder of the database, the admin token and the engine's state
    - `allow_paths`: resolved folders in which jobs may read and write local files
    - `allow_stores`: URLs of buckets and prefixes that jobs may use, with the credentials of the server
    - `jobs_max`: jobs that run at the same time
    - `database`: URL of a PostgreSQL database, or None for the SQLite file of the state folder
    - `lease_s`: time without a sign of life after which another server adopts the jobs [s]
    - `sites`: place of each site, below which tenants have folders
    - `gateway`: path of the gateway program, or None to find it
    """

    state: Path
    allow_paths: tuple[str, ...] = ()
    allow_stores: tuple[str, ...] = ()
    jobs_max: int = 8
    database: str | None = None
    lease_s: int = LEASE_S_DEFAULT
    gateway: str | None = None
    sites: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_replica(self) -> bool:
        """Return whether other servers may use the same database and state folder."""
        return self.database is not None

    @property
    def engine_state(self) -> str:
        """State folder of the engine that runs the jobs."""
        return str(self.state / "engine")

    @property
    def admin_token(self) -> Path:
        """File of the admin token."""
        return self.state / "admin.token"
