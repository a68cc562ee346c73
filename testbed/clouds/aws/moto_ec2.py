"""moto's server for EC2 with what it lacks: a program that moto's own interpreter runs, ``moto_ec2.py PORT``.

It adds a vCPU quota, client tokens, instances that stay pending until the testbed has booted them, and faults. It
refuses what Amazon refuses and moto does not: user data that is too long, an unknown image or type, the deletion of a
security group in use, and a whole change of rules if one of them exists already. The testbed talks to it at
``/testbed``:

- ``GET /testbed/instances``: instances with region, state, user data and shutdown behaviour
- ``PUT /testbed/instances/ID`` ``{"state", "address", "console"}``: what the testbed has done with one
- ``PUT /testbed/faults`` ``[{"operation", "code", "message", "status", "times", "lose", "after", "region"}]``
- ``PUT /testbed/settings`` ``{"vcpus", "hidden_s", "stale_s", "halt_at", "reads_heed_alone"}``
- ``GET /testbed/schedules``: the names of the schedules of Amazon's scheduler
- ``PUT /testbed/schedules`` ``{"unix_s"}``: run all that are due at this time
- ``GET /testbed/calls``: the operations that were called, in order
- ``PUT /testbed/forgotten``: forget all client tokens and calls

A fault answers `times` calls of an operation, in `region` if one is named, with an error, after `after` others; with
`lose` the call is done and its answer lost. An instance is not listed for `hidden_s` after its launch, and listed as
running for `stale_s` after its termination, as with eventual consistency. The call of number `halt_at` since the calls
were forgotten is done, and its answer is held back until ``PUT /testbed/released``. With `reads_heed_alone`, changes
are carried out also if they are asked for with ``DryRun``.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from moto import settings
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import InstanceState
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

sys.path.append(os.path.dirname(__file__))
from moto_policies import heed_policies  # type: ignore[import-not-found]
from moto_schedules import run_schedules, schedule_names, wrong_schedule  # type: ignore[import-not-found]

ACCOUNT = "123456789012"
VCPUS = {"m5.xlarge": 4, "c5n.2xlarge": 8, "m6in.2xlarge": 8, "m5.8xlarge": 32, "c5n.9xlarge": 36, "c5n.18xlarge": 72}
STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
#: Maximum length of user data, before its encoding.
USER_DATA_BYTES_MAX = 16 * 1024
#: Fields of a request that may differ between two with the same client token.
NO_PARAMETERS = ("Action", "Version", "ClientToken")
#: Longest time for which an answer is held back.
HALT_S = 60.0
PUBLIC_ADDRESS = "NetworkInterface.1.AssociatePublicIpAddress"
QUOTA_TARGET = "ServiceQuotasV20190624.GetServiceQuota"
Start = Callable[..., object]
Headers = list[tuple[str, str]]


class Emulator:
    """WSGI middleware around moto."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self.application = application
        self.faults: list[dict[str, Any]] = []
        self.settings: dict[str, float] = {
            "vcpus": 1_000_000,
            "hidden_s": 0,
            "stale_s": 0,
            "halt_at": -1,
            "reads_heed_alone": 0,
        }
        self.released = threading.Event()
        self.calls: list[str] = []
        self.consoles: dict[str, str] = {}
        #: Region and client token → the parameters of its first call, the instance, and the answer.
        self.tokens: dict[tuple[str, str], tuple[dict[str, str], Any, str, Headers, bytes]] = {}
        self.answering = threading.RLock()

    def __call__(self, environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        """Answer one request."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if self.settings["reads_heed_alone"] and b"Action=Describe" not in body:
            body = body.replace(b"&DryRun=true", b"")
            environ["CONTENT_LENGTH"] = str(len(body))
        environ["wsgi.input"] = io.BytesIO(body)
        path = environ["PATH_INFO"]
        if path.startswith("/testbed/"):
            with self.answering:
                return self._testbed(environ["REQUEST_METHOD"], path.split("/")[2:], body, start_response)
        if path.startswith("/moto-api"):
            return self.application(environ, start_response)
        form = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
        operation = form.get("Action") or environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        is_scheduler = path.startswith("/schedules/")
        if is_scheduler:
            operation = {"POST": "CreateSchedule", "DELETE": "DeleteSchedule"}[environ["REQUEST_METHOD"]]
        with self.answering:
            number = len(self.calls)
            self.calls.append(operation)
            fault = self._fault(operation, _region(environ))
            if fault is not None and not fault.get("lose"):
                as_json = is_scheduler or "HTTP_X_AMZ_TARGET" in environ
                return _error(
                    start_response, fault["code"], fault.get("message", ""), fault.get("status", 400), as_json
                )
            answer = self._answer(operation, form, body, environ, start_response)
        if number == self.settings["halt_at"]:
            self.released.wait(HALT_S)
        if fault is not None:
            # The client sees a connection that was closed before any answer.
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer

    def _fault(self, operation: str, region: str) -> dict[str, Any] | None:
        for fault in self.faults:
            if fault["operation"] not in (operation, "*") or fault.get("region", region) != region:
                continue
            if fault.get("after", 0) > 0:
                fault["after"] -= 1
                continue
            if fault.get("times", 1) > 0:
                fault["times"] = fault.get("times", 1) - 1
                return fault
        return None

    def _answer(
        self, operation: str, form: dict[str, str], body: bytes, environ: dict[str, Any], start_response: Start
    ) -> Iterable[bytes]:
        if environ.get("HTTP_X_AMZ_TARGET") == QUOTA_TARGET:
            status, _, body = self._asked(environ)  # moto checks the permission, and has no quotas of EC2.
            if status.startswith("403"):
                return _json_refusal(start_response, body)
            quota = {"Quota": {"QuotaCode": "L-1216C47A", "Value": float(self.settings["vcpus"])}}
            start_response("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps(quota).encode()]
        if environ["PATH_INFO"].startswith("/schedules/"):
            if operation == "CreateSchedule" and (words := wrong_schedule(json.loads(body))) is not None:
                return _error(start_response, "ValidationException", words, 400, as_json=True)
            status, headers, said = self._asked(environ)
            if status.startswith("403"):
                return _json_refusal(start_response, said)
            start_response(status, headers)
            return [said]
        is_dry = form.get("DryRun") == "true"
        if operation == "GetConsoleOutput" and not is_dry:
            return self._console(form, environ, start_response)
        if operation == "RunInstances" and not is_dry:
            return self._run(form, environ, start_response)
        group = _group(form.get("GroupId", ""))
        if operation == "DeleteSecurityGroup" and not is_dry and group and (user := _user_of(group)) is not None:
            words = f"resource {group.id} has a dependent object {user}"
            return _error(start_response, "DependencyViolation", words, 400)
        rules = None if group is None else list(group.ingress_rules)
        with self._without_hidden(operation), self._with_ended(operation):
            status, headers, body = self._asked(environ)
        if operation == "TerminateInstances":
            for instance in _instances():
                if instance.state not in ("pending", "running") and not hasattr(instance, "ended_s"):
                    instance.ended_s = time.monotonic()
        if group is not None and rules is not None and not status.startswith("200"):
            group.ingress_rules = rules  # Amazon does all of a request or nothing.
        if status.startswith("403") and "HTTP_X_AMZ_TARGET" in environ:
            return _json_refusal(start_response, body)
        if status.startswith("200") and is_dry:  # moto does not heed it everywhere.
            assert operation.startswith(("Describe", "Get")), "a dry run must not change anything"
            return _error(
                start_response, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
            )
        start_response(status, headers)
        return [body]

    def _console(self, form: dict[str, str], environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        status, headers, body = self._asked(environ)
        # While an instance runs, Amazon shows what it kept after the start, unless the latest output is wished for.
        kept = form.get("Latest") != "true" and any(
            one.id == form["InstanceId"] and one.state in ("pending", "running") for one in _instances()
        )
        if status.startswith("200") and form["InstanceId"] in self.consoles and not kept:
            text = base64.b64encode(self.consoles[form["InstanceId"]].encode()).decode()
            words = f"<instanceId>{form['InstanceId']}</instanceId><output>{text}</output>"
            start_response("200 OK", [("Content-Type", "text/xml")])
            return [f"<GetConsoleOutputResponse>{words}</GetConsoleOutputResponse>".encode()]
        start_response(status, headers)
        return [body]

    def _asked(self, environ: dict[str, Any]) -> tuple[str, Headers, bytes]:
        """Return status, headers and body of moto's answer."""
        said: list[tuple[str, Headers]] = []
        body = b"".join(self.application(environ, lambda status, headers, *_: said.append((status, headers))))
        return *said[0], body

    def _run(self, form: dict[str, str], environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        token = _region(environ), form.get("ClientToken", "")
        parameters = {name: value for name, value in form.items() if name not in NO_PARAMETERS}
        if token in self.tokens:
            first, instance, status, headers, body = self.tokens[token]
            if first != parameters:
                words = (
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
                )
                return _error(start_response, "IdempotentParameterMismatch", words, 400)
            start_response(status, [each for each in headers if each[0].lower() != "content-length"])
            return [_with_state(body, instance.state)]
        if (refused := self._refusal(form)) is not None:
            return _error(start_response, *refused, 400)
        before = {one.id for one in _instances()}
        status, headers, body = self._asked(environ)
        for instance in _instances():
            if instance.id not in before:
                instance._state = InstanceState("pending", STATES["pending"])
                instance.launched_s = time.monotonic()
                # moto follows the subnet, whatever the request says.
                instance.associate_public_ip = form.get(PUBLIC_ADDRESS) == "true"
                for nic in instance.nics.values():
                    nic.public_ip = None
                if token[1]:
                    self.tokens[token] = (parameters, instance, status, headers, body)
        start_response(status, headers)
        return [body]

    def _refusal(self, form: dict[str, str]) -> tuple[str, str] | None:
        """Return code and message of the refusal of a new instance."""
        if len(base64.b64decode(form.get("UserData", ""))) > USER_DATA_BYTES_MAX:
            return "InvalidParameterValue", f"User data is limited to {USER_DATA_BYTES_MAX} bytes"
        vcpus = VCPUS.get(form.get("InstanceType", ""), 2)
        running = sum(VCPUS.get(one.instance_type, 2) for one in _instances() if one.state in ("pending", "running"))
        limit = self.settings["vcpus"]
        if running + vcpus > limit:
            words = f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f}"
            return "VcpuLimitExceeded", words
        return None

    def _without_hidden(self, operation: str) -> _Hidden:
        return _Hidden(self.settings["hidden_s"] if operation == "DescribeInstances" else 0)

    def _with_ended(self, operation: str) -> _Stale:
        return _Stale(self.settings["stale_s"] if operation == "DescribeInstances" else 0)

    def _testbed(self, method: str, words: list[str], body: bytes, start_response: Start) -> Iterable[bytes]:
        given: Any = json.loads(body) if body else None
        answer: Any = {}
        if words == ["instances"]:
            answer = [_described(instance) for instance in _instances()]
        elif words[0] == "instances":
            self._set(words[1], given)
        elif words == ["faults"]:
            self.faults[:] = given
        elif words == ["settings"]:
            self.settings.update(given)
            if "halt_at" in given:
                self.released.clear()
        elif words == ["schedules"]:
            if method == "PUT":
                living = {one.id for one in _instances() if one.state != "terminated"}
                for instance_id in living & set(run_schedules(given["unix_s"])):
                    self._set(instance_id, {"state": "terminated"})
            answer = schedule_names()
        elif words == ["calls"]:
            answer = self.calls
        elif words == ["forgotten"]:
            self.tokens.clear()
            self.calls.clear()
        elif words == ["released"]:
            self.released.set()
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def _set(self, instance_id: str, given: dict[str, Any]) -> None:
        for instance in _instances():
            if instance.id != instance_id:
                continue
            if "console" in given:
                self.consoles[instance_id] = given["console"]
            if "address" in given:
                for nic in instance.nics.values():
                    nic.public_ip = given["address"] if instance.associate_public_ip else None
                    nic.private_ip_address = given["address"]
                    for entry in nic.private_ip_addresses:
                        entry["PrivateIpAddress"] = given["address"]
            state = given.get("state")
            if state == "terminated":
                stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
                instance.terminate()
                instance._reason = f"User initiated ({stamp} GMT)"
            elif state is not None and instance.state != "terminated":
                instance._state = InstanceState(state, STATES[state])


class _Hidden:
    """Removes young instances from their backends for as long as a listing is made."""

    def __init__(self, hidden_s: float) -> None:
        self.hidden_s = hidden_s
        self.removed: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        if self.hidden_s <= 0:
            return
        for backend in ec2_backends[ACCOUNT].values():
            for key, reservation in list(backend.reservations.items()):
                young = min((getattr(one, "launched_s", 0.0) for one in reservation.instances), default=0.0)
                if time.monotonic() - young < self.hidden_s:
                    self.removed.append((backend, key, reservation))
                    del backend.reservations[key]

    def __exit__(self, *_: object) -> None:
        for backend, key, reservation in self.removed:
            backend.reservations[key] = reservation


class _Stale:
    """Shows instances that have just been terminated as running for as long as a listing is made."""

    def __init__(self, stale_s: float) -> None:
        self.stale_s = stale_s
        self.ended: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        for instance in _instances() if self.stale_s > 0 else ():
            if time.monotonic() - getattr(instance, "ended_s", -1e9) < self.stale_s:
                self.ended.append((instance, instance._state))
                instance._state = InstanceState("running", STATES["running"])

    def __exit__(self, *_: object) -> None:
        for instance, state in self.ended:
            instance._state = state


def _instances() -> list[Any]:
    found = []
    for backend in list(ec2_backends[ACCOUNT].values()):
        for reservation in list(backend.reservations.values()):
            found += reservation.instances
    return found


def _group(group_id: str) -> Any | None:
    """Return a security group."""
    backends = ec2_backends[ACCOUNT].values()
    return next((found for one in list(backends) if (found := one.get_security_group_from_id(group_id))), None)


def _user_of(group: Any) -> str | None:
    """Return the id of an instance that has not ended, and is in a security group."""
    for instance in _instances():
        groups = [each.id for nic in instance.nics.values() for each in nic.group_set]
        if instance.state != "terminated" and group.id in groups:
            return str(instance.id)
    return None


def _region(environ: dict[str, Any]) -> str:
    """Return the region for which a request is signed: `AWS4-HMAC-SHA256 Credential=KEY/DAY/REGION/ec2/…`."""
    parts = str(environ.get("HTTP_AUTHORIZATION", "")).split("/")
    return parts[2] if len(parts) > 2 else ""


def _with_state(body: bytes, state: str) -> bytes:
    """Return the answer to the launch of an instance with its present state."""
    code, name = (rb"(<instanceState>\s*<code>)\d+", rb"(</code>\s*<name>)[\w-]+")
    return re.sub(code + name, rb"\g<1>%d\g<2>%s" % (STATES[state], state.encode()), body)


def _described(instance: Any) -> dict[str, Any]:
    return {
        "id": instance.id,
        "region": instance.region_name,
        "state": instance.state,
        "user_data": instance.user_data.decode() if instance.user_data else "",
        "shutdown": instance.instance_initiated_shutdown_behavior,
        "metadata_tokens": instance.metadata_options.http_tokens,
    }


def _json_refusal(start_response: Start, body: bytes) -> Iterable[bytes]:
    """Answer with a refusal that moto has written as XML, as the services with JSON write it."""
    found = re.search(rb"<Code>(\w+)</Code>\s*<Message>(.*?)</Message>", body, re.S)
    assert found is not None, body
    code = found[1].decode().replace("AccessDenied", "AccessDeniedException")
    return _error(start_response, code, found[2].decode(), 400, as_json=True)


def _error(start_response: Start, code: str, message: str, status: int, as_json: bool = False) -> Iterable[bytes]:
    if as_json:
        start_response(f"{status} refused", [("Content-Type", "application/x-amz-json-1.1")])
        return [json.dumps({"__type": code, "message": message}).encode()]
    words = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    start_response(f"{status} refused", [("Content-Type", "text/xml")])
    return [f"<Response><Errors>{words}</Errors><RequestID>testbed</RequestID></Response>".encode()]


def main() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    heed_policies()
    settings.ENABLE_AMI_VALIDATION = settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
    application = Emulator(DomainDispatcherApplication(create_backend_app))
    # moto's first listing of images takes many seconds.
    ec2_backends[ACCOUNT]["us-east-1"].describe_images()
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
