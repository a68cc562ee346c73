"""A job with a guest runs on another machine than the one that proposed it: its guest must reach the present one."""

from __future__ import annotations

from pathlib import Path

from tradewind.engine.engine import Engine
from tradewind.engine.kept_proposal import proposal_again
from tradewind.engine.launch_spec import HOST
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.model.guest import Guest
from tradewind.model.records import replace
from tradewind.model.store import Access


def test_a_kept_proposal_is_started_at_the_present_address(tmp_path: Path) -> None:
    guest = Guest("g-1", "source", "192.0.2.1")
    options = Options(source=Access(has_guest=True), server_side_copy=False)
    request = Request("guest://one", (str(tmp_path / "one"),), options, guest=guest)
    with Engine(state_dir=str(tmp_path)) as engine:
        proposal = engine.propose(request, keep=True)
        now = proposal_again(engine.control, proposal.id, replace(guest, address="2001:db8::2")).launch
    assert now.settings.listen == {HOST: "[2001:db8::2]:0"}
    assert now.provider["address"] == "2001:db8::2" and now.plan == proposal.launch.plan
