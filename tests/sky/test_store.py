"""An S3 server in a machine of the sky, which gateways reach over the WAN, and which has a slow link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.servers.install import go_program
from testbed.servers.versitygw import MODULE, REGION, VERSION
from testbed.sshd import WAIT
from tests.sky.world import OPTIONS, WORLD, write_files, write_world
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

SINK = "gcp:asia-northeast1"
STORE_MBPS = 8.0
"""Rate of the store's link: 1 MB/s."""
PORT = 7070
SECRET = "testbed-secret"
VOLUME_BYTES = 20_000_000
RSS_BYTES_MAX = 300 << 20


@pytest.fixture
def stage(command: Command, tmp_path: Path) -> Iterator[tuple[Command, Sky, Path]]:
    """The command with the store's credentials, a sky with a store beside the sink, and the sky's file."""
    if shutil.which("go") is None and "CI" not in os.environ:
        pytest.skip("go is not on PATH, and versitygw is installed with it")
    command.environment |= {
        "AWS_ACCESS_KEY_ID": "testbed",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
    }
    regions = {**WORLD["regions"], "site:store": {"name": "store"}}
    links = [*WORLD["links"], {"between": [SINK, "site:store"], "rtt_ms": 2, "rate": "10Gbit/s"}]
    file = write_world(tmp_path, regions=regions, links=links)
    with Sky.up(file, folder=sky_folder(str(command.state), file)) as sky:
        yield command, sky, file


@pytest.mark.slow
def test_a_slow_store_slows_every_hop_and_fills_no_memory(stage: tuple[Command, Sky, Path], tmp_path: Path) -> None:
    command, sky, file = stage
    address = sky.machines["store-1"].address
    data = tmp_path / "data"
    (data / "bucket").mkdir(parents=True)
    program = go_program("versitygw", MODULE, VERSION)
    words = [str(program), "--port", f"{address}:{PORT}", "--quiet", "--region", REGION, "posix", str(data)]
    environment = {**os.environ, "ROOT_ACCESS_KEY": "testbed", "ROOT_SECRET_KEY": SECRET}
    with sky.popen("store-1", words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            waited = sky.run("sink-1", [sys.executable, "-c", WAIT, address, str(PORT)], capture_output=True, text=True)
            assert waited.returncode == 0, waited.stderr
            sky.set_machine("store-1", ingress_mbps=STORE_MBPS)
            source = write_files(tmp_path / "source", VOLUME_BYTES)
            options = ("--sky", file, "--dst-endpoint", f"http://{address}:{PORT}")
            running = command.start("cp", "-r", source, "s3://bucket/copy/", *OPTIONS, *options)
            running.wait_for_bytes(VOLUME_BYTES // 4)
            for name, pid in running.gateways().items():
                resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                assert resident < RSS_BYTES_MAX, f"{name} holds {resident} bytes"
            done = running.finish()
        finally:
            server.kill()
    assert done.code == 0, done.stderr
    for path in source.iterdir():
        assert (data / "bucket" / "copy" / path.name).read_bytes() == path.read_bytes()
    # The link carries 1 MB/s. A higher rate would mean that bytes were counted before they were stored.
    assert done.summary["progress"]["bytes_per_s"] < STORE_MBPS * 1e6 / 8 * 1.1
    command.wait_until_alone()
    assert os.listdir(command.state / "fleets") == []
