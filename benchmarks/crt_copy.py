"""Copy files and objects with the AWS Common Runtime client (``awscrt``), which boto3 and the AWS CLI use for speed.

``python crt_copy.py up FOLDER BUCKET``, ``down BUCKET/PREFIX FOLDER`` or ``list BUCKET``. It runs in an
environment that has awscrt alone, and takes the address and the keys of the server from the usual variables.
"""

from __future__ import annotations

import os
import sys
import threading
import urllib.parse
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from awscrt.auth import AwsCredentialsProvider
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType, create_default_s3_signing_config

IN_FLIGHT = 128
"""Objects at once, as in boto3."""
REGION = "us-east-1"


class Crt:
    """The client, with one server."""

    def __init__(self) -> None:
        self._host = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
        keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        provider = AwsCredentialsProvider.new_static(*keys)
        signing = create_default_s3_signing_config(region=REGION, credential_provider=provider)
        self._client = S3Client(region=REGION, signing_config=signing, tls_mode=S3RequestTlsMode.DISABLED)
        self._room = threading.Semaphore(IN_FLIGHT)
        self._waiting: list[Any] = []

    def up(self, folder: Path, bucket: str) -> None:
        """Send all files below a folder."""
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            size = [("Content-Length", str(path.stat().st_size)), ("Content-Type", "application/octet-stream")]
            request = self._request("PUT", _path(bucket, str(path.relative_to(folder))), size)
            self._start(type=S3RequestType.PUT_OBJECT, request=request, send_filepath=str(path))
        self._finish()

    def down(self, place: str, folder: Path) -> None:
        """Receive all objects below a prefix."""
        bucket, _, prefix = place.partition("/")
        for key in self.keys(bucket, prefix):
            path = folder / key.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            request = self._request("GET", _path(bucket, key), [])
            self._start(type=S3RequestType.GET_OBJECT, request=request, recv_filepath=str(path))
        self._finish()

    def keys(self, bucket: str, prefix: str) -> Iterator[str]:
        """List the keys below a prefix, in pages of 1000."""
        query = {"list-type": "2", "prefix": prefix}
        while True:
            body = bytearray()
            request = self._request("GET", f"/{bucket}?{urllib.parse.urlencode(query)}", [])
            self._client.make_request(
                type=S3RequestType.DEFAULT,
                request=request,
                operation_name="ListObjectsV2",
                on_body=lambda chunk, **_: body.extend(chunk),  # noqa: B023  The request ends in this round.
            ).finished_future.result()
            page = xml.etree.ElementTree.fromstring(body)
            space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            yield from (str(each.text) for each in page.iterfind(f"{space}Contents/{space}Key"))
            token = page.findtext(f"{space}NextContinuationToken")
            if not token:
                return
            query["continuation-token"] = token

    def _request(self, method: str, path: str, headers: list[tuple[str, str]]) -> Any:
        return HttpRequest(method, path, HttpHeaders([("host", self._host), *headers]))

    def _start(self, **arguments: Any) -> None:
        self._room.acquire()
        made = self._client.make_request(on_done=lambda **_: self._room.release(), **arguments)
        self._waiting.append(made.finished_future)

    def _finish(self) -> None:
        for each in self._waiting:
            each.result()


def _path(bucket: str, key: str) -> str:
    return f"/{bucket}/{urllib.parse.quote(key)}"


if __name__ == "__main__":
    action, source, *destination = sys.argv[1:]
    if action == "up":
        Crt().up(Path(source), destination[0])
    elif action == "down":
        Crt().down(source, Path(destination[0]))
    else:
        sys.stdout.writelines(f"{key}\n" for key in Crt().keys(source, ""))
