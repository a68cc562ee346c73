"""The Kubernetes lab of a test run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.kubelab import Lab
from tests.fleet.kube_world import lab_of_session


@pytest.fixture(scope="session")
def kube_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Clusters that all workers of this test run share. Starting them takes about 10 s."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if base.name.startswith("popen-") else base
    with lab_of_session(Path(run, "kubelab")) as lab:
        yield lab
