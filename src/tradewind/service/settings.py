"""Settings of one server, as checked by its command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tradewind.model.records import dataclass, field
from tradewind.service.limits import LEASE_S_DEFAULT
from tradewind.service.machines import HERE_ONLY, MachineRules

__all__ = ["ADMIN_FILE", "LOCK_FILE", "TENANT", "OidcSettings", "ServiceSettings"]

#: File of the admin token, in the state folder.
ADMIN_FILE = "admin.token"
#: Part of an allowed folder or prefix that stands for the name of the tenant.
TENANT = "{tenant}"
#: Lock file of a server on SQLite.
LOCK_FILE = "service.lock"


@dataclass(frozen=True)
class OidcSettings:
    """An OIDC issuer, and how the claims of its tokens become a tenant and a role.

    - `issuer`: URL of the issuer, exactly as in its tokens
    - `audience`: what `aud` must contain
    - `tenant_claim`, `role_claim`: names of claims; a dot enters an object
    - `roles`: role by value of the role claim; other values give none
    - `tenants`: tenant by value of the tenant claim; without any, the value is the tenant's name
    """

    issuer: str
    audience: str
    tenant_claim: str
    role_claim: str
    roles: tuple[tuple[str, str], ...]
    tenants: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a server.

    - `state`: folder of the database, the admin token and the engine's state
    - `allow_paths`: resolved folders in which jobs may read and write local files; one with TENANT is each tenant's own
    - `allow_stores`: URLs of buckets and prefixes that jobs may use, with the credentials of the server; the same
    - `allow_endpoints`: servers other than the public clouds that connections of tenants may name
    - `jobs_max`: jobs that run at the same time
    - `database`: URL of a PostgreSQL database, or None for the SQLite file of the state folder
    - `lease_s`: time without a sign of life after which another server adopts the jobs [s]
    - `sites`: place of each site, below which tenants have folders
    - `gateway`: path of the gateway program, or None to find it
    - `oidc`: issuer of further tokens
    - `key_file`: file of the key that seals secrets; by default `service.key` in the state folder
    - `machines`: whether jobs may run on machines of providers, which, and for how much
    - `guest_addresses`: IP addresses at which hosts of `send` and `receive` reach the gateways, each of which is a
      route; without any, there are no such jobs
    - `console`: state folder of the user whose own console this is, or None for a service. Its user may use any place
    - `webhook_networks`: networks of loopback, private or link-local addresses that webhooks may have
    - `tunes_links`: whether the scheduler decides how many jobs each link runs
    - `traces`: address that spans are sent to, or None to make none
    """

    state: Path
    allow_paths: tuple[str, ...] = ()
    allow_stores: tuple[str, ...] = ()
    allow_endpoints: tuple[str, ...] = ()
    jobs_max: int = 8
    database: str | None = None
    lease_s: int = LEASE_S_DEFAULT
    gateway: str | None = None
    oidc: OidcSettings | None = None
    key_file: str | None = None
    webhook_networks: tuple[str, ...] = ()
    traces: str | None = None
    sites: Mapping[str, str] = field(default_factory=dict)
    machines: MachineRules = HERE_ONLY
    guest_addresses: tuple[str, ...] = ()
    console: Path | None = None
    tunes_links: bool = True

    @property
    def guest_address(self) -> str | None:
        """Return the address that hosts of users dial first; None without any."""
        return next(iter(self.guest_addresses), None)

    @property
    def is_replica(self) -> bool:
        """Return whether other servers may use the same database and state folder."""
        return self.database is not None

    def paths_of(self, tenant: str) -> list[str]:
        """Return the folders that jobs of a tenant may use."""
        return [path.replace(TENANT, tenant) for path in self.allow_paths]

    def stores_of(self, tenant: str) -> list[str]:
        """Return the URLs of buckets and prefixes that jobs of a tenant may use with the credentials of the server."""
        return [url.replace(TENANT, tenant) for url in self.allow_stores]

    @property
    def shared_places(self) -> list[str]:
        """Folders, buckets and prefixes that jobs of all tenants may use."""
        return [place for place in (*self.allow_paths, *self.allow_stores) if TENANT not in place]

    @property
    def engine_state(self) -> str:
        """State folder of the engine that runs the jobs: for a user's own console, that of the user."""
        return str(self.state / "engine" if self.console is None else self.console)

    @property
    def admin_token(self) -> Path:
        """File of the admin token."""
        return self.state / ADMIN_FILE
