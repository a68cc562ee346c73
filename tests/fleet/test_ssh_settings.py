"""Settings of a user's `ssh` and of a host's server that matter here, by the manuals ssh_config and sshd_config."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.test_ssh_faults import FLEET, Stage, launch, stage
from tests.fleet.worlds import living
from tradewind.errors import GatewayError
from tradewind.fleet.provider import Machine, Provider, Refusal
from tradewind.fleet.readiness import Readiness
from tradewind.fleet.ssh import connection
from tradewind.fleet.ssh.aliases import host_aliases
from tradewind.gateway.client import GatewayClient
from tradewind.model.latch import Latch

__all__ = ["stage"]


def restart(stage: Stage, *settings: str) -> None:
    """Start the server again, with more settings."""
    with open(stage.server.settings, "a") as file:
        file.write("".join(f"{line}\n" for line in settings))
    stage.server.stop()
    stage.server.start()


def launched(provider: Provider) -> Machine:
    result = launch(provider)
    assert result.machine is not None, result.refusal
    return result.machine


def check_a_machine(provider: Provider) -> None:
    machine = launched(provider)
    assert machine.control is not None and GatewayClient(machine.control).version()
    assert [found.id for found in living(provider, FLEET)] == [machine.id]
    assert provider.terminate([machine.id])[0].refusal is None


@pytest.mark.parametrize("line", ["SessionType none", "StdinNull yes", "ForkAfterAuthentication yes", "Tunnel yes"])
def test_settings_of_a_host_that_is_only_a_way_do_not_matter(stage: Stage, line: str) -> None:
    """As of a host that the user otherwise enters only to forward a port: `ssh -N -f`."""
    if not connection.knows_session_type():
        pytest.skip("this ssh does not know the setting")
    stage.server.config.write_text(f"{line}\n{stage.server.config.read_text()}")
    provider = stage.provider()
    check_a_machine(provider)


def test_an_older_ssh_gets_no_setting_that_it_does_not_know(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection.knows_session_type.__wrapped__() is True, "OpenSSH 8.7 and newer know them"
    monkeypatch.setattr(connection, "_SINCE_8_7", ("NoSuchSetting=yes",))
    connection.knows_session_type.cache_clear()
    try:
        assert not connection.knows_session_type()
        check_a_machine(stage.provider())
    finally:
        connection.knows_session_type.cache_clear()


def test_a_host_with_ipv6_alone(stage: Stage) -> None:
    """`AddressFamily` is also that of the ports which `ssh` forwards."""
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    restart(stage, f"ListenAddress [::1]:{stage.server.port}")
    stage.server.write_config("here", "::1")
    stage.server.config.write_text(f"AddressFamily inet6\n{stage.server.config.read_text()}")
    provider = stage.provider()
    machine = launched(provider)
    assert machine.data_at_home is not None and machine.data_at_home.startswith("[::1]:")
    assert machine.control is not None and GatewayClient(machine.control).version()
    assert provider.terminate([machine.id])[0].refusal is None


def test_nobody_is_asked_about_the_key_of_a_jump_host(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """`BatchMode` does not reach the `ssh` that `ProxyJump` starts, and that may ask in a window."""
    asked, ask = stage.folder / "asked", stage.folder / "ask"
    ask.write_text(f'#!/bin/sh\necho "$@" > {asked}\necho yes\n')
    ask.chmod(0o700)
    monkeypatch.setenv("SSH_ASKPASS", str(ask))
    monkeypatch.setenv("DISPLAY", ":99")
    config = stage.server.config
    jump = f"Host jump\n  HostName 127.0.0.1\n  UserKnownHostsFile {stage.folder}/none\n  StrictHostKeyChecking ask\n"
    config.write_text(f"{jump}{config.read_text()}  ProxyJump jump\n")
    refusal = stage.refusal(stage.provider())
    assert not asked.exists()
    assert (refusal.kind, refusal.reason) == ("permission", "here: Host key verification failed.")


def test_a_server_that_admits_one_session_is_entered_once_more(stage: Stage) -> None:
    """The connection itself is a session. Each call then needs a login of its own."""
    restart(stage, "MaxSessions 1")
    check_a_machine(stage.provider())


@pytest.mark.parametrize("line", ["AllowTcpForwarding no", "DisableForwarding yes", "PermitOpen none"])
def test_a_server_that_forwards_no_ports_is_named(stage: Stage, line: str) -> None:
    restart(stage, line)
    provider = stage.provider()
    machine = launched(provider)
    host = provider.host(machine)
    assert host is not None and machine.data_at_home is not None
    # A gateway of a fleet has its control port there, too: at a Unix socket the server says less.
    name, _, port = machine.data_at_home.rpartition(":")
    with suppress(ConnectionError), socket.create_connection((name, int(port)), 5) as data:
        data.recv(1)
    readiness = Readiness(provider, lambda: provider.machines({}), Latch())
    with pytest.raises(GatewayError, match="its SSH server forwards no ports: AllowTcpForwarding") as caught:
        readiness.wait([machine], time.monotonic() + 20, lambda *_: pytest.fail("it is not reached"))
    assert "here" in str(caught.value)
    provider.terminate([machine.id])


def test_a_banner_is_no_reason(stage: Stage, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Permission denied to strangers.\nHost key verification failed never.\n")
    restart(stage, f"Banner {banner}", "ForceCommand false")
    assert stage.refusal(stage.provider()).kind == "capacity"


def test_hosts_of_included_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are relative to ~/.ssh, and may have wildcards (ssh_config, Include)."""
    monkeypatch.setenv("HOME", str(tmp_path))
    ssh = tmp_path / ".ssh"
    (ssh / "more").mkdir(parents=True)
    (ssh / "config").write_text('Include more/*.conf\nInclude "~/other" none\nHost last *\n  Include more/a.conf\n')
    (ssh / "more/a.conf").write_text("Host a1 a2\nInclude more/a.conf\n")
    (ssh / "more/b.conf").write_text("host = b\n")
    (tmp_path / "other").write_text("Host other\n")
    assert host_aliases(ssh / "config") == ["a1", "a2", "b", "other", "last"]


def test_files_that_include_each_other_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of them would be read as often as there are ways to it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.conf").write_text(f"Host h{number}\nInclude *.conf\n")
    read, text_of = [], Path.read_text

    def counted(path: Path, *given: Any, **words: Any) -> str:
        read.append(path)
        assert len(read) <= 4
        return text_of(path, *given, **words)

    monkeypatch.setattr(Path, "read_text", counted)
    assert sorted(host_aliases(folder / "0.conf")) == ["h0", "h1", "h2", "h3"]


def test_the_kinds_of_refusals() -> None:
    table = {
        "ssh: connect to host h port 22: Connection timed out": "transient",
        "kex_exchange_identification: Connection closed by remote host": "transient",
        "Received disconnect from 1.2.3.4: Too many authentication failures": "permission",
        "h: Permission denied (publickey).": "permission",
        "Host key verification failed.": "permission",
        "signing failed: agent refused operation\nh: Permission denied (publickey).": "permission",
        "command-line: line 0: Bad configuration option: x": "bad request",
        "Unable to negotiate with h port 22: no matching host key type found. Their offer: ssh-rsa": "bad request",
    }
    for said, kind in table.items():
        found: Refusal = connection.refusal_of("h", f"Welcome.\n{said}\n".replace("\n", "\r\n"))
        assert found.kind == kind, said
