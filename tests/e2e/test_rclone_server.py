"""Objects of several parts on `rclone serve s3`, whose answers differ from those of S3 in small things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.drive import Command
from testbed.places import Place
from testbed.trees import MIB, payload


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
