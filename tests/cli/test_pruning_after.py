"""Old jobs are removed after a transfer without a change of its result."""

from argparse import Namespace
from typing import Any, cast

import pytest

from tradewind.cli.transferring import _prune_jobs
from tradewind.errors import StateError


class Engine:
    def prune(self, before_unix_ms: int) -> None:
        raise StateError("the state is busy")


def test_jobs_that_cannot_be_removed_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    _prune_jobs(cast("Any", Engine()), Namespace(jobs_prune_after=0.0, quiet=False))
    assert capsys.readouterr().err == "warning: old jobs were not removed: the state is busy\n"
