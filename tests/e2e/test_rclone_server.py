"""Objects of several parts on `rclone serve s3`, whose answers differ from those of S3 in small things."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from testbed.drive import Command
from testbed.faults import Call, HttpProxy, Rule
from testbed.places import Place, S3Place
from testbed.servers import Server
from testbed.trees import MIB, payload

#: Time after which the clock of a store that counts whole seconds has advanced.
SECOND_S = 1.1


def test_an_object_of_several_parts_goes_there_and_back(
    command: Command, place: Callable[[str], Place], tmp_path: Path
) -> None:
    store, source, copy = place("rclone"), tmp_path / "large", tmp_path / "copy"
    source.write_bytes(payload("large", 11 * MIB))
    # Its ETag of an object is not the one with which it answers the completion of an upload. Reading it back proves it.
    to = ["--chunk-size", "5MiB", *store.flags("dst")]
    done = command.run("cp", source, f"{store.url}/large", *to, "--json").expect(0)
    assert done.summary["progress"]["retries"] == 0
    assert store.get("large") == source.read_bytes()
    # It answers requests for ranges with the status of a whole object.
    command.run("cp", f"{store.url}/large", copy, "--chunk-size", "5MiB", *store.flags("src")).expect(0)
    assert copy.read_bytes() == source.read_bytes()


def test_objects_that_it_lists_with_the_times_of_their_files_are_deleted(
    command: Command, place: Callable[[str], Place], tmp_path: Path
) -> None:
    """Its `HEAD` has a later time: that at which it received the object."""
    store, source, back = place("rclone"), tmp_path / "source", tmp_path / "back"
    source.mkdir()
    for name in ("moved", "extra", "filtered"):
        (source / name).write_bytes(name.encode())
        os.utime(source / name, (1_000_000_000, 1_000_000_000))
    command.run("cp", "-r", source, store.url, *store.flags("dst")).expect(0)
    time.sleep(SECOND_S)  # An object of the second in which the job starts is kept.
    command.run("rm", "-r", "-y", store.url, "--older", "1d", "--include", "filtered", *store.flags("src")).expect(0)
    (source / "extra").unlink()
    (source / "filtered").unlink()
    command.run("sync", "--delete", "-y", source, store.url, *store.flags("dst")).expect(0)
    assert store.sizes().keys() == {"moved"}
    command.run("mv", "-r", store.url, back, *store.flags("src")).expect(0)
    assert store.sizes() == {} and (back / "moved").read_bytes() == b"moved"


def test_an_object_that_is_written_again_meanwhile_is_kept(
    command: Command, rclone_server: Server, tmp_path: Path
) -> None:
    source, extra = tmp_path / "source", tmp_path / "extra"
    source.mkdir()
    (source / "a").write_bytes(b"a")
    extra.write_bytes(b"extra")
    with HttpProxy(rclone_server.endpoint) as proxy:
        store = S3Place(rclone_server, command)
        command.run("cp", extra, f"{store.url}/extra", *store.flags("dst")).expect(0)
        time.sleep(SECOND_S)
        again = Call(lambda: store.put("extra", b"other"))
        proxy.add(Rule(again, when=lambda request: request.method == "PUT" and request.path.endswith("/a"), count=1))
        store.endpoint = proxy.endpoint
        command.run("sync", "--delete", "-y", source, store.url, *store.flags("dst")).expect(4)
        assert store.get("extra") == b"other"
