"""A program that is started without the set-user-id bit cannot give it to files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tradewind.gateway.without_setuid import without_setuid

TRY = """\
import os, sys
for mode in (0o755, 0o4755, 0o2755, 0o1777):
    for change in (lambda: os.chmod(sys.argv[1], mode), lambda: os.fchmod(os.open(sys.argv[1], os.O_RDONLY), mode)):
        try:
            change()
            print("set")
        except PermissionError:
            print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is kept from it")
def test_root_cannot_set_the_bits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = [*without_setuid(), sys.executable, "-c", TRY, str(tmp_path / "file")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set", "set", "refused", "refused", "refused", "refused", "set", "set"]
    assert (tmp_path / "file").stat().st_mode & 0o6000 == 0


def test_other_users_need_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert without_setuid() == ()
