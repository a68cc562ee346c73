"""`fleet list --everywhere` and `fleet sweep`: all machines on the configured hosts, from an empty state folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from tests.fleet.worlds import wait_until
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.fleet.provider import LaunchOrder, Lease, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway

PRINT_OWNER = "from tradewind.fleet.owner import here; print(here().label)"
ELSEWHERE = "0123456789abcdef-01234567-1-1"


class Stage:
    """A host with machines of three owners: one that lives, one that is gone, and one of another host."""

    def __init__(self, command: Command, server: LocalServer, folder: Path) -> None:
        self.command, self.server, self.on_host = command, server, folder / "on the host"
        host = {"name": "here", "region": "site:here", "address": "127.0.0.1", "gateways": 3}
        self.host = {**host, "folder": str(self.on_host)}
        document = {"kind": "ssh", "hosts": [self.host], "ssh_config": str(server.config)}
        self.provider: Provider = make_provider(document, find_gateway(), FleetJournal(folder / "state"))

    def launch(self, name: str, owner: str) -> None:
        (result,) = self.provider.launch([LaunchOrder(f"fleet-{name}", name, "site:here", name, 1, Lease(600, owner))])
        assert result.machine is not None, result.refusal

    def configure(self, *hosts: dict[str, object]) -> None:
        lines = ["[ssh]", f'config = "{self.server.config}"']
        for host in hosts:
            lines += ["[[ssh.hosts]]", *(f"{key} = {json.dumps(value)}" for key, value in host.items())]
        self.command.configure(*lines)

    def listed(self) -> dict[str, str]:
        done = self.command.run("fleet", "list", "--everywhere", "--json").expect(0)
        return {line["machine"]: line["owner"] for line in map(json.loads, done.stdout.splitlines())}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as server:
        made = Stage(Command(tmp_path / "home"), server, tmp_path)
        made.configure(made.host)
        gone = subprocess.run([sys.executable, "-c", PRINT_OWNER], capture_output=True, text=True, check=True)
        for name, owner in (("mine", here().label), ("orphan", gone.stdout.strip()), ("foreign", ELSEWHERE)):
            made.launch(name, owner)
        yield made
        made.provider.terminate([found.id for found in made.provider.leftovers()])


def test_a_sweep_closes_the_records_of_this_state_folder(stage: Stage) -> None:
    """Otherwise the ledgers of their jobs would grow until the leases of machines that are gone must have expired."""
    journal = FleetJournal(stage.command.state)
    journal.open("fleet-orphan", "a test", stage.provider.document(), {"orphan": "site:here"})
    journal.give_back("fleet-orphan")
    assert "here: ended orphan of fleet-orphan" in stage.command.run("fleet", "sweep").expect(0).stdout
    assert stage.command.run("fleet", "list").expect(0).stdout == ""


def test_a_fleet_of_another_state_folder_is_ended_by_its_tags(stage: Stage) -> None:
    """Even if its command runs, as for a fleet of this state folder."""
    unknown = stage.command.run("fleet", "down", "fleet-mine", "fleet-none").expect(3)
    assert (
        "error: no fleet fleet-none in this state folder, and nothing of it in the configured places" in unknown.stderr
    )
    assert len(stage.listed()) == 3, "nothing ends if one is unknown"
    done = stage.command.run("fleet", "down", "fleet-mine").expect(0)
    assert "here: ended mine of fleet-mine\nran  site:here  mine of fleet-mine for " in done.stdout
    assert stage.listed() == {"orphan": "gone", "foreign": "elsewhere"}


def test_a_damaged_record_is_forgotten_once_all_its_places_have_nothing_of_the_fleet(stage: Stage) -> None:
    journal = FleetJournal(stage.command.state)
    journal.open("fleet-orphan", "a test", stage.provider.document(), {"orphan": "site:here"})
    journal.give_back("fleet-orphan")
    journal.database.write("UPDATE fleets SET provider = 'x'")
    words = ("fleet", "down", "fleet-orphan", "--forget")
    there = stage.command.run(*words).expect(1)
    assert there.stderr.startswith("error: fleet fleet-orphan is not gone: here: machine here/")
    assert stage.command.run("fleet", "sweep").stdout.startswith("here: ended orphan of fleet-orphan\n")
    stage.configure({"name": "no-such-host.invalid", "region": "site:far"}, stage.host)
    unknown = stage.command.run(*words).expect(1)
    assert "error: no-such-host.invalid does not report what is left: " in unknown.stderr
    stage.configure({**stage.host, "region": "site:other"})
    elsewhere = stage.command.run(*words).expect(2)
    assert "had machines in site:here, which the configuration does not have" in elsewhere.stderr
    assert journal.is_open("fleet-orphan")
    stage.configure(stage.host)
    done = stage.command.run(*words).expect(0)
    assert done.stdout == "fleet-orphan: removed its record; found nothing else of it (asked: this host, here)\n"
    assert stage.command.run("fleet", "list").expect(0).stdout == ""


def test_all_machines_are_listed_and_only_abandoned_ones_are_swept(stage: Stage) -> None:
    assert stage.listed() == {"mine": "in use", "orphan": "gone", "foreign": "elsewhere"}
    swept = stage.command.run("fleet", "sweep").expect(0)
    assert "here: ended orphan of fleet-orphan\n" in swept.stdout
    assert (
        "mine of fleet-mine, in use" in swept.stdout
        and "foreign of fleet-foreign, started on another host" in swept.stdout
    )
    assert swept.stdout.endswith(
        "kept 2 machines (1 in use, 1 started on another host or in another container); "
        "`fleet sweep --all` ends them, too\n"
    )
    assert stage.listed() == {"mine": "in use", "foreign": "elsewhere"}
    rest = stage.command.run("fleet", "sweep", "--all").expect(0)
    assert "removed a copied program" in rest.stdout and rest.stdout.endswith("nothing is left\n")
    assert list(stage.on_host.glob("*/*")) == []
    assert stage.command.run("fleet", "sweep").expect(0).stdout == "nothing is left\n"


def test_a_sweep_removes_what_an_ended_gateway_has_left(stage: Stage) -> None:
    """Its host keeps the folder for a while, so that the log can be read."""
    folders = [folder for folder in stage.on_host.glob("machines/*") if "orphan" in (folder / "mark.json").read_text()]
    os.kill(int((folders[0] / "pid").read_text()), signal.SIGKILL)
    wait_until(lambda: "orphan" not in stage.listed())
    swept = stage.command.run("fleet", "sweep").expect(0).stdout
    assert "here: removed a gateway that has ended\n" in swept
    assert not folders[0].exists()


def test_a_host_that_cannot_be_asked_hides_no_other(stage: Stage) -> None:
    stage.configure({"name": "no-such-host.invalid", "region": "site:far"}, stage.host)
    done = stage.command.run("fleet", "sweep")
    assert done.code != 0
    assert "error: no-such-host.invalid cannot be queried: ssh: " in done.stderr and "Traceback" not in done.stderr
    assert "ended orphan" in done.stdout and "nothing is left" not in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("fleet", "sweep", "x"), "`fleet sweep` takes no ID"),
        (("fleet", "list", "--all"), "--all belongs to `fleet sweep` and `fleet down`"),
    ],
)
def test_options_of_other_actions_are_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    assert why in Command(tmp_path / "home").run(*words).expect(2).stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "--via fleet needs hosts or a cloud in the configuration"),
        (("--sky", "x.json"), "--via fleet and --sky cannot be combined"),
        (("--topology", "x.json"), "--topology and --via cannot be combined"),
    ],
)
def test_a_transfer_over_hosts_needs_hosts(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = Command(tmp_path / "home").run("cp", "s3://a/x", "s3://b/x", "--via", "fleet", *words)
    assert why in done.expect(2).stderr


def test_a_folder_of_this_machine_does_not_move_over_hosts(tmp_path: Path) -> None:
    command = Command(tmp_path / "home")
    command.configure("[[ssh.hosts]]", 'name = "lab"', 'region = "site:lab"')
    done = command.run("cp", "-r", tmp_path, "s3://b/x", "--via", "fleet", "--src-region", "site:lab")
    assert "--via fleet moves objects between stores" in done.expect(2).stderr
    command.configure("[[ssh.hosts]]", 'name = "lab"')
    assert "region must be text" in command.run("cp", "s3://a/x", "s3://b/x", "--via", "fleet").expect(2).stderr


def test_without_hosts_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert (
        "the configuration has no hosts, clusters or clouds"
        in Command(tmp_path / "home").run("fleet", "sweep").expect(2).stderr
    )


LOADED = """
import sys
from tradewind.cli.main import main
code = main(sys.argv[1:])
print(code, [name for name in sys.modules if name.startswith(("tradewind.planner", "tradewind.fleet.providers."))])
"""


def test_a_copy_on_this_machine_needs_no_words_about_fleets_and_loads_none(tmp_path: Path) -> None:
    """`local` is how each job runs its lead. With `--via auto` the reason is said."""
    command = Command(tmp_path / "home")
    command.configure("[[ssh.hosts]]", 'name = "lab"', 'region = "site:lab"')
    (tmp_path / "a").write_text("content")
    words = ["cp", str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        env=command.full_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "0 ['tradewind.fleet.providers.local']" in done.stdout and "--via" not in done.stderr
    asked = command.run(*words, "--via", "auto").expect(0)
    assert f"note: --via auto uses this machine: {tmp_path / 'a'} is on this machine\n" in asked.stderr
