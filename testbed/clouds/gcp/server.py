"""The HTTP server of the stand-in: checks requests against the discovery document, then hands them to the cloud."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from testbed.clouds.gcp.cloud import IMAGES, MACHINE_TYPES, REGIONS, Cloud
from testbed.clouds.gcp.discovery import PREFIX, Discovery, Method, compute_discovery, permission_discoveries
from testbed.clouds.gcp.permissions import needed
from testbed.clouds.gcp.records import ROOT, Operation, Refused

__all__ = ["Answer", "Call", "ComputeEngine", "FailOperation", "Fault", "Lose", "Run"]

PAGE_ITEMS_MAX = 500
ASKED_MAX = 100
"""Permissions in one question."""
SERIAL_BYTES_MAX = 1 << 20
STOP_LOOK_S = 0.05
"""Interval in which the server looks whether it shall stop."""


@dataclass(frozen=True)
class Answer:
    """Answer with this error instead of doing the request."""

    status: int
    reason: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True)
class Lose:
    """Do the request, and close the connection without an answer. `before`: do not do it either."""

    before: bool = False


@dataclass(frozen=True)
class FailOperation:
    """Begin an operation that changes nothing and ends with this error."""

    code: str
    message: str


@dataclass(frozen=True)
class Run:
    """Call a function, then do the request."""

    function: Callable[[], None]


@dataclass
class Fault:
    """The fault of the next `times` requests of a method, such as `instances.delete`."""

    method: str
    action: Answer | Lose | FailOperation | Run
    times: int = 1


@dataclass(frozen=True)
class Call:
    """A request that arrived."""

    method: str
    place: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    credentials: str | None
    """The header Authorization."""


@dataclass
class ComputeEngine:
    """The server, on a free loopback port. Use it as a context."""

    cloud: Cloud
    role: frozenset[str] | None = None
    """The permissions of every client; None if all are granted."""
    account_roles: dict[str, frozenset[str]] = field(default_factory=dict)
    """Permissions for single identities, by e-mail; others have those of `role`."""
    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    on_call: Callable[[Call], None] = lambda _: None
    """Called before each request is handled."""

    def __enter__(self) -> ComputeEngine:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._taking = threading.Lock()
        self._in_progress = 0
        serving = threading.Thread(target=self._server.serve_forever, args=(STOP_LOOK_S,), daemon=True)
        serving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cloud.close()

    @property
    def endpoint(self) -> str:
        """Address of the API, as a client uses it instead of Google's."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def beginning(self, call: Call) -> Iterator[None]:
        """Record a call, which is in progress until the context ends."""
        with self._taking:
            self.calls.append(call)
            self._in_progress += 1
        try:
            yield
        finally:
            with self._taking:
                self._in_progress -= 1

    def is_quiet(self) -> bool:
        """Return whether all calls and operations have ended."""
        with self._taking:
            return self._in_progress == 0 and self.cloud.is_quiet()

    def take_fault(self, method: str) -> Fault | None:
        """Return the fault for a request of this method, and count it."""
        with self._taking:
            for fault in self.faults:
                if fault.method == method and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    api: ComputeEngine

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            found = self._dispatch(parts.path, query, body)
        except Refused as error:
            shown = {"message": error.message, "domain": "global", "reason": error.reason}
            answer = {"error": {"code": error.status, "message": error.message, "errors": [shown]}}
            self._send(error.status, answer, error.retry_after_s)
        else:
            if found is None:
                self.close_connection = True
            else:
                self._send(200, found)

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815

    def _send(self, status: int, answer: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        try:
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # The client has been killed.

    def _dispatch(self, path: str, query: dict[str, str], raw: bytes) -> Mapping[str, Any] | None:
        """Return the answer; None if the connection shall be closed without one."""
        api = self.api
        discovery, found = _method_of(self.command, path)
        if found is None:
            raise Refused(404, "notFound", f"No route for {self.command} {path}")
        method, place = found
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            raise Refused(400, "parseError", "Parse Error") from None
        if raw and method.request is None:
            raise Refused(400, "invalid", f"{method.id} has no body")
        problems = list(discovery.query_problems(method, query))
        if method.request is not None:
            problems += discovery.problems(body, method.request)
        if problems:
            raise Refused(400, "invalid", "; ".join(problems))
        call = Call(method.id, place, query, body, self.headers.get("Authorization"))
        with api.beginning(call):
            return self._carried_out(discovery, method, call)

    def _carried_out(self, discovery: Discovery, method: Method, call: Call) -> Mapping[str, Any] | None:
        api = self.api
        api.on_call(call)
        fault = api.take_fault(method.id)
        action = None if fault is None else fault.action
        if isinstance(action, Answer):
            raise Refused(action.status, action.reason, action.message, action.retry_after_s)
        if isinstance(action, Lose) and action.before:
            return None
        if isinstance(action, Run):
            action.function()
        with api.cloud.changing():
            answer = self._handled(method, call, action)
        wrong = list(discovery.problems(answer, method.response or {}))
        assert not wrong, f"the stand-in's answer to {method.id}: {wrong}"
        return None if isinstance(action, Lose) else answer

    def _handled(self, method: Method, call: Call, action: object) -> dict[str, Any]:
        cloud = self.api.cloud
        if method.id.endswith(".testIamPermissions"):
            return self._granted(call)
        if call.place["project"] not in (cloud.project, "debian-cloud"):
            words = f"The resource 'projects/{call.place['project']}' was not found"
            raise Refused(404, "notFound", words)
        for permission in needed(method.id, call.body):
            if self.api.role is not None and permission not in self.api.role:
                words = f"Required '{permission}' permission for '{self.path.partition('?')[0].removeprefix(PREFIX)}'"
                raise Refused(403, "forbidden", words)
        again = cloud.repeated(call.query.get("requestId"))
        if again is not None:
            return again.document(cloud.project)
        if isinstance(action, FailOperation):
            scope = next((f"{one}s/{call.place[one]}" for one in ("zone", "region") if one in call.place), "global")
            failed = cloud.begin(method.id.partition(".")[2], scope, scope, call.query.get("requestId"))
            failed.errors.append((action.code, action.message))
            return failed.document(cloud.project)
        handler = _HANDLERS.get(method.id)
        if handler is None:
            raise Refused(501, "notImplemented", f"the stand-in has no {method.id}")
        answer = handler(cloud, call)
        return answer.document(cloud.project) if isinstance(answer, Operation) else answer

    def _granted(self, call: Call) -> dict[str, Any]:
        """Answer which permissions the client has. Everybody may ask, and nobody learns whether the project exists."""
        asked, role, account = call.body.get("permissions", []), self.api.role, call.place.get("serviceAccountsId")
        if len(asked) > ASKED_MAX or any("*" in one for one in asked):
            raise Refused(400, "badRequest", "Request contains an invalid argument.")
        if account is not None:
            role = self.api.account_roles.get(account, role)
        elif call.place["resource"] != self.api.cloud.project:
            role = frozenset()
        granted = [one for one in asked if role is None or one in role]
        return {"permissions": granted} if granted else {}


def _method_of(verb: str, path: str) -> tuple[Discovery, tuple[Method, dict[str, str]] | None]:
    """Return the description of a request, and its method with the values of the path."""
    if path.startswith(PREFIX):
        return compute_discovery(), compute_discovery().find(verb, path.removeprefix(PREFIX))
    for discovery in permission_discoveries():
        if (found := discovery.find(verb, path.removeprefix("/"))) and found[0].id.endswith(".testIamPermissions"):
            return discovery, found
    return compute_discovery(), None


def _id(call: Call) -> str | None:
    return call.query.get("requestId")


def _operation(cloud: Cloud, call: Call) -> Operation:
    name = call.place["operation"]
    scope = next((f"{one}s/{call.place[one]}" for one in ("zone", "region") if one in call.place), "global")
    found = cloud.operations.get(name)
    if found is None or found.scope != scope:
        raise Refused(
            404, "notFound", f"The resource 'projects/{cloud.project}/{scope}/operations/{name}' was not found"
        )
    return found


def _instance(cloud: Cloud, call: Call) -> dict[str, Any]:
    path = f"zones/{call.place['zone']}/instances/{call.place['instance']}"
    if path not in cloud.instances:
        raise Refused(404, "notFound", f"The resource 'projects/{cloud.project}/{path}' was not found")
    return cloud.instances[path].document(cloud.project)


def _disk(cloud: Cloud, call: Call) -> dict[str, Any]:
    path = f"{call.place['zone']}/{call.place['disk']}"
    if path not in cloud.disks:
        raise Refused(404, "notFound", f"The resource 'projects/{cloud.project}/zones/{path}' was not found")
    return cloud.disks[path].document(cloud.project)


def _serial_port(cloud: Cloud, call: Call) -> dict[str, Any]:
    _instance(cloud, call)
    guest = cloud.instances[f"zones/{call.place['zone']}/instances/{call.place['instance']}"].guest
    text = ("" if guest is None else guest.console()).encode()
    kept = text[-SERIAL_BYTES_MAX:]
    start = int(call.query.get("start", "0"))
    first = max(len(text) - len(kept), len(text) + start if start < 0 else start)
    contents = text[first:].decode(errors="replace")
    return {"kind": "compute#serialPortOutput", "contents": contents, "start": str(first), "next": str(len(text))}


def _region(cloud: Cloud, call: Call) -> dict[str, Any]:
    name = call.place["region"]
    if name not in REGIONS:
        raise Refused(404, "notFound", f"The resource 'projects/{cloud.project}/regions/{name}' was not found")
    used = cloud.usage(name)
    base = f"{ROOT}projects/{cloud.project}/"
    return {
        "kind": "compute#region",
        "name": name,
        "status": "UP",
        # The last is a zone for accelerators, in which our machines are not created.
        "zones": [f"{base}zones/{name}-{letter}" for letter in (*REGIONS[name], "ai1a")],
        "quotas": [
            {"metric": metric, "limit": limit, "usage": used[metric]} for metric, limit in cloud.quotas[name].items()
        ],
    }


def _zones(cloud: Cloud, call: Call) -> dict[str, Any]:
    names = [f"{region}-{letter}" for region, letters in REGIONS.items() for letter in letters]
    return {"kind": "compute#zoneList", "items": [{"name": name, "status": "UP"} for name in names]}


def _machine_type(cloud: Cloud, call: Call) -> dict[str, Any]:
    name = call.place["machineType"]
    if name not in MACHINE_TYPES:
        raise Refused(404, "notFound", f"The resource 'machineTypes/{name}' was not found")
    return {"kind": "compute#machineType", "name": name, "guestCpus": MACHINE_TYPES[name]}


def _image(cloud: Cloud, call: Call) -> dict[str, Any]:
    path = f"projects/{call.place['project']}/global/images/family/{call.place['family']}"
    if path not in IMAGES:
        raise Refused(404, "notFound", f"The resource '{path}' was not found")
    return {"kind": "compute#image", "name": f"{call.place['family']}-v1", "family": call.place["family"]}


def _instances(cloud: Cloud, call: Call) -> dict[str, Any]:
    now_s = cloud.now()
    listed = [one for one in cloud.instances.values() if now_s >= one.visible_s]
    return _aggregated(
        "instances", [(one.zone, one.labels, one.document(cloud.project)) for one in listed], call, cloud
    )


def _disks(cloud: Cloud, call: Call) -> dict[str, Any]:
    listed = [(one.zone, one.labels, one.document(cloud.project)) for one in cloud.disks.values()]
    return _aggregated("disks", listed, call, cloud)


def _aggregated(
    kind: str, found: list[tuple[str, Mapping[str, str], dict[str, Any]]], call: Call, cloud: Cloud
) -> dict[str, Any]:
    matches = _filter(call)
    wanted = [(zone, one) for zone, labels, one in found if matches(labels, one)]
    page, more = _page(wanted, call)
    items: dict[str, Any] = {}
    for zone, one in page:
        if zone in cloud.unreachable:
            continue
        items.setdefault(f"zones/{zone}", {}).setdefault(kind, []).append(one)
    warning = {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope 'zones/us-east1-b'."}
    items["zones/us-east1-b"] = {"warning": warning}
    for zone in cloud.unreachable:
        items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"Scope 'zones/{zone}' is unreachable"}}
    return {"kind": f"compute#{kind[:-1]}AggregatedList", "items": items, **more}


def _firewalls(cloud: Cloud, call: Call) -> dict[str, Any]:
    matches = _filter(call)
    found = [one for one in cloud.firewalls.values() if matches({}, one)]
    page, more = _page(found, call)
    return {"kind": "compute#firewallList", **({"items": page} if page else {}), **more}


def _page(found: list[Any], call: Call) -> tuple[list[Any], dict[str, str]]:
    first = int(call.query.get("pageToken", "0"))
    last = first + min(int(call.query.get("maxResults", PAGE_ITEMS_MAX)), PAGE_ITEMS_MAX)
    return found[first:last], {"nextPageToken": str(last)} if last < len(found) else {}


def _filter(call: Call) -> Callable[[Mapping[str, str], Mapping[str, Any]], bool]:
    """Return the filter of a list, for labels and document. Raises Refused for one that Google does not describe.

    It is one regular expression for one field, or terms joined by AND, each in parentheses if there are several.
    """
    text = call.query.get("filter", "")
    if expression := re.fullmatch(r"(\w+) (eq|ne) ([\"']?)(.*)\3", text):
        field_name, operator, _, pattern = expression.groups()
        return lambda _, one: bool(re.fullmatch(pattern, str(one.get(field_name, "")))) == (operator == "eq")
    terms = text.split(" AND ") if text else []
    if len(terms) > 1 and not all(term.startswith("(") and term.endswith(")") for term in terms):
        raise _wrong_filter(text)
    wanted = [_term(term.removeprefix("(").removesuffix(")"), text) for term in terms]
    return lambda labels, one: all(term(labels, one) for term in wanted)


def _term(term: str, text: str) -> Callable[[Mapping[str, str], Mapping[str, Any]], bool]:
    found = re.fullmatch(r'(labels\.)?([\w-]+)(?:(:\*)|\s*=\s*"?([^"()]*?)"?)', term)
    if found is None:
        raise _wrong_filter(text)
    label, name, is_there, wanted = found.groups()
    if is_there:
        return lambda labels, one: name in (labels if label else one)
    return lambda labels, one: bool((labels if label else one).get(name) == wanted)


def _wrong_filter(text: str) -> Refused:
    return Refused(400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")


_HANDLERS: Mapping[str, Callable[[Cloud, Call], dict[str, Any] | Operation]] = {
    "regionInstances.bulkInsert": lambda cloud, call: cloud.bulk_insert(call.place["region"], call.body, _id(call)),
    "instances.get": _instance,
    "instances.getSerialPortOutput": _serial_port,
    "instances.aggregatedList": _instances,
    "instances.delete": lambda cloud, call: cloud.delete_instance(
        call.place["zone"], call.place["instance"], _id(call)
    ),
    "disks.get": _disk,
    "disks.aggregatedList": _disks,
    "disks.delete": lambda cloud, call: cloud.delete_disk(call.place["zone"], call.place["disk"], _id(call)),
    "firewalls.insert": lambda cloud, call: cloud.insert_firewall(call.body, _id(call)),
    "firewalls.patch": lambda cloud, call: cloud.patch_firewall(call.place["firewall"], call.body, _id(call)),
    "firewalls.delete": lambda cloud, call: cloud.delete_firewall(call.place["firewall"], _id(call)),
    "firewalls.list": _firewalls,
    "regions.get": _region,
    "zones.list": _zones,
    "machineTypes.get": _machine_type,
    "images.getFromFamily": _image,
    "zoneOperations.get": _operation,
    "regionOperations.get": _operation,
    "globalOperations.get": _operation,
}
