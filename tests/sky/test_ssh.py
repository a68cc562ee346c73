"""``--via fleet`` over real SSH servers: a laptop, a jump host, and hosts in three sites with two object stores."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command, Finished
from testbed.servers.install import go_program
from testbed.servers.versitygw import MODULE, REGION, VERSION
from testbed.sky import unavailable
from testbed.sshd import WAIT, ssh_servers, sshd_unavailable
from testbed.transcript import record_step
from tests.fleet.worlds import wait_until
from tests.sky.test_store import PORT, SECRET
from tests.sky.world import differences, write_files
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

SITES = ("a", "relay", "b")
WORLD = {
    "regions": {f"site:{name}": {"name": name} for name in (*SITES, "jump", "laptop")},
    "links": [
        {"between": ["site:a", "site:b"], "rtt_ms": 60, "rate": "50Mbit/s"},
        {"between": ["site:a", "site:relay"], "rtt_ms": 20, "rate": "100Mbit/s"},
        {"between": ["site:relay", "site:b"], "rtt_ms": 20, "rate": "100Mbit/s"},
        {"between": ["site:laptop", "site:jump"], "rtt_ms": 20, "rate": "200Mbit/s"},
        *({"between": ["site:jump", f"site:{name}"], "rtt_ms": 5, "rate": "200Mbit/s"} for name in SITES),
        # The laptop reaches the stores, but no gateway: their ports are on machines that it knows by SSH only.
        *({"between": ["site:laptop", f"site:{name}"], "rtt_ms": 20, "rate": "20Mbit/s"} for name in ("a", "b")),
    ],
}
LINKS = """\
src,dst,gbps
site:a,site:b,0.045
site:a,site:relay,0.09
site:relay,site:b,0.09
"""
VOLUME_BYTES = 60_000_000


class Stage:
    """The command on the laptop, configured for three hosts behind the jump host, and a store in two of the sites."""

    def __init__(self, command: Command, sky: Sky, folder: Path) -> None:
        self.command, self.sky, self.folder = command, sky, folder
        self.source = folder / "store a" / "bucket" / "data"
        self.copy = folder / "store b" / "bucket" / "copy"
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--via", "fleet"),
            *("--src-region", "site:a", "--dst-region", "site:b"),
            *("--src-endpoint", self.endpoint("a"), "--dst-endpoint", self.endpoint("b"), "--share-keys"),
        ]

    def endpoint(self, site: str) -> str:
        return f"http://{self.sky.machines[f'{site}-1'].address}:{PORT}"

    def gateways(self) -> dict[str, int]:
        """Return the process ids of the gateways on the hosts, by host."""
        found = {}
        for site in SITES:
            for pid in self.folder.glob(f"on {site}/machines/*/pid"):
                found[site] = int(pid.read_text())
        return found

    def programs(self) -> list[Path]:
        return sorted(self.folder.glob("on */programs/*"))

    def check(self, done: Finished) -> None:
        """Check that the transfer succeeded, is described, and left nothing but the copied programs."""
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        shown = self.command.run("jobs", "show", str(self.command.jobs()[0]["id"])).expect(0)
        assert "first byte" in shown.stdout and "proven" in shown.stdout, shown.stdout
        self.nothing_runs()

    def nothing_runs(self) -> None:
        wait_until(lambda: list(self.folder.glob("on */machines/*")) == [])


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := unavailable() or sshd_unavailable():
        pytest.skip(reason)
    with ExitStack() as stack:
        short = Path(stack.enter_context(TemporaryDirectory(prefix="tw-ssh-")))
        sky = stack.enter_context(Sky.up(network_from_document(WORLD, Path())))
        names = [f"{site}-1" for site in SITES]
        config = stack.enter_context(ssh_servers(sky, (*names, "jump-1"), short / "ssh", jump="jump-1", enter=False))
        command = Command(tmp_path / "home", enter=tuple(sky.command("laptop-1", [])))
        command.environment |= {"AWS_ACCESS_KEY_ID": "testbed", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        write_config(command, sky, config, tmp_path)
        for site in ("a", "b"):
            (tmp_path / f"store {site}" / "bucket").mkdir(parents=True)
            server = stack.enter_context(start_store(sky, f"{site}-1", tmp_path / f"store {site}"))
            stack.callback(server.kill)
        made = Stage(command, sky, tmp_path)
        write_files(made.source, VOLUME_BYTES)
        links = tmp_path / "links.csv"
        links.write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", links).expect(0)
        yield made
        command.wait_until_alone()


def write_config(command: Command, sky: Sky, ssh_config: Path, folder: Path) -> None:
    # The laptop knows its own rate, which is far below that of the hosts.
    lines = ["[fleet]", 'home_rate = "5Mbit/s"', "[ssh]", f'config = "{ssh_config}"']
    for site in SITES:
        lines += [
            "[[ssh.hosts]]",
            f'name = "{site}-1"',
            f'region = "site:{site}"',
            f'address = "{sky.machines[f"{site}-1"].address}"',
            f'folder = "{folder}/on {site}"',
        ]
    command.configure(*lines)


def start_store(sky: Sky, machine: str, folder: Path) -> subprocess.Popen[bytes]:
    address = sky.machines[machine].address
    program = go_program("versitygw", MODULE, VERSION)
    words = [str(program), "--port", f"{address}:{PORT}", "--quiet", "--region", REGION, "posix", str(folder)]
    environment = {**os.environ, "ROOT_ACCESS_KEY": "testbed", "ROOT_SECRET_KEY": SECRET}
    server = sky.popen(machine, words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    waited = sky.run("laptop-1", [sys.executable, "-c", WAIT, address, str(PORT)], capture_output=True, text=True)
    assert waited.returncode == 0, waited.stderr
    return server


def network_of(pid: int) -> int | None:
    """Return the number of a process's network namespace; None if it has ended."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    return None


def secrets_on_hosts(stage: Stage) -> list[str]:
    """Return the places with the stores' secret key or a token to join: files on the hosts, and arguments.

    The arguments are those of all processes of the command and on the hosts, but no others': tests may run beside this.
    """
    files = [path for site in SITES for path in stage.folder.glob(f"on {site}/machines/**/*") if path.is_file()]
    networks = {network_of(pid) for pid in (*stage.command.processes(), *stage.gateways().values())} - {
        None,
        network_of(os.getpid()),
    }
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    arguments = [Path(f"/proc/{pid}/cmdline") for pid in pids if network_of(pid) in networks]
    assert len(arguments) > 2 * len(SITES)
    found = []
    for path in (*files, *arguments):
        with suppress(OSError):
            content = path.read_bytes()
            if SECRET.encode() in content or b"token_hex" in content:
                found.append(str(path))
    return found


@pytest.mark.slow
def test_a_transfer_moves_between_hosts_and_leaves_nothing(stage: Stage) -> None:
    """No secret of the stores is on a disk of a host or among arguments. Another transfer copies no program again."""
    running = stage.command.start(*stage.words)
    running.wait_for_bytes(VOLUME_BYTES // 6)
    assert set(stage.gateways()) == set(SITES)
    assert secrets_on_hosts(stage) == []
    done = running.finish()
    stage.check(done)
    assert len(stage.programs()) == len(SITES)
    assert any("relay" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    before = [path.stat().st_mtime_ns for path in stage.programs()]
    shutil.rmtree(stage.copy)
    again = stage.command.run(*(word for word in stage.words if word not in ("--via", "fleet")))
    stage.check(again)
    assert "--via auto uses your machines in site:a and site:b: " in again.stderr
    assert [path.stat().st_mtime_ns for path in stage.programs()] == before
    jobs = [json.loads(line)["id"] for line in stage.command.run("jobs", "list", "--json").stdout.splitlines()]
    started = [line for line in again.stderr.splitlines() if line.startswith("started ")]
    assert len(started) == 1 and started[0].startswith("started 3 machines; the slowest was accepted after ")
    assert ", enrolled " in started[0] and ", first byte " in started[0]
    assert started[0] in stage.command.run("jobs", "show", max(jobs)).stdout.splitlines()
    swept = stage.command.run("fleet", "sweep").expect(0).stdout.splitlines()
    assert swept == [*(f"{site}-1: removed a copied program" for site in SITES), "nothing is left"]


@pytest.mark.slow
def test_a_relay_that_dies_is_replaced(stage: Stage) -> None:
    running = stage.command.start(*stage.words)
    running.wait_for_bytes(VOLUME_BYTES // 6)
    stage.sky.set_link("site:a", "site:b", rate_mbps=8)  # The job must not end before the relay is replaced.
    record_step("The gateway in site:relay is killed.")
    os.kill(stage.gateways()["relay"], signal.SIGKILL)
    running.wait_for(lambda event: "takes its place" in event.get("message", ""))
    stage.check(running.finish())
    assert stage.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"


@pytest.mark.slow
def test_a_plan_does_without_a_relay_that_cannot_be_reached(stage: Stage) -> None:
    """A destination that cannot be reached ends the transfer before it begins."""
    text = stage.command.configuration.read_text(encoding="utf-8")
    stage.command.configure(text.replace('"relay-1"', '"no-such-host.invalid"'))
    done = stage.command.run(*stage.words)
    stage.check(done)
    assert "site:a → site:b 100%" in done.stderr, done.stderr
    stage.command.configure(text.replace('"b-1"', '"no-such-host.invalid"'))
    failed = stage.command.run(*stage.words)
    assert failed.code != 0 and "no-such-host.invalid: ssh: Could not resolve hostname" in failed.stderr
    assert "Traceback" not in failed.stderr
    stage.nothing_runs()


@pytest.mark.slow
def test_gateways_that_a_killed_command_has_left_are_ended_by_its_record(stage: Stage) -> None:
    running = stage.command.start(*stage.words)
    running.wait_for_bytes(VOLUME_BYTES // 6)
    running.signal(signal.SIGKILL)
    running.finish()
    assert stage.gateways()
    stage.command.run("fleet", "down").expect(0)
    stage.nothing_runs()
