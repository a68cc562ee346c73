"""Regions of connections: a wrong one is refused, or named as the reason why a job waits."""

import pytest

from tests.service.scheduler.scenes import direct, job, submit
from tradewind.errors import UsageError
from tradewind.model.sites import NO_SITES
from tradewind.service.regions import known_regions, require_region
from tradewind.service.scheduler.events import StoreDown, StoreUp
from tradewind.service.scheduler.state import Scheduler


@pytest.mark.parametrize(
    ("region", "kind", "endpoint"),
    [
        (None, "s3", None),
        ("us-east-1", "s3", None),
        ("aws:us-east-1", "s3", None),
        ("aws:us-east-1", "s3", "https://s3.lab.example"),
        ("garage", "s3", "https://s3.lab.example"),
        ("weur", "r2", None),
        ("us-gov-west-1", "s3", None),
        ("aws:cn-north-1", "s3", None),
        ("site:lab", "s3", "https://s3.lab.example"),
    ],
)
def test_known_regions_are_accepted(region: str | None, kind: str, endpoint: str | None) -> None:
    require_region(region, kind, endpoint, known_regions(NO_SITES, ["site:lab"]))


@pytest.mark.parametrize(
    ("region", "kind", "endpoint", "hint"),
    [
        ("us-esat-1", "s3", None, "us-east-1"),
        ("aws:us-esat-1", "s3", "https://s3.lab.example", "aws:us-east-1"),
        ("site:lap", "s3", "https://s3.lab.example", "site:lab"),
        ("eastus", "gs", None, ""),
        ("zzzzzzzzzzzz", "gs", None, "leave it out if the store reports its region"),
        ("ap-southeast-7", "s3", None, "leave out one that is newer than this version"),
    ],
)
def test_an_unknown_region_is_refused_with_a_similar_one(
    region: str, kind: str, endpoint: str | None, hint: str
) -> None:
    with pytest.raises(UsageError, match=f"region {region}: neither the catalog") as refused:
        require_region(region, kind, endpoint, known_regions(NO_SITES, ["site:lab"]))
    assert hint in (refused.value.hint or "")


def test_a_job_says_where_its_store_was_asked() -> None:
    scheduler = Scheduler(direct)
    scheduler.handle(0, StoreDown("lab", "physics", "at https://s3.lab.example in region lab-1"))
    submit(scheduler, job("a"), job("b", tenant="astro"))
    why = scheduler.why("a")
    assert why is not None and why.sentence == (
        "Store lab does not answer at https://s3.lab.example in region lab-1, as its connection says; "
        "if that is wrong, cancel the job and make the connection anew."
    )
    assert scheduler.phase("b") == "running"
    scheduler.handle(1, StoreUp("lab", "physics"))
    assert scheduler.phase("a") == "running"
