"""GET over HTTPS with limits on attempts, time, bytes and pages. Proxies come from the environment."""

from __future__ import annotations

import gzip
import io
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tradewind._version import __version__
from tradewind.errors import PriceApiError, PriceApiRefused, PriceApiUnavailable
from tradewind.model.records import dataclass, field

__all__ = ["Fetcher", "same_host"]

TRIES_MAX = 4
"""Attempts of one request, including the first; then `PriceApiUnavailable`."""
CONNECT_TRIES_MAX = 2
"""Attempts without a connection: few, so that an offline user soon gets an error."""
PAUSE_S = 1.0
"""Pause before the second attempt; doubled before each further one."""
PAUSE_S_MAX = 30.0
"""Longest pause accepted from an answer's `Retry-After`; a longer one ends the attempts."""
SILENCE_S = 20.0
"""Timeout of a connection that sends nothing."""
REQUEST_S_MAX = 1800.0
"""Timeout of one request including its attempts. The largest lists have some hundred MB."""
JSON_BYTES_MAX = 64 << 20
"""Maximum size of one JSON answer, uncompressed: it is held in memory."""
STREAM_BYTES_MAX = 4 << 30
"""Maximum size of one answer that is read line by line, uncompressed. AWS's longest list has about a tenth."""
LINE_CHARS_MAX = 1 << 20
PROGRESS_BYTES = 1 << 20
"""Progress is reported after this many further bytes."""
ERROR_BYTES_MAX = 4096

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_BROKEN = (OSError, HTTPException, EOFError, zlib.error)

T = TypeVar("T")
ReportBytes = Callable[[str, int], None]
"""Callback with the name of the current list, and the number of bytes read so far."""


def _silent(what: str, count_bytes: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Reads price lists. `progress` is called while a long list is read."""

    progress: ReportBytes = field(default=_silent)
    pause_s: float = PAUSE_S
    silence_s: float = SILENCE_S
    request_s_max: float = REQUEST_S_MAX

    def json(self, what: str, url: str, headers: Mapping[str, str] | None = None) -> Any:
        """Return one JSON document.

        Args:
            what: name for progress and errors.
            url: its address.
            headers: not forwarded when the server redirects, because they may hold secrets.

        Raises:
            PriceApiUnavailable: no answer after `TRIES_MAX` tries.
            PriceApiRefused: 401 or 403.
            PriceApiError: any other answer than a JSON document of at most `JSON_BYTES_MAX`.
        """

        def parse(body: io.BufferedReader) -> Any:
            try:
                return json.loads(body.read())
            except (ValueError, RecursionError) as error:
                raise PriceApiError(f"{what}: the answer is not JSON: {error}") from None

        return self._tried(what, url, headers or {}, JSON_BYTES_MAX, parse)

    def lines(self, what: str, url: str, parse: Callable[[Iterator[str]], T]) -> T:
        """Return the result of ``parse`` on the lines of a long text; it need not read to the end.

        If the connection breaks, ``parse`` is called again with the lines from the start.

        Raises: as `json`.
        """

        def parse_lines(body: io.BufferedReader) -> T:
            text = io.TextIOWrapper(body, encoding="utf-8", errors="replace", newline="")
            try:
                return parse(_bounded_lines(what, text))
            finally:
                text.detach()

        return self._tried(what, url, {}, STREAM_BYTES_MAX, parse_lines)

    def _tried(
        self, what: str, url: str, headers: Mapping[str, str], bytes_max: int, parse: Callable[[io.BufferedReader], T]
    ) -> T:
        end_s = time.monotonic() + self.request_s_max
        pause_s = self.pause_s
        unconnected = 0
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                with _open(url, headers, self.silence_s) as response:
                    body = _Body(response, what, bytes_max, end_s, self.progress)
                    return parse(io.BufferedReader(body, 1 << 16))
            except HTTPError as error:
                asked_s = _refused(what, error, may_retry=tries_left > 0)
                pause_s = max(pause_s, asked_s)
            except _BROKEN as error:
                unconnected += isinstance(error, URLError)
                hopeless = tries_left == 0 or unconnected == CONNECT_TRIES_MAX
                if hopeless or time.monotonic() + pause_s >= end_s:
                    raise PriceApiUnavailable(
                        f"{what}: {urlsplit(url).hostname} does not answer: {_reason(error)}", hint=_OFFLINE
                    ) from None
            time.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("the last try returns or raises")


_OFFLINE = "the catalog keeps its existing figures; behind a proxy set HTTPS_PROXY"


def same_host(base: str, link: str) -> str:
    """Return ``link``, found in an answer from ``base``, as an absolute URL.

    Raises:
        PriceApiError: it leads to another server.
    """
    absolute = urljoin(base, link)
    here, there = urlsplit(base), urlsplit(absolute)
    default = {"https": 443, "http": 80}
    places = [(part.scheme, part.hostname, part.port or default.get(part.scheme)) for part in (here, there)]
    if places[0] != places[1]:
        raise PriceApiError(f"{here.hostname}: the answer redirects to another server, {there.netloc}")
    return absolute


def _open(url: str, headers: Mapping[str, str], silence_s: float) -> HTTPResponse:
    request = Request(url, headers={"User-Agent": f"tradewind/{__version__}", "Accept-Encoding": "gzip"})
    for name, content in headers.items():
        # Not forwarded when the server redirects.
        request.add_unredirected_header(name, content)
    # A separate opener: the shared one remembers the proxies of its first use.
    response: HTTPResponse = build_opener(_Redirects).open(request, timeout=silence_s)
    return response


class _Redirects(HTTPRedirectHandler):
    """Follow redirects, but never to an unencrypted address, where prices could be forged."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise PriceApiError(
                f"{req.host}: the answer redirects to an unencrypted address, to {urlsplit(newurl).netloc}"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Body(io.RawIOBase):
    """Body of an answer, uncompressed, within limits on bytes and time; a premature end is an error."""

    def __init__(self, response: HTTPResponse, what: str, bytes_max: int, end_s: float, progress: ReportBytes) -> None:
        super().__init__()
        self._response, self._what = response, what
        self._bytes_max, self._end_s, self._progress = bytes_max, end_s, progress
        packed = response.headers.get("Content-Encoding", "").lower() == "gzip"
        self._plain: Any = gzip.GzipFile(fileobj=response) if packed else response
        self._read = self._reported = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if time.monotonic() > self._end_s:
            raise TimeoutError(f"not complete within {REQUEST_S_MAX:g} s")
        piece: bytes = self._plain.read1(len(buffer))
        if not piece and self._response.length:
            raise EOFError(f"the answer ends {self._response.length} bytes too early")
        self._read += len(piece)
        if self._read > self._bytes_max:
            raise PriceApiError(f"{self._what}: the answer has more than {self._bytes_max >> 20} MiB")
        if self._read - self._reported >= PROGRESS_BYTES:
            self._reported = self._read
            self._progress(self._what, self._read)
        buffer[: len(piece)] = piece
        return len(piece)


def _bounded_lines(what: str, text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(LINE_CHARS_MAX):
        if len(line) == LINE_CHARS_MAX:
            raise PriceApiError(f"{what}: a line has more than {LINE_CHARS_MAX} characters")
        yield line


def _refused(what: str, error: HTTPError, *, may_retry: bool) -> float:
    """Return the pause [s] before a retry that the answer asks for; raise if it does not ask for one."""
    with error:
        said = _said(error)
        if error.code in (401, 403):
            raise PriceApiRefused(f"{what}: not authorised ({error.code}){said}") from None
        if error.code not in _RETRIED:
            raise PriceApiError(
                f"{what}: answered {error.code}{said}", hint="the catalog keeps its existing figures"
            ) from None
        asked = error.headers.get("Retry-After", "")
        asked_s = float(asked) if asked.isdigit() else 0.0
        if not may_retry or asked_s > PAUSE_S_MAX:
            raise PriceApiUnavailable(f"{what}: answered {error.code}{said}", hint=_OFFLINE) from None
    return asked_s


def _said(error: HTTPError) -> str:
    """Return the message in an error's body: `{"error": {"message": …}}` or `{"Error": {"Message": …}}`."""
    try:
        document = json.loads(error.read(ERROR_BYTES_MAX))
        inner = next(iter(document.values()))
        message = next(str(text) for name, text in inner.items() if name.lower() == "message")
    except (*_BROKEN, ValueError, AttributeError, StopIteration):
        return ""
    return f": {' '.join(message.split())}"


def _reason(error: BaseException) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
