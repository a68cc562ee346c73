"""Environment of the clients of servers."""

from __future__ import annotations


def s3_environment(endpoint: str, region: str, access_key: str, secret_key: str) -> dict[str, str]:
    """Return the variables of a client of an S3 server."""
    return {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_REGION": region,
        "AWS_ENDPOINT_URL_S3": endpoint,
    }
