"""The calls of one cluster's API server, about the machines of Tradewind in one namespace.

Objects are plain documents here. Every call raises CallRefused.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.kubernetes.access import access_of
from tradewind.fleet.kubernetes.objects import CONTAINER, ENTRANCE_TAG
from tradewind.fleet.kubernetes.refusals import answered
from tradewind.fleet.provider import FLEET_TAG
from tradewind.model.kubernetes import KubeCluster

if TYPE_CHECKING:
    from lightkube import Client

__all__ = ["ClusterCalls", "require_lightkube"]

#: Timeout of connecting to an API server, and of each wait for its answer.
ANSWER_S = 10.0
#: Most objects that one answer lists. More are listed by further calls.
PAGE = 500
FIELD_MANAGER = "tradewind"
#: API of reviews, by which a login asks what it may do.
REVIEW = "authorization.k8s.io/v1"


def require_lightkube() -> None:
    """Raise GatewayError if the client library is not installed."""
    try:
        import lightkube  # noqa: F401
    except ImportError as error:
        raise GatewayError(
            "the kubernetes provider needs lightkube", hint="pip install 'tradewind[kubernetes]'"
        ) from error


_preparing = threading.Lock()


@functools.cache
def _prepare() -> None:
    import httpx2
    from lightkube import ApiError, Client, KubeConfig, codecs
    from lightkube.resources.batch_v1 import Job
    from lightkube.resources.core_v1 import Event, Node, Pod, Service

    def answer(request: httpx2.Request) -> httpx2.Response:
        listed = {"items": [], "metadata": {"resourceVersion": "1"}}
        return httpx2.Response(200, json={"spec": {}} if "reviews" in request.url.path else listed)

    def refuse(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(404, json={"kind": "Status", "code": 404, "message": ""})

    named = {
        "clusters": [{"name": "none", "cluster": {"server": "http://none"}}],
        "users": [{"name": "none", "user": {}}],
    }
    context = {"name": "none", "context": {"cluster": "none", "user": "none"}}
    config = KubeConfig.from_dict({**named, "contexts": [context], "current-context": "none"})
    with Client(config=config, transport=httpx2.MockTransport(answer), trust_env=False) as client:
        for kind in (Job, Pod, Service, Event):
            list(client.list(kind))
        client.get(Job, "none")
        client.get(Node, "none")
        for made in ("batch/v1 Job", "v1 Service", "v1 Secret"):
            version, _, name = made.partition(" ")
            client.create(codecs.from_dict({"apiVersion": version, "kind": name, "metadata": {"name": "none"}}))
        client.create(codecs.from_dict({"apiVersion": REVIEW, "kind": "SelfSubjectAccessReview", "spec": {}}))
    with Client(config=config, transport=httpx2.MockTransport(refuse), trust_env=False) as client, suppress(ApiError):
        client.get(Job, "none")


def prepare_decoders() -> None:
    """Let the client library prepare the decoders of all kinds that are used here, in one thread.

    It prepares each when it is first needed, and crashes the process if two threads do so at the same time (lightkube
    1.0.1 with msgspec 0.22). No server is asked: the answers come from a stand-in transport.
    """
    with _preparing:
        _prepare()


class ClusterCalls:
    """Calls of one cluster. It connects when it is first used, and may be used by several threads."""

    def __init__(self, cluster: KubeCluster, kubeconfig: str | None) -> None:
        self._cluster, self._kubeconfig = cluster, kubeconfig
        self._client: Client | None = None
        self._connecting = threading.Lock()

    def jobs(self, tags: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the Jobs of machines with these tags; all of ours without tags."""
        from lightkube.resources.batch_v1 import Job

        return self._list(Job, tags)

    def pods(self, tags: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the pods of machines with these tags."""
        from lightkube.resources.core_v1 import Pod

        return self._list(Pod, tags)

    def services(self, tags: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the Services of machines with these tags; none if the cluster's gateways have none."""
        from lightkube.resources.core_v1 import Service

        return self._list(Service, tags) if self._cluster.network == "service" else []

    def named_services(self, job: str) -> list[str]:
        """Return the names of the Services at which programs of the cluster reach a gateway."""
        from lightkube.resources.core_v1 import Service

        with answered(self._cluster.context):
            listed = self._connected().list(Service, labels={ENTRANCE_TAG: job}, chunk_size=PAGE)
            return [_document(found)["metadata"]["name"] for found in listed]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a Job."""
        from lightkube.resources.core_v1 import Event

        fields: Any = {"involvedObject.name": name}
        with answered(self._cluster.context):
            return [_document(found) for found in self._connected().list(Event, fields=fields)]

    def node(self, name: str) -> dict[str, Any]:
        """Return a node."""
        from lightkube.resources.core_v1 import Node

        with answered(self._cluster.context):
            return _document(self._connected().get(Node, name))

    def create(self, document: Mapping[str, Any]) -> dict[str, Any] | None:
        """Create an object and return it; None if one with its name exists."""
        from lightkube import ApiError, codecs

        with answered(self._cluster.context):
            client = self._connected()  # First: it prepares the decoders.
            made: Any = codecs.from_dict(dict(document))
            try:
                return _document(client.create(made))
            except ApiError as error:
                if error.status.code == 409 and error.status.reason == "AlreadyExists":
                    return None
                raise

    def may(self, verb: str, group: str, resource: str, namespace: str | None) -> bool:
        """Return whether the login may do something to a resource, such as `pods/log`; everywhere without a namespace.

        Every login may ask for itself. Nothing is made.
        """
        from lightkube import codecs

        name, _, part = resource.partition("/")
        wanted = {"verb": verb, "group": group, "resource": name, "subresource": part, "namespace": namespace or ""}
        review = {"apiVersion": REVIEW, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": wanted}}
        with answered(self._cluster.context):
            client = self._connected()  # First: it prepares the decoders.
            made: Any = codecs.from_dict({**review, "metadata": {}})
            return bool((_document(client.create(made)).get("status") or {}).get("allowed"))

    def set_deadline(self, name: str, deadline_s: int) -> None:
        """Set the time after which a Job ends, from its start."""
        from lightkube.resources.batch_v1 import Job
        from lightkube.types import PatchType

        change = {"spec": {"activeDeadlineSeconds": deadline_s}}
        with answered(self._cluster.context):
            self._connected().patch(Job, name, change, patch_type=PatchType.MERGE)

    def delete_job(self, name: str) -> None:
        """Delete a Job and what it owns. No effect if it is gone."""
        from lightkube.resources.batch_v1 import Job
        from lightkube.types import CascadeType

        # The API server's default would leave its pods running.
        self._delete(lambda client: client.delete(Job, name, cascade=CascadeType.BACKGROUND))

    def delete_pod(self, name: str, grace_s: int) -> None:
        """Delete a pod. With 0 the API server forgets it at once, without an answer of its node."""
        from lightkube.resources.core_v1 import Pod

        self._delete(lambda client: client.delete(Pod, name, grace_period=grace_s))

    def delete_secret(self, name: str) -> None:
        """Delete a Secret. No effect if it is gone."""
        from lightkube.resources.core_v1 import Secret

        self._delete(lambda client: client.delete(Secret, name))

    def log(self, pod: str, lines_max: int) -> str:
        """Return the end of a gateway's log."""
        with answered(self._cluster.context):
            return "".join(self._connected().log(pod, container=CONTAINER, tail_lines=lines_max))

    def _delete(self, call: Any) -> None:
        from lightkube import ApiError

        with answered(self._cluster.context):
            try:
                call(self._connected())
            except ApiError as error:
                if error.status.code != 404:
                    raise

    def _list(self, kind: Any, tags: Mapping[str, str]) -> list[dict[str, Any]]:
        from lightkube import operators

        labels: Any = {FLEET_TAG: operators.exists(), **tags}
        with answered(self._cluster.context):
            listed = self._connected().list(kind, labels=labels, chunk_size=PAGE)
            return [_document(found) for found in listed]

    def _connected(self) -> Client:
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
                weakref.finalize(self, self._client.close)
            return self._client

    def _connect(self) -> Client:
        prepare_decoders()
        import httpx2
        from lightkube import Client

        access = access_of(self._cluster.context, self._kubeconfig)
        transport = access.transport()
        return Client(
            config=access.config,
            transport=transport,
            # A client with a proxy of its own ignores its transport.
            proxy=None if transport else access.proxy,
            namespace=self._cluster.namespace,
            timeout=httpx2.Timeout(ANSWER_S),
            field_manager=FIELD_MANAGER,
        )


def _document(found: Any) -> dict[str, Any]:
    document: dict[str, Any] = found.to_dict()
    return document
