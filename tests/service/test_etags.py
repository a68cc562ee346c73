"""Lists that are replaced as a whole: not over the changes of somebody else."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.local import new_database
from tradewind.service.app import Service, create_app
from tradewind.service.settings import ServiceSettings

TARIFF = {"name": "base", "unit": "GB", "tiers": [{"from_quantity": 0, "usd_micros_per_unit": 1}]}
#: Two documents of each list.
DOCUMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "limits": ({"limits": [{"kind": "tenant", "name": "default", "active": 2}]}, {"limits": []}),
    "weights": ({"weights": [{"tenant": "default", "weight": 2.5}]}, {"weights": []}),
    "tariffs": ({"tariffs": [TARIFF]}, {"tariffs": [{**TARIFF, "name": "other"}]}),
}


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[httpx.Client]:
    with closing(new_database(tmp_path)) as database:
        service = Service(ServiceSettings(tmp_path / "state"), database)
        token = service.settings.admin_token.read_text().strip()
        with TestClient(create_app(service), headers={"Authorization": f"Bearer {token}"}) as client:
            yield client


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_list_that_has_changed_is_not_replaced(admin: httpx.Client, name: str) -> None:
    first, second = DOCUMENTS[name]
    path, read = f"/v1/{name}", admin.get(f"/v1/{name}").headers["ETag"]
    made = admin.put(path, json=first, headers={"If-Match": read})
    assert made.status_code == 200, made.text
    assert made.headers["ETag"] == admin.get(path).headers["ETag"] != read
    late = admin.put(path, json=second, headers={"If-Match": read})
    assert (late.status_code, late.headers["Content-Type"]) == (412, "application/problem+json")
    assert late.json()["title"] == "Precondition failed"
    assert admin.get(path).json() == made.json()
    for given in (made.headers["ETag"], f'"other", W/{made.headers["ETag"]}', "*", None):
        headers = {} if given is None else {"If-Match": given}
        assert admin.put(path, json=first, headers=headers).status_code == 200, given
