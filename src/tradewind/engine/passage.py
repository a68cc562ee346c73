"""Tell whether a store copies objects by itself, or their bytes pass this machine, and why."""

from __future__ import annotations

from urllib.parse import urlsplit

from tradewind.model.event import EARLIER_RUN, Summary, is_copied_by_store
from tradewind.model.job import JobSpec
from tradewind.model.plan import Plan
from tradewind.model.store import StoreSpec
from tradewind.model.units import format_count

__all__ = ["copied_by_store", "passage_lines", "why_not_by_itself"]

#: Schemes of places on this machine.
LOCAL_SCHEMES = ("file", "mem", "pipe")


def why_not_by_itself(source: StoreSpec, target: StoreSpec) -> str | None:
    """Return why the store of `target` cannot copy from `source` by itself; None if it can.

    A store copies within a service, in R2 within an account, with the same credentials. Azure is given the right to
    read the source, whatever its account and credentials. A server whose buckets have addresses of their own is not
    known to be one.
    """
    urls = urlsplit(source.url), urlsplit(target.url)
    if urls[0].scheme != urls[1].scheme:
        return "the two stores are of different kinds"
    if urls[0].scheme == "az":
        same = _server(source.endpoint) == _server(target.endpoint)
        return None if same else "the two sides have different endpoints"
    apart = urls[0].netloc != urls[1].netloc
    if apart and urls[0].scheme == "r2":
        return "the two sides have different accounts"
    if source.endpoint != target.endpoint:
        return "the two sides have different endpoints"
    if (source.profile, source.anonymous) != (target.profile, target.anonymous):
        return "the two sides have different credentials"
    if apart and source.endpoint is not None and False in (source.path_style, target.path_style):
        return "the buckets have addresses of their own"
    return None


def _server(endpoint: str | None) -> str | None:
    """Return scheme and host of an endpoint of Azure. An emulator has the account in the path."""
    return None if endpoint is None else "://".join(urlsplit(endpoint)[:2])


def copied_by_store(spec: JobSpec) -> int:
    """Return the number of destinations whose store is expected to copy the objects of a job by itself."""
    if not spec.server_side_copy or _is_local(spec.source):
        return 0
    return sum(why_not_by_itself(spec.source, target.store) is None for target in spec.targets)


def passage_lines(summary: Summary, plan: Plan, spec: JobSpec) -> list[str]:
    """Return a line that counts the objects between stores whose bytes passed this machine, and says why; or none.

    Objects that an earlier run has copied do not count.
    """
    if plan.stations() or any(_is_local(store) for store in (spec.source, *(each.store for each in spec.targets))):
        return []
    travelled = (
        count for proof, count in summary.proofs.items() if proof != EARLIER_RUN and not is_copied_by_store(proof)
    )
    objects = sum(travelled)
    if not objects:
        return []
    found = (why_not_by_itself(spec.source, target.store) for target in spec.targets)
    reasons = ", ".join(dict.fromkeys(reason for reason in found if reason)) or "the store did not copy by itself"
    return [f"passed  {format_count(objects, 'object')} through this machine: {reasons}"]


def _is_local(store: StoreSpec) -> bool:
    return urlsplit(store.url).scheme in LOCAL_SCHEMES
