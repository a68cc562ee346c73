"""The tables of a state folder's database, version by version (docs/reference/state.md).

A released version is never changed: a change is a new migration, and `PRAGMA user_version` counts them.
"""

from __future__ import annotations

__all__ = ["JOB_TABLES", "MIGRATIONS", "VERSION"]

_FIRST = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    verb TEXT NOT NULL,
    source TEXT NOT NULL,
    destinations TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open',
    paused INTEGER NOT NULL DEFAULT 0,
    progress TEXT,
    summary TEXT,
    request TEXT NOT NULL,
    spec TEXT NOT NULL,
    lead TEXT
);
CREATE TABLE plans (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    topology TEXT,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE events (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    run INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE progress (
    job TEXT PRIMARY KEY NOT NULL,
    line TEXT NOT NULL
);
CREATE TABLE ledgers (
    job TEXT PRIMARY KEY NOT NULL,
    prices TEXT NOT NULL,
    predicted_usd REAL,
    earlier_usd REAL NOT NULL,
    heartbeat_unix_s REAL NOT NULL,
    alive_s_max REAL NOT NULL
);
CREATE TABLE ledger_machines (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    run INTEGER NOT NULL,
    fleet TEXT NOT NULL,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    launched_unix_s REAL NOT NULL,
    ended_unix_s REAL,
    usd_per_s REAL NOT NULL,
    source TEXT NOT NULL,
    billed_s_min REAL NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE ledger_runs (
    job TEXT NOT NULL,
    run INTEGER NOT NULL,
    egress_usd REAL NOT NULL,
    read TEXT NOT NULL,
    write TEXT NOT NULL,
    route_bytes TEXT NOT NULL,
    PRIMARY KEY (job, run)
) WITHOUT ROWID;
CREATE TABLE fleets (
    id TEXT PRIMARY KEY NOT NULL,
    purpose TEXT NOT NULL,
    provider TEXT NOT NULL,
    wanted TEXT NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    owner TEXT NOT NULL,
    lock_inode TEXT,
    heartbeat_unix_s REAL NOT NULL,
    closed_unix_s REAL
);
CREATE TABLE machines (
    fleet TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    launched_unix_s REAL NOT NULL,
    ready_unix_s REAL,
    ended_unix_s REAL,
    PRIMARY KEY (fleet, number)
) WITHOUT ROWID;
CREATE TABLE leases (
    fleet TEXT NOT NULL,
    machine TEXT NOT NULL,
    lapses_unix_s REAL NOT NULL,
    PRIMARY KEY (fleet, machine)
) WITHOUT ROWID;
CREATE TABLE imports (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
"""

_FLEET_INTENTS = """
ALTER TABLE fleets ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
ALTER TABLE fleets ADD COLUMN dismissed INTEGER NOT NULL DEFAULT 0;
CREATE TABLE attempts (
    fleet TEXT NOT NULL,
    number INTEGER NOT NULL,
    unix_s REAL NOT NULL,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    type TEXT,
    zone TEXT,
    action TEXT,
    PRIMARY KEY (fleet, number)
) WITHOUT ROWID;
ALTER TABLE ledger_machines ADD COLUMN billed_unit_s REAL NOT NULL DEFAULT 0;
"""

_PROPOSALS = """
CREATE TABLE catalogs (
    digest TEXT PRIMARY KEY NOT NULL,
    document BLOB NOT NULL
);
CREATE TABLE proposals (
    id TEXT PRIMARY KEY NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    expires_unix_ms INTEGER NOT NULL,
    job TEXT,
    catalog TEXT,
    document TEXT NOT NULL
);
CREATE INDEX proposal_of_job ON proposals (job);
ALTER TABLE plans ADD COLUMN document TEXT;
"""

_DUPLICATES = """
ALTER TABLE ledger_runs ADD COLUMN duplicate_bytes INTEGER NOT NULL DEFAULT 0;
"""

_WARM_FLEETS = """
CREATE TABLE warm_fleets (
    fleet TEXT PRIMARY KEY NOT NULL,
    idle_s INTEGER NOT NULL,
    ends_unix_s REAL NOT NULL,
    machines TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE warm_uses (
    fleet TEXT NOT NULL,
    number INTEGER NOT NULL,
    job TEXT NOT NULL,
    machine TEXT NOT NULL,
    began_unix_s REAL NOT NULL,
    ended_unix_s REAL,
    PRIMARY KEY (fleet, number)
) WITHOUT ROWID;
"""

_BOOT_PHASES = """
ALTER TABLE machines ADD COLUMN running_unix_s REAL;
ALTER TABLE machines ADD COLUMN first_byte_unix_s REAL;
"""

_BOOTED = """
ALTER TABLE machines ADD COLUMN booted_unix_s REAL;
"""

_ORDERED_LEASES = """
ALTER TABLE machines ADD COLUMN lease_s INTEGER;
"""

#: Each entry migrates a database by one version.
MIGRATIONS: tuple[str, ...] = (
    _FIRST,
    _FLEET_INTENTS,
    _PROPOSALS,
    _DUPLICATES,
    _WARM_FLEETS,
    _BOOT_PHASES,
    _BOOTED,
    _ORDERED_LEASES,
)
#: Newest database version that this program reads.
VERSION = len(MIGRATIONS)
#: Tables with rows per job, in the column `job`.
JOB_TABLES = ("proposals", "plans", "events", "progress", "ledgers", "ledger_machines", "ledger_runs")
