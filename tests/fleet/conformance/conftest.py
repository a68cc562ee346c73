"""A world for each test and each row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.fleet.conformance.rows import ROWS, kubernetes
from tests.fleet.worlds import World
from tradewind.fleet.provider import OWNER_TAG

#: Rows that run with all tests only. The clouds differ in their APIs; gcp stands for all of them in the fast tests.
SLOW = ("aws", "azure", "kubernetes")
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in [*ROWS, "kubernetes"]]


@pytest.fixture(params=PARAMETERS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    row: AbstractContextManager[World]
    if request.param == "kubernetes":
        row = kubernetes(tmp_path, request.getfixturevalue("kube_lab"))
    else:
        row = ROWS[request.param](tmp_path)
    with row as made:
        yield made
        ours = [found.id for found in made.provider.leftovers() if found.tags.get(OWNER_TAG) == made.owner]
        made.provider.terminate(ours)
        made.provider.machines({})  # It notices machines that other processes have ended.
