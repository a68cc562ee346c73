"""How the API server of a kubeconfig is reached, and what is refused because the client library does not know it."""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest

pytest.importorskip("lightkube")

from testbed.servers.tls import Certificates, make_certificates
from tradewind.fleet.kubernetes.calls import ClusterCalls
from tradewind.fleet.provider import CallRefused, Refusal
from tradewind.model.kubernetes import KubeCluster

NAME = "api.cluster.example"


class ApiServer(BaseHTTPRequestHandler):
    """Lists no objects. It notes names of TLS, paths and the header of the login."""

    protocol_version = "HTTP/1.1"
    names: list[str | None]
    requests: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.requests.append((self.path.partition("?")[0], self.headers.get("Authorization")))
        body = json.dumps({"kind": "JobList", "apiVersion": "batch/v1", "items": [], "metadata": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Tunnel(BaseHTTPRequestHandler):
    """A proxy that opens every tunnel to one port of this host, and notes its name."""

    target: int
    names: list[str]

    def do_CONNECT(self) -> None:
        self.names.append(self.path)
        with create_connection(("127.0.0.1", self.target)) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_copy, args=(there, self.connection), daemon=True)
            back.start()
            _copy(self.connection, there)

    def log_message(self, *_: object) -> None:
        pass


def _copy(one: Any, other: Any) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], tls: Certificates | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        context.sni_callback = lambda _socket, name, _context: handler.names.append(name)  # type: ignore[attr-defined]
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"), name=NAME)


class Stage:
    """An API server, a proxy, and calls by kubeconfig files."""

    def __init__(self, folder: Path, tls: Certificates, port: int, proxy: int) -> None:
        self.folder, self.tls, self.port, self.proxy = folder, tls, port, proxy

    def calls(self, cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None) -> ClusterCalls:
        access = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.tls.ca)}
        access |= cluster or {}
        document = {
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
            "clusters": [{"name": "lab", "cluster": {key: one for key, one in access.items() if one is not None}}],
            "users": [{"name": "me", "user": dict({"token": "secret"} if user is None else user)}],
        }
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(document))
        return ClusterCalls(KubeCluster("lab", "site:a", "image"), str(path))

    def refusal(self, cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None) -> Refusal:
        with pytest.raises(CallRefused) as caught:
            self.calls(cluster, user).jobs({})
        assert ApiServer.requests == []
        return caught.value.refusal


@pytest.fixture
def stage(tmp_path: Path, tls: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    ApiServer.names, ApiServer.requests, Tunnel.names = [], [], []
    with served(ApiServer, tls) as port, served(Tunnel) as proxy:
        Tunnel.target = port
        yield Stage(tmp_path, tls, port, proxy)


def test_the_name_of_the_certificate_may_be_another_one(stage: Stage) -> None:
    assert stage.calls({"tls-server-name": NAME}).jobs({}) == []
    assert ApiServer.names == [NAME]
    ApiServer.requests.clear()
    refusal = stage.refusal({"tls-server-name": "another.example"})
    assert refusal.kind == "bad request" and "certificate of the API server is not accepted" in refusal.reason


def test_the_proxy_of_a_cluster_is_used_whatever_the_environment_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "*")
    proxied = {"server": "https://behind.example:6443", "proxy-url": f"http://127.0.0.1:{stage.proxy}"}
    assert stage.calls({**proxied, "tls-server-name": NAME}).jobs({}) == []
    assert Tunnel.names == ["behind.example:6443"] and ApiServer.names == [NAME]
    assert stage.calls({**proxied, "server": f"https://{NAME}:6443"}).jobs({}) == []
    assert Tunnel.names[1:] == [f"{NAME}:6443"]


def test_a_server_name_goes_with_the_proxy_of_the_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{stage.proxy}")
    named = {"server": "https://behind.example:6443", "tls-server-name": NAME}
    assert stage.calls(named).jobs({}) == [] and Tunnel.names == ["behind.example:6443"]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert stage.calls({"tls-server-name": NAME}).jobs({}) == [] and len(Tunnel.names) == 1


def test_a_certificate_is_not_checked_if_the_file_says_so(stage: Stage) -> None:
    unchecked = {"insecure-skip-tls-verify": True, "certificate-authority": None}
    assert stage.calls(unchecked).jobs({}) == []
    assert stage.calls({**unchecked, "tls-server-name": "another.example"}).jobs({}) == []


def plugin(folder: Path, script: str) -> Path:
    made = folder / "login"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return made


TOKEN = '{"kind": "ExecCredential", "status": {"token": "of-the-program"}}'


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_a_program_gives_the_login(stage: Stage, version: str) -> None:
    """Its path is relative to the file, and it learns that nobody can answer a question."""
    plugin(stage.folder, f"printf %s \"$KUBERNETES_EXEC_INFO\" > {stage.folder}/info; echo '{TOKEN}'")
    api = f"client.authentication.k8s.io/{version}"
    run = {"apiVersion": api, "command": "./login", "interactiveMode": "IfAvailable", "installHint": "install it"}
    assert stage.calls(user={"exec": run}).jobs({}) == []
    assert [login for _, login in ApiServer.requests] == ["Bearer of-the-program"]
    info = json.loads((stage.folder / "info").read_text())
    assert info == {"kind": "ExecCredential", "apiVersion": api, "spec": {"interactive": False}}


def test_a_token_file_is_relative_to_the_file(stage: Stage) -> None:
    (stage.folder / "token").write_text("of-the-file\n")
    assert stage.calls(user={"tokenFile": "token"}).jobs({}) == []
    assert [login for _, login in ApiServer.requests] == ["Bearer of-the-file"]


def test_authorities_in_the_file_count_more_than_a_path(stage: Stage) -> None:
    from base64 import b64encode

    data = b64encode(stage.tls.ca.read_bytes()).decode()
    both = {"certificate-authority": "/nonexistent", "certificate-authority-data": data}
    assert stage.calls(both).jobs({}) == []


RUN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "interactiveMode": "Never"}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "both": ({"insecure-skip-tls-verify": True}, None, "insecure-skip-tls-verify and a certificate authority"),
    "scheme": ({"proxy-url": "ftp://user:secret@proxy"}, None, "proxy-url of cluster lab begins with ftp://"),
    "address": ({"proxy-url": "proxy:3128"}, None, "proxy-url of cluster lab is not a URL"),
    "port": ({"proxy-url": "http://user:my#secret@proxy:3128"}, None, "proxy-url of cluster lab is not a URL"),
    "brackets": ({"proxy-url": "http://user:secret@[::1"}, None, "proxy-url of cluster lab is not a URL"),
    "server": ({"server": "https://127.0.0.1:port"}, None, "the kubeconfig cannot be used: Invalid port: 'port'"),
    "as": ({}, {"token": "secret", "as": "other"}, "user me acts as another one (as)"),
    "groups": ({}, {"token": "secret", "as-groups": ["one"]}, "user me acts as another one (as-groups)"),
    "old": ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider"),
    "terminal": ({}, {"exec": {**RUN, "interactiveMode": "Always"}}, "login program true of user me needs a terminal"),
    "cluster": ({}, {"exec": {**RUN, "provideClusterInfo": True}}, "true of user me wants provideClusterInfo"),
    "version": ({}, {"exec": {**RUN, "apiVersion": "client.example/v9"}}, "true of user me speaks client.example/v9"),
    "missing": (
        {}, {"exec": {**RUN, "command": "no-such-login", "installHint": "get it\n  there"}},
        "login program no-such-login of user me is not installed: get it there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_by_its_name_before_anything_is_asked(stage: Stage, name: str) -> None:
    cluster, user, words = REFUSED[name]
    refusal = stage.refusal(cluster, user)
    assert refusal.kind == "bad request" and words in refusal.reason, refusal
    assert "secret" not in refusal.reason


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo \'{"status": {"clientCertificateData": "x", "clientKeyData": "y"}}\'', "gives no token"),
        ("echo hello", "gives no token"),
        ("echo '{\"status\": null}'", "gives no token"),
        ("echo '[]'", "gives no token"),
        ("echo no login >&2; exit 3", "no login"),
    ],
)
def test_a_program_without_a_token_is_refused(stage: Stage, script: str, words: str) -> None:
    program = plugin(stage.folder, script)
    refusal = stage.refusal(user={"exec": {**RUN, "command": str(program)}})
    assert refusal.kind == "bad request" and words in refusal.reason, refusal


def test_a_file_in_another_encoding_is_refused(stage: Stage) -> None:
    calls = stage.calls()
    (stage.folder / "kubeconfig").write_bytes("# geändert\n".encode("latin-1"))
    with pytest.raises(CallRefused, match="kubeconfig is not a kubeconfig"):
        calls.jobs({})


def test_a_socks_proxy_needs_its_library(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.kubernetes.access.find_spec", lambda _: None)
    refusal = stage.refusal({"proxy-url": "socks5://127.0.0.1:1080"})
    assert "proxy-url of cluster lab begins with socks5://, which needs the Python package socksio" in refusal.reason
    assert refusal.kind == "bad request"


def test_the_environment_has_no_login_of_another_program(stage: Stage) -> None:
    """Nothing of the test's own environment is lost for the program."""
    program = plugin(stage.folder, f'[ "$PATH" = "{os.environ["PATH"]}" ] && [ "$EXTRA" = more ] && echo \'{TOKEN}\'')
    run = {**RUN, "command": str(program), "env": [{"name": "EXTRA", "value": "more"}]}
    assert stage.calls(user={"exec": run}).jobs({}) == []
