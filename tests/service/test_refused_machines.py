"""A job whose machines a provider refuses: its tenant reads no words of the provider, and it is worked on once."""

from contextlib import ExitStack
from pathlib import Path

from tests.service.machine_world import World, send
from tests.service.server import until
from tradewind.service.failures import PROVIDER_HINT


def test_a_refusal_is_logged_and_not_shown_to_the_tenant(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack, "--share-keys")
        for name in world.hosts:
            world.on_host(name).write_text("no folder")
        with world.server.client() as client:
            job_id = send(client, "refused", via="fleet")
            failed = until(client, job_id, "failed")
            world.nothing_is_left(client)
        assert failed["error"] == "2 machines of the operator cannot be launched: permission"
        assert failed["hint"] == PROVIDER_HINT
        log = world.server.log
    assert f"job {job_id}: machine" in log and f"cannot make {world.on_host('a')}" in log
    assert "the lease is lost" not in log, "it was given back while it waited for its routes, and not lost"
