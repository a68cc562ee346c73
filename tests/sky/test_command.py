"""`tradewind sky` on the command line."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.sky import unavailable
from tradewind.cli.main import main

FILE = {
    "regions": {"site:a": {"name": "a"}, "site:b": {"name": "b", "machines": 2}},
    "links": [{"between": ["site:a", "site:b"], "rtt_ms": 10, "rate": "50Mbit/s"}],
}
Type = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Type]:
    """Runs `tradewind sky ACTION FILE …`. A sky that runs at the end is stopped."""
    (tmp_path / "sky.json").write_text(json.dumps(FILE))
    environment = {**os.environ, "TRADEWIND_STATE_DIR": str(tmp_path / "state")}

    def run(
        action: str, *words: str, file: str = "sky.json", before: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-m", "tradewind.cli.main", "sky", action, file, *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    yield run
    run("down")


@pytest.fixture
def up(typed: Type) -> Type:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    done = typed("up")
    assert done.returncode == 0, done.stderr
    return typed


def test_a_sky_is_started_and_stopped(up: Type) -> None:
    shown = up("status")
    assert "a-1  10.77.1.1     site:a" in shown.stdout
    assert "a-1 → b-2      50.0 Mbit/s      5.0 ms one way" in shown.stdout
    assert "ms on average" in shown.stdout
    again = up("up")
    assert (again.returncode, again.stderr.splitlines()[0]) == (1, "error: the sky is already running")
    assert up("down").returncode == 0
    after = up("status")
    assert after.returncode == 1
    assert "is not running\nhint: `tradewind sky up sky.json`" in after.stderr


def test_exec_passes_on_arguments_and_exit_codes(up: Type) -> None:
    shown = up("exec", "b-2", "--", "sh", "-c", "cat /proc/net/fib_trie | grep -c 10.77.2.2; exit 5")
    assert shown.returncode == 5
    assert int(shown.stdout) > 0
    assert up("exec", "b-2", "--", "echo", "--json", "-q").stdout == "--json -q\n"
    wrong = up("exec", "c-1", "--", "true")
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (1, "error: the sky has no machine 'c-1'")
    assert up("exec", "b-2").returncode == 2


def test_in_the_foreground_it_ends_with_ctrl_c(typed: Type, tmp_path: Path) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    command = [sys.executable, "-m", "tradewind.cli.main", "sky", "up", "--foreground", "sky.json"]
    environment = {**os.environ, "TRADEWIND_STATE_DIR": str(tmp_path / "state")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as foreground:
        assert foreground.stdout is not None
        assert foreground.stdout.readline() == "a-1  10.77.1.1     site:a\n"
        assert typed("status").returncode == 0
        foreground.send_signal(signal.SIGINT)
        assert foreground.wait(60) == 130
    assert "is not running" in typed("status").stderr


def test_changes_are_visible_in_the_status(up: Type) -> None:
    for words in (
        ("path", "site:a", "b-1", "rate=20Mbit/s", "rtt=80ms", "loss=1%", "queue=500kB"),
        ("link", "site:a", "b-2", "down"),
        ("machine", "a-1", "egress=10Mbit/s", "cc=reno"),
        ("freeze", "b-1"),
        ("vanish", "b-2"),
    ):
        done = up("set", *words)
        assert done.returncode == 0, done.stderr
    for machine, state, ends in (("b-1", "frozen", "thaw"), ("b-2", "gone", "restore")):
        refused = up("exec", machine, "--", "true")
        assert refused.returncode == 1 and f"error: {machine} is {state}\n" in refused.stderr
        assert f"`tradewind sky set FILE {ends} {machine}`" in refused.stderr
    document = json.loads(up("status", "--json").stdout)
    links = {(link["src"], link["dst"]): link for link in document["links"]}
    changed = links["a-1", "b-1"]
    assert (changed["rate_bps"], changed["delay_us"], changed["loss"]) == (20_000_000, 40_000, 0.01)
    assert links["b-1", "a-1"]["delay_us"] == 5_000
    assert not links["a-1", "b-2"]["up"]
    assert not links["b-2", "a-1"]["up"]
    assert [machine["state"] for machine in document["machines"]] == ["running", "frozen", "gone"]
    assert document["invalid"] is None
    for words in (("thaw", "b-1"), ("restore", "b-2")):
        assert up("set", *words).returncode == 0
    document = json.loads(up("status", "--json").stdout)
    assert [machine["state"] for machine in document["machines"]] == ["running"] * 3
    assert up("exec", "b-2", "--", "true").returncode == 0


def test_a_crashed_sky_is_not_running_and_can_be_started_again(up: Type) -> None:
    pid = json.loads(up("status", "--json").stdout)["pid"]
    end = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([end], [], [], 60)[0]
    os.close(end)
    for action in ("status", "down"):
        said = up(action)
        assert (said.returncode, said.stderr.splitlines()[0]) == (1, "error: the sky of sky.json is not running")
    assert up("up").returncode == 0
    assert up("status").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "unknown change ''"),
        (("links", "a-1", "b-1", "up"), "unknown change 'links'"),
        (("link", "a-1", "b-1"), "needs two ends and a change"),
        (("link", "a-1", "b-1", "rate=20"), "a rate needs a unit"),
        (("link", "a-1", "b-1", "rtt=20"), "a round trip is written like 80ms"),
        (("link", "a-1", "b-1", "loss=200%"), "a loss is written like"),
        (("link", "a-1", "b-1", "speed=1"), "is not a property of a link"),
        (("machine", "a-1"), "needs a machine and a change"),
        (("machine", "a-1", "rate=1Mbit/s"), "is not a property of a machine"),
        (("freeze",), "needs one machine"),
    ],
)
def test_mistakes_in_changes_are_usage_errors(up: Type, words: tuple[str, ...], said: str) -> None:
    done = up("set", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_bad_file_is_a_usage_error(typed: Type, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    done = typed("up", file="bad.json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: bad.json: regions must be an object\nhint: ")


def test_surplus_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sky", "down", "sky.json", "now"]) == 2
    assert "sky down takes no 'now'" in capsys.readouterr().err


@pytest.mark.alone
@pytest.mark.host
def test_without_permission_it_reports_what_is_missing(typed: Type, tmp_path: Path) -> None:
    """Runs as an ordinary user; or, for root, without its capabilities."""
    strip: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("to take root's capabilities away needs setpriv (util-linux)")
        strip = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    before = allowed.read_text()
    done = typed("up", before=strip)
    assert allowed.read_text() == before, "restored even after a failure"
    assert done.returncode == 11
    assert done.stderr.splitlines()[0].startswith("error: ")
    assert done.stderr.splitlines()[1].startswith("hint: run as root")
