"""S3's API, and Google's XML API, which is the same under other names. Of Google's JSON API, ``rewriteTo``."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from testbed.faults.rules import Request
from testbed.odd_stores.exchange import Asking, Refused, Reply, check_write, etag_matches, http_date, iso_date, ranged
from testbed.odd_stores.habits import Habits
from testbed.odd_stores.objects import Missing, Object, Objects, Upload
from testbed.odd_stores.pages import Asked, Page, cut

_KEPT = ("content-type", "content-encoding", "content-language", "content-disposition", "cache-control")
UPLOADS_PAGE_MAX = 1000
_JSON_API = re.compile(r"/storage/v1/b/([^/]+)/o/(.+)")
_REWRITE = re.compile(r"/storage/v1/b/([^/]+)/o/(.+)/rewriteTo/b/([^/]+)/o/(.+)")
_JSON_NAMES = {
    "cacheControl": "cache-control",
    "contentDisposition": "content-disposition",
    "contentEncoding": "content-encoding",
    "contentLanguage": "content-language",
    "contentType": "content-type",
}


@dataclass
class XmlDialect:
    """Answers requests to ``/bucket/key``. ``prefix`` is that of its own headers: ``x-amz-`` or ``x-goog-``."""

    objects: Objects
    habits: Habits
    prefix: str

    def read(self, request: Request, body: bytes) -> Asking:
        """Return the meaning of a request."""
        rewrite = _REWRITE.fullmatch(request.path) if self._is_google() else None
        found = _JSON_API.fullmatch(request.path) if self._is_google() else None
        if found:
            bucket, key = rewrite.groups()[2:] if rewrite else found.groups()
            operation = "rewrite" if rewrite else "get resource"
            return Asking(request.method, request.path, request.query, request.headers, operation, bucket, key, body)
        bucket, _, key = request.path.removeprefix("/").partition("/")
        operation = self._operation(request, key)
        return Asking(request.method, request.path, request.query, request.headers, operation, bucket, key, body)

    def answer(self, asking: Asking) -> Reply:
        """Carry out a request."""
        actions: dict[str, Callable[[Asking], Reply]] = {
            "create bucket": self._create_bucket,
            "location": self._location,
            "list": self._list,
            "head": self._get,
            "get": self._get,
            "put": self._put,
            "open upload": self._open_upload,
            "put part": self._put_part,
            "complete upload": self._complete_upload,
            "abort upload": self._abort_upload,
            "list uploads": self._list_uploads,
            "copy": self._copy,
            "copy part": self._copy,
            "rewrite": self._rewrite,
            "get resource": self._get_resource,
            "delete": self._delete,
            "delete many": self._delete_many,
        }
        if asking.operation not in actions:
            raise Refused(501, "NotImplemented")
        with self.objects.lock:
            try:
                return actions[asking.operation](asking)
            except Missing as missing:
                raise Refused.missing(missing) from None

    def _operation(self, request: Request, key: str) -> str:
        query, method = request.query, request.method
        if not key:
            by_query = [("uploads", "list uploads"), ("delete", "delete many"), ("location", "location")]
            named = next((name for parameter, name in by_query if parameter in query), None)
            return named or {"GET": "list", "PUT": "create bucket"}.get(method, "")
        copies = f"{self.prefix}copy-source" in request.headers
        if "uploadId" in query:
            part = "copy part" if copies else "put part"
            return {"PUT": part, "POST": "complete upload", "DELETE": "abort upload"}.get(method, "")
        if method == "POST":
            return "open upload" if "uploads" in query else ""
        put = "copy" if copies else "put"
        return {"GET": "get", "HEAD": "head", "PUT": put, "DELETE": "delete"}.get(method, "")

    # Listings.

    def _create_bucket(self, asking: Asking) -> Reply:
        self.objects.create_bucket(asking.bucket)
        return Reply()

    def _location(self, asking: Asking) -> Reply:
        return _xml("<LocationConstraint></LocationConstraint>")

    def _list(self, asking: Asking) -> Reply:
        query = asking.query
        is_v2 = query.get("list-type") == "2" and not self.habits.v1_only
        asked = Asked(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            after=query.get("start-after" if is_v2 else "marker", ""),
            token=query.get("continuation-token", "") if is_v2 else "",
            page_keys=int(query.get("max-keys", 1000)),
        )
        page = cut(self.objects.newest(asking.bucket), asked, self.habits)
        body = self._paging(query, asked, page, is_v2)
        encode = _encoder(query)
        for found in page.objects:
            size = len(found.body) + self.habits.listed_size_offset
            body += f"<Contents><Key>{encode(found.key)}</Key><Size>{size}</Size>"
            body += "" if self.habits.no_times else self._listed_time(found)
            body += f"<ETag>&quot;{found.etag}&quot;</ETag>" if found.etag else ""
            body += f"<Generation>{found.version}</Generation>" if self._is_google() else ""
            body += "<StorageClass>STANDARD</StorageClass></Contents>"
        for prefix in page.prefixes:
            body += f"<CommonPrefixes><Prefix>{encode(prefix)}</Prefix></CommonPrefixes>"
        return _xml(f"<ListBucketResult>{body}</ListBucketResult>")

    def _listed_time(self, found: Object) -> str:
        return f"<LastModified>{iso_date(found.modified_s, self.habits)}</LastModified>"

    def _paging(self, query: dict[str, str], asked: Asked, page: Page, is_v2: bool) -> str:
        """Return the fields that describe a page."""
        encode = _encoder(query)
        body = f"<Prefix>{encode(asked.prefix)}</Prefix>"
        body += "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        if not self.habits.omits_truncated:
            body += f"<IsTruncated>{str(page.truncated and not self.habits.claims_end).lower()}</IsTruncated>"
        if is_v2:
            body += f"<KeyCount>{len(page.objects) + len(page.prefixes)}</KeyCount>"
            body += f"<StartAfter>{encode(asked.after)}</StartAfter>" if asked.after else ""
            if page.token and not self.habits.omits_token:
                body += f"<NextContinuationToken>{page.token}</NextContinuationToken>"
            return body
        body += f"<Marker>{encode(asked.after)}</Marker>"
        if page.truncated and not self.habits.omits_token and (asked.delimiter or self.habits.v1_next_marker):
            body += f"<NextMarker>{encode(page.last)}</NextMarker>"
        return body

    def _list_uploads(self, asking: Asking) -> Reply:
        query, habits, encode = asking.query, self.habits, _encoder(asking.query)
        prefix = "" if habits.ignores_prefix else query.get("prefix", "")
        after = (query.get("key-marker", "").encode(), query.get("upload-id-marker", ""))
        listed = [each for each in self.objects.uploads(asking.bucket) if each.key.startswith(prefix)]
        place: Callable[[Upload], tuple[bytes, str]] = lambda each: (each.key.encode(), each.upload_id)  # noqa: E731
        listed.sort(key=place)
        if not habits.repeats_page:
            listed = [each for each in listed if place(each) > after]
        taken = listed[: min(habits.page_keys, UPLOADS_PAGE_MAX)]
        truncated = len(taken) < len(listed)
        body = f"<IsTruncated>{str(truncated).lower()}</IsTruncated>"
        body += "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        if truncated and not habits.omits_token:
            key = encode(taken[-1].key)
            body += f"<NextKeyMarker>{key}</NextKeyMarker>"
            body += f"<NextUploadIdMarker>{taken[-1].upload_id}</NextUploadIdMarker>"
        for each in taken:
            body += f"<Upload><Key>{encode(each.key)}</Key><UploadId>{each.upload_id}</UploadId>"
            body += f"<Initiated>{iso_date(each.opened_s, habits)}</Initiated></Upload>"
        return _xml(f"<ListMultipartUploadsResult>{body}</ListMultipartUploadsResult>")

    # Objects.

    def _get(self, asking: Asking) -> Reply:
        named = asking.query.get("versionId", asking.query.get("generation"))
        found = self.objects.find(asking.bucket, asking.key, None if self.habits.ignores_versions else named)
        headers = asking.headers
        if not self.habits.ignores_if_match:
            generation = headers.get("x-goog-if-generation-match")
            if "if-match" in headers and not etag_matches(headers["if-match"], found):
                raise Refused(412, "PreconditionFailed")
            if generation is not None and generation != found.version:
                raise Refused(412, "PreconditionFailed")
        status, more, body = ranged(found.body, headers.get("range"), self.habits)
        return Reply(status, {**self._stated(found), **more}, body)

    def _stated(self, found: Object) -> dict[str, str]:
        """Return the headers that describe an object."""
        stated = dict(found.headers)
        if not self.habits.no_times:
            stated["last-modified"] = http_date(found, self.habits)
        if found.etag:
            stated["etag"] = f'"{found.etag}"'
        if self._is_google():
            digest = base64.b64encode(hashlib.md5(found.body).digest()).decode()
            stated.update({"x-goog-generation": found.version, "x-goog-hash": f"md5={digest}"})
        elif self.habits.versioned:
            stated["x-amz-version-id"] = found.version
        return stated

    def _put(self, asking: Asking) -> Reply:
        self._check_write(asking)
        found = self.objects.put(asking.bucket, asking.key, asking.body, self._kept(asking.headers))
        stated = self._stated(found)
        return Reply(200, {name: stated[name] for name in stated if name == "etag" or name.startswith(self.prefix)})

    def _open_upload(self, asking: Asking) -> Reply:
        opened = self.objects.open_upload(asking.bucket, asking.key, self._kept(asking.headers))
        return _xml(
            f"<InitiateMultipartUploadResult><UploadId>{opened.upload_id}</UploadId></InitiateMultipartUploadResult>"
        )

    def _put_part(self, asking: Asking) -> Reply:
        upload = self.objects.upload(asking.bucket, asking.query["uploadId"])
        upload.parts[asking.query["partNumber"]] = asking.body
        return Reply(200, {"etag": f'"{self.objects.part_etag(asking.body)}"'})

    def _complete_upload(self, asking: Asking) -> Reply:
        upload = self.objects.upload(asking.bucket, asking.query["uploadId"])
        self._check_write(asking)
        numbers = [each.text or "" for each in ElementTree.fromstring(asking.body).iterfind("{*}Part/{*}PartNumber")]
        if any(number not in upload.parts for number in numbers):
            raise Refused(400, "InvalidPart")
        parts = [upload.parts[number] for number in numbers]
        etag = self.objects.multipart_etag(parts)
        found = self.objects.put(asking.bucket, asking.key, b"".join(parts), upload.headers, etag)
        self.objects.forget_upload(asking.bucket, upload.upload_id)
        stated = self._stated(found)
        versions = {name: stated[name] for name in stated if name.endswith(("version-id", "generation"))}
        etag_element = f"<ETag>&quot;{found.etag}&quot;</ETag>" if found.etag else ""
        return _xml(f"<CompleteMultipartUploadResult>{etag_element}</CompleteMultipartUploadResult>", versions)

    def _abort_upload(self, asking: Asking) -> Reply:
        self.objects.upload(asking.bucket, asking.query["uploadId"])
        self.objects.forget_upload(asking.bucket, asking.query["uploadId"])
        return Reply(204)

    def _copy(self, asking: Asking) -> Reply:
        source = self._copy_source(asking)
        body = ranged(source.body, asking.headers.get("x-amz-copy-source-range"), Habits())[2]
        if asking.operation == "copy part":
            upload = self.objects.upload(asking.bucket, asking.query["uploadId"])
            upload.parts[asking.query["partNumber"]] = body
            etag = self.objects.part_etag(body)
            return _xml(f"<CopyPartResult><ETag>&quot;{etag}&quot;</ETag></CopyPartResult>")
        self._check_write(asking)
        replace = asking.headers.get(f"{self.prefix}metadata-directive") == "REPLACE"
        headers = self._kept(asking.headers) if replace else source.headers
        found = self.objects.put(asking.bucket, asking.key, body, headers)
        etag_element = f"<ETag>&quot;{found.etag}&quot;</ETag>" if found.etag else ""
        return _xml(f"<CopyObjectResult>{etag_element}</CopyObjectResult>")

    def _copy_source(self, asking: Asking) -> Object:
        """Return the object to copy, if the conditions on it hold."""
        named, _, query = asking.headers[f"{self.prefix}copy-source"].partition("?")
        bucket, _, key = unquote(named).removeprefix("/").partition("/")
        version = dict(parse_qsl(query)).get("versionId")
        source = self.objects.find(bucket, key, None if self.habits.ignores_versions else version)
        if_match = asking.headers.get(f"{self.prefix}copy-source-if-match")
        generation = asking.headers.get("x-goog-copy-source-if-generation-match")
        if self.habits.ignores_copy_conditions:
            return source
        if (if_match and not etag_matches(if_match, source)) or generation not in (None, source.version):
            raise Refused(412, "PreconditionFailed")
        return source

    def _rewrite(self, asking: Asking) -> Reply:
        named = _REWRITE.fullmatch(asking.path)
        assert named is not None
        source = self.objects.find(named[1], named[2])
        if asking.query.get("ifSourceGenerationMatch", source.version) != source.version:
            return _json({"error": {"code": 412, "message": "no", "errors": [{"reason": "conditionNotMet"}]}}, 412)
        self._check_write(asking, asking.query.get("ifGenerationMatch"))
        done, total, habits = int(asking.query.get("rewriteToken", 0)) + 1, len(source.body), self.habits
        if done != habits.rewrite_requests:
            copied = total * done // habits.rewrite_requests if habits.rewrite_requests > 0 else 0
            return _json({"totalBytesRewritten": str(copied), "done": False, "rewriteToken": str(done)})
        headers = _of_resource(json.loads(asking.body)) if asking.body else source.headers
        found = self.objects.put(asking.bucket, asking.key, source.body, headers)
        return _json({"totalBytesRewritten": str(total), "done": True, "resource": {"generation": found.version}})

    def _get_resource(self, asking: Asking) -> Reply:
        found = self.objects.find(asking.bucket, asking.key)
        named = {name: found.headers[header] for name, header in _JSON_NAMES.items() if header in found.headers}
        meta = {
            name.removeprefix("x-goog-meta-"): value
            for name, value in found.headers.items()
            if name.startswith("x-goog-meta-")
        }
        return _json({"name": found.key, "generation": found.version, **named, "metadata": meta})

    def _delete(self, asking: Asking) -> Reply:
        self._delete_one(asking, asking.key, asking.query.get("versionId", asking.query.get("generation")))
        return Reply(204)

    def _delete_one(self, asking: Asking, key: str, version: str | None, etag: str | None = None) -> None:
        headers = dict(asking.headers) if etag is None else {"if-match": etag}
        one = Asking(asking.method, asking.path, asking.query, headers, "delete", asking.bucket, key)
        if not self.habits.ignores_delete_conditions:
            self._check_write(one)
        self.objects.delete(asking.bucket, key, None if self.habits.ignores_versions else version)

    def _delete_many(self, asking: Asking) -> Reply:
        failures = ""
        for each in ElementTree.fromstring(asking.body).iterfind("{*}Object"):
            key = each.findtext("{*}Key", "")
            version, etag = each.findtext("{*}VersionId"), each.findtext("{*}ETag")
            try:
                self._delete_one(asking, key, version, etag)
            except Refused as refused:
                failures += f"<Error><Key>{escape(key)}</Key><Code>{refused.code}</Code><Message>no</Message></Error>"
        return _xml(f"<DeleteResult>{failures}</DeleteResult>")

    def _check_write(self, asking: Asking, generation: str | None = None) -> None:
        try:
            found = self.objects.find(asking.bucket, asking.key)
        except Missing as missing:
            if missing.code != "NoSuchKey":
                raise
            found = None
        generation = generation or asking.headers.get("x-goog-if-generation-match")
        check_write(asking, found, self.habits, generation)

    def _kept(self, headers: dict[str, str]) -> dict[str, str]:
        meta = f"{self.prefix}meta-"
        return {name: value for name, value in headers.items() if name in _KEPT or name.startswith(meta)}

    def _is_google(self) -> bool:
        return self.prefix == "x-goog-"


def _xml(body: str, headers: dict[str, str] | None = None) -> Reply:
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'
    return Reply(200, {"content-type": "application/xml", **(headers or {})}, document.encode())


def _json(answer: dict[str, object], status: int = 200) -> Reply:
    return Reply(status, {"content-type": "application/json"}, json.dumps(answer).encode())


def _of_resource(resource: dict[str, Any]) -> dict[str, str]:
    """Return the headers of an object with the attributes of a resource."""
    named = {header: resource[name] for name, header in _JSON_NAMES.items() if name in resource}
    meta = {f"x-goog-meta-{name}": value for name, value in resource.get("metadata", {}).items()}
    return {**named, **meta, "x-goog-storage-class": resource.get("storageClass", "STANDARD")}


def _encoder(query: dict[str, str]) -> Callable[[str], str]:
    """Return the function that encodes keys in an answer."""
    return (lambda text: quote(text, safe="")) if query.get("encoding-type") == "url" else escape
