"""Client of one gateway's control API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tradewind.errors import CredentialsNotSent, GatewayError, GatewayLost
from tradewind.gateway.binary import require_contract
from tradewind.model.document import parse_json, to_document
from tradewind.model.plan import Deployment

if TYPE_CHECKING:
    import socket

    from tradewind.gateway.exchange import Exchange
    from tradewind.model.split import SplitProgram, SplitStatus

#: Timeout of a request other than for events. After it the gateway counts as lost.
REQUEST_S = 30.0
#: Maximum size of an answer. A larger one is an error.
ANSWER_BYTES_MAX = 16 << 20
#: Status of a refusal of credentials. The module `http` would cost each start several milliseconds.
FORBIDDEN = 403
#: Status for a request that is understood, but whose content is wrong, such as an endpoint or a CA file of the user.
UNPROCESSABLE = 422
#: End of the path, on the owner's admin socket, at which a gateway's stores are set.
STORES = "/stores"
#: Maximum length of an event's line.
EVENT_BYTES_MAX = 4 << 20
#: Largest number of a status.
NUMBER_MAX = 2**63 - 1
#: A gateway counts as lost after this time of silence. Without events it sends an empty line every 5 s.
EVENT_SILENCE_S = 60.0


class GatewayClient:
    """One gateway's control API, over HTTP at a Unix socket: its own, or one at which the owner forwards.

    Each request opens its own connection, so any thread and a signal handler may call it. `control` is `unix:PATH`.
    """

    def __init__(self, control: str) -> None:
        self.control = control

    @classmethod
    def of(cls, deployment: Deployment, name: str) -> GatewayClient:
        """Return the client of a fleet's gateway. Raises KeyError."""
        return cls(deployment.addresses[name].control)

    def version(self, timeout_s: float = REQUEST_S) -> dict[str, Any]:
        """`GET /v1/version`. Raises GatewayError if the gateway speaks another major version of the contract."""
        answer: dict[str, Any] = json.loads(self._request("GET", "/v1/version", timeout_s=timeout_s))
        require_contract(answer["gateway"], answer["contract"])
        return answer

    def put_program(self, program: dict[str, Any]) -> None:
        """`PUT /v1/program`. Raises GatewayError if the gateway refuses it."""
        self._request("PUT", "/v1/program", json.dumps(program).encode())

    def put_routes(self, routes: dict[str, Any], timeout_s: float = REQUEST_S) -> None:
        """`PUT /v1/routes`: change the running program's routes. Raises GatewayError if the gateway refuses them."""
        self._request("PUT", "/v1/routes", json.dumps(routes).encode(), timeout_s)

    def drain(self) -> None:
        """`POST /v1/drain`: checkpoint and stop; the event stream then ends with outcome `interrupted`."""
        self._request("POST", "/v1/drain")

    def renew_lease(self, lease_s: int, timeout_s: float = REQUEST_S) -> None:
        """`POST /v1/lease`: the gateway ends `lease_s` from now unless it is renewed again. Raises GatewayError."""
        self._request("POST", "/v1/lease", json.dumps({"lease_s": lease_s}).encode(), timeout_s)

    def join_again(self, token_hex: str, expires_unix_s: int) -> None:
        """`POST /v1/join`: the gateway becomes a new process, which joins its fleet with this token.

        Raises GatewayError.
        """
        body = {"token_hex": token_hex, "expires_unix_s": expires_unix_s}
        self._request("POST", "/v1/join", json.dumps(body).encode())

    def put_split(self, program: SplitProgram, timeout_s: float = REQUEST_S) -> SplitStatus:
        """`PUT /v1/split`: start a split proxy, or replace the program of the running one.

        New connections use the new program; open ones keep theirs. Raises GatewayError if the gateway refuses it.
        """
        return self._split("PUT", "", json.dumps(to_document(program)).encode(), timeout_s)

    def split_status(self, timeout_s: float = REQUEST_S) -> SplitStatus:
        """`GET /v1/split`: return the status of the split proxy. Raises GatewayError if the gateway never had one."""
        return self._split("GET", "", None, timeout_s)

    def end_split(self, drain_s: int | None = None, timeout_s: float = 2 * REQUEST_S) -> SplitStatus:
        """`DELETE /v1/split`: accept no more connections, and end the open ones after at most `drain_s`.

        None is the time of the program. The answer has the final counts if its state is `ended`; a drain of more than
        30 s is still under way then. Raises GatewayError if the gateway never had a split proxy.
        """
        query = "" if drain_s is None else f"?drain_s={drain_s}"
        return self._split("DELETE", query, None, timeout_s)

    def _split(self, method: str, query: str, body: bytes | None, timeout_s: float) -> SplitStatus:
        from tradewind.model.split import SplitStatus

        answer = self._request(method, f"/v1/split{query}", body, timeout_s)
        try:
            return SplitStatus.from_document(_with_possible_numbers(parse_json(answer)))
        except (ValueError, RecursionError) as error:
            raise GatewayError(
                f"the gateway at {self.control} sent a bad status of its split proxy: {error}"
            ) from error

    def receive_load(self, sender: str, connections: int, warmup_s: float, measure_s: float) -> dict[str, Any]:
        """`POST /v1/probe/receive`: count what another gateway sends. Blocks until done. Raises GatewayError."""
        body = {
            "from": sender,
            "connections": connections,
            "warmup_ms": round(warmup_s * 1e3),
            "measure_ms": round(measure_s * 1e3),
        }
        return self._probe("/v1/probe/receive", body, warmup_s + measure_s)

    def send_load(self, receiver: str, address: str, connections: int, at_most_s: float) -> dict[str, Any]:
        """`POST /v1/probe/send`: send until the receiver closes. Blocks until done. Raises GatewayError."""
        body = {"to": receiver, "address": address, "connections": connections, "at_most_ms": round(at_most_s * 1e3)}
        return self._probe("/v1/probe/send", body, at_most_s)

    def _probe(self, path: str, body: dict[str, Any], lasting_s: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self._request("POST", path, json.dumps(body).encode(), timeout_s=lasting_s + REQUEST_S)
        )
        return answer

    def metrics(self, timeout_s: float = REQUEST_S) -> str:
        """`GET /metrics`, in the Prometheus text format."""
        return self._request("GET", "/metrics", timeout_s=timeout_s).decode()

    def events(self) -> Iterator[bytes]:
        """`GET /v1/events`: one JSON line per item, until the gateway ends the stream.

        Raises GatewayLost if the gateway cannot be reached or is silent for EVENT_SILENCE_S.
        """
        try:
            with _exchange(self.control, "GET", "/v1/events", None, EVENT_SILENCE_S, streams=True) as answer:
                if answer.status != 200:
                    raise _refused("GET /v1/events", answer)
                while line := answer.readline(EVENT_BYTES_MAX):
                    if line != b"\n":
                        yield line
        except TimeoutError as error:
            silent = f"it sent nothing for {EVENT_SILENCE_S:.0f} s"
            raise GatewayLost(f"the gateway at {self.control} is lost: {silent}") from error
        except OSError as error:
            raise GatewayLost(f"the gateway at {self.control} is gone: {error}") from error

    def _request(self, method: str, path: str, body: bytes | None = None, timeout_s: float = REQUEST_S) -> bytes:
        return request(self.control, method, path, body, timeout_s, f"the gateway at {self.control}")


def request(control: str, method: str, path: str, body: bytes | None, timeout_s: float, whom: str) -> bytes:
    """Send one request to `unix:PATH` and return the body of the answer.

    Raises GatewayError if it is refused, GatewayLost if it is not answered. `whom` names the server in the message.
    """
    try:
        with _exchange(control, method, path, body, timeout_s) as answer:
            if answer.status >= 300:
                raise _refused(f"{method} {path}", answer)
            return answer.read(ANSWER_BYTES_MAX)
    except OSError as error:
        raise GatewayLost(f"{whom} does not answer: {error}") from error


def _exchange(
    control: str, method: str, path: str, body: bytes | None, timeout_s: float, *, streams: bool = False
) -> Exchange:
    """Send a request. The whole answer must arrive within the timeout; if it `streams`, each part of it."""
    from tradewind.gateway.exchange import Exchange

    return Exchange(_connect_unix(control, timeout_s), method, path, body, None if streams else timeout_s)


def _connect_unix(control: str, timeout_s: float) -> socket.socket:
    import socket

    path = control.removeprefix("unix:")
    if path == control:
        raise GatewayError(f"{control} is not the path of a Unix socket")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _with_possible_numbers(document: Any) -> Any:
    """Return a document of counts and times. Raises ValueError if one of them is negative, infinite or immense."""
    if isinstance(document, (dict, list)):
        for each in document.values() if isinstance(document, dict) else document:
            _with_possible_numbers(each)
    elif isinstance(document, (int, float)) and not 0 <= document <= NUMBER_MAX:
        raise ValueError("it has a number that cannot be")
    return document


def _refused(request: str, answer: Exchange) -> GatewayError:
    text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
    try:
        document = json.loads(text)
        text, hint = document["error"], document.get("hint")
    except (ValueError, KeyError, TypeError):
        hint = None
    if answer.status == FORBIDDEN and request.endswith(STORES):
        return CredentialsNotSent(text, hint=hint)
    if answer.status == UNPROCESSABLE:
        return GatewayError(text, hint=hint)
    return GatewayError(f"the gateway refused {request} ({answer.status}): {text}", hint=hint)
