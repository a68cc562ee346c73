"""A minimal S3 client with which tests prepare and inspect a bucket, independently of Tradewind's code.

Signature version 4 with an unsigned payload, path-style addresses, one connection per request. No retries: tests want
to see errors.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

READ_BYTES = 1 << 20
REQUEST_TIMEOUT_S = 120
_UNSIGNED = "UNSIGNED-PAYLOAD"


class S3Error(RuntimeError):
    """An unexpected answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:500]!r}")
        self.status = status


@dataclass(frozen=True)
class Upload:
    """An unfinished multipart upload."""

    key: str
    upload_id: str


class S3:
    """A client of one server."""

    def __init__(
        self,
        endpoint: str,
        access_key: str,
        secret_key: str,
        ca_file: Path | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        token: str | None = None,
    ) -> None:
        parts = urlsplit(endpoint)
        self._host, self._timeout_s = parts.netloc, timeout_s
        self._access_key, self._secret_key = access_key, secret_key
        self._token = {} if token is None else {"x-amz-security-token": token}
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)

    def create_bucket(self, bucket: str, region: str | None = None, *, locks: bool = False) -> None:
        """Create a bucket, in ``region`` if the server has several, with Object Lock if it ``locks``."""
        body = (
            f"<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
        )
        headers = {"x-amz-bucket-object-lock-enabled": "true"} if locks else {}
        self._call("PUT", bucket, body=body.encode() if region else b"", headers=headers)

    def set_versioning(self, bucket: str, enabled: bool) -> None:
        """Turn versioning on or off."""
        status = "Enabled" if enabled else "Suspended"
        body = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>".encode()
        self._call("PUT", bucket, query={"versioning": ""}, body=body)

    def put(self, bucket: str, key: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Write an object; ``headers`` such as ``Content-Type`` or ``x-amz-meta-*``."""
        self._call("PUT", bucket, key, body=body, headers=headers)

    def get(self, bucket: str, key: str) -> bytes:
        """Return the whole object."""
        return self._call("GET", bucket, key)[1]

    def head(self, bucket: str, key: str) -> dict[str, str]:
        """Return the object's headers, with names in lower case."""
        return self._call("HEAD", bucket, key)[0]

    def tags(self, bucket: str, key: str) -> dict[str, str]:
        """Return the object's tags."""
        page = ElementTree.fromstring(self._call("GET", bucket, key, query={"tagging": ""})[1])
        return {_text(tag, "Key"): _text(tag, "Value") for tag in page.iterfind("{*}TagSet/{*}Tag")}

    def sha256(self, bucket: str, key: str) -> str:
        """Return the SHA-256 of the object, read in pieces."""
        digest = hashlib.sha256()
        with self._request("GET", bucket, key, {}, b"", {}) as answer:
            while piece := answer.read(READ_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        self._call("DELETE", bucket, key)

    def delete_version(self, bucket: str, key: str, version: str) -> None:
        """Delete one version of an object."""
        self._call("DELETE", bucket, key, query={"versionId": version})

    def sizes(self, bucket: str, prefix: str = "") -> dict[str, int]:
        """Return the size of everything below ``prefix``, by key."""
        found: dict[str, int] = {}
        query = {"list-type": "2", "prefix": prefix}
        for page in self._pages(bucket, query, "NextContinuationToken", "continuation-token"):
            for entry in page.iterfind("{*}Contents"):
                found[_text(entry, "Key")] = int(_text(entry, "Size"))
        return found

    def versions(self, bucket: str, prefix: str = "") -> list[tuple[str, str]]:
        """Return key and id of all versions and delete markers (the first 1,000), the newest of a key first."""
        page = ElementTree.fromstring(self._call("GET", bucket, query={"versions": "", "prefix": prefix})[1])
        found = [*page.iterfind("{*}Version"), *page.iterfind("{*}DeleteMarker")]
        return [(_text(entry, "Key"), _text(entry, "VersionId")) for entry in found]

    def uploads(self, bucket: str) -> list[Upload]:
        """Return the unfinished multipart uploads (the first 1,000)."""
        page = ElementTree.fromstring(self._call("GET", bucket, query={"uploads": ""})[1])
        return [Upload(_text(entry, "Key"), _text(entry, "UploadId")) for entry in page.iterfind("{*}Upload")]

    def _pages(self, bucket: str, query: dict[str, str], token: str, parameter: str) -> Iterator[ElementTree.Element]:
        while True:
            page = ElementTree.fromstring(self._call("GET", bucket, query=query)[1])
            yield page
            if page.findtext("{*}IsTruncated") != "true":
                return
            query = {**query, parameter: _text(page, token)}

    def _call(
        self,
        method: str,
        bucket: str,
        key: str = "",
        query: dict[str, str] | None = None,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[dict[str, str], bytes]:
        with self._request(method, bucket, key, query or {}, body, headers or {}) as answer:
            return {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    @contextlib.contextmanager
    def _request(
        self, method: str, bucket: str, key: str, query: dict[str, str], body: bytes, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; yield the answer if it is a success. Raises S3Error."""
        path = "/" + quote(bucket) + ("/" + quote(key, safe="/~") if key else "")
        query_string = "&".join(f"{quote(name, safe='~')}={quote(query[name], safe='~')}" for name in sorted(query))
        signed = self._sign(method, path, query_string, {name.lower(): value for name, value in headers.items()})
        target = f"{path}?{query_string}" if query_string else path
        with contextlib.closing(self._connect()) as connection:
            connection.request(method, target, body=body, headers=signed)
            with connection.getresponse() as answer:
                if not 200 <= answer.status < 300:
                    raise S3Error(answer.status, answer.read())
                yield answer

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, timeout=self._timeout_s)

    def _sign(self, method: str, path: str, query_string: str, headers: dict[str, str]) -> dict[str, str]:
        """Return all headers to send, signed (version 4)."""
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        own = {"host": self._host, "x-amz-content-sha256": _UNSIGNED, "x-amz-date": stamp}
        signed = dict(sorted({**headers, **own, **self._token}.items()))
        names = ";".join(signed)
        canonical_headers = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = "\n".join([method, path, query_string, canonical_headers, names, _UNSIGNED])
        scope = f"{day}/us-east-1/s3/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self._secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        credential = f"Credential={self._access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**signed, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _text(element: ElementTree.Element, name: str) -> str:
    """Return the text of a required child; an empty child is the empty string."""
    found = element.find(f"{{*}}{name}")
    if found is None:
        raise S3Error(200, f"no {name} in {element.tag}".encode())
    return found.text or ""
