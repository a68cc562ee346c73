"""A stand-in for Google Compute Engine, whose instances boot.

Routes, names, types and enums come from Google's discovery document; the behaviour behind them is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.clouds.booter import Booter
from testbed.clouds.gcp import metadata
from testbed.clouds.gcp.booting import Boots
from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import ComputeEngine
from testbed.clouds.metadata import InstanceNetwork
from testbed.clouds.programs import program_server, program_source
from tradewind.fleet.boot.user_data import ProgramSource

__all__ = ["GcpCloud", "gcp_cloud"]


@dataclass(frozen=True)
class GcpCloud:
    """A running cloud: its API, and what is behind it. `address` is this host's own in the machines' network."""

    api: ComputeEngine
    boots: Boots
    source: ProgramSource
    address: str

    @property
    def engine(self) -> Cloud:
        """The cloud behind the API."""
        return self.api.cloud

    def document(self, **settings: Any) -> dict[str, Any]:
        """Return the document of a provider that uses this cloud."""
        common = {"kind": "gcp", "project": self.engine.project, "endpoint": self.api.endpoint}
        return {**common, "programs": [self.source.document()], "home_cidr": f"{self.address}/32", **settings}


@contextmanager
def gcp_cloud(folder: Path, binary: str) -> Iterator[GcpCloud]:
    """Run a cloud whose instances boot in a private network of this host, and download `binary` there. Needs root."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        InstanceNetwork() as lan,
        lan.metadata(metadata.__file__, folder / "metadata") as notices,
        program_server(lan.address, binary, folder / "programs") as url,
        Booter(lan, folder / "machines") as booter,
    ):
        boots = Boots(booter, notices)
        with ComputeEngine(Cloud(boot=boots)) as api:
            yield GcpCloud(api, boots, program_source(url, binary), lan.address)
