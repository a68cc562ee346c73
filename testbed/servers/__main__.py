"""``python -m testbed.servers up [NAME…]``: start servers for manual use or a benchmark.

Prints ``export`` lines for a shell on stdout, then keeps the servers until it is interrupted or its stdin ends.
``install`` starts each server once and stops it, so that tests find it installed.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable

from testbed.clouds.azure.server import azure_program
from testbed.clouds.gcp.discovery import compute_discovery
from testbed.servers import (
    InstallError,
    Server,
    ServerError,
    azurite,
    ceph,
    gcs,
    minio,
    moto,
    rclone,
    s3rver,
    seaweedfs,
    versitygw,
)
from testbed.servers.install import cache_folder

STARTERS: dict[str, Callable[[], Server]] = {
    "versitygw": versitygw,
    "versitygw-tls": lambda: versitygw(tls=True),
    "moto": moto,
    "azurite": azurite,
    "gcs": gcs,
    "rclone": rclone,
    "s3rver": s3rver,
    "seaweedfs": seaweedfs,
    "minio": minio,
    "ceph": ceph,
}
DEFAULT = ["versitygw"]
#: Servers that only slow tests use. `make test` does not install them.
SLOW = {"ceph", "minio", "s3rver", "seaweedfs"}
#: Files that the stand-ins of clouds need. moto stands for AWS.
CLOUDS: dict[str, Callable[[], object]] = {"Azure's API": azure_program, "Google's API": compute_discovery}


def main() -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.servers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="install if needed, start, print exports, run until interrupted")
    up.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STARTERS)} (default: {' '.join(DEFAULT)})")
    install = verbs.add_parser("install", help="install servers, start each once, name the unavailable ones")
    install.add_argument("--all", action="store_true", help="also install those that only slow tests use")
    verbs.add_parser("where", help="print the folder that holds the installed servers")
    arguments = parser.parse_args()
    if arguments.verb == "where":
        print(cache_folder())
        return 0
    if arguments.verb == "install":
        return _install([name for name in STARTERS if arguments.all or name not in SLOW])
    names: list[str] = arguments.names or DEFAULT
    if unknown := [name for name in names if name not in STARTERS]:
        parser.error(f"unknown server: {', '.join(unknown)}")
    return _up(names)


def _up(names: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        try:
            servers = [stack.enter_context(STARTERS[name]()) for name in names]
        except (InstallError, ServerError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        for server in servers:
            _print_exports(server)
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            while sys.stdin.readline():
                pass
    return 0


def _install(names: list[str]) -> int:
    """Install these servers one after the other, so that they leave processors and network to other programs."""
    code = 0
    for name in names:
        try:
            STARTERS[name]().stop()
        except (InstallError, ServerError) as error:
            print(f"note: the test server {name} could not be installed: {error}", file=sys.stderr)
            code = 1
    for name, install in CLOUDS.items():
        try:
            install()
        except InstallError as error:
            print(f"note: the stand-in for {name} could not be installed: {error}", file=sys.stderr)
            code = 1
    return code


def _print_exports(server: Server) -> None:
    print(f"# {server.name}: {server.endpoint}, pid {server.pid}")
    for name, value in server.environment.items():
        print(f"export {name}={shlex.quote(value)}")
    if server.ca_file is not None:
        print(f"# private CA: {server.ca_file}")


if __name__ == "__main__":
    sys.exit(main())
