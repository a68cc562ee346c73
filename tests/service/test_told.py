"""Errors of the operator's own keys, as tenants read them: codes, and no words, addresses or places of keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.errors import GatewayError, TradewindError, Unauthorised
from tradewind.service.failures import failure_kind, tenant_error
from tradewind.service.receipts import object_list_blocks
from tradewind.service.told import KEYS_REFUSED, told_document, told_line, told_text

GOOGLE = "mover@operator-project.iam.gserviceaccount.com does not have storage.objects.create access"
AMAZON = "User: arn:aws:iam::123456789012:user/operator is not authorized (see: https://a.example/x)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"put gs://b/k: {GOOGLE} (forbidden), HTTP 403, request 7", "put gs://b/k: forbidden, HTTP 403"),
        (
            f"3 objects: not authorised to write s3://b: put s3://b/k: {AMAZON} (AccessDenied), HTTP 403; "
            "credentials: profile main of /root/.aws/config",
            "3 objects: not authorised to write s3://b: AccessDenied, HTTP 403",
        ),
        # Words that have the form of an answer themselves.
        (f"get s3://b/k: (No), HTTP 200: {AMAZON} (AccessDenied), HTTP 403", "get s3://b/k: AccessDenied, HTTP 403"),
        ("get s3://b/k: Forbidden, HTTP 403; credentials: environment", "get s3://b/k: Forbidden, HTTP 403"),
        (
            "get s3://b/k: cannot connect to http://10.1.2.3:9000 through the proxy http://p:3128: refused",
            "get s3://b/k: cannot connect to the store: refused",
        ),
        (
            "open s3://b: /root/.aws/config: the profile main has no region",
            "open s3://b: the operator's settings for this store are wrong",
        ),
        ("list s3://b: no credentials: /root/key.json: no such file", f"list s3://b: {KEYS_REFUSED}"),
        ("get file:///data/a: Permission denied", "get file:///data/a: Permission denied"),
        ("3 of 3 objects failed", "3 of 3 objects failed"),
    ],
)
def test_words_of_a_store_are_left_out(text: str, told: str) -> None:
    assert told_text(text) == told


def test_an_error_about_keys_that_no_store_has_answered_says_no_more() -> None:
    error = Unauthorised("put az://acc/box/k: /root/.azure/token: AADSTS700016: application 7 of tenant Operator Ltd")
    assert str(tenant_error(error, hides_words=True)) == f"put az://acc/box/k: {KEYS_REFUSED}"
    assert failure_kind(tenant_error(error, hides_words=True)) == failure_kind(error)
    assert str(tenant_error(error)) == str(error), "of a tenant's own connection it reads all"


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "/srv/operator/state/engine/jobs/1/lock"),
        GatewayError("cannot use the journal /srv/operator/state/engine/jobs/1/journal.sqlite: disk I/O error"),
    ],
)
def test_paths_of_the_service_are_left_out(error: TradewindError | OSError) -> None:
    told = tenant_error(error)
    assert "/srv/operator" not in str(told) and str(told)
    assert failure_kind(told) == failure_kind(error)


def test_parts_of_a_run_are_told_without_words() -> None:
    words = f"put s3://b/k: {AMAZON} (AccessDenied), HTTP 403"
    told = told_document({"outcome": "failed", "message": words, "notices": [words], "moved_bytes": 3})
    assert told == {
        "outcome": "failed",
        "message": "put s3://b/k: AccessDenied, HTTP 403",
        "notices": ["put s3://b/k: AccessDenied, HTTP 403"],
        "moved_bytes": 3,
    }


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path, end: bytes) -> None:
    """A killed process may leave one. The receipt needs the digest of the list all the same."""
    kept = b'{"source":"s3://b/k","verdict":"copied"}\n'
    cut = b'{"source":"x","verdict":"failed","message":"put s3://b/k: ' + AMAZON.encode()
    path = tmp_path / "objects.jsonl"
    path.write_bytes(kept + cut + end)
    assert b"".join(object_list_blocks(str(path), hides_words=True)) == kept


def test_the_list_of_objects_is_told_line_by_line_and_else_as_it_is(tmp_path: Path) -> None:
    kept = b'{"source":"s3://b/\xc3\xa9", "verdict":"done"}\n'
    failed = json.dumps({"source": "x", "message": f"put s3://b/k: {AMAZON} (AccessDenied), HTTP 403"}).encode() + b"\n"
    path = tmp_path / "objects.jsonl"
    path.write_bytes((kept * 1000 + failed) * 40)
    told = b"".join(object_list_blocks(str(path), hides_words=True))
    assert told == (kept * 1000 + told_line(failed)) * 40
    assert b"arn:" not in told
    assert b"".join(object_list_blocks(str(path), hides_words=False)) == path.read_bytes()
