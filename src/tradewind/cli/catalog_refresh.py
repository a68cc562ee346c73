"""`tradewind catalog refresh`: its output."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace

from tradewind.cli.streams import write_codes
from tradewind.cli.terminal import PLAIN_EVERY_S, printable
from tradewind.engine.user_catalog import ProviderPrices, UserCatalog
from tradewind.errors import UsageError
from tradewind.model.units import format_bytes, format_count


def refresh_prices(args: Namespace, catalog: UserCatalog) -> int:
    """Request prices and store them. Return the exit code of the first provider that failed, 0 if none did."""
    if args.what:
        raise UsageError("catalog refresh takes no arguments", hint=f"did you mean --region {args.what[0]}?")
    waiting = _Waiting(quiet=args.quiet or args.json)

    def report(prices: ProviderPrices) -> None:
        waiting.end()
        _report(args, prices)

    try:
        done = catalog.refresh(args.provider, args.region, on_progress=waiting.report, on_outcome=report)
    finally:
        waiting.end()
    _report_unavailable(args, done)
    failed = [prices.failure for prices in done if prices.failure is not None]
    return failed[0].exit_code if failed else 0


def _report_unavailable(args: Namespace, done: list[ProviderPrices]) -> None:
    """Print one line for all unreachable providers: the usual cause is that this machine is offline."""
    errors = [prices.outcome.error for prices in done if prices.unreachable]
    if errors and errors[0] is not None and not args.json:
        print(f"error: {'; '.join(printable(str(error)) for error in errors)}", file=sys.stderr)
        print(f"hint: {errors[0].hint}", file=sys.stderr)


def _report(args: Namespace, prices: ProviderPrices) -> None:
    outcome = prices.outcome
    if args.json:
        document = {
            "provider": outcome.provider,
            "regions": outcome.regions,
            "egress_prices": outcome.egress_prices,
            "machine_prices": outcome.machine_prices,
            "file": str(outcome.file) if outcome.file else None,
            "notes": list(outcome.notes),
            "error": str(outcome.error) if outcome.error else None,
        }
        print(json.dumps(document, ensure_ascii=False), flush=True)
    elif outcome.error is None and not args.quiet:
        egress = format_count(outcome.egress_prices, "egress price")
        machines = format_count(outcome.machine_prices, "machine price")
        of = f"of {format_count(outcome.regions, 'region')}, into {outcome.file}"
        print(f"{outcome.provider}: {egress} and {machines} {of}", flush=True)
    elif prices.missing_key is not None:
        if not args.quiet:
            print(f"note: {outcome.provider} was skipped: it needs an API key in {prices.missing_key}", file=sys.stderr)
    elif outcome.error is not None and not prices.unreachable:
        print(f"error: {printable(str(outcome.error))}", file=sys.stderr)
        if outcome.error.hint:
            print(f"hint: {outcome.error.hint}", file=sys.stderr)
    if not args.quiet and not args.json:
        for note in outcome.notes:
            print(f"note: {printable(note)}", file=sys.stderr)


class _Waiting:
    """Progress of a long download: a live line on a terminal, otherwise an occasional line."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._shown = False
        self._next_plain_s = time.monotonic() + PLAIN_EVERY_S

    def report(self, what: str, count_bytes: int) -> None:
        """Report the number of bytes of a list that have been read."""
        line = f"{what}: {format_bytes(count_bytes)} read"
        if self._live:
            write_codes(sys.stderr, "\r\x1b[K")
            sys.stderr.write(line)
            sys.stderr.flush()
            self._shown = True
        elif not self._quiet and time.monotonic() >= self._next_plain_s:
            self._next_plain_s = time.monotonic() + PLAIN_EVERY_S
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the live line."""
        if self._shown:
            write_codes(sys.stderr, "\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
