"""`tradewind demo --cloud`: from one emulated cloud to another, with a relay that is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import tradewind
from testbed.clouds.lan import lan_unavailable
from testbed.drive import Command
from testbed.kubelab.install import lab_not_built
from testbed.kubelab.lab import wait_for_lock
from tests.conftest import pytest_collection_modifyitems

STEPS = ["1", "2", "3", "4", "5", "6", "7"]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


@pytest.mark.slow
def test_the_demo_rents_in_two_clouds_heals_and_leaves_nothing(command: Command) -> None:
    if reason := lan_unavailable():
        pytest.skip(reason)
    # The servers and clusters that other tests have installed.
    command.environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    done = command.run("demo", "--cloud").expect(0)
    story = done.stderr
    assert [line[0] for line in story.splitlines() if line[:1].isdigit()] == STEPS
    assert ("Kubernetes is left out: " in story) == (lab_not_built() is not None)
    assert "aws  aws:us-east-1  " in story and "gcp  gcp:europe-west4  " in story
    assert "takes its place" in story
    assert "   proven  40 by length at the source, MD5 at the destination" in story
    assert "   nothing is left" in story
    assert "all 40 objects in the GCS bucket have the SHA-256 of their originals" in story
    command.wait_until_alone()


def test_the_demo_runs_before_the_clusters_of_other_tests_start() -> None:
    """These run until the last test has ended. The demo would wait for them, in the same process for ever."""
    demo, folder = Path(__file__), Path(__file__).parent
    files = [
        folder.parent / "fleet" / "test_kubernetes_faults.py",
        folder / "test_accuracy.py",
        demo,
        folder / "test_faults.py",
    ]
    items: list[pytest.Item] = [Mock(path=file) for file in files]
    pytest_collection_modifyitems(items)
    assert items[0].path == demo and {item.path for item in items} == set(files)


def test_without_a_checkout_the_demo_of_clouds_says_where_it_runs(command: Command, tmp_path: Path) -> None:
    """A package that is installed elsewhere has no testbed beside it."""
    installed = tmp_path / "lib" / "python" / "site-packages"
    shutil.copytree(Path(tradewind.__file__).parent, installed / "tradewind")
    script = (
        f"import sys; sys.path.insert(0, {str(installed)!r}); from tradewind.cli.main import main; sys.exit(main())"
    )
    command.binary, command.enter = Path("-c"), (sys.executable,)
    done = command.run(script, "demo", "--cloud")
    assert done.code == 11
    assert done.stderr.splitlines() == [
        "error: demo --cloud needs a checkout of the source code: the emulated clouds are not part of the package",
        "hint: in a checkout: `make setup`, then `sudo .venv/bin/tradewind demo --cloud`",
    ]


def test_the_demo_of_clouds_needs_root(command: Command) -> None:
    if os.geteuid() == 0:
        # In a user namespace without a mapping, this process is no longer root.
        command.enter = ("unshare", "--user")
    done = command.run("demo", "--cloud")
    assert done.code == 11
    assert done.stderr.splitlines() == [
        "error: demo --cloud needs root: each machine is a network namespace of this host",
        "hint: use sudo; `tradewind demo --local` needs no root",
    ]


def test_the_demo_of_clouds_makes_its_own_objects(command: Command) -> None:
    done = command.run("demo", "--cloud", "--tree", "/usr/share")
    assert (done.code, done.stderr.splitlines()[0]) == (2, "error: demo --cloud takes no --tree")


def test_who_waits_for_another_cluster_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    with (tmp_path / "lock").open("w") as other, (tmp_path / "lock").open("w") as ours:
        fcntl.flock(other, fcntl.LOCK_EX)

        def other_ends() -> None:
            told.append("waiting")
            fcntl.flock(other, fcntl.LOCK_UN)

        wait_for_lock(ours.fileno(), other_ends)
        wait_for_lock(ours.fileno(), other_ends)  # We hold it: nothing to wait for.
    assert told == ["waiting"]
