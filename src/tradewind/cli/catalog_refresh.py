"""`tradewind catalog refresh`: its output."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

from tradewind.catalog.load import load_catalog
from tradewind.catalog.refresh.fetch import Fetcher
from tradewind.catalog.refresh.gcp import KEY_VARIABLE
from tradewind.catalog.refresh.run import Endpoints, Refresh, RefreshOutcome, refresh
from tradewind.cli.catalog import today
from tradewind.cli.streams import write_codes
from tradewind.cli.terminal import PLAIN_EVERY_S, printable
from tradewind.errors import PriceApiRefused, PriceApiUnavailable, UsageError
from tradewind.model.region import parse_region
from tradewind.model.units import format_bytes, format_count

ENDPOINTS = Endpoints()


def refresh_prices(args: Namespace, folder: Path) -> int:
    """Asks and stores; the exit code is that of the first provider that failed, 0 if none did.

    Google's missing key is no failure unless Google was asked for by name.
    """
    if args.what:
        raise UsageError("catalog refresh takes no arguments", hint=f"did you mean --region {args.what[0]}?")
    regions = [parse_region(text) for text in args.region]
    by_name = set(args.provider) | {region.provider for region in regions}
    waiting = _Waiting(quiet=args.quiet or args.json)
    asked = Refresh(
        load_catalog(folder), folder, today().isoformat(), Fetcher(progress=waiting.report), endpoints=ENDPOINTS
    )

    def waiter(outcome: RefreshOutcome) -> None:
        waiting.end()
        _report(args, outcome, left_out=_is_left_out(outcome, by_name))

    try:
        outcomes = refresh(asked, args.provider, regions, waiter)
    finally:
        waiting.end()
    _report_unavailable(args, outcomes)
    failed = [o.error for o in outcomes if o.error is not None and not _is_left_out(o, by_name)]
    return failed[0].exit_code if failed else 0


def _report_unavailable(args: Namespace, outcomes: list[RefreshOutcome]) -> None:
    """One line for all that cannot be reached: mostly it is this machine that is offline."""
    errors = [o.error for o in outcomes if isinstance(o.error, PriceApiUnavailable)]
    if errors and not args.json:
        print(f"error: {'; '.join(printable(str(error)) for error in errors)}", file=sys.stderr)
        print(f"hint: {errors[0].hint}", file=sys.stderr)


def _is_left_out(outcome: RefreshOutcome, by_name: set[str]) -> bool:
    """Return whether a provider failed that nobody asked for by name, for want of a key alone."""
    return isinstance(outcome.error, PriceApiRefused) and KEY_VARIABLE in (outcome.error.hint or "") and not by_name


def _report(args: Namespace, outcome: RefreshOutcome, *, left_out: bool) -> None:
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
    elif left_out:
        if not args.quiet:
            print(f"note: gcp was skipped: it needs an API key in {KEY_VARIABLE}", file=sys.stderr)
    elif outcome.error is not None and not isinstance(outcome.error, PriceApiUnavailable):
        print(f"error: {printable(str(outcome.error))}", file=sys.stderr)
        if outcome.error.hint:
            print(f"hint: {outcome.error.hint}", file=sys.stderr)
    if not args.quiet and not args.json:
        for note in outcome.notes:
            print(f"note: {printable(note)}", file=sys.stderr)


class _Waiting:
    """Progress of a long list: a line that is updated on a terminal, otherwise a line now and then."""

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
        """Takes the line away."""
        if self._shown:
            write_codes(sys.stderr, "\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
