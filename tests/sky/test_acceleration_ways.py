"""Ways in `transparent` and `run` of an acceleration in a sky, and several flows to one destination."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from testbed.drive import Command
from tests.gateway.test_accelerate_run import redirecting
from tests.sky.test_accelerate import BODY, FLOWS, SKY, client_of, running, states, until, until_failed, up

__all__ = ["redirecting"]

pytest.importorskip("tomllib")

OTHER_PORT = 8001
COMMAND = FLOWS.partition("[[flow]]")[2].replace('"backup"', '"command"').replace(":8000", f":{OTHER_PORT}")
AUTOMATIC = FLOWS.partition("[[flow]]")[2].replace('"backup"', '"automatic"')
#: `backup` and `automatic` have one destination, and different ways in.
WAYS = AUTOMATIC + 'way_in = "transparent"\n\n[[flow]]' + COMMAND + 'way_in = "run"\n'
ALL = FLOWS + "\n[[flow]]" + WAYS


def in_client(world: Command, *words: str) -> tuple[bytes, str]:
    code, body, said = world.run_bytes("sky", "exec", world.home / "sky.json", "client-1", "--", *words)
    assert code == 0, said
    return body, said


def fetched(world: Command, url: str, *before: str) -> tuple[bytes, str]:
    return in_client(world, *before, "curl", "-sS", "--retry", "9", "--retry-all-errors", "--max-time", "120", url)


@pytest.mark.slow
def test_programs_reach_the_proxies_without_an_address(command: Command, redirecting: str) -> None:
    command.environment["PATH"] = redirecting
    with running(command, SKY, ALL) as world:
        words = "sky", "exec", world.home / "sky.json", "server-1", "--", "python3", "-m", "http.server"
        other = subprocess.Popen(
            [str(world.binary), *map(str, words), str(OTHER_PORT), "-d", str(world.home / "www")],
            env=world.full_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            state = up(world)
            assert [flow["way"] for flow in state["flows"]] == ["forward", "transparent", "run"]
            assert [flow.get("shared_with", []) for flow in state["flows"]] == [[], [], []]
            # Any program of the machine goes through the proxies, and so does the flow with an address.
            assert fetched(world, "http://10.77.3.1:8000/file")[0] == BODY
            until(world, lambda now: now["flows"][1].get("bytes_down", 0) >= len(BODY))
            assert fetched(world, f"http://{state['flows'][0]['listen']}/file")[0] == BODY
            found = until(world, lambda now: now["flows"][0].get("bytes_down", 0) >= len(BODY))
            # Each has its own path and counts. Together they used the proxies.
            assert found["flows"][1]["bytes_down"] < 2 * len(BODY)
            assert any(flow["through"] for flow in found["flows"][:2])
            assert sum(proxy.get("bytes_down", 0) for proxy in found["proxies"]) >= len(BODY)

            # Only commands of `accelerate run` use the other one.
            url = f"http://10.77.3.1:{OTHER_PORT}/file"
            assert fetched(world, url)[0] == BODY
            run = str(world.binary), "accelerate", "run", "--"
            body, said = fetched(world, url, *run)
            assert body == BODY and "1 connection to the proxy" in said
            until(world, lambda now: now["flows"][2].get("bytes_down", 0) >= len(BODY))
            assert states(world)[0]["flows"][2]["connections"] == 1

            os.kill(client_of(world)["client_pid"], signal.SIGKILL)
            until_failed(world)
            # Nothing is redirected any more.
            assert fetched(world, "http://10.77.3.1:8000/file")[0] == BODY
            assert b"tradewind" not in in_client(world, "nft", "list", "tables")[0]
        finally:
            other.terminate()
            other.wait()


@pytest.mark.slow
def test_two_accelerations_with_one_destination_do_not_redirect_each_other(command: Command, redirecting: str) -> None:
    """Both are direct, as each is for a moment when it is compared. One connection became thousands."""
    command.environment["PATH"] = redirecting
    head = FLOWS.replace("20 USD", "0.0001 USD").partition("[[flow]]")[0]
    with running(command, SKY, f'{head}[[flow]]{AUTOMATIC}way_in = "transparent"\n') as world:
        for _ in range(2):
            (flow,) = up(world)["flows"]
            assert (flow["way"], flow["through"]) == ("transparent", [])
        assert fetched(world, "http://10.77.3.1:8000/file")[0] == BODY
        # The kernel chooses which of them redirects first.
        until(world, lambda _: any(state["flows"][0].get("bytes_down", 0) >= len(BODY) for state in states(world)))
        assert all(state["flows"][0].get("connections", 0) <= 1 for state in states(world))
