"""``python -m testbed.kubelab up``: run a lab by hand until it is interrupted. ``install`` builds its programs."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from testbed.kubelab.install import installed
from testbed.kubelab.lab import LabError, kubelab, serve
from testbed.servers import InstallError


def main() -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(prog="python -m testbed.kubelab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("install", help="build the programs")
    up = verbs.add_parser("up", help="start clusters, print their configuration, run until interrupted")
    up.add_argument("--regions", default="r1=1", help="names of the clusters with their nodes, such as r1=1,r2=2")
    up.add_argument("--image", type=Path, action="append", default=[], help="image tar for all nodes")
    inner = verbs.add_parser("serve", help="used by `up` in a namespace of its own")
    inner.add_argument("folder", type=Path)
    inner.add_argument("programs", type=Path)
    inner.add_argument("regions")
    inner.add_argument("images", type=Path, nargs="*")
    given = parser.parse_args()
    try:
        if given.verb == "install":
            installed()
        elif given.verb == "serve":
            serve(given.folder, given.programs, _regions(given.regions), given.images)
        else:
            _up(given)
    except (InstallError, LabError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _regions(text: str) -> dict[str, int]:
    """Return the number of nodes by region."""
    parts = (part.partition("=") for part in text.split(","))
    return {name: int(nodes or 1) for name, _, nodes in parts}


def _up(given: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    images = [image.resolve() for image in given.image]
    with (
        tempfile.TemporaryDirectory(prefix="kubelab-") as folder,
        kubelab(Path(folder, "lab"), _regions(given.regions), images=images) as lab,
        contextlib.suppress(KeyboardInterrupt),
    ):
        print(f"export KUBECONFIG={lab.kubeconfig}", flush=True)
        while sys.stdin.readline():
            pass


if __name__ == "__main__":
    sys.exit(main())
