"""Endpoints that are never allowed: every form of the addresses of instance metadata."""

import pytest

from tradewind.errors import UsageError
from tradewind.service.endpoints import canonical_endpoint


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.169.254.",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "[::ffff:169.254.169.254]",
        "[::a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "[fe80::a9fe:a9fe%25eth0]",
        "[fd00:ec2::254]",
        "METADATA.google.internal.",
        "1684301000",
    ],
)
def test_instance_metadata_in_any_form_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="instance metadata is not a store"):
        canonical_endpoint(f"http://{host}")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9000", "[::1]:9000", "10.1.2.3", "s3.lab.example", "[2001:db8::1]", "2130706433"]
)
def test_other_hosts_may_be_allowed(host: str) -> None:
    assert canonical_endpoint(f"http://{host}") == f"http://{host}"
