"""No request that the server's own schema allows, or nearly allows, is answered with a server error."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok

from tests.service.server import Server

#: Requests tried for each operation, of each kind.
EXAMPLES = 10


@pytest.mark.slow
def test_no_generated_request_causes_a_server_error(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        token = (server.state / "admin.token").read_text().strip()
        tried: list[str] = []
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            for mode in GenerationMode.POSITIVE, GenerationMode.NEGATIVE:
                strategy = found.ok().as_strategy(generation_mode=GenerationMode(mode))

                @settings(
                    max_examples=EXAMPLES,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=strategy)
                def send(case: Any) -> None:
                    tried.append(case.path)
                    answer = case.call(headers={"Authorization": f"Bearer {token}"})
                    case.validate_response(answer, checks=[not_a_server_error])

                # Without parameters and body there is nothing to get wrong.
                if mode == GenerationMode.POSITIVE or found.ok().body or "{" in found.ok().path:
                    send()
        assert len(set(tried)) >= 10
        assert "Traceback" not in server.log
    finally:
        server.kill()
