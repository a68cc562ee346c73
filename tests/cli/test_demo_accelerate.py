"""What the demo of flow acceleration refuses, and what it predicts."""

from __future__ import annotations

import pytest

from tradewind.acceleration.scene import WAYS, predicted_mbps
from tradewind.cli.main import main


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--local"], "demo --accelerate takes no --local"),
        (["--cloud"], "demo --accelerate takes no --cloud"),
        (["--size", "10kB"], "--size is less than 1.00 MB"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--accelerate", *options]) == 2
    assert capsys.readouterr().err.startswith(f"error: {error}\nhint: ")


def test_a_split_halfway_doubles_the_rate_and_tuning_fills_the_link() -> None:
    rates = predicted_mbps(WAYS)
    assert rates["direct"] == pytest.approx(287_500 * 8e-6 / 0.2, rel=1e-5)
    assert rates["one split"] == pytest.approx(2 * rates["direct"])
    assert rates["two splits"] == rates["direct, tuned"] == pytest.approx(100 * 1448 / 1538)
