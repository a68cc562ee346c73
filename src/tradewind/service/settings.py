"""Settings of one server, as checked by its command line."""

from __future__ import annotations

from pathlib import Path

from tradewind.model.records import dataclass

__all__ = ["ServiceSettings"]


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a server.

    - `state`: folder of the database, the admin token and the engine's state
    - `allow_paths`: resolved folders in which jobs may read and write local files
    - `allow_stores`: URLs of buckets and prefixes that jobs may use, with the credentials of the server
    - `jobs_max`: jobs that run at the same time
    - `gateway`: path of the gateway program, or None to find it
    """

    state: Path
    allow_paths: tuple[str, ...] = ()
    allow_stores: tuple[str, ...] = ()
    jobs_max: int = 8
    gateway: str | None = None

    @property
    def engine_state(self) -> str:
        """State folder of the engine that runs the jobs."""
        return str(self.state / "engine")

    @property
    def admin_token(self) -> Path:
        """File of the admin token."""
        return self.state / "admin.token"
