"""A database of the first version: its tokens get the new scopes of their roles, unless they were limited."""

import json
from pathlib import Path

from sqlalchemy import insert, select

from tradewind.service.auth import SCOPES_OF_ROLE
from tradewind.service.database import ServiceDatabase, _alembic
from tradewind.service.tables import tenants, tokens

ADMIN = ["audit:read", "jobs:read", "jobs:write", "metrics:read", "tenants", "tokens"]


def test_tokens_of_the_first_version(tmp_path: Path) -> None:
    from alembic import command

    database = ServiceDatabase(tmp_path)
    config = _alembic()
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(insert(tenants).values(name="lab", created_unix_ms=0))
        for name, scopes in (("full", ADMIN), ("limited", ["jobs:read", "tokens"])):
            row = {"id": name, "tenant": "lab", "name": "", "digest": name, "role": "service_admin"}
            connection.execute(insert(tokens).values(**row, scopes=json.dumps(scopes), created_unix_ms=0))
    assert database.migrate()
    with database.read() as connection:
        found = {row.id: set(json.loads(row.scopes)) for row in connection.execute(select(tokens))}
    assert found == {"full": SCOPES_OF_ROLE["service_admin"], "limited": {"jobs:read", "tokens"}}
    database.close()
