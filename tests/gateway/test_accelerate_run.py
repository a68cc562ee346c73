"""`tradewind accelerate run` with real proxies, servers and nftables, on loopback."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbed.clouds import filters
from testbed.clouds.debian_packages import unpacked
from tests.gateway.test_split import PATIENCE_S, SplitProxy, started

TOKEN = "a-token"
POLL_S = 0.02
BODY = b"hello"
GROUPS = Path("/sys/fs/cgroup")


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the same bytes."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def redirecting(tmp_path: Path) -> str:
    """A PATH with nft. Skips where connections cannot be redirected."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("redirecting needs root on Linux")
    if reason := filters.filter_unavailable():
        pytest.skip(reason)
    if not any(line.split()[2] == "cgroup2" for line in Path("/proc/self/mounts").read_text().splitlines()):
        pytest.skip("no control groups of version 2")
    folder = unpacked("nftables-1", filters.PACKAGES)
    libraries = ":".join(sorted({str(Path(library).parent) for library in folder.glob("usr/lib/**/*.so.*")}))
    script = tmp_path / "bin" / "nft"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {folder}/usr/sbin/nft "$@"\n')
    script.chmod(0o755)
    return f"{script.parent}:{os.environ['PATH']}"


def server(stack: ExitStack) -> str:
    """Start a web server and return its address."""
    made = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Answers))
    thread = threading.Thread(target=made.serve_forever, args=[POLL_S])
    thread.start()
    stack.callback(thread.join)
    stack.callback(made.shutdown)
    return f"127.0.0.1:{made.server_port}"


def proxy(stack: ExitStack, tmp_path: Path, *allow: str, way: str = "socks5") -> SplitProxy:
    (tmp_path / "tokens").write_text(f"ann:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    listener = {"listen": "127.0.0.1:0", "way": way, "tokens": str(tmp_path / "tokens")}
    return started(stack, {"listeners": [listener], "allow": list(allow)})


class Accelerated:
    """Words and environment of the command under test."""

    def __init__(self, tmp_path: Path, url: str, path: str = os.environ["PATH"]) -> None:
        self.environment = {**os.environ, "PATH": path, "TRADEWIND_STATE_DIR": str(tmp_path / "state")}
        main = [sys.executable, "-m", "tradewind.cli.main", "accelerate", "run"]
        self._words = [*main, "--through", url, "--token-file", str(tmp_path / "token")]

    def run(self, options: list[str], *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. No control group may be left behind."""
        with self.popen(options, *command) as process:
            try:
                stdout, stderr = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert not left_behind(process.pid)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def popen(self, options: list[str], *command: str) -> subprocess.Popen[str]:
        words = [*self._words, *options, "--", *command]
        return subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


CURL = ("curl", "--silent", "--show-error", "--max-time", "10")


@pytest.mark.parametrize(("way", "scheme"), [("socks5", "socks5h"), ("connect", "http")])
def test_named_destinations_are_redirected_and_others_go_direct(
    way: str, scheme: str, stack: ExitStack, tmp_path: Path, redirecting: str
) -> None:
    named, other = server(stack), server(stack)
    through = proxy(stack, tmp_path, named, way=way)
    command = Accelerated(tmp_path, f"{scheme}://ann@{through.address}", redirecting)
    done = command.run(["--to", named], *CURL, f"http://{named}/", f"http://{other}/")
    assert (done.returncode, done.stdout) == (0, "hellohello"), done.stderr
    assert "note: 1 connection to the proxy:" in done.stderr
    status = through.stop()
    assert (status["accepted"], status["refused"]) == (1, {})


def test_a_name_is_passed_to_the_proxy(stack: ExitStack, tmp_path: Path, redirecting: str) -> None:
    named = server(stack)
    port = named.rpartition(":")[2]
    # The proxy allows the name, and the address to which it resolves there.
    through = proxy(stack, tmp_path, f"localhost:{port}", named)
    command = Accelerated(tmp_path, f"socks5h://ann@{through.address}", redirecting)
    done = command.run(["--to", f"localhost:{port}"], *CURL, "-4", f"http://localhost:{port}/")
    assert (done.returncode, done.stdout) == (0, "hello"), done.stderr
    assert through.stop()["accepted"] == 1


def test_destinations_of_one_address_are_told_apart_by_port(stack: ExitStack, tmp_path: Path, redirecting: str) -> None:
    by_name, by_address = server(stack), server(stack)
    name = f"localhost:{by_name.rpartition(':')[2]}"
    through = proxy(stack, tmp_path, name, by_name, by_address)
    command = Accelerated(tmp_path, f"socks5h://ann@{through.address}", redirecting)
    urls = f"http://{name}/", f"http://{by_address}/"
    done = command.run(["--to", name, "--to", by_address], *CURL, "-4", *urls)
    assert (done.returncode, done.stdout) == (0, "hellohello"), done.stderr
    assert {each["destination"] for each in through.stop()["traffic"]} == {name, by_address}


def test_quic_is_refused_only_when_asked(stack: ExitStack, tmp_path: Path, redirecting: str) -> None:
    address = own_loopback()
    through = proxy(stack, tmp_path, f"{address}:443")
    command = Accelerated(tmp_path, f"socks5h://ann@{through.address}", redirecting)
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"try: s.sendto(b'x', ('{address}', 443)); print('sent')\n"
        "except PermissionError: print('refused')\n"
        "except ConnectionRefusedError: print('refused')"
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as quic:
        quic.bind((address, 443))
        for options, said in (([], "sent\n"), (["--refuse-quic"], "refused\n")):
            done = command.run(["--to", address, *options], sys.executable, "-c", code)
            assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_a_wrong_token_is_counted(stack: ExitStack, tmp_path: Path, redirecting: str) -> None:
    named = server(stack)
    through = proxy(stack, tmp_path, named)
    (tmp_path / "token").write_text("wrong")
    done = Accelerated(tmp_path, f"socks5h://ann@{through.address}", redirecting).run(
        ["--to", named], *CURL, f"http://{named}/"
    )
    assert done.returncode != 0
    assert done.stderr.endswith("note: refused connections by cause: unauthenticated 1\n")


def test_a_killed_run_leaves_nothing(stack: ExitStack, tmp_path: Path, redirecting: str) -> None:
    named = server(stack)
    through = proxy(stack, tmp_path, named)
    command = Accelerated(tmp_path, f"socks5h://ann@{through.address}", redirecting)
    with command.popen(["--to", named], "sh", "-c", "echo $$; exec sleep 60") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert tables(redirecting, process.pid)
        process.kill()
        process.wait()
        await_that(lambda: not Path(f"/proc/{child}").exists())
        await_that(lambda: not tables(redirecting, process.pid))
    # The next run removes the control group.
    assert command.run(["--to", named], "true").returncode == 0
    assert not left_behind(process.pid)


@pytest.mark.parametrize(("way", "scheme"), [("socks5", "socks5h"), ("connect", "http")])
def test_variables_bring_connections_to_the_proxy(way: str, scheme: str, stack: ExitStack, tmp_path: Path) -> None:
    named, other = server(stack), server(stack)
    through = proxy(stack, tmp_path, named, way=way)
    command = Accelerated(tmp_path, f"{scheme}://ann@{through.address}")
    # Loopback is in NO_PROXY, because it is direct for real destinations.
    script = f"env NO_PROXY= no_proxy= curl -sS -m 10 http://{named}/; curl -sS -m 10 http://{other}/"
    done = command.run(["--to", named, "--by", "variables"], "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "hellohello"), done.stderr
    assert "note: 1 connection to the proxy:" in done.stderr
    assert through.stop()["accepted"] == 1


def test_without_destinations_everything_goes_through_the_proxy(stack: ExitStack, tmp_path: Path) -> None:
    named = server(stack)
    through = proxy(stack, tmp_path, named)
    script = f"env NO_PROXY= no_proxy= curl -sS -m 10 http://localhost:{named.rpartition(':')[2]}/"
    done = Accelerated(tmp_path, f"socks5h://ann@{through.address}").run(["--by", "variables"], "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "hello"), done.stderr
    assert through.stop()["accepted"] == 1


def test_the_exit_code_and_the_streams_are_those_of_the_command(stack: ExitStack, tmp_path: Path) -> None:
    command = Accelerated(tmp_path, f"socks5h://ann@{proxy(stack, tmp_path, '127.0.0.1:9').address}")
    options = ["--by", "variables", "-q"]
    done = command.run(options, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert command.run(options, "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL
    missing = command.run(options, "no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "error: no-such-program: No such file or directory\n")
    assert command.run(options, "printf", "[%s]", "", "--json", "--").stdout == "[][--json][--]"
    assert TOKEN not in command.run(options, "env").stdout


def test_signals_go_to_the_command(stack: ExitStack, tmp_path: Path) -> None:
    command = Accelerated(tmp_path, f"socks5h://ann@{proxy(stack, tmp_path, '127.0.0.1:9').address}")
    script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    with command.popen(["--by", "variables"], "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "got it\n"
        assert process.wait(PATIENCE_S) == 9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "a:b"], "error: --to a:b is not a destination\n"),
        (["--to", "no-such-host.invalid", "--by", "redirect"], "error: "),
        (["--through", "ftp://x:1"], "error: --through ftp://x:1 is not a proxy\n"),
        (["--through", "http://u:hush@x:1"], "error: --through has a token in its URL"),
        (["--by", "variables", "--refuse-quic"], "error: --refuse-quic needs --by redirect\n"),
    ],
)
def test_mistakes_are_one_error(options: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    done = Accelerated(tmp_path, "socks5h://ann@127.0.0.1:9").run(options, "true")
    assert done.returncode == 2
    assert done.stderr.startswith(said) and "hush" not in done.stderr


def own_loopback() -> str:
    """Return a loopback address that no other program on this host is likely to use."""
    return "127." + ".".join(str(1 + byte % 254) for byte in os.urandom(3))


def left_behind(pid: int) -> list[Path]:
    """Return the control groups of a run. Other runs on this host have their own."""
    return list(GROUPS.rglob(f"tradewind-run-{pid}"))


def tables(path: str, pid: int) -> bool:
    """Return whether the table of a run exists."""
    done = subprocess.run(["nft", "list", "tables"], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    return f"tradewind-run-{pid}" in done.stdout


def await_that(holds: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
