"""A client of a transfer service: its sites, quotes, and jobs that send data to a site or receive it from there.

The bytes move between places that the service can read and write, or this host joins the job (`guest_host.py`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from tradewind.engine.service_address import direct_opener, service_address
from tradewind.errors import (
    CeilingReached,
    DeadlineMissed,
    GatewayLost,
    JobFailed,
    JobNotFound,
    Unauthorised,
    UsageError,
)
from tradewind.model.files import read_user_file
from tradewind.model.records import dataclass
from tradewind.model.units import format_usd

__all__ = [
    "ENDED",
    "POLL_S",
    "RunOver",
    "ServiceClient",
    "SitePath",
    "ended_well",
    "parse_site_path",
    "require_in_time",
]

ANSWER_S_MAX = 30.0
ANSWER_BYTES_MAX = 4 << 20
POLL_S = 0.5
RETRIES_S_MAX = 60.0
"""Time for which a service that does not answer is asked again while a job runs."""
ENDED = ("done", "failed", "cancelled", "paused")
UNAUTHORISED = (401, 403)
#: Statuses for a guest whose run has ended, or has another guest.
RUN_OVER = (409, 410)
#: Answer to a request for a job that does not exist.
NO_JOB = "no such job"
MICROS_PER_USD = 1_000_000


class RunOver(Exception):
    """No run of the job waits for this host, or another one has joined it."""


@dataclass(frozen=True, slots=True)
class SitePath:
    """A name below a site, as in `dublin:results/today`."""

    site: str
    name: str


def parse_site_path(text: str) -> SitePath:
    """Return `SITE:NAME`. Raises UsageError."""
    site, _, name = text.partition(":")
    if not site or not name.strip("/") or ".." in name.split("/") or name.startswith("/"):
        raise UsageError(f"{text}: not SITE:NAME", hint="for example dublin:results; the name has no ..")
    return SitePath(site, name)


class ServiceClient:
    """Requests to one service, with a token."""

    def __init__(self, url: str, token_file: str | None = None) -> None:
        """Take the token from a file, or else from `TRADEWIND_SERVICE_TOKEN`. Raises UsageError."""
        self._url = service_address(url, "the token would be sent unencrypted")
        self._token = _token(token_file)
        #: IP address to which the latest request was sent; None if a proxy hides it.
        self.address: str | None = None

    def place_of(self, path: SitePath) -> str:
        """Return the place that a name at a site stands for. Raises UsageError for an unknown site."""
        places = {site["name"]: site["place"] for site in self._ask("GET", "/v1/sites")["sites"]}
        if path.site not in places:
            known = ", ".join(sorted(places)) or "none"
            raise UsageError(f"{path.site}: the service has no such site", hint=f"its sites: {known}")
        return f"{places[path.site]}/{path.name}"

    def submit(
        self,
        source: str,
        destination: str,
        *,
        recursive: bool,
        max_usd: float | None = None,
        **options: int | str | bool | None,
    ) -> str:
        """Submit a job, and return its id. `options` are further fields of the request.

        With `max_usd`, ask for a quote, and submit the job at its price. Raises CeilingReached if the price is higher,
        TradewindError.
        """
        body: dict[str, Any] = {"source": source, "destination": destination, "recursive": recursive}
        body |= {name: value for name, value in options.items() if value is not None}
        if max_usd is not None:
            quote = self._patiently("POST", "/v1/quotes", body)
            usd = quote["usd_micros"] / MICROS_PER_USD
            if usd > max_usd:
                raise CeilingReached(
                    f"the service asks for {format_usd(usd)}, more than {format_usd(max_usd)}", hint="nothing was sent"
                )
            body = {"quote": quote["id"]}
        job_id: str = self._patiently("POST", "/v1/jobs", body, {"Idempotency-Key": uuid4().hex})["id"]
        return job_id

    def wait(self, job_id: str, see: Callable[[Mapping[str, Any]], None]) -> Mapping[str, Any]:
        """Return a job once it has ended; `see` gets each state of it. Raises JobFailed unless it is done."""
        while (job := self.job(job_id))["state"] not in ENDED:
            see(job)
            time.sleep(POLL_S)
        see(job)
        return ended_well(job)

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job with its counts. Raises JobNotFound, TradewindError."""
        return self._patiently("GET", f"/v1/jobs/{job_id}")

    def change(self, job_id: str, verb: Literal["pause", "resume"]) -> dict[str, Any]:
        """Pause or resume a job. Raises UsageError if it is in another state, TradewindError."""
        return self._patiently("POST", f"/v1/jobs/{job_id}/{verb}")

    def join(self, job_id: str, earlier: str | None) -> dict[str, Any]:
        """Become the guest of the present run of a job, and return its session and join document.

        A run that has the session `earlier`, whose client has died, ends at once. Raises RunOver if no run waits for a
        guest, TradewindError.
        """
        return self._patiently("POST", f"/v1/jobs/{job_id}/guest", {"earlier": earlier}, over=RUN_OVER)

    def exchange(self, job_id: str, report: Mapping[str, Any]) -> dict[str, Any]:
        """Tell the service what the guest's gateway does, and return what it is asked. Raises RunOver, TradewindError.

        A report may be sent twice: events and answers have numbers.
        """
        return self._patiently("POST", f"/v1/jobs/{job_id}/guest/exchange", report, over=RUN_OVER)

    def _patiently(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        over: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        """Ask again while the service does not answer: its next start continues the job.

        An answer with a status of `over` raises RunOver.
        """
        deadline_s = time.monotonic() + RETRIES_S_MAX
        while True:
            try:
                return self._ask(method, path, body, headers, over)
            except GatewayLost:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(POLL_S)

    def _reached(self, address: str | None) -> None:
        self.address = address

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        over: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = Request(self._url + path, data, sent, method=method)
            with direct_opener(self._reached).open(request, timeout=ANSWER_S_MAX) as answer:
                document = json.loads(answer.read(ANSWER_BYTES_MAX))
                if not isinstance(document, dict):
                    raise ValueError("the answer is not that of a transfer service")
                return document
        except HTTPError as error:
            content = b""
            with suppress(OSError, HTTPException):
                content = error.read(ANSWER_BYTES_MAX)
            if error.code in over:
                raise RunOver from None
            raise _refusal(error.code, content, self._url) from None
        except (OSError, ValueError, HTTPException) as error:  # The service may be killed within its answer.
            raise GatewayLost(
                f"{self._url}: {getattr(error, 'reason', error)}",
                hint="check the address, and that the service is running",
            ) from None


def ended_well(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job that is done. Raises JobFailed for any other that has ended."""
    if job["state"] == "done":
        return job
    message = job["error"] or f"the job was {job['state']}"
    raise JobFailed(f"job {job['id']}: {message}", hint=job["hint"] or "the service keeps the job: resume it there")


def require_in_time(job: Mapping[str, Any]) -> None:
    """Raise DeadlineMissed for a job that is done, but ended after its deadline."""
    if (job.get("deadline") or {}).get("kept") is False:
        raise DeadlineMissed(f"job {job['id']}: {job['error']}", job_id=job["id"])


def _token(file: str | None) -> str:
    if file is not None:
        try:
            text = read_user_file(Path(file)).decode(errors="replace").strip()
        except OSError as error:
            raise UsageError(
                f"{file}: {error.strerror}", hint="the file of --token must contain only the token"
            ) from None
    else:
        text = os.environ.get("TRADEWIND_SERVICE_TOKEN", "").strip()
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError("no token for the service", hint="use --token FILE, or set TRADEWIND_SERVICE_TOKEN")
    return text


def _refusal(status: int, content: bytes, url: str) -> UsageError | Unauthorised | GatewayLost | JobNotFound:
    """Return the error of a problem document."""
    try:
        problem = json.loads(content)
        message, hint = str(problem.get("detail") or problem.get("title")), problem.get("hint")
    except (ValueError, AttributeError):
        message, hint = f"answered {status}", None
    if status in UNAUTHORISED:
        return Unauthorised(
            f"{url}: {message}", hint=hint or "check that the token is for this service and has not expired"
        )
    if status >= 500 or status == 429:
        return GatewayLost(f"{url}: {message}", hint=hint)
    if 300 <= status < 400:
        return UsageError(f"{url}: it redirects to another address", hint="use the address of the service itself")
    if status == 404 and message == NO_JOB:
        return JobNotFound(f"{url}: {message}", hint=hint)
    if status == 404 and hint is None:
        hint = "is this the address of the service?"
    return UsageError(f"{url}: {message}", hint=hint)
