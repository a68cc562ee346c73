"""Machines that start while the source is still being listed. The hosts are this host behind a real SSH server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command
from testbed.faults.http import HttpProxy
from testbed.faults.rules import Answer, Call, Request, Rule
from testbed.servers.versitygw import REGION
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.transfers import SECRET, two_stores
from tests.fleet.worlds import wait_until
from tests.sky.world import differences

SITES = ("a", "b")
#: More than one page of a list has.
OBJECTS = 1100
WAIT_S = 20.0


class Stage:
    """The command, configured for a host in each of two regions. A proxy holds up the second page of each list."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        short = Path(stack.enter_context(TemporaryDirectory(prefix="tw-early-")))
        ssh = stack.enter_context(local_ssh_server(short / "ssh"))
        stores = stack.enter_context(two_stores("127.0.0.1", folder))
        proxy = stack.enter_context(HttpProxy(stores[0].endpoint))
        self.source, self.copy = (
            server.folder / "data" / "bucket" / name for server, name in zip(stores, ("data", "copy"), strict=True)
        )
        self.source.mkdir()
        for number in range(OBJECTS):
            (self.source / f"{number:04}").write_bytes(os.urandom(1000))
        #: Set to let the second page through; machines that ran by then.
        self.passes, self.seen = threading.Event(), list[Path]()
        #: Set to refuse later pages once machines have run.
        self.refuses = threading.Event()
        proxy.add(Rule(Answer(403, "AccessDenied"), when=self._is_refused))
        proxy.add(Rule(Call(self._hold), when=is_later_page))
        with ssh.config.open("a", encoding="utf-8") as config:
            config.writelines(f"Host {site}\n  HostName 127.0.0.1\n" for site in SITES)
        lines = ["[fleet]", "confirm_above_usd = 0", "[ssh]", f'config = "{ssh.config}"']
        for site in SITES:
            lines += ["[[ssh.hosts]]", f'name = "{site}"', f'region = "site:{site}"', 'address = "127.0.0.1"']
            lines += ["usd_per_hour = 1", f'folder = "{folder}/on {site}"']
        self.command = Command(short / "home")
        keys = {"AWS_ACCESS_KEY_ID": stores[0].access_key, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        self.command.environment |= keys
        self.command.configure(*lines)
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--via", "fleet", "--share-keys"),
            *("--src-region", "site:a", "--dst-region", "site:b", "--max-vms", "1"),
            *("--src-endpoint", proxy.endpoint, "--dst-endpoint", stores[1].endpoint),
        ]

    def machines(self) -> list[Path]:
        return list(self.folder.glob("on */machines/*/pid"))

    def _is_refused(self, request: Request) -> bool:
        return self.refuses.is_set() and self.seen != [] and is_later_page(request)

    def _hold(self) -> None:
        """Wait for machines, or for the end of the test."""
        for _ in range(round(WAIT_S / 0.05)):
            self.seen = self.seen or self.machines()
            if self.seen or self.passes.wait(0.05):
                return


def is_later_page(request: Request) -> bool:
    """Return whether a request is for a later page of a list. Requests for single keys divide the list."""
    is_later = any(request.query.get(name) for name in ("continuation-token", "start-after"))
    return request.method == "GET" and is_later and request.query.get("max-keys") != "1"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with ExitStack() as stack:
        made = Stage(tmp_path, stack)
        yield made
        made.passes.set()
        made.command.wait_until_alone()
        wait_until(lambda: made.machines() == [])


@pytest.mark.slow
def test_machines_start_while_the_source_is_listed_and_the_whole_source_arrives(stage: Stage) -> None:
    """The second page comes only after machines run. The second transfer knows how long they take."""
    done = stage.command.run(*stage.words, "-y", timeout_s=60).expect(0)
    assert stage.seen, "machines ran before the list ended"
    assert "note: the source is still being listed, 512 objects and 512 kB so far; the rest" in done.stderr
    assert differences(stage.source, stage.copy) == []
    again = stage.command.run(*stage.words, "--dry-run").expect(0)
    assert "note: the machines usually start in " in again.stderr
    assert "(learned, 2 earlier starts, accepted after " in again.stderr or "1 earlier start, " in again.stderr


@pytest.mark.slow
def test_a_list_that_fails_after_machines_have_started_ends_them(stage: Stage) -> None:
    """The lead lists the source again, and gets no second page."""
    stage.refuses.set()
    done = stage.command.run(*stage.words, "-y", timeout_s=60)
    assert stage.seen and "the source is still being listed" in done.stderr
    assert done.code == 7 and "hint: check the permissions" in done.stderr, (done.code, done.stderr)
    assert stage.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"
    assert stage.machines() == []
