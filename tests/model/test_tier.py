"""Dividing volumes into price tiers."""

from __future__ import annotations

import math
import random

import pytest

from tradewind.model.tier import PriceTier, tier_volumes_gb

TIERS = (PriceTier(0.0, 0.09), PriceTier(10_240.0, 0.085), PriceTier(51_200.0, 0.07))


@pytest.mark.parametrize("seed", range(5))
def test_the_tiers_share_the_volume_whatever_was_sent_before(seed: int) -> None:
    some = random.Random(seed)
    for _ in range(200):
        volume_gb, used_gb = 10 ** some.uniform(-6, 6), some.choice([0.0, 10 ** some.uniform(-3, 7)])
        shares = [gb for _, gb in tier_volumes_gb(TIERS, volume_gb, used_gb)]
        assert min(shares) >= 0.0
        assert math.fsum(shares) == pytest.approx(volume_gb, rel=1e-12), (volume_gb, used_gb)


def test_a_volume_across_a_border_is_split_there() -> None:
    assert [gb for _, gb in tier_volumes_gb(TIERS, 100.0, 10_200.0)] == pytest.approx([40.0, 60.0, 0.0])
