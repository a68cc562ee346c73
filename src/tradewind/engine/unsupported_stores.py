"""Refuse forms of S3 that Tradewind cannot use, before anything moves. `docs/reference/stores.md` lists them."""

from __future__ import annotations

from tradewind.engine.aws_profile import address_switch
from tradewind.errors import UsageError

__all__ = ["refuse_unsupported"]

#: Suffix of the names of directory buckets (Amazon S3 User Guide, "Directory bucket naming rules").
EXPRESS_SUFFIX = "--x-s3"
#: Suffix of the aliases of multi-region access points, whose requests need the signature version 4A.
MULTI_REGION_SUFFIX = ".mrap"


def refuse_unsupported(root: str, endpoint: str | None, profile: str | None, *, is_given: bool = False) -> None:
    """Check an `s3://` store at `endpoint` (None: AWS's own).

    With `is_given` the configuration of this machine does not count. Raises UsageError.
    """
    bucket = root.removeprefix("s3://")
    if bucket.endswith(EXPRESS_SUFFIX):
        raise UsageError(
            f"{root}: directory buckets (S3 Express One Zone) are not supported", hint="use a general purpose bucket"
        )
    if bucket.endswith(MULTI_REGION_SUFFIX):
        raise UsageError(
            f"{root}: multi-region access points are not supported", hint="use one of the buckets behind it"
        )
    switch = None if is_given or endpoint is not None or not bucket else address_switch(profile)
    if switch is not None:
        host = "s3-fips" if "fips" in switch.lower() else "s3.dualstack"
        raise UsageError(
            f"{root}: {switch} is set, and Tradewind does not choose such addresses by itself",
            hint=f"name the address: --src-endpoint or --dst-endpoint https://{host}.REGION.amazonaws.com",
        )
