"""The folder of static gateways."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tradewind.errors import GatewayError
from tradewind.gateway.binary import GatewayProgram, gateway_program, portable_gateways


def test_a_folder_has_a_program_for_some_processors(tmp_path: Path) -> None:
    path = tmp_path / "tradewind-gateway-aarch64"
    path.write_bytes(b"program")
    (tmp_path / "tradewind-gateway-other").write_bytes(b"not one of ours")
    expected = GatewayProgram("aarch64", str(path), sha256(b"program").hexdigest())
    assert portable_gateways(str(tmp_path)) == {"aarch64": expected}


def test_the_environment_names_the_folder_unless_a_setting_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    for folder, processor in ((named, "x86_64"), (other, "aarch64")):
        folder.mkdir()
        (folder / f"tradewind-gateway-{processor}").write_bytes(b"program")
    monkeypatch.setenv("TRADEWIND_PROGRAMS", str(named))
    assert list(portable_gateways()) == ["x86_64"]
    assert list(portable_gateways(str(other))) == ["aarch64"]
    monkeypatch.delenv("TRADEWIND_PROGRAMS")
    assert portable_gateways() == {}


def test_a_program_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match=r"the gateway program .* cannot be read: Is a directory"):
        gateway_program("x86_64", str(tmp_path))
