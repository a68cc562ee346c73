"""TLS identities of one fleet: a CA that lives as long as the fleet, and one certificate per gateway."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tradewind.errors import GatewayError

#: Making the identities of a fleet takes milliseconds; beyond this something is wrong.
IDENTITY_S = 60.0


def make_identities(binary: str, folder: Path, names: Iterable[str], *, grows: bool = False) -> None:
    """Writes `folder/ca.pem` and `folder/NAME/{cert,key}.pem` for each name; in a folder that has them, for more names.

    With `grows` the CA's key is kept, so that there may be more names later. Raises GatewayError.
    """
    command = [binary, "identity", "--out", str(folder), *(["--keep-ca"] if grows else []), "--name", *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=IDENTITY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GatewayError(f"identities for the gateways could not be made: {error}") from error
    if done.returncode != 0:
        raise GatewayError(f"identities for the gateways could not be made: {done.stderr.strip()}")
