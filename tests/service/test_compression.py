"""The effects of deduplication and compression are counted over all known runs of a job."""

from typing import Any

import pytest

from tradewind.service.jobs import JobRow
from tradewind.service.prices import sent_part
from tradewind.service.receipts import figures, public_receipt


def run(carried: tuple[int, int] | None, *, has_ended: bool = True) -> dict[str, Any]:
    known = None if carried is None else {"carried_bytes": carried[0], "sent_bytes": carried[1]}
    return {"ended_unix_ms": 1 if has_ended else None, "carried": known}


def receipt(
    codec: str | None, *runs: dict[str, Any], plan: dict[str, Any] | None = None, deduplicates: bool = False
) -> dict[str, Any]:
    request: dict[str, Any] = {} if codec is None else {"compression": codec}
    if deduplicates:
        request["deduplication"] = True
    fields: dict[str, Any] = {**dict.fromkeys(JobRow.__dataclass_fields__), "id": "j", "request": request}
    row = JobRow(**fields)
    hops = [{"bytes": 300, "saved_bytes": 100}, {"bytes": 100}]
    known = dict.fromkeys(("receipt", "verb", "source", "destinations", "summary", "cost", "ceiling", "prediction"))
    receipt = {**known, "progress": {"hops": hops}, "runs": list(runs), "plan": plan, "objects": None}
    return public_receipt(row, "running", receipt, hides_words=True)


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ((), (0, 0, None)),
        ((run((100, 40)), run((100, 60))), (200, 100, 0.5)),
        ((run((100, 40)), run(None), run((100, 60))), (200, 100, 0.5)),
        ((run((100, 40)), run(None, has_ended=False)), (500, 340, 0.68)),
    ],
    ids=["not started", "two runs", "one run was killed", "running"],
)
def test_the_bytes_of_all_known_runs_are_added_up(runs: tuple[dict[str, Any], ...], found: tuple[Any, ...]) -> None:
    made = receipt("zstd:3", *runs, plan={"routes": [1, 2]})
    shown = figures(made)
    assert shown["routes"] == 2
    assert shown["compression"] == {
        "codec": "zstd:3",
        "carried_bytes": found[0],
        "sent_bytes": found[1],
        "ratio": found[2],
    }
    assert sent_part(made) == (1.0 if found[2] is None else found[2])


def test_without_compression_all_bytes_are_charged() -> None:
    """This includes jobs of earlier versions, whose requests and receipts do not name compression."""
    for made in (receipt("off", run((100, 100))), receipt(None, run((100, 100))), {}):
        assert sent_part(made) == 1.0
    assert figures(receipt(None))["compression"] is None
    assert figures({"summary": None, "progress": {}, "cost": {}})["routes"] is None


def test_compression_gets_what_deduplication_leaves() -> None:
    """Both together give the part that was sent, with one of them or with both."""
    ended: dict[str, Any] = {
        "ended_unix_ms": 1,
        "carried": {"carried_bytes": 100, "deduplicated_bytes": 60, "sent_bytes": 10},
    }
    both = receipt("zstd", ended, deduplicates=True)
    assert both["deduplication"] == {"carried_bytes": 100, "sent_bytes": 40, "ratio": 0.4}
    assert both["compression"] == {"codec": "zstd", "carried_bytes": 40, "sent_bytes": 10, "ratio": 0.25}
    assert sent_part(both) == pytest.approx(0.1)
    ended["carried"]["sent_bytes"] = 40
    alone = receipt(None, ended, deduplicates=True)
    assert (alone["compression"], alone["deduplication"]["ratio"], sent_part(alone)) == (None, 0.4, 0.4)
    assert figures(alone)["deduplication"] == alone["deduplication"]
