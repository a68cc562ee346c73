"""Gateways and clients that die, freeze or lose their connections during a transfer, with real processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from testbed.chains import Document, chain, twin, with_detour, write
from testbed.drive import Command, Running
from testbed.faults import HttpProxy, TcpProxy
from testbed.places import FilePlace, S3Place
from testbed.processes import owner_of
from testbed.servers.process import free_port
from testbed.trees import MIB, payload, tree_hashes, write_large, write_tree

LARGE_BYTES = 96 * MIB
SMALL = {f"small/{number:03}": 30_000 for number in range(200)}
TOTAL_BYTES = LARGE_BYTES + sum(SMALL.values())
RATE = "25MB/s"
"""Rate limit of a transfer, slow enough to inject a fault in the middle."""
MIDDLE_BYTES = TOTAL_BYTES // 4
FREEZE_S = 20.0
USD_PER_GB = 0.02
FRAMING = 1.01
"""Ratio of a hop's bytes to those of the objects: frame headers, TLS records, handshakes."""


@pytest.fixture
def files(tmp_path: Path) -> FilePlace:
    place = FilePlace(tmp_path / "tree")
    write_large(place.folder / "large", LARGE_BYTES)
    write_tree(place.folder, SMALL)
    return place


def start(command: Command, files: FilePlace, bucket: S3Place, *more: str | Path) -> Running:
    return command.start("cp", "-r", files.url, bucket.url, *bucket.flags("dst"), "--limit-rate", RATE, *more)


def assert_arrived(bucket: S3Place, files: FilePlace) -> None:
    assert bucket.sizes() == files.sizes()
    assert bucket.client.sha256(bucket.bucket, "large") == tree_hashes(files.folder)["large"]
    for key, size in SMALL.items():
        assert bucket.get(key) == payload(key, size), key
    assert bucket.unfinished() == []


def only_job(command: Command) -> dict[str, object]:
    (job,) = command.jobs()
    return job


def resume(command: Command) -> None:
    command.run("jobs", "resume", str(only_job(command)["id"])).expect(0)
    assert only_job(command)["state"] == "done"


@pytest.mark.parametrize("role", ["source", "relay", "sink"])
def test_kill_9_of_one_gateway_of_each_role(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path, role: str
) -> None:
    running = start(command, files, s3, "--topology", write(twin(), tmp_path / "topology.json"))
    running.wait_for_bytes(MIDDLE_BYTES)
    os.kill(running.gateways()[f"{role}-a"], signal.SIGKILL)
    done = running.finish().expect(0)
    assert_arrived(s3, files)
    assert done.summary["progress"]["objects_done"] == len(SMALL) + 1


@pytest.mark.parametrize("topology", [None, chain("relay")], ids=["local", "chain"])
def test_kill_9_of_the_client_repeats_no_acknowledged_part(
    command: Command, files: FilePlace, s3: S3Place, proxy: HttpProxy, tmp_path: Path, topology: Document | None
) -> None:
    s3.endpoint = proxy.endpoint
    more: list[str | Path] = [] if topology is None else ["--topology", write(topology, tmp_path / "topology.json")]
    running = start(command, files, s3, "--chunk-size", "5MiB", *more)
    proxy.wait_for(lambda exchanges: sum(each.request.is_part and each.status == 200 for each in exchanges) >= 8)
    running.wait_for_bytes(MIDDLE_BYTES)
    running.signal(signal.SIGKILL)
    running.process.wait()
    command.wait_until_alone()
    first = proxy.requests(lambda request: request.is_part)
    finished = {each.request.query["partNumber"] for each in first if each.status == 200}
    in_doubt = {each.request.query["partNumber"] for each in first if each.status != 200}

    resume(command)
    assert_arrived(s3, files)
    parts = [each.request.query["partNumber"] for each in proxy.requests(lambda request: request.is_part)][len(first) :]
    # The journal is written in batches: it may lack the latest acknowledgements.
    again = [part for part in parts if part in finished - in_doubt]
    assert len(again) <= 2, f"parts {again} of {sorted(finished)} were sent again"


@pytest.mark.parametrize("action", ["resume", "cancel"])
def test_the_machines_of_a_killed_client_end_with_the_resumed_job(
    command: Command, files: FilePlace, tmp_path: Path, action: str
) -> None:
    topology = write(chain("relay"), tmp_path / "topology.json")
    words = ("-r", files.url, tmp_path / "copy", "--topology", topology, "--limit-rate", RATE)
    running = command.start("cp", *words)
    running.wait_for_bytes(MIDDLE_BYTES)
    running.signal(signal.SIGKILL)
    running.process.wait()
    command.wait_until_alone()
    assert "abandoned" in command.run("fleet", "list").stdout
    command.run("jobs", action, str(only_job(command)["id"])).expect(0)
    assert command.run("fleet", "list").stdout == ""


def test_a_transfer_survives_a_kill_of_its_fleets_owner(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path
) -> None:
    """The gateways keep their identities, and their machines keep their leases."""
    running = start(command, files, s3, "--topology", write(chain("relay"), tmp_path / "topology.json"))
    running.wait_for_bytes(MIDDLE_BYTES)
    os.kill(owner_of(running.process.pid), signal.SIGKILL)
    running.finish().expect(0)
    assert_arrived(s3, files)
    command.wait_until_alone()
    assert command.run("fleet", "list").stdout == ""


def test_ctrl_c_checkpoints_and_explains_how_to_resume(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path
) -> None:
    running = start(command, files, s3, "--topology", write(chain("relay"), tmp_path / "topology.json"))
    running.wait_for_bytes(MIDDLE_BYTES)
    running.signal(signal.SIGINT)
    done = running.finish().expect(130)
    assert "tradewind jobs resume" in done.stderr
    assert only_job(command)["state"] == "interrupted"
    resume(command)
    assert_arrived(s3, files)


def test_cancel_leaves_no_upload_behind(command: Command, files: FilePlace, s3: S3Place) -> None:
    running = start(command, files, s3)
    running.wait_for_bytes(MIDDLE_BYTES)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    command.run("jobs", "cancel", str(only_job(command)["id"])).expect(0)
    assert only_job(command)["state"] == "cancelled"
    assert s3.unfinished() == []


@pytest.mark.slow
def test_a_relay_frozen_for_20_s_does_not_stop_the_job(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path
) -> None:
    running = start(command, files, s3, "--topology", write(chain("relay"), tmp_path / "topology.json"))
    running.wait_for_bytes(MIDDLE_BYTES)
    relay = running.gateways()["relay"]
    os.kill(relay, signal.SIGSTOP)
    thaw = threading.Timer(FREEZE_S, os.kill, (relay, signal.SIGCONT))
    thaw.start()
    try:
        running.finish().expect(0)
        assert thaw.finished.is_set(), "the job ended without its only relay"
    finally:
        thaw.cancel()
    assert_arrived(s3, files)


@pytest.mark.parametrize("connections", [1, None], ids=["one-connection", "all-connections"])
def test_a_cut_connection_costs_only_time(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path, connections: int | None
) -> None:
    with TcpProxy() as between:
        running = start(command, files, s3, "--topology", detoured(between, tmp_path))
        between.wait_forward(MIDDLE_BYTES)
        assert between.cut(connections) >= 1
        running.finish().expect(0)
    assert_arrived(s3, files)


@pytest.mark.parametrize(("cuts", "exit_code"), [(1, 0), (16, 8)])
def test_bytes_lost_by_cut_connections_count_towards_the_ceiling(
    command: Command, tmp_path: Path, cuts: int, exit_code: int
) -> None:
    """Bodies of 32 MiB are cut off after 8 MiB. The ceiling has room for one lost body."""
    source = tmp_path / "large"
    write_large(source, LARGE_BYTES)
    ceiling_usd_per_gb = 1.5 * USD_PER_GB
    with TcpProxy() as between:
        between.cut_each_after(8 * MIB, cuts)
        topology = detoured(between, tmp_path, connections=1, usd_per_gb=USD_PER_GB)
        words = ("cp", source, tmp_path / "copy", "--topology", topology, "--chunk-size", "32MiB")
        done = command.run(*words, "--max-cost", f"{ceiling_usd_per_gb}USD/GB", "--json").expect(exit_code)
        sent_usd = between.bytes_forward / 1e9 * USD_PER_GB
    cost_usd = done.summary["progress"]["cost_usd"]
    assert sent_usd <= cost_usd * FRAMING
    assert cost_usd <= ceiling_usd_per_gb * LARGE_BYTES / 1e9


def test_bytes_lost_by_a_cut_connection_count_towards_a_ceiling_in_usd(command: Command, tmp_path: Path) -> None:
    """The ceiling has room for one body that is sent twice at the plan's mean price."""
    source = tmp_path / "large"
    write_large(source, LARGE_BYTES)
    ceiling_usd = 1.5 * USD_PER_GB * LARGE_BYTES / 1e9
    with TcpProxy() as between:
        between.cut_each_after(8 * MIB, 1)
        topology = detoured(between, tmp_path, connections=1, usd_per_gb=USD_PER_GB)
        words = ("cp", source, tmp_path / "copy", "--topology", topology, "--chunk-size", "32MiB")
        done = command.run(*words, "--max-cost", f"{ceiling_usd}USD", "--json").expect(0)
    assert done.summary["progress"]["retries"] > 0
    assert USD_PER_GB * LARGE_BYTES / 1e9 < done.summary["progress"]["cost_usd"] <= ceiling_usd


def test_bytes_sent_under_a_killed_lead_count_towards_the_ceiling(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "large"
    write_large(source, LARGE_BYTES)
    ceiling_usd_per_gb = 3 * USD_PER_GB
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, connections=1, usd_per_gb=USD_PER_GB)
        words = ("cp", source, tmp_path / "copy", "--topology", topology, "--chunk-size", "32MiB")
        running = command.start(*words, "--max-cost", f"{ceiling_usd_per_gb}USD/GB")
        between.wait_forward(16 * MIB)
        for pid in command.processes():
            os.kill(pid, signal.SIGKILL)
        running.process.wait()
        command.wait_until_alone()
        done = command.run("jobs", "resume", str(only_job(command)["id"]), "--json").expect(0)
        sent_usd = between.bytes_forward / 1e9 * USD_PER_GB
    cost_usd = done.summary["progress"]["cost_usd"]
    assert sent_usd <= cost_usd * FRAMING
    assert cost_usd <= ceiling_usd_per_gb * LARGE_BYTES / 1e9


@pytest.mark.slow
def test_a_silent_hop_is_closed_and_reconnected(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path
) -> None:
    with TcpProxy() as between:
        running = start(command, files, s3, "--topology", detoured(between, tmp_path, peer_silence_s=3))
        between.wait_forward(MIDDLE_BYTES)
        before = between.connections_accepted
        between.freeze()
        between.wait_connections(before + 1)
        between.thaw()
        running.finish().expect(0)
    assert_arrived(s3, files)


@pytest.mark.slow
def test_a_stall_counts_from_the_last_byte_that_moved(command: Command, files: FilePlace, tmp_path: Path) -> None:
    """The silent hop is detected after about 8 s: 3 s of silence, and 5 s for the attempt to reconnect."""
    stall_s = 14.0
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, peer_silence_s=3)
        words = ("cp", "-r", files.url, tmp_path / "copy", "--topology", topology, "--limit-rate", RATE)
        running = command.start(*words, "--stall", f"{stall_s:.0f}s")
        between.wait_forward(MIDDLE_BYTES)
        between.freeze()
        frozen_s = time.monotonic()
        stopped = running.finish().expect(5)
        assert stall_s - 3.0 < time.monotonic() - frozen_s < stall_s + 5.0
        assert only_job(command)["state"] == "interrupted"
        assert f"tradewind jobs resume {only_job(command)['id']}" in stopped.stderr
        between.thaw()
        resume(command)
    assert tree_hashes(tmp_path / "copy") == tree_hashes(files.folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "frozen", [pytest.param("source", marks=pytest.mark.slow), pytest.param("relay", marks=pytest.mark.slow), "sink"]
)
def test_a_frozen_gateway_and_a_short_stall_end_the_job_resumable(
    command: Command, files: FilePlace, tmp_path: Path, frozen: str
) -> None:
    stall_s = 12.0
    topology = write(chain("relay"), tmp_path / "topology.json")
    words = ("cp", "-r", files.url, tmp_path / "copy", "--topology", topology, "--limit-rate", RATE)
    running = command.start(*words, "--stall", f"{stall_s:.0f}s")
    running.wait_for_bytes(MIDDLE_BYTES)
    os.kill(running.gateways()[frozen], signal.SIGSTOP)
    stopped = running.finish().expect(5)
    assert f"no route has worked for {stall_s:.0f} s" in stopped.stderr
    resume(command)
    assert tree_hashes(tmp_path / "copy") == tree_hashes(files.folder)


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "asker"), [("source", "lead"), ("relay", "source"), ("sink", "relay")])
def test_the_end_of_a_stalled_job_names_the_gateway_that_cannot_be_reached(
    command: Command, files: FilePlace, tmp_path: Path, killed: str, asker: str
) -> None:
    topology = write(chain("relay"), tmp_path / "topology.json")
    words = ("cp", "-r", files.url, tmp_path / "copy", "--topology", topology, "--limit-rate", RATE)
    running = command.start(*words, "--stall", "6s")
    running.wait_for_bytes(MIDDLE_BYTES)
    os.kill(running.gateways()[killed], signal.SIGKILL)
    stopped = running.finish().expect(5)
    why = f"{killed} cannot be reached from {asker} (connection refused)"
    assert f"no route has worked for 6 s: {why}" in stopped.stderr
    resume(command)
    assert tree_hashes(tmp_path / "copy") == tree_hashes(files.folder)


def test_a_sink_that_only_the_source_cannot_reach_fails_after_the_stall(
    command: Command, files: FilePlace, tmp_path: Path
) -> None:
    listen, nobody = (f"127.0.0.1:{free_port()}" for _ in range(2))
    topology = write(with_detour(chain(), "source", "sink", listen, nobody), tmp_path / "topology.json")
    words = ("cp", "-r", files.url, tmp_path / "copy", "--topology", topology)
    stopped = command.run(*words, "--stall", "6s").expect(5)
    why = "sink cannot be reached from source (connection refused)"
    assert f"no route has worked for 6 s: {why}" in stopped.stderr
    assert only_job(command)["state"] == "interrupted"


def test_a_job_that_is_cancelled_does_not_advise_to_resume_it(
    command: Command, files: FilePlace, tmp_path: Path
) -> None:
    words = ("cp", "-r", files.url, tmp_path / "copy", "--topology", write(chain(), tmp_path / "topology.json"))
    running = command.start(*words, "--limit-rate", RATE)
    running.wait_for_bytes(1)
    job_id = str(only_job(command)["id"])
    command.run("jobs", "cancel", job_id).expect(0)
    stopped = running.finish().expect(130)
    assert f"job {job_id} was cancelled" in stopped.stderr
    assert "resume" not in stopped.stderr
    assert only_job(command)["state"] == "cancelled" and only_job(command)["resumable"] is False


@pytest.mark.parametrize("after_bytes", [0, 3, 100_000, 5_000_000])
def test_a_byte_flipped_on_a_plain_hop_never_reaches_the_store(
    command: Command, files: FilePlace, s3: S3Place, tmp_path: Path, after_bytes: int
) -> None:
    with TcpProxy() as between:
        topology = detoured(between, tmp_path, plain=True)
        running = start(command, files, s3, "--topology", topology)
        between.wait_forward(MIDDLE_BYTES)
        between.flip_forward(after_bytes)
        running.finish().expect(0)
        assert not between.flip_pending
    assert_arrived(s3, files)


def detoured(
    between: TcpProxy,
    tmp_path: Path,
    plain: bool = False,
    connections: int = 8,
    usd_per_gb: float = 0.0,
    **limits: int,
) -> Path:
    """Return a topology file of source and sink with `between` in their hop."""
    listen = f"127.0.0.1:{free_port()}"
    between.target = listen
    document = with_detour(chain(connections=connections, plain=plain), "source", "sink", listen, between.address)
    document["routes"][0]["usd_per_gb"] = usd_per_gb
    for gateway in document["gateways"].values():
        gateway["limits"] = limits
    return write(document, tmp_path / "topology.json")
