"""User data of a rented machine: `boot.sh` with the settings of one machine before it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError
from tradewind.gateway.owner import TOKEN_S
from tradewind.model.records import dataclass

__all__ = ["USER_DATA_BYTES_MAX", "ProgramSource", "programs_from_document", "user_data"]

#: Maximum length of user data. EC2 has the lowest limit of all clouds, 16 KiB.
USER_DATA_BYTES_MAX = 16 * 1024
#: The metadata services of the clouds. A proxy would answer with what it knows about itself, also with its identity.
NEVER_BY_PROXY = "169.254.169.254,metadata.google.internal"
REGION_PLACEHOLDER = "{region}"
_SCRIPT = Path(__file__).with_name("boot.sh")
#: A machine ends if its gateway does not run within this time. The join token is not valid for longer.
BOOT_S = TOKEN_S
#: A gateway may need this time to end after its lease has expired; then its machine ends.
LATE_S = 60
#: Interval at which a machine checks the lease.
LOOK_S = 5


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """Where a machine downloads the gateway program, and the program's SHA-256, for one processor.

    The URL has the program as it is, or compressed by gzip; the SHA-256 is that of the program itself. The URL may have
    the placeholder `{region}`. `processor` is the name that `uname -m` prints: `x86_64` or `aarch64`.
    """

    processor: str
    url: str
    sha256: str

    def url_in(self, region: str) -> str:
        """Return the URL for machines of a region: the placeholder is the cloud's own name of it, as `us-east-1`."""
        return self.url.replace(REGION_PLACEHOLDER, region.rpartition(":")[2])

    def document(self) -> dict[str, Any]:
        """Return the source as a JSON object."""
        return {"processor": self.processor, "url": self.url, "sha256": self.sha256}


def programs_from_document(documents: Sequence[Mapping[str, Any]]) -> tuple[ProgramSource, ...]:
    """Return the sources of `ProgramSource.document`."""
    return tuple(ProgramSource(one["processor"], one["url"], one["sha256"]) for one in documents)


def user_data(
    join: str,
    programs: Sequence[ProgramSource],
    lease_s: int,
    region: str,
    *,
    proxy: str | None = None,
    boot_s: int = BOOT_S,
    late_s: int = LATE_S,
    look_s: int = LOOK_S,
    end_command: str | None = None,
    notice_s: int | None = None,
    notice_command: str | None = None,
) -> str:
    """Return the shell script that a machine runs when it boots.

    `join` is the join document as JSON on one line. Its token works once and for TOKEN_S, because others may read
    user data. `region` is the machine's, such as `aws:us-east-1`. `proxy` is the URL of an HTTP proxy for the download
    and for the stores. The machine ends if its gateway does not run within `boot_s`, and `late_s` after its lease has
    expired; it checks the lease every `look_s`. `end_command` is a shell command that ends the machine for good, where
    a shutdown only stops it. The cloud takes the machine back `notice_s` after it has announced that; `notice_command`
    is a shell command that succeeds from then on. None: something else sends the gateway SIGUSR1.
    Raises GatewayError if the script is longer than USER_DATA_BYTES_MAX.
    """
    lines = "\n".join(f"{source.processor} {source.sha256} {source.url_in(region)}" for source in programs)
    numbers = {"lease_s": lease_s, "boot_s": boot_s, "late_s": late_s, "look_s": look_s}
    settings = {"programs": lines, "join": join, **{name: str(value) for name, value in numbers.items()}}
    if notice_s is not None:
        settings["notice_s"] = str(notice_s)
    commands = {"end_command": end_command, "notice_command": notice_command}
    settings |= {name: command for name, command in commands.items() if command is not None}
    head = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    if proxy is not None:
        head += [f"export {name}={shlex.quote(proxy)}" for name in ("https_proxy", "HTTPS_PROXY", "http_proxy")]
        head += [f"export {name}={NEVER_BY_PROXY}" for name in ("no_proxy", "NO_PROXY")]
    text = "\n".join(["#!/bin/sh", *head, _script()])
    if len(text.encode()) > USER_DATA_BYTES_MAX:
        raise GatewayError(
            f"the user data of a machine has {len(text.encode())} bytes, at most {USER_DATA_BYTES_MAX} are possible",
            hint="use shorter URLs of the gateway programs",
        )
    return text


def _script() -> str:
    """Return boot.sh without comments, which would only use up the space."""
    lines = _SCRIPT.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if line.strip() and not line.startswith("#"))
