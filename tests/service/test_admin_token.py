"""The file of the admin token: it is complete or missing, and nobody else has made or can read it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.errors import UsageError
from tradewind.service.auth import ensure_admin, renew_admin, sender_of
from tradewind.service.database import ServiceDatabase
from tradewind.service.settings import ServiceSettings


@pytest.fixture
def settings(tmp_path: Path) -> ServiceSettings:
    settings = ServiceSettings(state=tmp_path / "state")
    settings.state.mkdir(mode=0o700)
    return settings


@pytest.fixture
def database(settings: ServiceSettings) -> Iterator[ServiceDatabase]:
    database = ServiceDatabase(settings.state)
    database.require_current()
    yield database
    database.close()


def token_of(settings: ServiceSettings) -> str:
    assert stat.S_IMODE(settings.admin_token.lstat().st_mode) == 0o600
    return settings.admin_token.read_text().strip()


@pytest.mark.parametrize("left", ["", "\n", "tw1_", "short", "x" * 100])
def test_a_file_that_a_killed_server_left_incomplete_is_replaced(
    database: ServiceDatabase, settings: ServiceSettings, left: str
) -> None:
    """A part of a token, or none, would be easy to guess."""
    settings.admin_token.write_text(left)
    settings.admin_token.chmod(0o600)
    assert ensure_admin(database, settings)
    assert sender_of(database, left.strip()) is None
    found = sender_of(database, token_of(settings))
    assert found is not None and found.role == "service_admin"
    assert not ensure_admin(database, settings)


def test_a_complete_file_without_a_database_keeps_its_token(
    database: ServiceDatabase, settings: ServiceSettings, tmp_path: Path
) -> None:
    ensure_admin(database, settings)
    token = token_of(settings)
    other = ServiceSettings(state=tmp_path / "other")
    other.state.mkdir(mode=0o700)
    settings.admin_token.rename(other.admin_token)
    new = ServiceDatabase(other.state)
    new.require_current()
    assert ensure_admin(new, other) and sender_of(new, token) is not None
    new.close()


@pytest.mark.parametrize("kind", ["readable", "link", "pipe", "folder"])
def test_a_file_that_others_may_know_is_refused(
    database: ServiceDatabase, settings: ServiceSettings, tmp_path: Path, kind: str
) -> None:
    complete = tmp_path / "complete"
    complete.write_text(f"tw1_{'a' * 43}\n")
    complete.chmod(0o600)
    if kind == "link":
        settings.admin_token.symlink_to(complete)
    elif kind == "pipe":
        os.mkfifo(settings.admin_token, 0o600)
    elif kind == "folder":
        settings.admin_token.mkdir(mode=0o700)
    else:
        complete.rename(settings.admin_token)
        settings.admin_token.chmod(0o640)
    with pytest.raises(UsageError, match=r"admin\.token"):
        ensure_admin(database, settings)
    assert sender_of(database, f"tw1_{'a' * 43}") is None


def test_a_link_in_place_of_a_part_is_not_followed(
    database: ServiceDatabase, settings: ServiceSettings, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    part = settings.admin_token.with_suffix(".part")
    part.symlink_to(target)
    assert ensure_admin(database, settings)
    part.symlink_to(target)
    settings.admin_token.unlink()
    settings.admin_token.symlink_to(target)
    renew_admin(database, settings)
    assert not target.exists() and sender_of(database, token_of(settings)) is not None
