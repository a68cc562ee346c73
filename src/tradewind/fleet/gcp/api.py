"""The calls of the Compute Engine API, over plain HTTP with google-auth's credentials."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tradewind.errors import GatewayError
from tradewind.fleet.gcp.refusals import of_operation, of_response
from tradewind.fleet.libraries import load_libraries
from tradewind.fleet.provider import CallRefused, Refusal
from tradewind.fleet.tool_errors import words_of

if TYPE_CHECKING:
    import requests

__all__ = ["GOOGLE", "ComputeApi", "OperationFailed", "unix_s"]

GOOGLE = "https://compute.googleapis.com"
#: APIs that say which permissions a login has, for a project and for an identity.
PROJECTS, ACCOUNTS = "https://cloudresourcemanager.googleapis.com", "https://iam.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/compute"
#: Scope of questions about permissions, which the scope above does not include.
_ASKING_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
#: Timeout of one request, and the most that one connection attempt may take.
REQUEST_S = 20.0
CONNECT_S = 5.0
#: Interval between two looks at an operation. It grows by half with each look.
POLL_S_MIN, POLL_S_MAX = 0.1, 2.0
#: Items of one page of a list. The API allows no more.
PAGE_ITEMS = 500
#: Pages that are read of one list. A project may have more machines, but hardly with our labels.
PAGES_MAX = 100
#: Codes of warnings about a zone whose list lacks something (`InstancesScopedList.warning`).
INCOMPLETE = ("UNREACHABLE", "PARTIAL_SUCCESS")
#: Maximum length of an answer. A full page has about 5 MB.
ANSWER_BYTES_MAX = 1 << 26
PIECE_BYTES = 1 << 16


class OperationFailed(CallRefused):
    """An operation began, and ended with an error. Its request id is used up."""


class ComputeApi:
    """One project. Its methods may be called from any thread, and raise CallRefused."""

    def __init__(self, project: str, endpoint: str | None = None) -> None:
        self._base = f"{(endpoint or GOOGLE).rstrip('/')}/compute/v1/projects/{quote(project)}/"
        self._project, self._endpoint = project, endpoint
        self._sessions = threading.local()
        self._making = threading.Lock()
        #: Credentials by scope.
        self._credentials: dict[str, Any] = {}

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Return a resource, such as `regions/us-central1`."""
        return self._request("GET", path, query)

    def find(self, path: str) -> dict[str, Any] | None:
        """Return a resource, or None if it does not exist."""
        return self._request("GET", path, {}, absent=(404,)) or None

    def aggregated(self, kind: str, wanted: str) -> Iterator[dict[str, Any]]:
        """Yield the instances or disks of all zones that match a filter.

        Raises CallRefused after the last one if a zone is silent, as nothing there may count as gone.
        """
        missing: Refusal | None = None
        for page in self._pages(f"aggregated/{kind}", wanted):
            scopes = page.get("items", {})
            for scope in _objects(list(scopes.values()) if isinstance(scopes, dict) else None):
                missing = missing or _missing_in(scope)
                yield from _objects(scope.get(kind, []))
        if missing is not None:
            raise CallRefused(missing)

    def listed(self, path: str, wanted: str) -> Iterator[dict[str, Any]]:
        """Yield the resources below a path that match a filter."""
        for page in self._pages(path, wanted):
            yield from _objects(page.get("items", []))

    def insert(self, path: str, body: Mapping[str, Any], request_id: uuid.UUID) -> dict[str, Any]:
        """Begin to create something, and return the operation. The same request id is the same creation."""
        return self._request("POST", path, {"requestId": str(request_id)}, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to change something, and return the operation."""
        return self._request("PATCH", path, {"requestId": str(uuid.uuid4())}, body)

    def delete(self, path: str) -> dict[str, Any] | None:
        """Begin to delete something, and return the operation; None if it does not exist."""
        return self._request("DELETE", path, {"requestId": str(uuid.uuid4())}, absent=(404,)) or None

    def granted(self, permissions: Collection[str]) -> set[str]:
        """Return those permissions in the project that the login has. It needs none for this question."""
        return self._granted(PROJECTS, f"projects/{quote(self._project)}", permissions)

    def granted_at(self, account: str, permissions: Collection[str]) -> set[str]:
        """Return those permissions that the login has for the identity with this e-mail address."""
        return self._granted(ACCOUNTS, f"projects/-/serviceAccounts/{quote(account, safe='@')}", permissions)

    def _granted(self, host: str, resource: str, permissions: Collection[str]) -> set[str]:
        path = f"{(self._endpoint or host).rstrip('/')}/v1/{resource}:testIamPermissions"
        answer = self._request("POST", path, {}, {"permissions": list(permissions)}, scope=_ASKING_SCOPE)
        found = answer.get("permissions", [])
        if not isinstance(found, list):
            raise CallRefused(Refusal("bad request", "the answer about permissions has another form than Google's"))
        return {str(one) for one in found}

    def wait(self, operation: Mapping[str, Any], limit_s: float) -> dict[str, Any] | None:
        """Wait until an operation has ended, and return it; None if it has not within the limit.

        Raises OperationFailed with the operation's error.
        """
        deadline_s, poll_s, latest = time.monotonic() + limit_s, POLL_S_MIN, dict(operation)
        path = _operation_path(latest)
        while latest.get("status") != "DONE":
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(poll_s)
            poll_s = min(POLL_S_MAX, poll_s * 1.5)
            try:
                latest = self._request("GET", path, {})
            except CallRefused as error:
                if error.refusal.kind not in ("throttled", "transient"):
                    raise
        if errors := latest.get("error", {}).get("errors"):
            raise OperationFailed(of_operation(errors))
        return latest

    def _pages(self, path: str, wanted: str) -> Iterator[dict[str, Any]]:
        query = {"filter": wanted, "maxResults": str(PAGE_ITEMS)}
        for _ in range(PAGES_MAX):
            page = self._request("GET", path, query)
            yield page
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]
        raise CallRefused(Refusal("bad request", f"the project lists more than {PAGES_MAX * PAGE_ITEMS} {path}"))

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        absent: Collection[int] = (),
        scope: str = _SCOPE,
    ) -> dict[str, Any]:
        """Return the answer to a request; an empty one for a status in `absent`. `path` is in the project, or a URL."""
        session = self._session(scope)
        import requests
        from google.auth import exceptions

        try:
            response = session.request(
                method,
                path if "://" in path else self._base + path,
                params=query,
                json=body,
                timeout=(CONNECT_S, REQUEST_S),
                stream=True,
                allow_redirects=False,
            )
            with response:
                content = _content(response)
        except exceptions.TransportError as error:
            raise CallRefused(Refusal("transient", f"Google's token service: {words_of(error)}")) from error
        except exceptions.GoogleAuthError as error:
            raise CallRefused(_no_credentials(error)) from error
        except requests.RequestException as error:
            raise CallRefused(Refusal("transient", f"no answer to {method} {path}: {type(error).__name__}")) from error
        if response.status_code in absent:
            return {}
        if 300 <= response.status_code < 400:
            raise CallRefused(Refusal("bad request", f"the answer to {method} {path} is a redirect: check `endpoint`"))
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if response.status_code >= 400:
            found = answer if isinstance(answer, dict) else {}
            raise CallRefused(of_response(response.status_code, found, response.headers.get("Retry-After")))
        if not isinstance(answer, dict):
            raise CallRefused(Refusal("transient", f"the answer to {method} {path} is not a JSON object"))
        return answer

    def _session(self, scope: str) -> requests.Session:
        """Return this thread's session for a scope: a session must not be shared by threads."""
        try:
            load_libraries("google.auth.transport.requests")
            import google.auth
            import requests
            from google.auth.transport.requests import AuthorizedSession
        except ImportError:
            raise GatewayError(
                "the gcp provider needs google-auth and requests", hint="pip install 'tradewind[gcp]'"
            ) from None
        sessions: dict[str, requests.Session] = self._sessions.__dict__.setdefault("by_scope", {})
        found = sessions.get(scope)
        if found is None:
            if self._endpoint is not None:
                found = requests.Session()
                found.trust_env = False  # No credentials of a .netrc file, and no proxy.
            else:
                with self._making:
                    try:
                        if scope not in self._credentials:
                            self._credentials[scope] = google.auth.default(scopes=[scope])[0]
                    except (google.auth.exceptions.GoogleAuthError, OSError) as error:
                        raise CallRefused(_no_credentials(error)) from error
                found = AuthorizedSession(self._credentials[scope])  # type: ignore[no-untyped-call]
            sessions[scope] = found
        return found


def _content(response: requests.Response) -> bytes:
    """Return what a response contains. Raises CallRefused if that is longer than ANSWER_BYTES_MAX."""
    found = bytearray()
    for piece in response.iter_content(PIECE_BYTES):
        found += piece
        if len(found) > ANSWER_BYTES_MAX:
            raise CallRefused(Refusal("bad request", f"an answer of the API is longer than {ANSWER_BYTES_MAX} bytes"))
    return bytes(found)


def _objects(found: Any) -> list[dict[str, Any]]:
    """Return a list of JSON objects. Raises CallRefused if it is something else."""
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise CallRefused(Refusal("bad request", "a list of the API has another form than Google's"))
    return found


def _missing_in(scope: Mapping[str, Any]) -> Refusal | None:
    """Return why the list of a zone lacks something; None if it does not."""
    warning = scope.get("warning")
    if not isinstance(warning, dict) or warning.get("code") not in INCOMPLETE:
        return None
    words = " ".join(str(warning.get("message", "")).split())
    return Refusal("transient", f"a list is incomplete: {warning['code']}: {words}")


def _operation_path(operation: Mapping[str, Any]) -> str:
    """Return the path of an operation in its project."""
    for scope in ("zone", "region"):
        if scope in operation:
            return f"{scope}s/{operation[scope].rpartition('/')[2]}/operations/{operation['name']}"
    return f"global/operations/{operation['name']}"


def _no_credentials(error: Exception) -> Refusal:
    words = f"no usable credentials for Google Cloud: {words_of(error)}"
    return Refusal("permission", words, "valid credentials: `gcloud auth application-default login`")


def unix_s(text: str | None) -> float | None:
    """Return a time of the API, such as `2026-11-24T01:02:03.456-08:00` [Unix s]."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
