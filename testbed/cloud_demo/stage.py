"""Stand-ins of AWS and Google Cloud on one private network of this host, with a bucket in each, and a user."""

from __future__ import annotations

import hashlib
import os
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.cloud_demo.cluster import RelayCluster, relay_cluster
from testbed.clouds.aws import AwsCloud, Boots
from testbed.clouds.aws.cloud import aws_api
from testbed.clouds.booter import Booter
from testbed.clouds.gcp import GcpCloud
from testbed.clouds.gcp.booting import Boots as GcpBoots
from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import ComputeEngine
from testbed.clouds.lan import Lan
from testbed.clouds.programs import program_server, program_source
from testbed.drive import Command
from testbed.servers import Server, gcs, versitygw

__all__ = ["RATE", "SINK", "SOURCE", "CloudStage", "cloud_stage"]

#: The source bucket is in AWS, the destination bucket in Google Cloud.
SOURCE, SINK = "aws:us-east-1", "gcp:europe-west4"
#: The relay runs in a cluster, if there is one.
CLOUD_RELAY, CLUSTER_RELAY = "gcp:us-east4", "site:cluster"
S3_BUCKET, GCS_BUCKET = "flights", "archive"
PREFIX = "2026"
#: Rates that the user's catalog has: only over the relay the transfer is as fast as RATE allows.
DIRECT_GBPS, RELAYED_GBPS = 0.008, 0.024
#: All machines share this host's network and its processors: without a limit the transfer ends before the relay is cut.
RATE = "3MB/s"
FILE_BYTES = 1_000_000
#: Time within which clouds notice that machines have ended.
ENDS_S = 60.0


@dataclass(frozen=True)
class CloudStage:
    """Both running clouds, both stores, and the command of a user who has accounts there."""

    aws: AwsCloud
    gcp: GcpCloud
    booter: Booter
    s3: Server
    gs: Server
    command: Command
    cluster: RelayCluster | None

    @property
    def words(self) -> list[str]:
        """The words of the transfer, after `tradewind`."""
        return [
            *("cp", "-r", f"s3://{S3_BUCKET}/{PREFIX}/", f"gs://{GCS_BUCKET}/{PREFIX}/", "--via", "fleet"),
            *("--src-region", SOURCE, "--dst-region", SINK, "--max-cost", "5USD", "--limit-rate", RATE),
            *("--src-endpoint", self.s3.endpoint, "--dst-endpoint", self.gs.endpoint, "--share-keys"),
        ]

    @property
    def relay(self) -> str:
        """The region of the relay."""
        return CLOUD_RELAY if self.cluster is None else CLUSTER_RELAY

    def kill_relay(self) -> None:
        """End the machine of the relay at once."""
        if self.cluster is None:
            machines = self.booter.machines.values()
            next(one for one in machines if one.region == CLOUD_RELAY and not one.ended.is_set()).kill()
        else:
            self.cluster.kill_relay()

    def write_files(self, total_bytes: int) -> dict[str, str]:
        """Write incompressible objects into the S3 bucket. Return the SHA-256 of each, by key."""
        folder = self.s3.folder / "data" / S3_BUCKET / PREFIX
        folder.mkdir(parents=True)
        digests = {}
        for number in range(max(1, total_bytes // FILE_BYTES)):
            content = os.urandom(min(FILE_BYTES, total_bytes))
            path = folder / f"leg-{number:04}.csv"
            path.write_bytes(content)
            digests[f"{PREFIX}/{path.name}"] = hashlib.sha256(content).hexdigest()
        return digests

    def differences(self, digests: Mapping[str, str]) -> list[str]:
        """Return the keys of objects in the GCS bucket that differ; read by plain HTTP, without Tradewind."""
        different = []
        for key, digest in digests.items():
            with urllib.request.urlopen(f"{self.gs.endpoint}/{GCS_BUCKET}/{key}", timeout=30) as answer:
                if hashlib.sha256(answer.read()).hexdigest() != digest:
                    different.append(key)
        return different

    def billed_in_the_end(self) -> list[str]:
        """Return what the clouds themselves still bill after a while, whatever Tradewind says."""
        deadline_s = time.monotonic() + ENDS_S
        while (billed := self._billed()) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return billed

    def _billed(self) -> list[str]:
        instances = [str(one["id"]) for one in self.aws.instances() if one["state"] != "terminated"]
        pods = [] if self.cluster is None else self.cluster.objects()
        return [*instances, *map(str, self.gcp.engine.billed()), *pods]


@contextmanager
def cloud_stage(folder: Path, gateway: str, with_cluster: bool) -> Iterator[CloudStage]:
    """Run both clouds and both stores, and a cluster; machines boot the program `gateway`. Needs root."""
    machines = folder / "machines"
    with ExitStack() as held:
        cluster = held.enter_context(relay_cluster(folder, gateway, CLUSTER_RELAY)) if with_cluster else None
        lan = held.enter_context(Lan()) if cluster is None else cluster.network()
        url = held.enter_context(program_server(lan.address, gateway, folder / "programs"))
        booter = held.enter_context(Booter(lan, machines))
        source = program_source(url, gateway)
        aws = held.enter_context(aws_api(Boots(booter, source, lan.address)))
        boots = GcpBoots(booter)
        gcp = GcpCloud(held.enter_context(ComputeEngine(Cloud(boot=boots))), boots, source, lan.address)
        s3 = held.enter_context(versitygw(data_parent=folder, address=lan.address))
        gs = held.enter_context(gcs(lan.address))
        _make_buckets(s3, gs)
        stage = CloudStage(aws, gcp, booter, s3, gs, Command(folder / "home"), cluster)
        stage.command.environment |= {**s3.environment, **gs.environment, "TRADEWIND_GATEWAY": gateway}
        # One variable would name one store for both sides; the words of the command name each.
        for variable in ("AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
            del stage.command.environment[variable]
        _configure(stage, url, lan.address)
        yield stage


def _make_buckets(s3: Server, gs: Server) -> None:
    (s3.folder / "data" / S3_BUCKET).mkdir()
    urllib.request.urlopen(urllib.request.Request(f"{gs.endpoint}/{GCS_BUCKET}", method="PUT"), timeout=30).close()


def _configure(stage: CloudStage, program_url: str, home: str) -> None:
    google = stage.gcp.document()
    stage.command.configure(
        "[aws]",
        f'endpoint = "{stage.aws.endpoint}"',
        'regions = ["us-east-1"]',
        "[gcp]",
        *(f'{name} = "{google[name]}"' for name in ("project", "endpoint")),
        'regions = ["europe-west4"]' if stage.cluster else 'regions = ["us-east4", "europe-west4"]',
        "[fleet]",
        f'program_url = "{program_url}"',
        f'home_cidr = "{home}/32"',
        'home_rate = "1Mbit/s"',
        *(stage.cluster.configuration() if stage.cluster else ()),
    )
    links = stage.command.home / "links.csv"
    rates = ((SOURCE, SINK, DIRECT_GBPS), (SOURCE, stage.relay, RELAYED_GBPS), (stage.relay, SINK, RELAYED_GBPS))
    rows = [f"{src},{dst},{gbps}\n" for src, dst, gbps in rates]
    links.write_text("src,dst,gbps\n" + "".join(rows), encoding="utf-8")
    stage.command.run("catalog", "import", links).expect(0)
