"""Python and Rust share one contract: its schema is the gateway's, and our types read its examples without loss."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tradewind.gateway.binary import find_gateway
from tradewind.model.document import to_document
from tradewind.model.event import JobStatus, event_from_document
from tradewind.model.job import (
    AttributeRules,
    JobSpec,
    NameGlob,
    ObjectFilter,
    ObjectSelection,
    PrefixSelection,
    Preserve,
    Target,
)
from tradewind.model.program import Program, Routes
from tradewind.model.split import SplitProgram, SplitStatus
from tradewind.model.store import StoreSpec

CONTRACT = Path(__file__).parents[1] / "contract"
SCHEMA = json.loads((CONTRACT / "gateway-v1.schema.json").read_text(encoding="utf-8"))
EXAMPLES = sorted((CONTRACT / "examples").glob("*.json"))


#: Type of each example by the beginning of its name: `job-status-…`, `program-…`.
TYPES = {
    "event": "Event",
    "gateway-entry": "GatewayEntry",
    "gateway-states": "GatewayStates",
    "gateway-stores": "GatewayStores",
    "identity-grant": "IdentityGrant",
    "job-status": "JobStatus",
    "join": "Join",
    "key-request": "KeyRequest",
    "again-request": "JoinAgain",
    "lease-request": "LeaseRequest",
    "owner-ready": "OwnerReady",
    "probe-report": "ProbeReport",
    "probe-request": "ProbeRequest",
    "program": "Program",
    "ready": "Ready",
    "receive-report": "ReceiveReport",
    "receive-request": "ReceiveRequest",
    "refusal": "Refusal",
    "routes": "Routes",
    "send-report": "SendReport",
    "send-request": "SendRequest",
    "split-program": "SplitProgram",
    "split-status": "SplitStatus",
    "store-credentials": "StoreCredentials",
    "task": "Task",
    "version": "Version",
}


def kind_of(path: Path) -> str:
    (kind,) = [kind for start, kind in TYPES.items() if path.stem == start or path.stem.startswith(f"{start}-")]
    return kind


def validate(document: Any, kind: str) -> None:
    schema = {"$schema": SCHEMA["$schema"], "$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]}
    Draft202012Validator(schema).validate(document)


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def only_given(ours: Any, given: Any) -> Any:
    """Return our document without defaults that the example omits."""
    if isinstance(given, dict):
        return {key: only_given(ours[key], value) for key, value in given.items() if value is not None}
    if isinstance(given, list):
        return [only_given(one, other) for one, other in zip(ours, given, strict=True)]
    return ours


def test_the_schema_is_what_the_gateway_prints() -> None:
    done = subprocess.run([find_gateway(), "schema"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SCHEMA


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_documents_of_the_schema(path: Path) -> None:
    validate(load(path), kind_of(path))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_read_without_loss(path: Path) -> None:
    given = load(path)
    kind = kind_of(path)
    if kind == "Program":
        ours = to_document(Program.from_document(given))
    elif kind == "Routes":
        ours = to_document(Routes.from_document(given))
    elif kind == "SplitProgram":
        ours = to_document(SplitProgram.from_document(given))
    elif kind == "SplitStatus":
        ours = to_document(SplitStatus.from_document(given))
    elif kind == "Event":
        ours = to_document(event_from_document(given))
    elif kind == "JobStatus":
        ours = to_document(JobStatus.from_document(given))
    else:
        pytest.skip("written or read by one line of code, which other tests run")
    assert only_given(ours, given) == without_nulls(given)


def without_nulls(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: without_nulls(value) for key, value in document.items() if value is not None}
    if isinstance(document, list):
        return [without_nulls(value) for value in document]
    return document


def test_documents_with_every_field_set_match_the_schema() -> None:
    store = StoreSpec(
        "s3://b",
        "http://e",
        "r",
        "p",
        True,
        True,
        True,
        "/ca",
        True,
        True,
        True,
        True,
        "machine",
        "arn",
        {"objects": "1"},
    )
    job = JobSpec(
        store,
        PrefixSelection("p/", ObjectFilter((), 1, 2, 3, 4, NameGlob("*", True))),
        (Target(store, "k/"),),
        compare="size",
        storage_class="COLD",
        attributes=AttributeRules("replace", "a/b", "no-cache", {"n": "v"}),
        tags={"a": "b"},
        source_tags="keep",
        preserve=Preserve(mode=True, owner=True, time=False),
        ceiling_usd_per_gb=0.1,
        ceiling_bytes=5,
        rate_limit_bytes_per_s=6,
        state_dir="/s",
        report_file="/r",
    )
    validate(
        to_document(Program("job", "n", (), lead=job, source=store, sinks=(store,), seal_key_hex="00" * 32)), "Program"
    )


def test_a_job_survives_its_file() -> None:
    job = JobSpec(StoreSpec("s3://b"), ObjectSelection("k"), (Target(StoreSpec("file:///x"), "k"),), compare="auto")
    assert JobSpec.from_document(json.loads(json.dumps(to_document(job)))) == job


def test_readers_tolerate_what_a_newer_gateway_adds() -> None:
    assert event_from_document({"event": "weather", "wind": "east"}) is None
    event = event_from_document({"event": "progress", "objects_done": 3, "new_field": 1})
    assert to_document(event)["objects_done"] == 3
