"""A client that uses all calls of a provider, in a process that can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["orphan_client", "wait_until_done"]

_LIFE = """
import json, sys
from importlib import import_module
from pathlib import Path
from tests.fleet.orders import FLEET
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers import make_provider
module, document, state = json.loads(sys.argv[1])
cloud = import_module(module)
provider = make_provider(document, "no-binary", FleetJournal(Path(state)))
provider.quota(cloud.REGION)
provider.offers([cloud.REGION])
machines = cloud.launch(provider, cloud.order("one"), cloud.order("two"))
provider.machines({FLEET_TAG: FLEET})
provider.terminate([machine.id for machine in machines])
print("ended", flush=True)
"""


@contextmanager
def orphan_client(stage_module: str, document: dict[str, Any], state: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a client of a provider, with the orders and the region of a module of these tests."""
    argument = json.dumps([stage_module, document, str(state)])
    client = subprocess.Popen([sys.executable, "-c", _LIFE, argument], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    try:
        yield client
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


def wait_until_done(client: subprocess.Popen[str]) -> None:
    """Wait for the end of a client that nobody kills."""
    assert client.stdout is not None and client.stdout.readline() == "ended\n"
