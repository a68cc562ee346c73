"""Quotes: the price of a job before it is submitted, which the service keeps until the quote expires.

The source is counted by a dry run. The price is the predicted cost of machines, egress and requests, and the operator's
tariff for the volume. A tariff with an upper bound follows the utilisation of the links, as it is then.

The engine keeps the proposal, and a job that is submitted with the quote is started by it. The job stops if it has to
send much more than was counted, because the price is for that volume.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Proposal, Request
from tradewind.fleet.given import GivenCredentials
from tradewind.market.money import MICROS_PER_USD, exact, micros_up
from tradewind.model.event import Progress
from tradewind.model.records import dataclass, replace
from tradewind.service.database import ServiceDatabase, database_clock_ms, database_unix_ms, record_change
from tradewind.service.engine_request import bytes_per_s, with_rate_limit
from tradewind.service.job_routes import planned_routes
from tradewind.service.limits import (
    QUOTE_COUNT_S_MAX,
    QUOTE_S_MAX,
    QUOTE_USD_MICROS_MAX,
    QUOTES_AT_ONCE_MAX,
    QUOTES_AT_ONCE_PER_TENANT,
    QUOTES_PER_TENANT_MAX,
)
from tradewind.service.links import scheduled_links
from tradewind.service.machines import counted_here
from tradewind.service.money_tables import quotes
from tradewind.service.operator_rules import operator_rules
from tradewind.service.prices import (
    Amount,
    TariffUse,
    hourly_tariff,
    price_time_ms,
    tariff_amounts,
    tariffs_at,
    used_in_month,
)
from tradewind.service.problems import ApiProblem
from tradewind.service.tenant_places import TenantPlaces
from tradewind.service.utilisation import price_utilisations

__all__ = ["AcceptedQuote", "QuoteMaker", "accept_quote", "quote_of"]

#: A quoted job may send this much more than was counted: bytes that are sent again, and small growth of the source. A
#: small job may send at most its volume again, so that nobody moves much for the price of a little.
EXTRA_PART = 0.25
EXTRA_BYTES = 64 << 20
EXTRA_BYTES_MIN = 1 << 20
#: A quoted job on machines may cost at most COST_FACTOR times its predicted cost, or COST_EXTRA_USD more than that if
#: this is higher: a store may be slower than expected. The operator would pay more, because the price is kept.
COST_FACTOR, COST_EXTRA_USD = 4.0, 1.0
#: Plans of a quote, each for the rate that the limits of the one before allow.
LIMITED_PLANS_MAX = 3
#: Share of a limit that a planned rate may exceed: limits are rounded to whole bytes per second.
RATE_TOLERANCE = 1e-5


@dataclass(frozen=True)
class AcceptedQuote:
    """A quote that a job uses: its price, the engine's proposal, and the pairs of regions with their utilisations."""

    usd_micros: int
    proposal: str
    links: tuple[tuple[str, str], ...]
    utilisations: tuple[float, ...]
    routes: str | None


class QuoteMaker:
    """Makes quotes, a few at a time. Any thread may use it."""

    def __init__(self, database: ServiceDatabase, engine: Engine) -> None:
        self._database, self._engine = database, engine
        # A tenant may choose a source that takes long to count, so the others have some places left.
        self._places = TenantPlaces(QUOTES_AT_ONCE_MAX, QUOTES_AT_ONCE_PER_TENANT, "other quotes are being made", 1)

    def make(
        self,
        sender: tuple[str, str],
        request: Request,
        document: Mapping[str, Any],
        owned: Sequence[str],
        links: Sequence[tuple[str, str]],
        kept_s: int,
        credentials: GivenCredentials | None = None,
    ) -> dict[str, Any]:
        """Count a request's source, price it, and keep the quote for `kept_s`. `sender` is tenant and token.
        `credentials` are those of the job's connections, in place of the server's.

        Raises ApiProblem 409 if the source cannot be counted in time, 429 if too many quotes are being made or open;
        TradewindError, among others if a link has no tariff.
        """
        with ExitStack() as stack:
            stack.callback(self._places.enter(sender[0]))
            with self._database.read() as connection:
                self._require_few(connection, sender[0])
            counted = _stated(document) or self._count(request, credentials)
            ceiling = counted.bytes_total + _extra_bytes(counted.bytes_total)
            bounded = replace(request, options=replace(request.options, max_bytes=ceiling))
            proposal = self._near_its_cost(self._proposed(sender[0], bounded, document, credentials), credentials)
            self._engine.keep(proposal)
            proposal.drop()  # It stays in the state folder, from where the job starts it.
        quoted = {**document, "max_bytes": ceiling}
        if proposal.request.ceiling_usd is not None:
            quoted["max_cost_usd"] = proposal.request.ceiling_usd
        return self._keep(sender, quoted, owned, links, kept_s, proposal, counted)

    def _proposed(
        self, tenant: str, request: Request, document: Mapping[str, Any], credentials: GivenCredentials | None
    ) -> Proposal:
        """Return a proposal that keeps to the operator's rules, so that its rate and price can be kept.

        A lower rate may lead to other routes, with other limits.
        """
        with self._database.read() as connection:
            rules = operator_rules(connection)
        proposal = rules.proposed(self._engine, request, credentials)
        for _ in range(LIMITED_PLANS_MAX):
            routes = planned_routes(proposal.plan, scheduled_links(document)[0][0])
            limit_gbps = math.inf if routes is None else rules.rate_gbps(tenant, document, routes)
            if routes is None or routes.rate_gbps <= limit_gbps * (1 + RATE_TOLERANCE):
                break
            proposal.drop()
            limited = with_rate_limit(proposal.request, bytes_per_s(limit_gbps))
            proposal = self._engine.propose(limited, credentials=credentials)
        return proposal

    def _near_its_cost(self, proposal: Proposal, credentials: GivenCredentials | None) -> Proposal:
        """Return a proposal whose ceiling, if it has one, is not far above its predicted cost."""
        most_usd = max(proposal.cost_usd * COST_FACTOR, proposal.cost_usd + COST_EXTRA_USD)
        if (proposal.request.ceiling_usd or 0.0) <= most_usd:
            return proposal
        proposal.drop()
        return self._engine.propose(replace(proposal.request, ceiling_usd=most_usd), credentials=credentials)

    def _count(self, request: Request, credentials: GivenCredentials | None) -> Progress:
        """Return the counts of a dry run."""
        running = self._engine.start(
            self._engine.propose(counted_here(request)),
            credentials=credentials,
        ).require_running()
        try:
            if not running.wait_ended(QUOTE_COUNT_S_MAX):
                raise ApiProblem(
                    409, f"the source was not counted within {QUOTE_COUNT_S_MAX:g} s", hint="quote a smaller prefix"
                )
            return running.result().progress
        finally:
            running.close()

    def _keep(
        self,
        sender: tuple[str, str],
        document: Mapping[str, Any],
        owned: Sequence[str],
        links: Sequence[tuple[str, str]],
        kept_s: int,
        proposal: Proposal,
        counted: Progress,
    ) -> dict[str, Any]:
        (tenant, token), quote_id = sender, f"q-{secrets.token_hex(8)}"
        predicted = proposal.plan.prediction
        rate_gbps = None if predicted is None else predicted.throughput_gbps
        run_ms = round(counted.bytes_total * 8e-6 / rate_gbps) if rate_gbps else 0
        with self._database.write() as connection:
            self._require_few(connection, tenant)
            now_ms = database_unix_ms(connection)
            used = used_in_month(connection, tenant, now_ms)
            use = TariffUse(counted.bytes_total, run_ms)
            price_list = tariffs_at(connection, price_time_ms(connection, now_ms))
            if rate_gbps is None and (hourly := hourly_tariff(price_list, links, now_ms)):
                raise ApiProblem(
                    409,
                    f"tariff {hourly.name} is per hour, and the time of this transfer cannot be predicted",
                    hint="the operator can set a tariff per GB for it",
                )
            direct = scheduled_links(document)
            routes = planned_routes(proposal.plan, direct[0][0])
            loads = price_utilisations(connection, direct if routes is None else [routes.links])
            service = tariff_amounts(price_list, links, use, used, now_ms, loads)
            cost_micros = micros_up(exact(proposal.cost_usd))
            usd_micros = cost_micros + sum(line.usd_micros for line in service)
            if usd_micros > QUOTE_USD_MICROS_MAX:
                highest = format(QUOTE_USD_MICROS_MAX // MICROS_PER_USD, ",")
                raise ApiProblem(409, f"the price is above ${highest}", hint="quote a smaller prefix")
            view = _view(document, proposal, counted, cost_micros, service)
            made = {
                "id": quote_id,
                "tenant": tenant,
                "usd_micros": usd_micros,
                "made_unix_ms": now_ms,
                "expires_unix_ms": now_ms + kept_s * 1000,
                "job": None,
            }
            forgotten_ms = now_ms - QUOTE_S_MAX * 1000  # Until then an expired quote is answered 410.
            connection.execute(delete(quotes).where(quotes.c.job.is_(None), quotes.c.expires_unix_ms < forgotten_ms))
            connection.execute(
                insert(quotes).values(
                    **made,
                    request=json.dumps({**document, "quote": quote_id}),
                    owned=json.dumps(list(owned)),
                    links=json.dumps(list(links)),
                    utilisations=json.dumps(loads),
                    routes=None if routes is None else routes.text(),
                    proposal=proposal.id,
                    view=json.dumps(view),
                )
            )
            record_change(connection, tenant, token, "quote.make", quote_id)
        return {**made, **view}

    def _require_few(self, connection: Connection, tenant: str) -> None:
        open_quotes = select(func.count()).where(
            quotes.c.tenant == tenant,
            quotes.c.job.is_(None),
            quotes.c.expires_unix_ms >= database_clock_ms(connection),
        )
        if connection.execute(open_quotes).scalar_one() >= QUOTES_PER_TENANT_MAX:
            raise ApiProblem(429, f"{QUOTES_PER_TENANT_MAX:,} quotes are open", hint="wait until some expire")


def _view(
    document: Mapping[str, Any],
    proposal: Proposal,
    counted: Progress,
    cost_micros: int,
    service: Sequence[Amount],
) -> dict[str, Any]:
    """Return what a tenant sees of a quote, beside its price and its times."""
    predicted = proposal.plan.prediction
    return {
        "objects": counted.objects_total,
        "volume_bytes": counted.bytes_total,
        "max_bytes": document["max_bytes"],
        "plan": str(proposal),
        "routes": len(proposal.plan.routes) if proposal.plan.overlay is not None else None,
        "rate_gbps": None if predicted is None else predicted.throughput_gbps,
        "lines": [
            {"what": "machines, egress and requests", "usd_micros": cost_micros},
            *({"what": line.what, "usd_micros": line.usd_micros} for line in service),
        ],
        "notes": list(proposal.notes),
    }


def _stated(document: Mapping[str, Any]) -> Progress | None:
    """Return the volume of a source that only a guest can count; None for any other. Raises ApiProblem."""
    guest = document.get("guest")
    if guest is None or guest["side"] != "source":
        return None
    if document.get("source_bytes") is None:
        raise ApiProblem(422, "the size of the source is not stated", field="body.source_bytes")
    return Progress(bytes_total=document["source_bytes"])


def _extra_bytes(volume_bytes: int) -> int:
    """Return how much more than its volume a quoted job may send."""
    small = max(EXTRA_BYTES_MIN, min(EXTRA_BYTES, volume_bytes))
    return max(small, round(volume_bytes * EXTRA_PART))


def quote_of(connection: Connection, quote: str, tenant: str) -> Mapping[Any, Any]:
    """Return the row of a tenant's quote. Raises ApiProblem 404; an expired one may have been removed."""
    row = connection.execute(select(quotes).where(quotes.c.id == quote, quotes.c.tenant == tenant)).mappings().first()
    if row is None:
        raise ApiProblem(404, "no such quote", hint="it may have expired; make a new one")
    return row


def accept_quote(connection: Connection, quote: str, tenant: str, job: str, now_ms: int) -> AcceptedQuote:
    """Use a quote for a job: it holds for one. Raises ApiProblem 404, 409 if it was used, 410 if it has expired."""
    row = quote_of(connection, quote, tenant)
    if row["job"] is None and row["expires_unix_ms"] <= now_ms:
        raise ApiProblem(410, f"quote {quote} has expired", hint="make a new one")
    taken = connection.execute(update(quotes).where(quotes.c.id == quote, quotes.c.job.is_(None)).values(job=job))
    if taken.rowcount == 0:
        raise ApiProblem(409, f"quote {quote} was used by job {row['job']}", hint="make a new one")
    links = tuple((src, dst) for src, dst in json.loads(row["links"]))
    return AcceptedQuote(
        row["usd_micros"], row["proposal"], links, tuple(json.loads(row["utilisations"])), row["routes"]
    )
