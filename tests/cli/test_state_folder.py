"""Every verb uses the same state folder: the variable overrides the configuration, which overrides the default."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine.test_jobs import make
from tests.sky.world import RELAY, SINK, SOURCE, write_world
from tradewind.cli.main import main
from tradewind.engine.jobs import JobStore
from tradewind.sky.folders import sky_folder

PAIR = [SOURCE, SINK]
PLACES = ["variable", "profile", "configuration", "default"]
"""Settings in order of precedence: the first one that is set wins."""


@pytest.fixture(params=range(len(PLACES)), ids=PLACES)
def state(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder that must be used. Each setting of lower precedence names another one."""
    folders = [tmp_path / place for place in PLACES]
    named = PLACES[request.param :]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "default"))
    monkeypatch.delenv("TRADEWIND_STATE_DIR", raising=False)
    if "variable" in named:
        monkeypatch.setenv("TRADEWIND_STATE_DIR", str(folders[0]))
    config = tmp_path / "config.toml"
    if "configuration" in named:
        config.write_text(f'state_dir = "{folders[2]}"\n')
    else:
        config.touch()
    if "profile" in named:
        config.write_text(f'profile = "lab"\n{config.read_text()}[profiles.lab]\nstate_dir = "{folders[1]}"\n')
    monkeypatch.setenv("TRADEWIND_CONFIG", str(config))
    monkeypatch.delenv("TRADEWIND_PROFILE", raising=False)
    return folders[3] / "tradewind" if named == ["default"] else folders[request.param]


@pytest.mark.parametrize(
    "words",
    [
        ["catalog", "show"],
        ["catalog", "show", *PAIR],
        ["catalog", "import", "mine.csv"],
        ["catalog", "refresh", "--provider", "aws"],
        ["plan", *PAIR],
        ["plan", *PAIR, RELAY],
        ["measure", "--sky", "world.json"],
    ],
    ids=" ".join,
)
def test_the_catalog_is_in_the_state_folder(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    """The error for an unreadable table shows the folder that was used."""
    table = state / "catalog" / "links.csv"
    table.parent.mkdir(parents=True)
    table.write_text("src,dst,gbps\nnonsense,aws:us-east-1,1\n")
    (tmp_path / "mine.csv").write_text("src,dst,gbps\naws:us-east-1,aws:us-east-2,1\n")
    write_world(tmp_path)
    assert main([*words]) == 2
    assert f"error: {table}: line 2, column src" in capsys.readouterr().err


def test_the_jobs_are_in_the_state_folder(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(JobStore(str(state)), "job-1", "done")
    assert main(["jobs", "list", "--json"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["job-1"]


def hang_up(listener: socket.socket) -> None:
    """Close the connections of the probe and of the request that follows."""
    for _ in range(2):
        listener.accept()[0].close()


def test_the_skies_are_in_the_state_folder(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another program listens at the sky's socket. The error says that it is not a sky."""
    file = write_world(tmp_path)
    place = sky_folder(str(state), file)
    place.mkdir(parents=True)
    monkeypatch.chdir(place)  # The path of a Unix socket must be short.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("control.sock")
        listener.listen()
        threading.Thread(target=hang_up, args=[listener], daemon=True).start()
        monkeypatch.chdir(tmp_path)
        assert main(["sky", "status", str(file)]) == 1
    assert "is not running" not in capsys.readouterr().err


def test_config_show_prints_the_state_folder(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    settings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["value"] for row in settings if row["setting"] == "state_dir"] == [str(state)]
