"""Azure's Blob API: block blobs of containers. The account is the first part of the path."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from testbed.faults.rules import Request
from testbed.odd_stores.exchange import Asking, Refused, Reply, check_write, etag_matches, http_date, ranged
from testbed.odd_stores.habits import Habits
from testbed.odd_stores.objects import Missing, Object, Objects
from testbed.odd_stores.pages import Asked, cut

_PROPERTIES = ("content-type", "content-encoding", "content-language", "content-disposition", "cache-control")


@dataclass
class AzureDialect:
    """Answers requests to ``/account/container/blob``."""

    objects: Objects
    habits: Habits

    def read(self, request: Request, body: bytes) -> Asking:
        """Return the meaning of a request."""
        _, _, path = request.path.removeprefix("/").partition("/")
        container, _, key = path.partition("/")
        operation = self._operation(request, key)
        return Asking(request.method, request.path, request.query, request.headers, operation, container, key, body)

    def answer(self, asking: Asking) -> Reply:
        """Carry out a request."""
        actions: dict[str, Callable[[Asking], Reply]] = {
            "create bucket": self._create_container,
            "list": self._list,
            "head": self._get,
            "get": self._get,
            "put": self._put,
            "put part": self._put_block,
            "complete upload": self._put_block_list,
            "list uploads": self._list_blocks,
            "copy": self._copy,
            "abort copy": self._abort_copy,
            "set properties": self._set_properties,
            "delete": self._delete,
        }
        if asking.operation not in actions:
            raise Refused(501, "NotImplemented")
        with self.objects.lock:
            try:
                return actions[asking.operation](asking)
            except Missing as missing:
                code = {"NoSuchBucket": "ContainerNotFound"}.get(missing.code, "BlobNotFound")
                raise Refused(404, code) from None

    def _operation(self, request: Request, key: str) -> str:
        method, component = request.method, request.query.get("comp", "")
        if not key:
            return {("PUT", ""): "create bucket", ("GET", "list"): "list"}.get((method, component), "")
        put = "copy" if "x-ms-copy-source" in request.headers else "put"
        return {
            ("GET", ""): "get",
            ("HEAD", ""): "head",
            ("PUT", ""): put,
            ("PUT", "block"): "put part",
            ("PUT", "blocklist"): "complete upload",
            ("GET", "blocklist"): "list uploads",
            ("PUT", "properties"): "set properties",
            ("PUT", "copy"): "abort copy",
            ("DELETE", ""): "delete",
        }.get((method, component), "")

    def _create_container(self, asking: Asking) -> Reply:
        self.objects.create_bucket(asking.bucket)
        return Reply(201)

    def _list(self, asking: Asking) -> Reply:
        query = asking.query
        asked = Asked(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=query.get("startFrom", ""),
            token=query.get("marker", ""),
            page_keys=int(query.get("maxresults", 5000)),
        )
        objects = self.objects.newest(asking.bucket)
        if self.habits.lists_directories and not asked.delimiter:
            objects = sorted(objects + _directories(objects), key=lambda found: found.key.encode())
        page = cut(objects, asked, self.habits)
        with_metadata = "metadata" in query.get("include", "").split(",")
        blobs = "".join(self._listed(found, with_metadata) for found in page.objects)
        blobs += "".join(f"<BlobPrefix>{self._name(name)}{self._of_prefix()}</BlobPrefix>" for name in page.prefixes)
        marker = f"<NextMarker>{page.token or ''}</NextMarker>"
        body = f"<Blobs>{blobs}</Blobs>" + ("" if page.truncated and self.habits.omits_token else marker)
        return _xml(f"<EnumerationResults>{body}</EnumerationResults>")

    def _name(self, name: str) -> str:
        if self.habits.encodes_names:
            return f'<Name Encoded="true">{quote(name)}</Name>'
        return f"<Name>{escape(name)}</Name>"

    def _of_prefix(self) -> str:
        """Return the attributes of a directory in a hierarchical namespace."""
        if not self.habits.lists_directories:
            return ""
        stated = "<Etag>0xD1</Etag><ResourceType>directory</ResourceType><Content-Length>0</Content-Length>"
        return f"<Properties>{stated}<Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5></Properties>"

    def _listed(self, found: Object, with_metadata: bool) -> str:
        size = len(found.body) + self.habits.listed_size_offset
        time = "" if self.habits.no_times else f"<Last-Modified>{http_date(found, self.habits)}</Last-Modified>"
        etag = f"<Etag>{found.etag}</Etag>" if found.etag else ""
        properties = f"{time}{etag}<Content-Length>{size}</Content-Length><AccessTier>Hot</AccessTier>"
        if self.habits.lists_directories:
            properties += f"<ResourceType>{found.headers.get('x-ms-resource-type', 'file')}</ResourceType>"
        meta = {
            name[len("x-ms-meta-") :]: value for name, value in found.headers.items() if name.startswith("x-ms-meta-")
        }
        metadata = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in meta.items()) if with_metadata else ""
        metadata = f"<Metadata>{metadata}</Metadata>" if metadata else ""
        return f"<Blob>{self._name(found.key)}<Properties>{properties}</Properties>{metadata}</Blob>"

    def _find(self, asking: Asking, version: str | None = None) -> Object:
        """Return the blob, or the directory if directories are listed."""
        try:
            return self.objects.find(asking.bucket, asking.key, version)
        except Missing:
            if self.habits.lists_directories:
                directories = _directories(self.objects.newest(asking.bucket))
                found = next((each for each in directories if each.key == asking.key), None)
                if found:
                    return found
            raise

    def _get(self, asking: Asking) -> Reply:
        found = self._find(asking, None if self.habits.ignores_versions else asking.query.get("versionid"))
        if_match = asking.headers.get("if-match")
        if if_match and not self.habits.ignores_if_match and not etag_matches(if_match, found):
            raise Refused(412, "ConditionNotMet")
        header = asking.headers.get("x-ms-range", asking.headers.get("range"))
        status, more, body = ranged(found.body, header, self.habits)
        stated = {**self._stated(found), **more}
        if found.copy_id:
            stated["x-ms-copy-id"] = found.copy_id
            pending = found.copy_polls != 0
            stated["x-ms-copy-status"] = "pending" if pending else found.copy_status
            copied = len(found.body) if not pending else len(found.body) // max(1, found.copy_polls + 1)
            stated["x-ms-copy-progress"] = f"{copied if found.copy_polls >= 0 else 0}/{len(found.body)}"
        if asking.method == "HEAD" and found.copy_polls > 0:
            found.copy_polls -= 1
        return Reply(status, stated, body)

    def _stated(self, found: Object) -> dict[str, str]:
        stated = dict(found.headers)
        if not self.habits.no_times:
            stated["last-modified"] = http_date(found, self.habits)
        if found.etag:
            stated["etag"] = f'"{found.etag}"'
        if self.habits.versioned:
            stated["x-ms-version-id"] = found.version
        return stated

    def _put(self, asking: Asking) -> Reply:
        self._check_write(asking)
        found = self.objects.put(asking.bucket, asking.key, asking.body, self._kept(asking.headers))
        return self._written(asking, found)

    def _written(self, asking: Asking, found: Object) -> Reply:
        stated = self._stated(found)
        names = ("etag", "last-modified", "x-ms-version-id")
        return Reply(201, {name: value for name, value in stated.items() if name in names})

    def _put_block(self, asking: Asking) -> Reply:
        blocks = self.objects.open_upload(asking.bucket, asking.key, {}, f"blocks of {asking.key}")
        blocks.parts[asking.query["blockid"]] = asking.body
        return Reply(201)

    def _put_block_list(self, asking: Asking) -> Reply:
        self._check_write(asking)
        upload_id = f"blocks of {asking.key}"
        blocks = self.objects.open_upload(asking.bucket, asking.key, {}, upload_id)
        names = [each.text or "" for each in ElementTree.fromstring(asking.body).iterfind("Latest")]
        if any(name not in blocks.parts for name in names):
            raise Refused(400, "InvalidBlockList")
        parts = [blocks.parts[name] for name in names]
        etag = self.objects.multipart_etag(parts)
        found = self.objects.put(asking.bucket, asking.key, b"".join(parts), self._kept(asking.headers), etag)
        self.objects.forget_upload(asking.bucket, upload_id)
        return self._written(asking, found)

    def _list_blocks(self, asking: Asking) -> Reply:
        opened = [each for each in self.objects.uploads(asking.bucket) if each.key == asking.key]
        if not opened:
            self.objects.find(asking.bucket, asking.key)
        blocks = "".join(
            f"<Block><Name>{name}</Name><Size>{len(part)}</Size></Block>"
            for each in opened
            for name, part in each.parts.items()
        )
        return _xml(f"<BlockList><UncommittedBlocks>{blocks}</UncommittedBlocks></BlockList>")

    def _copy(self, asking: Asking) -> Reply:
        path = unquote(urlsplit(asking.headers["x-ms-copy-source"]).path)
        _, bucket, key = path.removeprefix("/").split("/", 2)
        source = self.objects.find(bucket, key)
        if_match = asking.headers.get("x-ms-source-if-match")
        if if_match and not self.habits.ignores_copy_conditions and not etag_matches(if_match, source):
            raise Refused(412, "SourceConditionNotMet")
        self._check_write(asking)
        meta = {name: value for name, value in asking.headers.items() if name.startswith("x-ms-meta-")}
        headers = {name: value for name, value in source.headers.items() if not (meta and name.startswith("x-ms-meta"))}
        found = self.objects.put(asking.bucket, asking.key, source.body, {**headers, **meta})
        found.copy_polls = self.habits.pending_copies
        found.copy_id = f"copy-{found.version}"
        reply = self._written(asking, found)
        reply.headers["x-ms-copy-id"] = found.copy_id
        reply.headers["x-ms-copy-status"] = "pending" if found.copy_polls else "success"
        return replace(reply, status=202)

    def _abort_copy(self, asking: Asking) -> Reply:
        found = self.objects.find(asking.bucket, asking.key)
        if not found.copy_polls or found.copy_id != asking.query.get("copyid"):
            raise Refused(409, "NoPendingCopyOperation")
        found.copy_polls, found.copy_status, found.body = 0, "aborted", b""
        return Reply(204)

    def _set_properties(self, asking: Asking) -> Reply:
        found = self.objects.find(asking.bucket, asking.key)
        meta = {name: value for name, value in found.headers.items() if name.startswith("x-ms-meta-")}
        found.headers = {**self._kept(asking.headers), **meta}
        return Reply(200)

    def _delete(self, asking: Asking) -> Reply:
        version = None if self.habits.ignores_versions else asking.query.get("versionid")
        if not self.habits.ignores_delete_conditions:
            self._check_write(asking)
        if self._find(asking, version).headers.get("x-ms-resource-type") == "directory":
            raise Refused(409, "DirectoryIsNotEmpty")
        self.objects.delete(asking.bucket, asking.key, version)
        return Reply(202)

    def _check_write(self, asking: Asking) -> None:
        try:
            found = self.objects.find(asking.bucket, asking.key)
        except Missing as missing:
            if missing.code != "NoSuchKey":
                raise
            found = None
        check_write(asking, found, self.habits)

    def _kept(self, headers: dict[str, str]) -> dict[str, str]:
        named = {name: headers[f"x-ms-blob-{name}"] for name in _PROPERTIES if f"x-ms-blob-{name}" in headers}
        return {**named, **{name: value for name, value in headers.items() if name.startswith("x-ms-meta-")}}


def _directories(objects: list[Object]) -> list[Object]:
    """Return the directories that contain these blobs."""
    parents = {found.key[:at]: found for found in objects for at, each in enumerate(found.key) if each == "/"}
    stated = {"x-ms-resource-type": "directory", "x-ms-meta-hdi_isfolder": "true"}
    return [Object(name, b"", "0xD1", "0", found.modified_s, stated) for name, found in parents.items()]


ACCOUNT = "odd"
ACCOUNT_KEY = base64.b64encode(b"an odd store checks no signature").decode()


def _xml(body: str) -> Reply:
    document = f'\ufeff<?xml version="1.0" encoding="utf-8"?>{body}'
    return Reply(200, {"content-type": "application/xml"}, document.encode())
