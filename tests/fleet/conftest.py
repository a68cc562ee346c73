"""The Kubernetes lab of a test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.kubelab import Lab
from tests.fleet.kube_world import lab_folder, lab_of_session


@pytest.fixture(scope="session")
def kube_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Clusters that all workers of this test run share. Starting them takes about 10 s."""
    with lab_of_session(lab_folder(tmp_path_factory)) as lab:
        yield lab
