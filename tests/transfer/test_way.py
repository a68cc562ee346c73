"""What of a way is kept for the next run of its job."""

from __future__ import annotations

import pytest

from tradewind.transfer.way import Ceiling


def test_a_ceiling_is_on_all_runs_of_a_job_together() -> None:
    first = Ceiling(usd=1.0, machines_usd_per_s=0.01, boot_s=10.0)
    assert first.spent_usd(egress_usd=0.2, elapsed_s=30.0) == pytest.approx(0.6)
    second = first.after(30.0)
    # Egress is added up by the lead, over all runs.
    assert second.spent_usd(egress_usd=0.25, elapsed_s=0.0) == pytest.approx(0.4 + 0.25 + 0.1)
    assert second.after(5.0).spent_usd(egress_usd=0.0, elapsed_s=0.0) == pytest.approx(0.4 + 0.15 + 0.1)
