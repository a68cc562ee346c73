"""Databases for the tests of the service."""

from collections.abc import Iterator

import pytest

from testbed.postgres import Postgres
from testbed.servers import InstallError


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    try:
        database = Postgres()
    except InstallError as error:
        pytest.skip(str(error))
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return the URL of PostgreSQL; None for SQLite."""
    if request.param == "sqlite":
        return None
    server: Postgres = request.getfixturevalue("postgres")
    monkeypatch.setenv("PGPASSWORD", server.environment["PGPASSWORD"])
    return server.url
