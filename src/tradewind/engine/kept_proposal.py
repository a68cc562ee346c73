"""Proposals that another process can start: what is kept of them, and how they are made whole again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from tradewind.engine.job_control import JobControl
from tradewind.engine.launch_spec import guest_launch
from tradewind.engine.proposal import Proposal, Request
from tradewind.engine.request import Options, UrlOrPath, place_texts
from tradewind.engine.skies import provider_up
from tradewind.engine.sources import STANDARD_INPUT
from tradewind.engine.stored import KeptProposal, KeptRequest, ProposalStore, changed_prices
from tradewind.errors import UsageError
from tradewind.model.guest import Guest
from tradewind.model.records import replace
from tradewind.model.store import Access
from tradewind.model.url import parse_url

__all__ = ["kept_proposal", "proposal_again"]


def kept_proposal(proposal: Proposal) -> KeptProposal:
    """Return a proposal that another process can start: places as text, with absolute paths. Raises UrlError."""
    request = proposal.request
    kept = KeptRequest(
        **{
            **{name: getattr(request, name) for name in KeptRequest.__dataclass_fields__},
            "source": _absolute(request.source),
            "destination": _absolute(request.destination),
            "options": _with_paths(request.options),
            "topology": _absolute_path(request.topology),
            "sky": _absolute_path(request.sky),
        }
    )
    options = _with_paths(proposal.options)
    return KeptProposal(kept, options, proposal.launch, proposal.volume_bytes, proposal.objects, proposal.notes)


def proposal_again(control: JobControl, proposal_id: str, guest: Guest | None = None) -> Proposal:
    """Return a proposal that any process made. Starts its sky if it is not running.

    Its guest reaches this machine at the address in `guest`, which another machine may have proposed.

    Raises UsageError if it does not exist, was started, has expired, or its prices have changed; StateError, SkyError.
    """
    from tradewind.engine.ground import with_present_home

    kept = ProposalStore(control.store.database).load(proposal_id)
    request = Request(**{name: getattr(kept.request, name) for name in KeptRequest.__dataclass_fields__})
    if request.options.files_from == STANDARD_INPUT:
        raise UsageError(
            f"proposal {proposal_id} reads names from standard input, which only the process that made it has",
            hint="write the names to a file",
        )
    launch = kept.launch if guest is None else guest_launch(guest, kept.launch.ceiling_usd)
    if launch.plan_request is not None and (request.sky is not None or request.sites):
        from tradewind.engine.ground import ground_of_sites, prices_now, sky_catalog_of

        if request.sky is not None:
            now = sky_catalog_of(control, request.sky)
        elif launch.warm is not None:
            now = prices_now(control, launch.plan_request.catalog)
        else:
            ends = launch.plan_request.source, launch.plan_request.destination
            now = ground_of_sites(control, request.sites, ends).catalog
        if changed := changed_prices(launch.plan, launch.plan_request.catalog, now):
            raise UsageError(
                f"proposal {proposal_id} is out of date: these prices have changed: {', '.join(changed)}",
                hint="propose again",
            )
    with ExitStack() as stack:
        provider = stack.enter_context(provider_up(launch.provider, control.store.state_dir))
        launch = replace(launch, provider=with_present_home(provider or launch.provider))
        return Proposal(
            proposal_id,
            request,
            launch.plan,
            kept.options,
            launch,
            kept.volume_bytes,
            kept.objects,
            kept.notes,
            held=stack.pop_all(),
        )


def _absolute(places: UrlOrPath | Sequence[UrlOrPath]) -> tuple[str, ...]:
    """Return places that mean the same in any directory. A trailing slash stays. Raises UrlError."""
    return tuple(os.path.join(os.getcwd(), text) if _is_path(text) else text for text in place_texts(places))


def _is_path(text: str) -> bool:
    return not text.startswith("file:") and parse_url(text, cwd="/").kind == "file"


def _absolute_path(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _with_paths(options: Options) -> Options:
    """Return options with absolute paths of the files they name."""
    names, access = options.files_from, options.destination
    return replace(
        options,
        files_from=names if names == STANDARD_INPUT else _absolute_path(names),
        report_file=_absolute_path(options.report_file),
        source=_with_path(options.source),
        destination=_with_path(access) if isinstance(access, Access) else tuple(map(_with_path, access)),
    )


def _with_path(access: Access) -> Access:
    return replace(access, ca_file=_absolute_path(access.ca_file))
