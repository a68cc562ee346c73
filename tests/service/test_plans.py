"""The frontier of a transfer between two regions, and the plan of a point of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from tests.service.server import Server

#: A plan takes seconds of a processor.
PLAN_S = 400.0
PLACES: dict[str, Any] = {"src": "aws:us-east-1", "dst": "gcp:europe-west4", "volume_gb": 50, "max_vms": 1}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    server = Server(tmp_path_factory.mktemp("plans"))
    server.start()
    with server.client() as client:
        client.timeout = httpx.Timeout(PLAN_S)
        yield client
    server.kill()


@pytest.mark.slow
def test_a_point_of_the_frontier_has_a_plan_at_its_price(client: httpx.Client) -> None:
    answer = client.get("/v1/frontier", params=PLACES)
    assert answer.status_code == 200, answer.text
    points = answer.json()["points"]
    assert len(points) >= 2
    for name in ("rate_gbps", "usd"):
        assert points == sorted(points, key=lambda point: point[name])
    fastest = points[-1]
    answer = client.get("/v1/plan", params={**PLACES, "rate_gbps": fastest["rate_gbps"]})
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert plan["usd"] == pytest.approx(fastest["usd"], rel=1e-2)
    assert plan["rate_gbps"] == pytest.approx(fastest["rate_gbps"], rel=1e-2)
    assert sum(route["share"] for route in plan["routes"]) == pytest.approx(1)
    ends = {(route["regions"][0], route["regions"][-1]) for route in plan["routes"]}
    assert ends == {(PLACES["src"], PLACES["dst"])}
    answer = client.get("/v1/plan", params={**PLACES, "rate_gbps": 1e5})
    assert answer.status_code == 409 and answer.json()["hint"], answer.text
    assert ElementTree.fromstring(plan["map_svg"]).tag.endswith("svg") and plan["explanation"]


@pytest.mark.slow
def test_places_that_have_no_plan_are_refused(client: httpx.Client) -> None:
    for changed, status in (({"dst": "aws:nowhere"}, 422), ({"dst": "nowhere"}, 422), ({"dst": PLACES["src"]}, 422)):
        answer = client.get("/v1/frontier", params={**PLACES, **changed})
        assert answer.status_code == status, answer.text
