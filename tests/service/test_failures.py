"""Errors of runs: their retry class, and those of a full disk of the service itself."""

import errno

import pytest

from tradewind.errors import GatewayError, ProviderRefused, TradewindError, Unavailable
from tradewind.fleet.provider import CallRefused, Refusal
from tradewind.service.failures import PROVIDER_HINT, failure_kind, is_state_full, tenant_error

JOURNAL = "cannot use the journal /state/journal.sqlite: "


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (GatewayError(JOURNAL + "database or disk is full"), True),
        (GatewayError(JOURNAL + "disk I/O error"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (TradewindError("/data/copy/a: No space left on device"), False),
    ],
)
def test_only_a_full_state_folder_is_a_fault_of_the_service(error: TradewindError | OSError, is_full: bool) -> None:
    assert is_state_full(error) == is_full


def test_a_journal_that_cannot_be_written_is_tried_again() -> None:
    assert failure_kind(GatewayError(JOURNAL + "disk I/O error")) == "transient"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("cannot reach http://127.0.0.1:42913 for 2 s: Connection refused (os error 111)", "transient"),
        ("put s3://throttled/429/slowdown: 500 InternalError", "transient"),
        ("put s3://b/k: 503 SlowDown: Please reduce your request rate.", "throttled"),
        ("put gs://b/k: 429 Too Many Requests", "throttled"),
        ("get https://a.example/k: 429", "throttled"),
    ],
)
def test_only_words_of_the_store_ask_to_slow_down(message: str, kind: str) -> None:
    assert failure_kind(Unavailable(message)) == kind


ARN = "User: arn:aws:iam::123456789012:user/operator is not authorized to perform: ec2:RunInstances"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ProviderRefused(
                f"machine relay in aws:us-east-1 and 1 more cannot be launched: permission: {ARN}",
                hint="the missing permission is ec2:RunInstances",
                kind="permission",
                regions={"relay": "aws:us-east-1", "sink": "aws:us-east-1"},
            ),
            "2 machines of the operator cannot be launched: permission",
        ),
        (CallRefused(Refusal("permission", ARN)), "a provider of the operator refused a call: permission"),
    ],
)
def test_a_tenant_is_not_told_the_account_of_the_operator(error: TradewindError, told: str) -> None:
    found = tenant_error(error)
    assert isinstance(found, TradewindError)
    assert (str(found), found.hint) == (told, PROVIDER_HINT)
    assert failure_kind(found) == failure_kind(error), "it is tried again as before"
