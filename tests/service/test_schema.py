"""No request that the server's own schema allows, or nearly allows, is answered with a server error."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error

from tests.service.server import Server

#: Requests tried for each operation.
EXAMPLES = 25


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("service"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def generated(server: Server) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("generated")


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_generated_request_causes_a_server_error(case: Case, server: Server) -> None:
    token = (server.state / "admin.token").read_text().strip()
    case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=[not_a_server_error])
    assert "Traceback" not in server.log
