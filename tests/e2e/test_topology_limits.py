"""A topology whose limits no gateway accepts starts nothing."""

from __future__ import annotations

from pathlib import Path

from testbed.chains import chain, with_limits, write
from testbed.drive import Command


def test_a_limit_that_no_gateway_accepts_starts_no_fleet(command: Command, tmp_path: Path) -> None:
    (command.home / "file").write_bytes(b"x")
    document = chain("relay")
    document["gateways"]["relay"]["limits"] = {"memory_bytes": 1e300}
    topology = write(document, tmp_path / "topology.json")
    refused = command.run("cp", "file", "copy", "--topology", topology).expect(2)
    assert f"error: {topology}: gateway relay: memory_bytes is 1e+300" in refused.stderr
    assert "hint: memory_bytes is 8388608 to 1099511627776" in refused.stderr
    assert not list((command.state / "fleets").glob("*"))
    assert command.jobs() == []


def test_the_largest_limits_are_the_ones_that_gateways_accept(command: Command, tmp_path: Path) -> None:
    (command.home / "file").write_bytes(b"x")
    most = {"store_requests_max": 1024, "store_tries_max": 100, "store_work_s": 86_400, "memory_bytes": 1 << 40}
    topology = write(with_limits(chain("relay"), **most), tmp_path / "topology.json")
    command.run("cp", "file", "copy", "--topology", topology).expect(0)
