"""A job whose machines a provider refuses: its tenant reads no words of the provider, and it is worked on once."""

from contextlib import ExitStack
from pathlib import Path

from tests.fleet.worlds import wait_until
from tests.service.machine_world import SLOW_BYTES_PER_S, World, send
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


def test_a_refusal_to_a_job_that_goes_on_is_in_no_receipt_and_no_event(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack, "--share-keys")
        with world.server.client() as client:
            job_id = send(client, "refused", via="fleet", limit_bytes_per_s=SLOW_BYTES_PER_S)
            wait_until(lambda: (until(client, job_id, "running")["counts"] or {}).get("bytes_done", 0) > 0)
            assert client.post(f"/v1/jobs/{job_id}/pause").status_code == 202
            until(client, job_id, "paused")
            world.nothing_is_left(client)
            for name in world.hosts:
                world.on_host(name).rename(tmp_path / f"was {name}")
                world.on_host(name).write_text("no folder")
            assert client.post(f"/v1/jobs/{job_id}/resume").status_code == 202
            until(client, job_id, "failed")
            told = [client.get(f"/v1/jobs/{job_id}{part}").text for part in ("", "/receipt", "/events")]
        log = world.server.log
    words = f"cannot make {world.on_host('a')}"
    assert [text for text in told if words in text] == []
    assert words in log, "the operator reads it"
    assert all("cannot be launched: permission" in text for text in told)
