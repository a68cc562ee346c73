"""Evaluates session policies: which actions of S3 a request needs, and whether a policy allows them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from testbed.faults.rules import Request

__all__ = ["allows", "needs"]

#: A policy variable that stands for one character, or a wildcard.
_SPECIAL = re.compile(r"\$\{([*?$])\}|([*?])")


def needs(request: Request) -> Iterator[tuple[str, str]]:
    """Yield the actions that a request with a path-style address needs, each with its resource."""
    bucket, _, key = request.path.removeprefix("/").partition("/")
    resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    query, headers = request.query, request.headers
    if not key:
        yield _on_bucket(request.method, query), resource
    elif request.method in ("GET", "HEAD"):
        yield "s3:ListMultipartUploadParts" if "uploadId" in query else "s3:GetObject", resource
    elif request.method == "DELETE":
        yield "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", resource
    else:
        yield "s3:PutObject", resource
        if "x-amz-tagging" in headers:
            yield "s3:PutObjectTagging", resource
        if "if-match" in headers:
            yield "s3:GetObject", resource
        if "x-amz-copy-source" in headers:
            yield "s3:GetObject", f"arn:aws:s3:::{unquote(headers['x-amz-copy-source']).lstrip('/')}"


def _on_bucket(method: str, query: Mapping[str, str]) -> str:
    if method == "POST" and "delete" in query:
        return "s3:DeleteObject"
    if "uploads" in query:
        return "s3:ListBucketMultipartUploads"
    return "s3:GetBucketLocation" if "location" in query else "s3:ListBucket"


def allows(policy: Mapping[str, Any], action: str, resource: str, removed: Collection[str]) -> bool:
    """Return whether a policy allows an action, after actions were `removed` from it."""
    return any(
        statement["Effect"] == "Allow"
        and action in set(statement["Action"]) - set(removed)
        and any(_pattern(pattern).fullmatch(resource) for pattern in statement["Resource"])
        for statement in policy["Statement"]
    )


def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a resource: `*`, `?`, and policy variables for these characters themselves."""
    made, at = "", 0
    for match in _SPECIAL.finditer(text):
        literal, wildcard = match.groups()
        made += re.escape(text[at : match.start()])
        made += re.escape(literal) if literal else {"*": ".*", "?": "."}[wildcard]
        at = match.end()
    return re.compile(made + re.escape(text[at:]), re.DOTALL)
