"""Signed addresses, on real servers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from testbed.drive import Command
from testbed.places import Place
from tradewind.cli.main import main


@pytest.mark.parametrize(
    "kind", ["moto", pytest.param("versitygw", marks=pytest.mark.slow), pytest.param("azure", marks=pytest.mark.slow)]
)
def test_an_address_reads_the_object_without_credentials(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    there.put("d/a key+é", b"content")
    words = ("presign", f"{there.url}/d/a key+é", *there.flags("src"))
    address = command.run(*words).expect(0).stdout.strip()
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"content"
    made = json.loads(command.run(*words, "--json", "--expires", "10m").expect(0).stdout)
    assert made["url"].startswith("http") and made["expires"].endswith("Z")
    if kind != "moto":  # moto does not check signatures.
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address.replace("a%20key", "another"))


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presign", "/tmp/file"]) == 2
    assert main(["presign", "s3://b/k", "--expires", "8d"]) == 2
    assert main(["presign", "s3://b/"]) == 2
    assert main(["presign", "gs://b/k"]) == 2
    said = capsys.readouterr().err
    assert "1 s to 7 days" in said and "gs://b/k cannot be signed: a token of Google Cloud cannot" in said
