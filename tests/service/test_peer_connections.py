"""The listener for other servers: strangers use up neither its files nor its time, and no answer of it is cut."""

from __future__ import annotations

import os
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from fastapi import FastAPI, Response

from tests.service.guest_hosts import submitted, with_dublin
from tradewind.service.limits import BODY_BYTES_MAX, PEER_CONNECTIONS_MAX
from tradewind.service.peer_server import PeerServer, _new_identity
from tradewind.service.peers import Peer
from tradewind.service.problems import ApiProblem
from tradewind.service.sealing import Sealer

MORE = 20
#: More than the threads that answer requests.
CLAIMS = 60
WAIT_S = 30.0


def test_silent_connections_keep_no_server_out() -> None:
    sealer, app = Sealer(os.urandom(32)), FastAPI()

    @app.post("/asked")
    def asked() -> dict[str, bool]:
        return {"answered": True}

    server = PeerServer("127.0.0.1", sealer)
    server.start(app)
    strangers = []
    try:
        for _ in range(PEER_CONNECTIONS_MAX + MORE):
            strangers.append(socket.create_connection((server.peer.host, server.peer.port), timeout=WAIT_S))
        answer = server.peer.pass_on(sealer, "/asked", "Bearer x", {})
        assert answer.status_code == 200 and answer.body == b'{"answered":true}'
        assert all(one.recv(1) == b"" for one in strangers[:MORE]), "the oldest have ended"
    finally:
        for one in strangers:
            one.close()
        server.close()


def test_an_answer_that_is_cut_or_too_long_is_not_passed_on() -> None:
    """The guest asks again, and would understand no part of it."""
    sealer, app = Sealer(os.urandom(32)), FastAPI()

    @app.post("/cut")
    def cut() -> Response:
        return Response(b"{", headers={"Content-Length": "2"})

    @app.post("/long")
    def long() -> Response:
        return Response(b"x" * (BODY_BYTES_MAX + 1))

    server = PeerServer("127.0.0.1", sealer)
    server.start(app)
    try:
        for path in ("/cut", "/long"):
            with pytest.raises(ApiProblem, match="does not answer") as refused:
                server.peer.pass_on(sealer, path, "Bearer x", {})
            assert refused.value.status == 503
    finally:
        server.close()


def test_a_server_that_does_not_answer_takes_no_thread_of_other_requests(tmp_path: Path) -> None:
    """Claims of its guests wait for it. This server answers everything else meanwhile."""
    _, certificate = _new_identity("127.0.0.1")
    with ExitStack() as stack:
        server = stack.enter_context(with_dublin(tmp_path))
        client = stack.enter_context(server.client())
        limits = {"limits": [{"kind": "tenant", "name": "default", "active": 0}]}
        assert client.put("/v1/limits", json=limits).status_code == 200
        place = str(server.data / "dublin" / "default" / "x")
        job_id = submitted(client, source="guest://x", destination=place)
        threads = stack.enter_context(ThreadPoolExecutor(CLAIMS))
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=CLAIMS))
        peer = Peer("127.0.0.1", silent.getsockname()[1], certificate).document()
        with closing(sqlite3.connect(server.state / "service.sqlite", timeout=WAIT_S)) as database, database:
            row = "other", 1, 1 << 52, peer
            database.execute("INSERT INTO replicas (id, jobs_max, lease_unix_ms, peer) VALUES (?, ?, ?, ?)", row)
            change = "UPDATE jobs SET state = 'running', owner = 'other', epoch = 9, lease_unix_ms = ? WHERE id = ?"
            database.execute(change, (1 << 52, job_id))
        claim = partial(client.post, f"/v1/jobs/{job_id}/guest", json={}, timeout=WAIT_S)
        claims = [threads.submit(claim) for _ in range(CLAIMS)]
        silent.settimeout(WAIT_S)
        first, _ = silent.accept()
        with first, server.client() as other:
            for _ in range(2 * CLAIMS):
                assert other.get(f"/v1/jobs/{job_id}").status_code == 200
            assert not any(one.done() for one in claims)
        silent.close()
        assert {one.result().status_code for one in claims} == {503}
