"""One connection to each host: the user's own `ssh`, over which commands run and ports are forwarded.

The first call opens a master connection, a child of this process. It ends with this process, because the command that
it runs on the host reads our pipe. If it breaks, the next call opens another one and forwards the same ports.
"""

from __future__ import annotations

import gzip
import os
import re
import select
import shlex
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

from tradewind.fleet.provider import CallRefused, Refusal, RefusalKind
from tradewind.fleet.ssh.aliases import CONFIG_S
from tradewind.fleet.ssh.bounded import OUTPUT_BYTES_MAX, run_bounded
from tradewind.fleet.ssh.quoting import shell_word
from tradewind.model.hosts import SshHost

__all__ = ["Connection"]

#: Timeout of a connection attempt [s], and of one command on a host.
CONNECT_S = 15
COMMAND_S = 50.0
#: A connection that answers nothing for three of these is closed.
ALIVE_S = 10
#: Maximum time to close a connection.
CLOSE_S = 1.0
#: Commands at once over one connection. An ssh server admits ten by default, one of which is the master's.
SESSIONS_MAX = 6
#: A host that greets with more than this before it runs a command is refused.
GREETING_BYTES_MAX = 1 << 20
#: Messages of the client that are kept, and their length.
MESSAGES_MAX = 20
LINE_BYTES_MAX = 1000
#: Attempts to find a free local port for a forward.
PORT_TRIES = 5
#: Exit code of `ssh` if it could not connect.
SSH_FAILED = 255
#: Command of a host that unpacks a program, and the exit code of a host without it.
UNPACKER = "gunzip"
NO_UNPACKER = 6
#: Level of the compression of a program: higher ones take several times as long for a tenth less.
GZIP_LEVEL = 1

#: Settings of the user's configuration that are for logins by hand. A host that only runs gateways gets no use of the
#: user's agent or display, ports may be in use, and commands need neither a terminal nor another command.
_OVERRIDES = (
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "Tunnel=no",
)
#: The same for settings that OpenSSH has since 8.7. An older `ssh` refuses their names.
_SINCE_8_7 = ("ForkAfterAuthentication=no", "SessionType=default", "StdinNull=no")
#: Local addresses of forwarded ports. The user's `AddressFamily` may rule out one of them.
_LOCAL = ("127.0.0.1", "[::1]")
#: Words of a server that does not permit a forwarded port.
_FORBIDDEN = "administratively prohibited"
#: Held while a program is compressed, so that it is done once for many hosts.
_COMPRESSING = threading.Lock()
_HELLO = b"tradewind\n"
#: Lets `sh` run what it reads. Every login shell understands it.
_SH_OF_INPUT = "sh -s"
_MACHINE_SCRIPT = Path(__file__).with_name("machine.sh")
_DENIED = re.compile(r"permission denied|too many authentication failures|no more authentication methods", re.I)
_STRANGER = re.compile(r"host key verification failed|identification has changed", re.I)
_MISCONFIGURED = re.compile(r"bad configuration option|bad owner or permissions|unable to negotiate with", re.I)


class Connection:
    """Commands and forwarded ports of one host. Its methods may be called from any thread; all raise CallRefused."""

    def __init__(self, host: SshHost, ssh_config: str | None, socket_path: Path) -> None:
        """`socket_path` is a short path in a private folder."""
        self.host = host
        self._socket = socket_path
        self._options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
        self._options += ["-o", f"ServerAliveInterval={ALIVE_S}", "-o", "ServerAliveCountMax=3"]
        settings = (*_OVERRIDES, *(_SINCE_8_7 if knows_session_type() else ()))
        self._options += [word for setting in settings for word in ("-o", setting)]
        self._options += [] if ssh_config is None else ["-F", ssh_config]
        self._opening = threading.Lock()
        self._sessions = threading.Semaphore(SESSIONS_MAX)
        self._master: subprocess.Popen[bytes] | None = None
        self._messages: _Messages | None = None
        #: Ends the master. Called at the latest when this object is collected.
        self._end_master: weakref.finalize[..., Connection] | None = None
        #: Local end by remote end of each forward, as ssh writes them.
        self._forwards: dict[str, str] = {}

    def call(self, function: str, *words: str, timeout_s: float = COMMAND_S) -> list[list[str]]:
        """Call a function of machine.sh on the host; return its lines, split at tabs."""
        script = f"base={self._base}\n{_MACHINE_SCRIPT.read_text(encoding='utf-8')}\n{function} {shlex.join(words)}\n"
        code, out, said = self._run(_SH_OF_INPUT, script.encode(), timeout_s)
        if len(out) >= OUTPUT_BYTES_MAX:
            raise CallRefused(Refusal("bad request", f"{self.host.name}: the answer of the host is too long"))
        if code != 0:
            raise CallRefused(Refusal("transient", f"{self.host.name}: sh ended with code {code}: {last_line(said)}"))
        return [line.split("\t") for line in out.decode(errors="replace").splitlines()]

    def ask(self, function: str, *words: str) -> str:
        """Call a function of machine.sh whose answer is one word, such as a path."""
        lines = self.call(function, *words)
        if not lines or not lines[0][0]:
            raise CallRefused(Refusal("transient", f"{self.host.name}: the answer of the host is not complete"))
        return lines[0][0]

    @property
    def _base(self) -> str:
        """Our folder on the host, as an expression of its shell."""
        folder = self.host.folder
        if folder is None:
            return '"${XDG_CACHE_HOME:-$HOME/.cache}"/tradewind'
        return f'"$HOME"/{shlex.quote(folder[2:])}' if folder.startswith("~/") else shlex.quote(folder)

    def run_script(self, script: str, given: bytes, timeout_s: float = COMMAND_S) -> tuple[int, bytes, str]:
        """Run a line for `sh` on the host, which reads `given`; return its exit code, output and standard error."""
        return self._run(_by_sh(script), given, timeout_s)

    def run_words(self, words: Sequence[str], timeout_s: float = COMMAND_S) -> tuple[int, bytes, str]:
        """Run a command on the host without input; return its exit code, both its outputs as one, and what `sh` says.

        The words may have line breaks, which not every login shell reads.
        """
        return self._run(_SH_OF_INPUT, f"exec 2>&1\n{shlex.join(words)} < /dev/null\n".encode(), timeout_s)

    def _run(self, command: str, given: bytes, timeout_s: float) -> tuple[int, bytes, str]:
        """Run a command by the login shell of the host, which need not be one of POSIX."""
        self._open()
        words = [
            "ssh",
            *self._options,
            "-S",
            str(self._socket),
            "-o",
            "ControlMaster=no",
            "--",
            self.host.name,
            command,
        ]
        with self._sessions:
            try:
                code, out, errors = run_bounded(words, given, timeout_s, _environment())
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CallRefused(Refusal("transient", f"{self.host.name}: {_brief(error)}")) from error
        said = errors.decode(errors="replace")
        if code == SSH_FAILED:
            raise CallRefused(refusal_of(self.host.name, said))
        return code, out, said

    def copy_program(self, path: str, digest: str, timeout_s: float) -> None:
        """Copy the gateway program to the host, compressed if the host can unpack it.

        Nothing is left there if it arrives damaged or does not fit.
        """
        with _COMPRESSING:
            compressed = _compressed(path, digest)
        unpack = f"type {UNPACKER} > /dev/null 2>&1 || exit {NO_UNPACKER}; {UNPACKER}"
        code, said = self._store_program(unpack, compressed, digest, timeout_s)
        if code == NO_UNPACKER:
            code, said = self._store_program("cat", gzip.decompress(compressed), digest, timeout_s)
        if code != 0:
            why = "the program arrived damaged" if code == 5 else last_line(said) or f"exit code {code}"
            kind: RefusalKind = "capacity" if "No space left" in said or "quota exceeded" in said else "bad request"
            raise CallRefused(Refusal(kind, f"{self.host.name}: the gateway program cannot be copied: {why}"))

    def _store_program(self, receive: str, given: bytes, digest: str, timeout_s: float) -> tuple[int, str]:
        """Store the output of a command of the host, which reads `given`; return the exit code and standard error."""
        folder = f"{self._base}/programs"
        steps = (
            f"umask 077; mkdir -p {folder} && cd {folder} || exit 3; t=.{digest}.$$; "
            f'trap "rm -f $t" EXIT; {receive} > "$t" || exit 4; '
            's=$( (sha256sum || shasum -a 256) < "$t" 2>/dev/null | cut -d" " -f1); '
            f'[ "$s" = {digest} ] || exit 5; chmod 700 "$t" && mv "$t" {digest} || exit 3'
        )
        code, _, said = self.run_script(steps, given, timeout_s)
        return code, said

    def forward(self, remote: str, local: str | None = None) -> str:
        """Lead connections at a local address to `remote` on the host; return the local address.

        `remote` is `127.0.0.1:port` or the path of a socket; `local` likewise, by default any free port.
        """
        self._open()
        if (known := self._forwards.get(remote)) is not None:
            return known
        for number in range(PORT_TRIES):
            address = _LOCAL[number % len(_LOCAL)]
            end = local or f"{address}:{_free_port(address)}"
            code, said = self._control("forward", "-L", f"{end}:{remote}")
            if code == 0:
                self._forwards[remote] = end
                return end
        raise CallRefused(Refusal("transient", f"{self.host.name}: no port can be forwarded: {last_line(said)}"))

    @property
    def forbids_forwarding(self) -> bool:
        """True if the server has refused a connection over a forwarded port."""
        return self._messages is not None and self._messages.has(_FORBIDDEN)

    def unforward(self, local: str) -> None:
        """End the forward of a local address. No effect if there is none."""
        remote = next((remote for remote, end in self._forwards.items() if end == local), None)
        if remote is None:
            return
        del self._forwards[remote]
        if self._is_open():
            with suppress(CallRefused):
                self._control("cancel", "-L", f"{local}:{remote}")
        if local.startswith("/"):
            Path(local).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection. The next call opens another one."""
        with self._opening:
            self._close()

    def _close(self) -> None:
        if self._end_master is not None:
            self._end_master()
        self._master = self._end_master = None

    def _is_open(self) -> bool:
        return self._master is not None and self._master.poll() is None

    def _open(self) -> None:
        with self._opening:
            if self._is_open():
                return
            self._close()
            self._start_master()
            for remote, local in list(self._forwards.items()):
                if local.startswith("/"):
                    Path(local).unlink(missing_ok=True)
                code, said = self._control("forward", "-L", f"{local}:{remote}")
                if code != 0:
                    raise CallRefused(Refusal("transient", f"{self.host.name}: {last_line(said)}"))

    def _start_master(self) -> None:
        self._socket.unlink(missing_ok=True)
        words = [
            "ssh",
            *self._options,
            "-M",
            "-S",
            str(self._socket),
            "-o",
            "ControlPersist=no",
            # Connections over forwarded ports that the server refuses are messages of this level.
            "-o",
            "LogLevel=INFO",
        ]
        command = _by_sh(f"echo {_HELLO.decode().strip()}; exec cat > /dev/null")
        try:
            self._master = subprocess.Popen(
                [*words, "--", self.host.name, command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            why = "there is no `ssh` on this machine" if isinstance(error, FileNotFoundError) else _brief(error)
            raise CallRefused(Refusal("bad request", why)) from error
        self._end_master = weakref.finalize(self, _end, self._master)
        assert self._master.stdout is not None and self._master.stderr is not None
        said = self._messages = _Messages(self._master.stderr)
        deadline_s, heard = time.monotonic() + 2 * CONNECT_S, b""
        while not heard.endswith(_HELLO):
            if not select.select([self._master.stdout], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                self._master.kill()
                self._close()
                raise CallRefused(Refusal("transient", f"{self.host.name}: no answer within {2 * CONNECT_S} s"))
            piece = os.read(self._master.stdout.fileno(), 4096)
            if not piece:
                self._close()
                raise CallRefused(refusal_of(self.host.name, said.text()))
            heard += piece  # A login shell may greet first.
            if len(heard) > GREETING_BYTES_MAX:
                self._master.kill()
                self._close()
                raise CallRefused(Refusal("bad request", f"{self.host.name}: its greeting does not end"))

    def _control(self, action: str, *words: str) -> tuple[int, str]:
        """Send a request to the master. Returns ssh's exit code and standard error."""
        # The configuration was read for the master. Here it would add the user's own forwards.
        command = ["ssh", "-F", "none", "-S", str(self._socket), "-O", action, *words, "--", self.host.name]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=CONNECT_S, check=False, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CallRefused(Refusal("transient", f"{self.host.name}: {_brief(error)}")) from error
        return done.returncode, done.stderr.decode(errors="replace")


def _by_sh(script: str) -> str:
    """Return the command with which any login shell lets `sh` run a line."""
    return f"sh -c {shell_word(script)}"


def _end(master: subprocess.Popen[bytes]) -> None:
    """Close the pipe at whose end the host closes the connection; kill the client if that takes long."""
    assert master.stdin is not None and master.stdout is not None
    with suppress(OSError):
        master.stdin.close()
    try:
        master.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        master.kill()
        master.wait()
    master.stdout.close()


class _Messages:
    """The standard error of a client, read until its end: a full pipe would stop the connection. Keeps the last lines.

    Each failed call of a forwarded port is a line.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._lines: deque[str] = deque(maxlen=MESSAGES_MAX)
        self._thread = threading.Thread(target=self._read, args=(stream,), name="ssh's messages", daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(LINE_BYTES_MAX):
                self._lines.append(line.decode(errors="replace"))

    def has(self, words: str) -> bool:
        """Return whether one of the last lines has these words."""
        return any(words in line for line in list(self._lines))

    def text(self) -> str:
        """Return the last lines of a client that has ended."""
        self._thread.join(CLOSE_S)
        return "".join(self._lines)


def refusal_of(host: str, said: str) -> Refusal:
    """Classify what `ssh` said when it could not connect."""
    # Its own lines end so. Others are of the server's banner, of a login shell, or of a ProxyCommand.
    own = [line.strip() for line in said.splitlines(keepends=True) if line.endswith("\r\n")]

    def line_with(pattern: re.Pattern[str]) -> str | None:
        # Not always the last one: that may say that the connection to a jump host is closed.
        return next((f"{host}: {line}" for line in reversed(own) if pattern.search(line)), None)

    attempt = f"try `ssh -o BatchMode=yes {host} true`"
    if (found := line_with(_STRANGER)) is not None:
        return Refusal("permission", found, action=f"a known host key: connect once by hand with `ssh {host}`")
    if (found := line_with(_DENIED)) is not None:
        return Refusal("permission", found, action=f"a login without a password: {attempt}")
    if (found := line_with(_MISCONFIGURED)) is not None:
        return Refusal("bad request", found)
    reason = f"{host}: {last_line(said) or 'ssh could not connect'}"
    return Refusal("transient", reason, action=f"a connection: {attempt}")


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


@lru_cache(maxsize=2)
def _compressed(path: str, digest: str) -> bytes:
    """Return a program, compressed. The digest is that of the program, so a changed one is read again."""
    return gzip.compress(Path(path).read_bytes(), GZIP_LEVEL)


def _brief(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:.0f} s"
    return str(error)


def _free_port(address: str) -> int:
    """Return a port that is free now; 0 if this machine has no such address."""
    family = socket.AF_INET6 if address.startswith("[") else socket.AF_INET
    try:
        with socket.create_server((address.strip("[]"), 0), family=family) as found:
            port: int = found.getsockname()[1]
    except OSError:
        return 0
    return port


def _environment() -> dict[str, str]:
    """Return the environment of `ssh`. A jump host's `ssh`, which is not in batch mode, has nobody to ask."""
    return {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}


@lru_cache(maxsize=1)
def knows_session_type() -> bool:
    """Return whether `ssh` knows the settings of _SINCE_8_7."""
    words = [word for setting in _SINCE_8_7 for word in ("-o", setting)]
    try:
        done = subprocess.run(["ssh", "-F", "none", *words, "-G", "none"], capture_output=True, timeout=CONFIG_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
