"""Strangers that open many connections to the listener for other servers use up neither its files nor its time."""

from __future__ import annotations

import os
import socket

from fastapi import FastAPI

from tradewind.service.limits import PEER_CONNECTIONS_MAX
from tradewind.service.peer_server import PeerServer
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
