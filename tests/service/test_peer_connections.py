"""The listener for other servers: strangers use up neither its files nor its time, and no answer of it is cut."""

from __future__ import annotations

import os
import socket

import pytest
from fastapi import FastAPI, Response

from tradewind.service.limits import BODY_BYTES_MAX, PEER_CONNECTIONS_MAX
from tradewind.service.peer_server import PeerServer
from tradewind.service.problems import ApiProblem
from tradewind.service.sealing import Sealer

MORE = 20
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
