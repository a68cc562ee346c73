"""Lines of a transfer about its machines at its end: that nothing is left, what is left, or that they may still run."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from testbed.drive import find_binary
from tests.fleet.faulty_provider import FaultyProvider
from tests.fleet.worlds import wait_until
from tradewind.cli.main import main
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Leftover, Provider, Refusal
from tradewind.fleet.providers import make_provider

OUT = Refusal("transient", "503 Service Unavailable")


class Cloud(FaultyProvider):
    """Processes of this host that count as machines of a cloud, with a group that can be left over."""

    leaves = ("machines", "security groups")
    fleets: ClassVar[list[str]] = []
    keeps_group = looks_fail = False

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        Cloud.fleets.append(fleet_id)
        if self.looks_fail:
            raise CallRefused(OUT)
        return (Leftover("sg-1", "security group", "", {FLEET_TAG: fleet_id}),) if self.keeps_group else ()


class World:
    """The command in this process, with a topology whose machines the cloud starts."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.cloud: Cloud | None = None
        self.prepare: Callable[[Cloud], None] = lambda _: None
        (folder / "data").mkdir()
        (folder / "data" / "object").write_bytes(os.urandom(100_000))
        document = {
            "gateways": {"src": {"role": "source"}, "dst": {"role": "sink"}},
            "routes": [{"nodes": ["src", "dst"], "share": 1.0}],
        }
        (folder / "topology.json").write_text(json.dumps(document))

    def make(self, *arguments: Any, **more: Any) -> Provider:
        self.cloud = self.cloud or Cloud(make_provider(*arguments, **more))
        self.prepare(self.cloud)
        return self.cloud

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        return code, out, err

    def copy(self, *more: str) -> tuple[int, str, str]:
        places = self.folder / "data", self.folder / "copy"
        code, out, err = self.run("cp", "-r", *places, "--topology", self.folder / "topology.json", *more)
        assert (self.folder / "copy" / "object").read_bytes() == (self.folder / "data" / "object").read_bytes()
        return code, out, err

    def end_machines(self) -> None:
        """End the machines that the cloud refused to end, and no others: every gateway of this host would be listed."""
        assert self.cloud is not None
        (fleet,) = {order.fleet_id for order in self.cloud.ordered}
        provider = self.cloud.inner
        provider.terminate([machine.id for machine in provider.machines({FLEET_TAG: fleet})])

    def job(self) -> str:
        _, out, _ = self.run("jobs", "list", "--json")
        return str(json.loads(out.splitlines()[-1])["id"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    made = World(tmp_path, capsys)
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TRADEWIND_GATEWAY", str(find_binary("tradewind-gateway")))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tradewind.engine.gateways.make_provider", made.make)
    monkeypatch.setattr("tradewind.fleet.remains.LOOK_WAIT_S", 0.01)
    monkeypatch.setattr("tradewind.fleet.patience.RETRY_WAIT_S", 0.01)
    Cloud.fleets = []
    return made


def left_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("left ")]


def test_a_transfer_ends_with_the_line_that_nothing_is_left(world: World) -> None:
    code, _, err = world.copy()
    (fleet,) = Cloud.fleets
    line = f"left    nothing is left: no machines or security groups of fleet {fleet}"
    assert (code, left_lines(err)) == (0, [line])
    job = world.job()
    assert left_lines(world.run("jobs", "show", job)[1]) == [line]
    (run,) = json.loads(world.run("jobs", "receipt", job)[1])["runs"]
    assert run["left"] == [{"fleet": fleet, "looked_for": ["machines", "security groups"], "left": [], "error": None}]


def test_what_is_left_is_named_and_does_not_fail_the_transfer(world: World) -> None:
    world.prepare = lambda cloud: setattr(cloud, "keeps_group", True)
    code, out, _ = world.copy("--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["exit_code"], last["left"][0]["left"]) == (0, 0, ["security group sg-1"])
    (line,) = left_lines(world.run("jobs", "show", world.job())[1])
    fleet = Cloud.fleets[0]
    assert line == f"left    security group sg-1 of fleet {fleet} is left; `tradewind fleet down {fleet}` removes it"


def test_an_api_that_does_not_answer_the_look_gives_one_line(world: World) -> None:
    world.prepare = lambda cloud: setattr(cloud, "looks_fail", True)
    code, _, err = world.copy()
    assert code == 0 and len(left_lines(err)) == 1 and "error:" not in err
    assert "is unknown: 503 Service Unavailable; `tradewind fleet sweep` looks again" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_transfer_whose_machines_cannot_be_ended_says_that_it_is_done(
    world: World, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr("tradewind.fleet.patience.OUTAGE_S", 1.0)
    monkeypatch.setattr("tradewind.fleet.patience.SAID_AFTER_S", 0.1)
    world.prepare = lambda cloud: cloud.calls_refused["terminate"].extend([OUT] * 10_000)
    code, out, err = world.copy(*(["--json"] if as_json else []))
    assert code == 10
    assert "error: the transfer is done, but 2 of 2 machines may still run: transient: 503" in err
    if as_json:
        last = json.loads(out.splitlines()[-1])
        assert (last["outcome"], last["exit_code"]) == ("done", 10) and "may still run" in last["left"][0]["error"]
    else:
        assert "moved   1 object" in err and "note: cannot end 2 machines at present (transient: 503" in err
    job = world.job()
    assert world.run("jobs", "wait", job)[0] == 0, "its objects are there"
    assert "may still run" in left_lines(world.run("jobs", "show", job)[1])[0]
    world.end_machines()


def test_ctrl_c_ends_the_wait_for_a_provider_that_does_not_answer(world: World) -> None:
    world.prepare = lambda cloud: cloud.calls_refused["terminate"].extend([OUT] * 100_000)

    def interrupt() -> None:
        wait_until(lambda: world.cloud is not None and world.cloud.calls.count("terminate") > 3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code, _, err = world.copy()
    thread.join()
    assert code == 10 and "moved   1 object" in err and "the transfer is done, but 2 of 2 machines may still run" in err
    world.end_machines()
