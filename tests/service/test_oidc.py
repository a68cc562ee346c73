"""Tokens of a real OIDC issuer: which are accepted, for which tenant and role, and who may block their owners."""

import base64
import json
import queue
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, KeySet, OctKey

from testbed.loopback import Answer, LoopbackServer
from testbed.servers.tls import make_certificates
from tests.service.issuer import AUDIENCE, Issuer
from tests.service.server import Server, get
from tradewind.service.issuer_documents import read_document
from tradewind.service.limits import ISSUER_WAITING_MAX
from tradewind.service.oidc import IssuerUnavailable, TokenIssuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ["--oidc", issuer.url, "--oidc-audience", AUDIENCE, "--oidc-role-claim", "realm.roles"]
    roles = ["--oidc-role", "staff=operator", "--oidc-role", "boss=tenant_admin"]
    server = Server(tmp_path_factory.mktemp("oidc"), *options, *roles)
    server.start()
    with server.client() as admin:
        for name in ("lab", "other"):
            assert admin.post("/v1/tenants", json={"name": name}).status_code == 201
    yield server
    server.kill()


def now_unix_ms() -> int:
    return time.time_ns() // 1_000_000


def ahead_unix_ms(ahead_s: int) -> int:
    return now_unix_ms() + ahead_s * 1000


def claims(tenant: Any = "lab", roles: Any = ("staff",), **others: Any) -> dict[str, Any]:
    return {"tenant": tenant, "realm": {"roles": list(roles)}, **others}


def status(server: Server, token: str, path: str = "/v1/jobs") -> int:
    headers = {"Authorization": f"Bearer {token}"}
    # Plain HTTP needs no certificates, which take long to read.
    return get(server.url + path, headers=headers, verify=False).status_code


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_each_algorithm_is_accepted(server: Server, issuer: Issuer, algorithm: str) -> None:
    assert status(server, issuer.token(algorithm, **claims())) == 200


def test_claims_give_tenant_and_role(server: Server, issuer: Issuer) -> None:
    assert status(server, issuer.token(**claims()), "/v1/members") == 403
    boss = issuer.token(**claims(roles=("staff", "boss", "unknown"), sub="bob"))
    assert status(server, boss, "/v1/members") == 200
    assert status(server, boss, "/v1/tenants") == 403
    for wrong in ({"tenant": "none"}, {"tenant": None}, {"tenant": ["lab", "other"]}, {"roles": ()}, {"roles": ("x",)}):
        assert status(server, issuer.token(**claims(**wrong))) == 403, wrong


def test_a_token_expires_by_the_clock_of_the_service(issuer: Issuer) -> None:
    """The server's own clock does not matter."""
    for ahead_s, is_valid in ((-3600, False), (0, True), (3600, False)):
        checker = TokenIssuer(issuer.url, AUDIENCE, partial(ahead_unix_ms, ahead_s))
        assert (checker.claims_of(issuer.token()) is not None) == is_valid


def test_tokens_that_are_refused(issuer: Issuer) -> None:
    """Each differs in one thing from a token that is accepted."""
    checker, now = TokenIssuer(issuer.url, AUDIENCE, now_unix_ms), int(time.time())
    assert checker.claims_of(issuer.token()) is not None
    assert checker.claims_of(issuer.token(nbf=None)) is not None
    assert checker.claims_of(issuer.token(exp=now - 30)) is not None, "within the skew of clocks"
    wrong_claims: list[dict[str, Any]] = [
        {"iss": "https://elsewhere"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"exp": now - 90},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": now + 90},
        {"nbf": None, "iat": None},
        {"sub": None},
        {"sub": 7},
    ]
    for wrong in wrong_claims:
        assert checker.claims_of(issuer.token(**wrong)) is None, wrong
    stranger = ECKey.generate_key("P-256", {"kid": "ec"})
    assert checker.claims_of(issuer.token(key=stranger)) is None, "the signature of another key"
    shared = OctKey.import_key(json.dumps(issuer.keys["RS256"].as_dict(private=False)), {"kid": "rsa"})
    assert checker.claims_of(issuer.token("HS256", key=shared)) is None, "the public key as a shared secret"
    head, body, _ = issuer.token().split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    for token in (f"{none}.{body}.", f"{head}.{body}.", "a.b.c", "..", "x" * 9_000, f"{head}.{body}.é"):
        assert checker.claims_of(token) is None


def test_keys_are_cached_and_rotated(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = TokenIssuer(issuer.url, AUDIENCE, now_unix_ms)
    before = issuer.requests.get("/keys", 0)
    for _ in range(5):
        assert checker.claims_of(issuer.token()) is not None
    fresh = ECKey.generate_key("P-256", {"kid": "fresh"})
    old, issuer.keys["ES256"] = issuer.keys["ES256"], fresh
    try:
        for _ in range(5):
            assert checker.claims_of(issuer.token()) is None, "the keys were read a moment ago"
        assert issuer.requests["/keys"] == before + 1
        monkeypatch.setattr("tradewind.service.oidc.ISSUER_PAUSE_S", 0.0)
        assert checker.claims_of(issuer.token()) is not None
        assert checker.claims_of(issuer.token(key=old)) is None, "its key was withdrawn"
    finally:
        issuer.keys["ES256"] = old


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys"])
@pytest.mark.parametrize("part", ["head", "body"])
def test_an_issuer_that_sends_a_byte_now_and_then_counts_as_down(
    monkeypatch: pytest.MonkeyPatch, path: str, part: str
) -> None:
    monkeypatch.setattr("tradewind.service.issuer_documents.ISSUER_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        threading.Thread(target=drip, args=(listening, url, path, part), daemon=True).start()
        checker = TokenIssuer(url, AUDIENCE, now_unix_ms)
        begun_s = time.monotonic()
        with pytest.raises(IssuerUnavailable):
            checker.claims_of(f"{encoded({'alg': 'ES256', 'kid': 'ec'})}.{encoded({})}.AA")
        assert time.monotonic() - begun_s < 10


def drip(listening: socket.socket, url: str, path: str, part: str) -> None:
    """Answer the discovery, but one path with a byte every 0.1 s, from its head or its body on."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            asked = connection.recv(4096).split()[1].decode()
            document = json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}).encode()
            head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(document)}\r\n\r\n".encode()
            if asked != path:
                connection.sendall(head + document)
                continue
            connection.sendall(
                b"HTTP/1.0 200 OK\r\nX-Long: " if part == "head" else head.replace(b"Length: ", b"Length: 9")
            )
            try:
                for _ in range(200):
                    connection.sendall(b"a")
                    time.sleep(0.1)
            except OSError:
                continue


@pytest.mark.parametrize("is_silent", [False, True], ids=["answers", "says nothing"])
def test_an_issuer_over_tls_is_read_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_silent: bool) -> None:
    monkeypatch.setattr("tradewind.service.issuer_documents.ISSUER_TIMEOUT_S", 1.0)
    made = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    ended = threading.Event()

    def serve() -> None:
        plain = listening.accept()[0]
        if is_silent:
            ended.wait(30)
            plain.close()
            return
        with context.wrap_socket(plain, server_side=True) as client:
            client.recv(65_536)
            client.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        url, begun_s = f"https://127.0.0.1:{listening.getsockname()[1]}/", time.monotonic()
        if is_silent:
            with pytest.raises(OSError):
                read_document(url)
        else:
            assert read_document(url) == {}
        assert time.monotonic() - begun_s < 10
        ended.set()


def encoded(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def test_a_key_that_cannot_be_read_does_not_hide_the_others() -> None:
    """RFC 7517, 5: keys of unknown kinds, without required members or with values out of range are ignored."""
    issuer = Issuer()
    try:
        issuer.others = [
            {"kty": "EC", "kid": "odd", "crv": "brainpoolP256r1", "x": "AA", "y": "AA"},
            {"kty": "RSA", "kid": "short"},
            {"kty": "OKP", "kid": "x", "crv": "X9", "x": "AA"},
            {"kty": ["EC"], "kid": "list"},
            "text",
        ]
        checker = TokenIssuer(issuer.url, AUDIENCE, now_unix_ms)
        for algorithm in ("RS256", "ES256"):
            assert checker.claims_of(issuer.token(algorithm)) is not None
    finally:
        issuer.close()


@pytest.mark.parametrize("document", ["[" * 100_000, '{"a":' * 100_000, "[]", "null", '{"issuer": 1'])
def test_documents_that_cannot_be_used_count_as_a_down_issuer(document: str) -> None:
    server = LoopbackServer(lambda _: Answer(body=document.encode()))
    try:
        checker = TokenIssuer(server.url, AUDIENCE, now_unix_ms)
        with pytest.raises(IssuerUnavailable):
            checker.claims_of(f"{encoded({'alg': 'ES256', 'kid': 'ec'})}.{encoded({})}.AA")
    finally:
        server.close()


def test_deep_claims_are_refused(issuer: Issuer) -> None:
    checker = TokenIssuer(issuer.url, AUDIENCE, now_unix_ms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        deep = jws.serialize_compact({"alg": "ES256", "kid": "ec"}, b"[" * 4_000, issuer.keys["ES256"])
    assert checker.claims_of(deep) is None


def test_texts_that_no_database_can_keep_give_nothing(server: Server, issuer: Issuer) -> None:
    for text in ("\ud800", "a\0b", "a\nb"):
        assert status(server, issuer.token(**claims(sub=text))) == 401, text
        assert status(server, issuer.token(**claims(tenant=text))) == 403, text
        assert status(server, issuer.token(**claims(tenant=["lab", text]))) == 403, text
        assert status(server, issuer.token(**claims(roles=(text,)))) == 403, text


def test_tenants_and_roles_are_compared_exactly(server: Server, issuer: Issuer) -> None:
    for tenant in ("Lab", "LAB", " lab", "lab ", "ｌａｂ", {"lab": 1}, [["lab"]], 0, True, ""):
        assert status(server, issuer.token(**claims(tenant=tenant))) == 403, tenant
    assert status(server, issuer.token(**claims(tenant=["lab", "lab"]))) == 200
    for roles in (["Staff"], [["staff"]], [{"staff": 1}], ["staff "]):
        assert status(server, issuer.token(**claims(roles=roles))) == 403, roles


def test_a_slow_issuer_keeps_few_requests_waiting(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    checker, answer = TokenIssuer(issuer.url, AUDIENCE, now_unix_ms), threading.Event()
    read, outcomes = checker._read, queue.SimpleQueue[str]()

    def slow() -> KeySet:
        assert answer.wait(60)
        return read()

    def check() -> None:
        try:
            outcomes.put("valid" if checker.claims_of(token) else "invalid")
        except IssuerUnavailable:
            outcomes.put("unavailable")

    monkeypatch.setattr(checker, "_read", slow)
    token = issuer.token()
    threads = [threading.Thread(target=check) for _ in range(ISSUER_WAITING_MAX + 10)]
    for thread in threads:
        thread.start()
    assert [outcomes.get(timeout=60) for _ in range(10)] == ["unavailable"] * 10
    answer.set()
    assert [outcomes.get(timeout=60) for _ in range(ISSUER_WAITING_MAX)] == ["valid"] * ISSUER_WAITING_MAX
    for thread in threads:
        thread.join()


def test_a_blocked_member_is_refused_at_once(server: Server, issuer: Issuer) -> None:
    eve = issuer.token(**claims(sub="eve"))
    assert status(server, eve) == 200
    with server.client(issuer.token(**claims(roles=["boss"], sub="bob"))) as boss:
        found = [one for one in boss.get("/v1/members").json()["members"] if one["subject"] == "eve"]
        assert [one["role"] for one in found] == ["operator"]
        assert boss.post(f"/v1/members/{found[0]['id']}/block").status_code == 200
        assert status(server, eve) == 403
        assert boss.post(f"/v1/members/{found[0]['id']}/unblock").status_code == 200
        assert status(server, eve) == 200
        actions = [entry["action"] for entry in boss.get("/v1/audit").json()["entries"]]
        assert {"member.join", "member.block", "member.unblock"} <= set(actions)
    with server.client(issuer.token(**claims(tenant="other", roles=["boss"], sub="zoe"))) as other:
        assert [one["subject"] for one in other.get("/v1/members").json()["members"]] == ["zoe"]
        assert other.post(f"/v1/members/{found[0]['id']}/block").status_code == 404


def test_the_tokens_that_a_blocked_member_has_made_are_revoked(server: Server, issuer: Issuer) -> None:
    """So are those that these have made, and those of others that they have replaced: the member knows them."""

    def made(token: str, role: str = "tenant_admin") -> dict[str, Any]:
        with server.client(token) as sender:
            answer = sender.post("/v1/tokens", json={"role": role})
            assert answer.status_code == 201, answer.text
            found: dict[str, Any] = answer.json()
        return found

    def rotated(token: str, old: dict[str, Any]) -> dict[str, Any]:
        with server.client(token) as sender:
            found: dict[str, Any] = sender.post(f"/v1/tokens/{old['id']}/rotate", json={}).json()
        return found

    boss, mallory = (issuer.token(**claims(roles=["boss"], sub=name)) for name in ("bob", "mallory"))
    first = made(mallory)
    second = made(first["token"])
    third = made(second["token"], "viewer")
    replaced = rotated(second["token"], made(boss, "operator"))
    own = made(boss, "viewer")
    # The member does not know this secret any more.
    taken_over = rotated(boss, made(first["token"], "viewer"))
    with server.client(boss) as sender:
        (found,) = [one for one in sender.get("/v1/members").json()["members"] if one["subject"] == "mallory"]
        assert sender.post(f"/v1/members/{found['id']}/block").status_code == 200
        listed = sender.get("/v1/tokens", params={"limit": 100}).json()["tokens"]
        revoked = {one["id"] for one in listed if one["revoked_unix_ms"] is not None}
        assert {one["id"] for one in (first, second, third, replaced)} <= revoked
        assert [status(server, one["token"]) for one in (own, taken_over)] == [200] * 2
        (entry, *_) = sender.get("/v1/audit", params={"action": "member.block"}).json()["entries"]
        assert sorted(entry["detail"]["revoked"]) == sorted(one["id"] for one in (first, second, third, replaced))
        assert sender.post(f"/v1/members/{found['id']}/unblock").status_code == 200
    assert status(server, mallory) == 200


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--oidc", "http://issuer.example", "--oidc-audience", "a", "--oidc-role", "a=viewer"],
            "must be an https:// URL",
        ),
        (["--oidc", "https://issuer.example", "--oidc-role", "a=viewer"], "needs --oidc-audience"),
        (["--oidc", "https://issuer.example", "--oidc-audience", "a", "--oidc-role", "a=king"], "no such role"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: list[str], reason: str) -> None:
    done = subprocess.run(Server(tmp_path).command(*options), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
