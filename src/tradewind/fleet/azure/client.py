"""Calls to Azure Resource Manager with Microsoft's clients, which are loaded at the first call.

The clients retry only connections that could not be opened. All other errors become refusals: the fleet decides what to
do about them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from tradewind.errors import GatewayError
from tradewind.fleet.azure.errors import SIGN_IN, refusal_of
from tradewind.fleet.azure.model_classes import guard_models
from tradewind.fleet.libraries import load_libraries
from tradewind.fleet.provider import CallRefused, Refusal
from tradewind.fleet.tool_errors import words_of
from tradewind.model.azure import AzureSettings

__all__ = ["Clients", "NotThere"]

# Without a handler, paragraphs about each failed login would go to stderr. The refusal has the first line of them.
logging.getLogger("azure").addHandler(logging.NullHandler())

#: Interval between two looks at a long-running operation, if Azure names none [s].
POLL_S = 2.0
#: Retries of a connection that cannot be opened.
CONNECTS_MAX = 2
#: Timeouts of one request [s].
CONNECT_S = 10
READ_S = 30
#: The end of a recorded console that is kept.
CONSOLE_BYTES_MAX = 1 << 20
#: Pages that are read of one list.
PAGES_MAX = 100

NO_QUERY: Mapping[str, str] = {}

T = TypeVar("T")


class NotThere(CallRefused):
    """The resource of a call does not exist."""


class Clients:
    """The clients of one subscription. Their calls may be made from several threads."""

    def __init__(self, settings: AzureSettings) -> None:
        self._settings = settings
        self._making = threading.Lock()
        self._made: dict[str, Any] = {}

    @property
    def compute(self) -> Any:
        """The client of `Microsoft.Compute`. Raises GatewayError if it is not installed."""
        return self._client("azure.mgmt.compute", "ComputeManagementClient")

    @property
    def network(self) -> Any:
        """The client of `Microsoft.Network`. Raises GatewayError if it is not installed."""
        return self._client("azure.mgmt.network", "NetworkManagementClient")

    def call(self, place: str, function: Callable[[], T]) -> T:
        """Return what a function of a client returns. Raises CallRefused, whose reason begins with `place`."""
        load_libraries("azure.core.exceptions")
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
            ResourceNotFoundError,
        )

        try:
            return function()
        except ResourceNotFoundError as error:
            refusal = _refusal(place, error)
            raise (NotThere if _code(error) == "ResourceNotFound" else CallRefused)(refusal) from error
        except ClientAuthenticationError as error:
            if error.response is not None:
                raise CallRefused(_refusal(place, error)) from error
            first = str(error).strip().splitlines()[0]
            raise CallRefused(Refusal("permission", f"{place}: {first}", action=SIGN_IN)) from error
        except HttpResponseError as error:
            raise CallRefused(_refusal(place, error)) from error
        except AzureError as error:
            raise CallRefused(Refusal("transient", f"{place}: {' '.join(str(error).split())}")) from error

    def finish(self, place: str, begin: Callable[..., Any]) -> Any:
        """Begin a long-running operation and return its result. Raises CallRefused."""
        return self.call(place, lambda: begin(polling_interval=POLL_S).result())

    def begin(self, place: str, begin: Callable[..., Any]) -> Any:
        """Begin a long-running operation and return its poller. Raises CallRefused."""
        return self.call(place, partial(begin, polling_interval=POLL_S))

    def list(self, place: str, lister: Callable[[], Any]) -> list[Any]:
        """Return all pages of a list. Raises CallRefused."""
        return self.call(place, lambda: list(lister()))

    def send(
        self, place: str, method: str, path: str, version: str, body: Any = None, query: Mapping[str, str] = NO_QUERY
    ) -> Any:
        """Send a request for which the clients have no function; return the answer's JSON. Raises CallRefused."""
        load_libraries("azure.core.rest", "azure.mgmt.core.exceptions")
        from azure.core.rest import HttpRequest

        def sent() -> Any:
            url = f"{self._settings.endpoint}{path}"
            request = HttpRequest(method, url, params={**query, "api-version": version}, json=body)
            answer = self.compute.send_request(request)
            if answer.status_code >= 400:
                from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
                from azure.mgmt.core.exceptions import ARMErrorFormat

                kind = ResourceNotFoundError if answer.status_code == 404 else HttpResponseError
                raise kind(response=answer, error_format=ARMErrorFormat)
            return answer.json() if answer.content else None

        return self.call(place, sent)

    def pages(self, place: str, path: str, version: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list for which the clients have no function, of all its pages. Raises CallRefused."""
        query = NO_QUERY
        for _ in range(PAGES_MAX):
            page = self.send(place, "GET", path, version, query=query) or {}
            yield from page.get("value", ())
            if not page.get("nextLink"):
                return
            link = parse_qs(urlsplit(page["nextLink"]).query)
            query = {name: values[0] for name, values in link.items() if name != "api-version"}
        raise CallRefused(Refusal("bad request", f"{place}: a list has more than {PAGES_MAX} pages"))

    def read(self, url: str, timeout_s: float) -> bytes:
        """Return the end of what a signed URL gives, such as that of a recorded console. It gets no credentials.

        To be called by `call`.
        """
        load_libraries("requests", "azure.core.exceptions")
        import requests
        from azure.core.exceptions import ServiceResponseError

        kept = bytearray()
        try:
            # The API names the URL. The metadata service, which has credentials for everybody, speaks plain HTTP only.
            if not url.startswith("https://"):
                raise requests.exceptions.InvalidSchema("not HTTPS")
            with requests.get(url, timeout=timeout_s, allow_redirects=False, stream=True) as answer:
                answer.raise_for_status()
                if answer.is_redirect:
                    raise requests.TooManyRedirects("a redirect")
                for piece in answer.iter_content(1 << 16):
                    kept += piece
                    del kept[:-CONSOLE_BYTES_MAX]
        except requests.RequestException as error:
            # The URL in the error's own words contains a signature.
            raise ServiceResponseError(f"the recorded console cannot be read: {type(error).__name__}") from None
        return bytes(kept)

    def _client(self, module: str, name: str) -> Any:
        from importlib import import_module

        with self._making:
            if name not in self._made:
                try:
                    load_libraries(module, "azure.identity")
                    kind = getattr(import_module(module), name)
                    guard_models(import_module(f"{module}.models"))
                    identity = import_module("azure.identity")
                except ModuleNotFoundError as error:
                    raise GatewayError(
                        f"the azure provider needs {module.replace('.', '-')}", hint="pip install 'tradewind[azure]'"
                    ) from error
                if "credential" not in self._made:
                    self._made["credential"] = _credential(identity)
                self._made[name] = kind(
                    self._made["credential"],
                    self._settings.subscription,
                    base_url=self._settings.endpoint,
                    credential_scopes=[f"{self._settings.endpoint}/.default"],
                    retry_total=CONNECTS_MAX,
                    retry_connect=CONNECTS_MAX,
                    retry_read=0,
                    retry_status=0,
                    connection_timeout=CONNECT_S,
                    read_timeout=READ_S,
                )
            return self._made[name]


def _credential(identity: Any) -> Any:
    """Return what signs in to Azure. Raises CallRefused if a variable or a file cannot be used."""
    try:
        return identity.DefaultAzureCredential()
    except (ValueError, OSError) as error:
        raise CallRefused(Refusal("permission", f"no sign-in to Azure: {words_of(error)}", action=SIGN_IN)) from error


def _code(error: Any) -> str:
    found = getattr(getattr(error, "error", None), "code", None)
    return str(found or getattr(error, "status_code", None) or "Unknown")


def _refusal(place: str, error: Any) -> Refusal:
    said = getattr(getattr(error, "error", None), "message", None) or str(error)
    headers = {} if error.response is None else error.response.headers
    wait = str(headers.get("Retry-After") or "")
    retry_after_s = float(wait) if wait.isdecimal() else None
    return refusal_of(place, _code(error), said, error.status_code or 0, retry_after_s)
