"""The auction of idle bandwidth: truthful for one slice, within the reserve, and independent of order."""

import random
from collections.abc import Sequence

import pytest

from tradewind.errors import EmptyMargin, UsageError
from tradewind.market.auction import Bid, Clearing, Lot, clear, reserve_usd_micros
from tradewind.market.margins import PAPER_RATIOS, Margin, margin
from tradewind.market.money import exact
from tradewind.model.document import to_document


def lot(slices: int, reserve: int = 10) -> Lot:
    return Lot("site:a", "site:b", 490_000, slices, reserve)


def singles(*prices: int) -> list[Bid]:
    return [Bid(f"b{number}", f"t{number}", price, number) for number, price in enumerate(prices)]


def winners(clearing: Clearing) -> list[str]:
    return [award.bid for award in clearing.awards]


def test_winners_pay_the_highest_losing_bid() -> None:
    done = clear(lot(2), singles(50, 20, 40, 30))
    assert (winners(done), done.usd_micros, done.unsold) == (["b0", "b2"], 30, 0)
    assert done.revenue_usd_micros == 60


def test_without_a_losing_bid_the_price_is_the_reserve() -> None:
    done = clear(lot(3), singles(50, 9, 40))
    assert (winners(done), done.usd_micros, done.unsold) == (["b0", "b2"], 10, 1)


def test_equal_bids_go_to_the_one_placed_first() -> None:
    done = clear(lot(1), singles(40, 40))
    assert (winners(done), done.usd_micros) == (["b0"], 40)


def test_a_bid_for_several_slices_can_be_won_in_part_and_then_sets_the_price() -> None:
    done = clear(lot(3), [Bid("big", "ada", 50, 0, slices=2), Bid("next", "grace", 40, 1, slices=4)])
    assert [(award.bid, award.slices, award.usd_micros) for award in done.awards] == [("big", 2, 80), ("next", 1, 40)]


def test_a_bidder_for_several_slices_can_gain_by_asking_for_fewer() -> None:
    other = Bid("other", "grace", 30, 0)
    greedy = clear(lot(2), [other, Bid("mine", "ada", 50, 1, slices=2)])
    modest = clear(lot(2), [other, Bid("mine", "ada", 50, 1)])
    assert (greedy.usd_micros, modest.usd_micros) == (30, 10), "this is documented, and not prevented"


def some_bids(rng: random.Random, slices_max: int) -> list[Bid]:
    return [
        Bid(f"b{number}", f"t{number}", rng.randint(0, 30), number, rng.randint(1, slices_max))
        for number in range(rng.randint(0, 12))
    ]


def gain(done: Clearing, bid: str, worth: int) -> int:
    return sum(award.slices * worth - award.usd_micros for award in done.awards if award.bid == bid)


@pytest.mark.parametrize("seed", range(40))
def test_no_other_bid_gains_more_than_the_true_value_of_one_slice(seed: int) -> None:
    rng = random.Random(seed)
    others = some_bids(rng, 1)
    offered, worth, placed = lot(rng.randint(0, 6)), rng.randint(0, 30), rng.choice([-1, 99])

    def with_bid(price: int) -> Sequence[Bid]:
        return [*others, Bid("mine", "ada", price, placed)]

    truthful = gain(clear(offered, with_bid(worth)), "mine", worth)
    assert truthful >= 0
    assert all(gain(clear(offered, with_bid(price)), "mine", worth) <= truthful for price in range(33))


@pytest.mark.parametrize("seed", range(40))
def test_every_result_is_consistent(seed: int) -> None:
    rng = random.Random(seed)
    bids, offered = some_bids(rng, 4), lot(rng.randint(0, 12), rng.randint(0, 15))
    done = clear(offered, bids)
    again = clear(offered, rng.sample(bids, len(bids)))
    assert done == again, "the order of the sequence does not matter"
    assert done.usd_micros >= offered.reserve_usd_micros
    assert sum(award.slices for award in done.awards) + done.unsold == offered.slices
    won = {award.bid: award.slices for award in done.awards}
    lost = [bid.usd_micros for bid in bids if won.get(bid.id, 0) < bid.slices]
    assert done.usd_micros == max([offered.reserve_usd_micros, *lost])
    assert all(bid.usd_micros >= done.usd_micros for bid in bids if bid.id in won), "nobody pays more than it bid"
    assert Clearing.from_document(to_document(done)) == done


def test_the_reserve_is_never_below_the_lower_bound() -> None:
    bounds = margin(PAPER_RATIOS, 5, "0.1").per_gb(exact("0.0033333333"))
    assert reserve_usd_micros(bounds, exact(7)) >= bounds.lower_usd * 7 * 10**6
    with pytest.raises(EmptyMargin):
        reserve_usd_micros(Margin(exact(2), exact(1)), exact(1))


@pytest.mark.parametrize(
    "bids", [[Bid("a", "t", 1, 0), Bid("a", "t", 1, 1)], [Bid("a", "t", -1, 0)], [Bid("a", "t", 1, 0, slices=0)]]
)
def test_bad_bids_are_refused(bids: list[Bid]) -> None:
    with pytest.raises(UsageError):
        clear(lot(1), bids)
