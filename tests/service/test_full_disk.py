"""A full disk: requests are answered 503, and nothing is lost once there is space again."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.server import Server, submit, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.state.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(server.state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine lets nobody mount a tmpfs: {done.stderr.strip()}")
    try:
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill()
        subprocess.run(["umount", "-l", str(server.state)], check=True)


def test_requests_are_answered_503_and_work_again(server: Server) -> None:
    (server.data / "a").write_bytes(b"a" * 1000)
    filler = server.state / "filler"
    with server.client() as client:
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"0" * 4096)
        answers = [submit(client, f"k{number}", server.data / "a", server.data / f"b{number}") for number in range(40)]
        refused = [answer for answer in answers if answer.status_code != 201]
        assert refused, "the log of the database had room"
        assert {answer.status_code for answer in refused} == {503}
        assert refused[0].headers["Content-Type"] == "application/problem+json"
        filler.unlink()
        for number in range(40):
            made = submit(client, f"k{number}", server.data / "a", server.data / f"b{number}")
            assert made.status_code in (200, 201), made.text
            until(client, made.json()["id"], "done")
    assert "Traceback" not in server.log
