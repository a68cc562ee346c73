"""A world for each test and each row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.conformance.rows import ROWS
from tests.fleet.worlds import World
from tradewind.fleet.provider import OWNER_TAG


@pytest.fixture(params=ROWS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ROWS[request.param](tmp_path) as made:
        yield made
        ours = [found.id for found in made.provider.leftovers() if found.tags.get(OWNER_TAG) == made.owner]
        made.provider.terminate(ours)
        made.provider.machines({})  # It notices machines that other processes have ended.
        if made.enrolment is not None:
            made.enrolment.close()
