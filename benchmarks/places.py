"""Places in which machines are rented on this host, for benchmarks of their start: hosts, clusters, emulated clouds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from testbed.clouds.aws import aws_cloud
from testbed.clouds.azure import GROUP, IDENTITY, SUBSCRIPTION, azure_cloud
from testbed.clouds.gcp import gcp_cloud
from testbed.drive import Command
from testbed.kubelab import lab_unavailable
from testbed.kubelab.shared import GATEWAY_IMAGE, shared_lab
from testbed.servers import InstallError, Server, ServerError, versitygw
from testbed.servers.versitygw import REGION
from testbed.sshd import local_ssh_server
from tradewind.gateway.binary import find_gateway

__all__ = ["PLACES", "Place", "cloud", "hosts", "run_benchmark", "two_stores"]

SECRET = "benchmark-secret"
#: The namespace of machines in clusters.
NAMESPACE = "tradewind-benchmark"
#: A cost below this needs no agreement.
AGREED_USD = 1000


@dataclass
class Place:
    """Machines in two regions: the regions, an address of this host that they reach, the configuration, and options."""

    regions: tuple[str, str]
    address: str
    lines: list[str]
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(
        self, home: Path, source: Server, destination: Server, source_endpoint: str
    ) -> tuple[Command, list[str]]:
        """Return a user's command, and the words of a copy from a bucket to one in the other region."""
        command = Command(home)
        command.environment |= {"AWS_ACCESS_KEY_ID": source.access_key, "AWS_SECRET_ACCESS_KEY": SECRET}
        command.environment |= {"AWS_REGION": REGION, **self.environment}
        command.configure(*self.lines)
        words = ["cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--via", "fleet", "--share-keys"]
        words += ["--src-region", self.regions[0], "--dst-region", self.regions[1], "--max-vms", "1"]
        words += ["--src-endpoint", source_endpoint, "--dst-endpoint", destination.endpoint, *self.words]
        return command, words


@contextmanager
def hosts(folder: Path) -> Iterator[Place]:
    """Yield two hosts which are this one."""
    with local_ssh_server(folder / "ssh") as ssh:
        with ssh.config.open("a", encoding="utf-8") as config:
            config.writelines(f"Host {site}\n  HostName 127.0.0.1\n" for site in "ab")
        lines = ["[ssh]", f'config = "{ssh.config}"']
        for site in "ab":
            lines += ["[[ssh.hosts]]", f'name = "{site}"', f'region = "site:{site}"', 'address = "127.0.0.1"']
            lines += ["usd_per_hour = 1", f'folder = "{folder}/on {site}"']
        yield Place(("site:a", "site:b"), "127.0.0.1", ["[fleet]", f"confirm_above_usd = {AGREED_USD}", *lines])


@contextmanager
def cloud(folder: Path) -> Iterator[Place]:
    """Yield the emulated EC2."""
    with aws_cloud(folder / "cloud", find_gateway()) as made:
        assert made.boots is not None
        document = made.document()
        lines = ["[aws]", f'endpoint = "{made.endpoint}"', 'regions = ["us-east-1", "eu-west-1"]']
        lines += _fleet(document["programs"][0]["url"], document["home_cidr"])
        # At lower rates, little data needs cheaper types of machines than much data.
        goal = "--min-throughput", "2Gbit/s"
        yield Place(("aws:us-east-1", "aws:eu-west-1"), made.boots.address, lines, goal)


@contextmanager
def compute_engine(folder: Path) -> Iterator[Place]:
    """Yield the emulated Compute Engine."""
    with gcp_cloud(folder / "cloud", find_gateway()) as made:
        document = made.document()
        lines = ["[gcp]", *(f'{name} = "{document[name]}"' for name in ("project", "endpoint"))]
        lines += ['regions = ["us-central1", "europe-west4"]']
        lines += _fleet(made.source.url, document["home_cidr"])
        yield Place(("gcp:us-central1", "gcp:europe-west4"), made.address, lines)


@contextmanager
def azure(folder: Path) -> Iterator[Place]:
    """Yield the emulated Azure."""
    with azure_cloud(folder / "cloud", find_gateway()) as made:
        home = urlsplit(made.api.endpoint).hostname or ""
        settings = {"endpoint": made.api.endpoint, "subscription": SUBSCRIPTION, "resource_group": GROUP}
        lines = ["[azure]", *(f'{name} = "{value}"' for name, value in {**settings, "identity": IDENTITY}.items())]
        lines += ['regions = ["westeurope", "eastus"]']
        lines += _fleet(made.document()["programs"][0]["url"], f"{home}/32")
        yield Place(("azure:westeurope", "azure:eastus"), home, lines, environment=made.api.environment())


@contextmanager
def kubernetes(folder: Path) -> Iterator[Place]:
    """Yield two clusters of one node each. The first run builds Kubernetes, which takes many minutes."""
    if reason := lab_unavailable():
        raise InstallError(reason)
    regions = {"r1": "site:a", "r2": "site:b"}
    with shared_lab(folder / "lab", dict.fromkeys(regions, 1), Path(find_gateway()).resolve()) as lab:
        label = {"pod-security.kubernetes.io/enforce": "privileged"}
        lines = ["[kubernetes]", f'kubeconfig = "{lab.kubeconfig}"', f'home = "{lab.address}"']
        for context, region in regions.items():
            metadata = {"name": NAMESPACE, "labels": label}
            lab.apply(context, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            lines += ["[[kubernetes.clusters]]", f'context = "{context}"', f'region = "{region}"']
            lines += [f'image = "{GATEWAY_IMAGE}"', f'namespace = "{NAMESPACE}"', 'network = "service"']
            lines += ['cpu = "10m"', 'memory = "256Mi"', "usd_per_hour = 1"]
        yield Place(("site:a", "site:b"), lab.address, [*lines, "[fleet]", f"confirm_above_usd = {AGREED_USD}"])


def _fleet(program_url: str, home_cidr: str) -> list[str]:
    return [
        "[fleet]",
        f'program_url = "{program_url}"',
        f'home_cidr = "{home_cidr}"',
        f"confirm_above_usd = {AGREED_USD}",
    ]


#: Places by their names on the command line.
PLACES = {"hosts": hosts, "kubernetes": kubernetes, "cloud": cloud, "gcp": compute_engine, "azure": azure}


@contextmanager
def two_stores(place: Place, folder: Path) -> Iterator[tuple[Server, Server]]:
    """Yield a store for one region, with an empty folder `data`, and one for the other, with an empty folder `copy`."""
    with (
        versitygw(False, data_parent=folder, address=place.address, secret=SECRET) as one,
        versitygw(False, data_parent=folder, address=place.address, secret=SECRET) as other,
    ):
        (one.folder / "data" / "bucket" / "data").mkdir(parents=True)
        (other.folder / "data" / "bucket" / "copy").mkdir(parents=True)
        yield one, other


def run_benchmark(name: str, description: str, measure: Callable[[str, int], None], rounds: int) -> int:
    """Measure one place, which the command line names, in a number of rounds. Return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"pairs of runs (default: {rounds})")
    arguments = parser.parse_args()
    try:
        measure(arguments.place, arguments.rounds)
    except (InstallError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
