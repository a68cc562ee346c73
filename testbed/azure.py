"""A minimal Azure Blob client for tests: containers, blobs and uncommitted blocks.

Shared-key signatures as in the REST reference, one connection per request. No retries: tests want to see errors.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hmac
import http.client
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

API_VERSION = "2021-12-02"
REQUEST_TIMEOUT_S = 120


class AzureError(RuntimeError):
    """An unexpected answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:500]!r}")
        self.status = status


class Azure:
    """A client of one account of an emulator: the account is the first part of the path."""

    def __init__(self, endpoint: str, account: str, key: str) -> None:
        self._account, self._key = account, base64.b64decode(key)
        self._host = urlsplit(endpoint).netloc

    def create_container(self, container: str) -> None:
        """Create a container."""
        self._call("PUT", container, {"restype": "container"})

    def put(self, container: str, name: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Write a block blob in one request; ``headers`` such as ``x-ms-tags``."""
        self._call("PUT", f"{container}/{name}", {}, body, {"x-ms-blob-type": "BlockBlob", **(headers or {})})

    def create_page_blob(self, container: str, name: str, size_bytes: int, md5: str) -> None:
        """Create an empty page blob with this ``Content-MD5``, which the server does not check."""
        kind = {"x-ms-blob-type": "PageBlob", "x-ms-blob-content-length": str(size_bytes)}
        self._call("PUT", f"{container}/{name}", {}, headers={**kind, "x-ms-blob-content-md5": md5})

    def write_pages(self, container: str, name: str, body: bytes) -> None:
        """Write the first pages of a page blob."""
        pages = {"x-ms-page-write": "update", "x-ms-range": f"bytes=0-{len(body) - 1}"}
        self._call("PUT", f"{container}/{name}", {"comp": "page"}, body, pages)

    def tags(self, container: str, name: str) -> dict[str, str]:
        """Return the blob's tags."""
        page = ElementTree.fromstring(self._call("GET", f"{container}/{name}", {"comp": "tags"}))
        return {tag.findtext("Key", ""): tag.findtext("Value", "") for tag in page.iterfind("TagSet/Tag")}

    def snapshot(self, container: str, name: str) -> None:
        """Take a snapshot of a blob."""
        self._call("PUT", f"{container}/{name}", {"comp": "snapshot"})

    def get(self, container: str, name: str) -> bytes:
        """Return the whole blob."""
        return self._call("GET", f"{container}/{name}", {})

    def head(self, container: str, name: str) -> dict[str, str]:
        """Return the blob's headers, with names in lower case."""
        return self._answer("HEAD", f"{container}/{name}", {})[0]

    def sizes(self, container: str, include_uncommitted: bool = False) -> dict[str, int]:
        """Return the size of each blob by name (the first 5,000). Uncommitted blobs have size 0."""
        query = {"restype": "container", "comp": "list"}
        if include_uncommitted:
            query["include"] = "uncommittedblobs"
        page = ElementTree.fromstring(self._call("GET", container, query))
        return {
            blob.findtext("Name", ""): int(blob.findtext("Properties/Content-Length", "0"))
            for blob in page.iterfind("Blobs/Blob")
        }

    def _call(
        self,
        method: str,
        resource: str,
        query: dict[str, str],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        return self._answer(method, resource, query, body, headers)[1]

    def _answer(
        self,
        method: str,
        resource: str,
        query: dict[str, str],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[dict[str, str], bytes]:
        """Return the headers, with names in lower case, and the body of a successful answer. Raises AzureError."""
        path = f"/{self._account}/{quote(resource, safe='/~')}"
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        own = {"x-ms-date": date, "x-ms-version": API_VERSION, **(headers or {})}
        sent = {**own, "Authorization": f"SharedKey {self._account}:{self._signature(method, path, query, body, own)}"}
        query_string = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        with contextlib.closing(http.client.HTTPConnection(self._host, timeout=REQUEST_TIMEOUT_S)) as connection:
            connection.request(method, f"{path}?{query_string}" if query else path, body=body, headers=sent)
            with connection.getresponse() as answer:
                content = answer.read()
                stated = {name.lower(): value for name, value in answer.getheaders()}
        if not 200 <= answer.status < 300:
            raise AzureError(answer.status, content)
        return stated, content

    def _signature(self, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]) -> str:
        length = str(len(body)) if body else ""
        canonical_headers = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        resource = f"/{self._account}{path}" + "".join(f"\n{name}:{query[name]}" for name in sorted(query))
        standard = [method, "", "", length, "", "", "", "", "", "", "", ""]
        to_sign = "\n".join(standard) + "\n" + canonical_headers + resource
        return base64.b64encode(hmac.digest(self._key, to_sign.encode(), "sha256")).decode()
