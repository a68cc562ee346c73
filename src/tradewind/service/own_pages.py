"""ASGI middleware for a user's own console: it refuses requests that pages of other sites make.

A page of any site can send requests to a port of 127.0.0.1. With DNS rebinding it can also read the answers, because
its name then leads to 127.0.0.1; but the browser sends that name as `Host`.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from tradewind.service.problems import problem_response

__all__ = ["OwnPagesOnly"]

#: Values of `Sec-Fetch-Site` for requests of the console's own page, and of the address bar.
_OWN_SITES = (b"same-origin", b"none")


class OwnPagesOnly:
    """Answers 403 unless `Host` is the console's address, and the request is from its own pages or from no page.

    A link or the file that opens the console may lead to it: a navigation changes nothing.
    """

    def __init__(self, app: ASGIApp, address: str) -> None:
        self._app = app
        self._origin, self._host = address.encode(), address.removeprefix("http://").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http" and not self._is_own(scope):
            refusal = problem_response(
                403, "the request is from another site", hint="use the address as it was printed"
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if _values(headers, b"host") != [self._host]:
            return False
        if any(origin != self._origin for origin in _values(headers, b"origin")):
            return False
        if all(site in _OWN_SITES for site in _values(headers, b"sec-fetch-site")):
            return True
        is_navigation = _values(headers, b"sec-fetch-mode") == [b"navigate"]
        return is_navigation and scope["method"] == "GET" and scope["path"] == "/"


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]
