"""Page blobs change in place, and keep the ``Content-MD5`` with which they were created."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from pathlib import Path

from testbed.drive import Command
from testbed.places import AzurePlace
from testbed.servers import Server

PAGES_BYTES = 4096
NEXT_SECOND_S = 1.1
"""Azure states the times of blobs in whole seconds."""


def test_a_page_blob_that_changed_is_not_called_the_same(
    azure_server: Server, command: Command, tmp_path: Path
) -> None:
    place, copy = AzurePlace(azure_server, command), tmp_path / "copy"
    first, second = os.urandom(PAGES_BYTES), os.urandom(PAGES_BYTES)
    md5 = base64.b64encode(hashlib.md5(first).digest()).decode()
    place.client.create_page_blob(place.container, "disk", PAGES_BYTES, md5)
    place.client.write_pages(place.container, "disk", first)
    command.run("sync", place.url, copy, *place.flags("src")).expect(0)
    assert (copy / "disk").read_bytes() == first
    time.sleep(NEXT_SECOND_S)
    place.client.write_pages(place.container, "disk", second)
    assert place.headers("disk")["content-md5"] == md5
    unproven = command.run("check", place.url, copy, *place.flags("src")).expect(4)
    assert "1 unproven" in unproven.stderr
    command.run("sync", place.url, copy, *place.flags("src")).expect(0)
    assert (copy / "disk").read_bytes() == second
    command.run("check", "--read", place.url, copy, *place.flags("src")).expect(0)
