"""Warm fleets by the real command: SSH hosts that are this host under two names, and two real object stores."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command, Finished
from testbed.servers.versitygw import REGION
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.transfers import SECRET, two_stores
from tests.fleet.worlds import wait_until
from tests.sky.world import differences, write_files

pytestmark = pytest.mark.slow

SITES = ("a", "b")
VOLUME_BYTES = 4_000_000


class Stage:
    """The command, configured for a host in each of two regions with two places for gateways, and two stores."""

    def __init__(self, command: Command, folder: Path, source: Path, copy: Path, endpoints: tuple[str, str]) -> None:
        self.command, self.folder, self.source, self.copy = command, folder, source, copy
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--via", "fleet", "--share-keys"),
            *("--src-region", "site:a", "--dst-region", "site:b", "--max-vms", "1"),
            *("--src-endpoint", endpoints[0], "--dst-endpoint", endpoints[1]),
        ]

    def up(self, *words: str) -> str:
        """Start a warm fleet and return its id."""
        done = self.command.run("fleet", "up", "site:a", "site:b", "--json", "-y", *words)
        assert done.code == 0, done.stderr
        fleet: str = json.loads(done.stdout)["id"]
        return fleet

    def fleets(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.command.run("fleet", "list", "--json").stdout.splitlines()]

    def gateways(self) -> dict[str, int]:
        """Return the process id of each gateway on the hosts, by the folder of its machine."""
        return {path.parent.name: int(path.read_text()) for path in self.folder.glob("on */machines/*/pid")}

    def check(self, done: Finished) -> None:
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        shutil.rmtree(self.copy)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with (
        TemporaryDirectory(prefix="tw-warm-") as short,
        local_ssh_server(Path(short, "ssh")) as server,
        two_stores("127.0.0.1", tmp_path) as stores,
    ):
        command = Command(Path(short, "home"))
        keys = {"AWS_ACCESS_KEY_ID": stores[0].access_key, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        command.environment |= keys
        with server.config.open("a", encoding="utf-8") as config:
            config.writelines(f"Host {site}\n  HostName 127.0.0.1\n" for site in SITES)
        lines = ["[fleet]", 'home_rate = "1MB/s"', "[ssh]", f'config = "{server.config}"']
        for site in SITES:
            lines += ["[[ssh.hosts]]", f'name = "{site}"', f'region = "site:{site}"', 'address = "127.0.0.1"']
            lines += ["usd_per_hour = 1", "gateways = 2", f'folder = "{tmp_path}/on {site}"']
        command.configure(*lines)
        source, copy = (
            each.folder / "data" / "bucket" / name for each, name in zip(stores, ("data", "copy"), strict=True)
        )
        write_files(source, VOLUME_BYTES)
        made = Stage(command, tmp_path, source, copy, (stores[0].endpoint, stores[1].endpoint))
        yield made
        command.run("fleet", "down", "--all").expect(0)
        wait_until(lambda: made.gateways() == {})
        command.wait_until_alone()


def test_transfers_use_the_machines_of_a_warm_fleet_and_give_them_back(stage: Stage) -> None:
    refused = stage.command.run("fleet", "up", "site:a", "site:b")
    assert refused.code == 2 and "$2.00 per hour, at most $8.00" in refused.stderr
    fleet = stage.up()
    before = stage.gateways()
    assert len(before) == 2
    (listed,) = stage.fleets()
    assert listed["id"] == fleet and listed["abandoned"] is False and listed["warm_until_unix_s"]
    for _ in range(2):
        done = stage.command.run(*stage.words)
        stage.check(done)
        assert f"uses 1 warm machine in site:a and 1 warm machine in site:b, of fleet {fleet}" in done.stderr
        assert stage.gateways() == before, done.stderr
    swept = stage.command.run("fleet", "sweep").expect(0)
    assert "warm" in swept.stdout and stage.gateways() == before
    ended = stage.command.run("fleet", "down", fleet).expect(0)
    assert f"{fleet}: 2 machines ended" in ended.stdout and "idle" in ended.stdout
    assert stage.gateways() == {} and stage.fleets() == []
    assert not (stage.command.state / "fleets" / fleet).exists()


def test_a_fleet_whose_client_was_killed_is_free_again(stage: Stage) -> None:
    fleet = stage.up()
    before = stage.gateways()
    running = stage.command.start(*stage.words, "--limit-rate", "200KB/s")
    running.wait_for_bytes(VOLUME_BYTES // 20)
    running.signal(signal.SIGKILL)
    running.finish()
    done = stage.command.run(*stage.words)
    stage.check(done)
    assert f"of fleet {fleet}" in done.stderr
    assert stage.gateways() == before, done.stderr


def test_two_transfers_at_once_share_no_machine(stage: Stage) -> None:
    stage.up()
    warm = stage.gateways()
    slow = stage.command.start(*stage.words, "--limit-rate", "400KB/s")
    slow.wait_for_bytes(VOLUME_BYTES // 20)
    other = stage.command.start(*(word.replace("/copy/", "/other/") for word in stage.words), "--limit-rate", "400KB/s")
    other.wait_for_bytes(VOLUME_BYTES // 20)
    assert len(stage.gateways()) == 4
    assert other.finish().code == 0
    stage.check(slow.finish())
    wait_until(lambda: stage.gateways() == warm)
