"""Which SSH hosts let a split proxy raise their maxima of TCP buffers. No proxy runs here, so none is raised."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from testbed.sshd import local_ssh_server, sshd_unavailable
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.fleet.provider import CallRefused, LaunchOrder, Lease
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway


def arguments_on(host: Path) -> bytes:
    """Return the command line of the only gateway on a host."""
    (pid,) = host.glob("machines/*/pid")
    return Path("/proc", pid.read_text().strip(), "cmdline").read_bytes()


def test_only_hosts_that_permit_it_let_a_proxy_raise_their_tcp_buffers(tmp_path: Path) -> None:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as server:
        with server.config.open("a") as config:
            config.write("Host asked silent\n  HostName 127.0.0.1\n")
        hosts: list[dict[str, Any]] = [
            {"name": name, "region": f"site:{name}", "address": "127.0.0.1", "folder": str(tmp_path / name)}
            for name in ("asked", "silent")
        ]
        hosts[0]["raise_tcp_buffers"] = True
        document = {"kind": "ssh", "hosts": hosts, "ssh_config": str(server.config)}
        provider = make_provider(document, find_gateway(), FleetJournal(tmp_path / "state"))
        orders = [
            LaunchOrder("fleet", name, f"site:{name}", name, 1, Lease(600, here().label), peers=("lead",))
            for name in ("asked", "silent")
        ]
        try:
            assert all(result.machine is not None for result in provider.launch(orders))
            assert b"--raise-tcp-buffers" in arguments_on(tmp_path / "asked")
            assert b"--raise-tcp-buffers" not in arguments_on(tmp_path / "silent")
        finally:
            with suppress(CallRefused):
                provider.terminate([found.id for found in provider.leftovers()])
