"""The command lines of Tradewind and of the tools that `local` compares it with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import Skipped, StoreTools, Tool
from testbed.drive import find_binary
from testbed.servers import Server

Command = list[str | Path] | Skipped
Commands = dict[str, Command]
"""A command for each tool by name."""

RCLONE_FLAGS = [
    "--transfers=16", "--checkers=32", "--s3-chunk-size=16M", "--s3-upload-concurrency=8",
    "--s3-use-unsigned-payload=true", "--s3-no-check-bucket", "--config=/dev/null",
]  # fmt: skip
"""Options that rclone's documentation recommends for speed. Without an unsigned payload it hashes every body twice over
plain HTTP."""
JUICEFS_FLAGS = ["--threads=32", "--list-threads=4"]
CRT_SCRIPT = Path(__file__).with_name("crt_copy.py")


@dataclass
class Clients:
    """Command lines for two servers with different credentials. All tools read them from one environment."""

    folder: Path
    """For homes and credentials."""
    server: Server
    second: Server
    tools: StoreTools
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = {**os.environ, **self.server.environment, "HOME": str(self.folder / "home")}
        self.environment |= {"XDG_STATE_HOME": str(self.folder / "state"), "JFS_NO_UPDATE_CHECK": "1"}
        # As after `pip install`, Python must reuse its byte code, not compile it in each run.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        both = {"first": self.server, "second": self.second}
        keys = "".join(
            f"[{name}]\naws_access_key_id={each.access_key}\naws_secret_access_key={each.secret_key}\n"
            for name, each in both.items()
        )
        (self.folder / "credentials").write_text(keys)
        self.environment["AWS_SHARED_CREDENTIALS_FILE"] = str(self.folder / "credentials")
        for name, each in both.items():
            host = each.endpoint.removeprefix("http://")
            self.environment[f"MC_HOST_{name}"] = f"http://{each.access_key}:{each.secret_key}@{host}"

    def tradewind(self, *words: str | Path) -> Command:
        """Return a tradewind command line."""
        return [find_binary("tradewind"), *words, "--quiet"]

    def s5cmd(self, *words: str | Path) -> Command:
        """Return an s5cmd command line, which knows the first server only."""
        return _command(self.tools.s5cmd, "--endpoint-url", self.server.endpoint, "--log", "error", *words)

    def rclone(self, *words: str | Path) -> Command:
        """Return an rclone command line."""
        return _command(self.tools.rclone, *words, *RCLONE_FLAGS)

    def juicefs(self, *words: str) -> Command:
        """Return a `juicefs sync` command line."""
        return _command(self.tools.juicefs, "--log-level=error", "sync", *JUICEFS_FLAGS, *words)

    def mc(self, *words: str | Path) -> Command:
        """Return a command line of MinIO's client, which calls the servers `first` and `second`."""
        verb, *rest = words
        return _command(self.tools.mc, verb, "--quiet", *rest)

    def crt(self, *words: str | Path) -> Command:
        """Return a command line of the AWS CRT client, which knows the first server only and cannot let it copy."""
        return _command(self.tools.crt_python, CRT_SCRIPT, *words)

    def remote(self, server: Server, path: str) -> str:
        """Return an rclone remote without a configuration file. The credentials are in the environment."""
        profile = "first" if server is self.server else "second"
        return f":s3,provider=Other,env_auth=true,profile={profile},endpoint='{server.endpoint}':{path}"

    def minio_url(self, server: Server, path: str) -> str:
        """Return juicefs's form of a path-style endpoint, which is the only way to pass it credentials."""
        host = server.endpoint.removeprefix("http://")
        return f"minio://{server.access_key}:{server.secret_key}@{host}/{path}"


def at_once(commands: Sequence[Command]) -> Command:
    """Return one command that runs several at the same time, and fails if one of them fails."""
    lines = []
    for command in commands:
        if isinstance(command, Skipped):
            return command
        lines.append(f'{shlex.join(str(word) for word in command)} & started="$started $!"')
    return ["sh", "-c", "\n".join([*lines, "for each in $started; do wait $each || exit 1; done"])]


def _command(tool: Tool, *words: str | Path) -> Command:
    return tool if isinstance(tool, Skipped) else [tool, *words]
