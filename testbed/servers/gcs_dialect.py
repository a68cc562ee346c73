"""moto behind the dialect of Google's XML API: a program for moto's own interpreter, ``gcs_dialect.py ADDRESS PORT``.

Google's XML API is S3's with other names: a bearer token instead of a signature, ``x-goog-*`` headers instead of
``x-amz-*``. This file renames them on the way in and out; the storing, listing and multipart logic is moto's. There are
no generations and no CRC32C, as moto has none. An ETag that is an MD5 is also sent as ``x-goog-hash``, as by Google.
"""

from __future__ import annotations

import base64
import io
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_SIGNED = "AWS4-HMAC-SHA256 Credential=gcs/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""moto reads only the scope from it. Without this header it answers as for a private bucket."""
_GOOGLE, _AMAZON = "HTTP_X_GOOG_", "HTTP_X_AMZ_"
_MD5_ETAG = re.compile(r'^"?([0-9a-f]{32})"?$')

Headers = list[tuple[str, str]]


def to_amazon(environ: dict[str, Any]) -> None:
    """Rename the request's headers in place."""
    for name in [name for name in environ if name.startswith(_GOOGLE)]:
        environ[_AMAZON + name.removeprefix(_GOOGLE)] = environ.pop(name)
    environ["HTTP_AUTHORIZATION"] = _SIGNED


def to_google(headers: Headers) -> Headers:
    """Return the answer's headers, renamed, with the MD5 from the ETag."""
    renamed = [(re.sub(r"^x-amz-", "x-goog-", name, flags=re.IGNORECASE), value) for name, value in headers]
    etag = next((value for name, value in headers if name.lower() == "etag"), "")
    if found := _MD5_ETAG.match(etag):
        renamed.append(("x-goog-hash", "md5=" + base64.b64encode(bytes.fromhex(found[1])).decode()))
    return renamed


class GoogleDialect:
    """WSGI middleware that speaks Google's dialect to clients."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self.application = application
        #: Held while moto answers. It fails a listing while another request changes the bucket.
        self.answering = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        """Translates, calls moto, translates back."""
        to_amazon(environ)

        begun: list[tuple[str, Headers, object]] = []

        def start(status: str, headers: Headers, failure: object = None) -> None:
            begun[:] = [(status, headers, failure)]

        if environ.get("CONTENT_LENGTH"):
            # A slow client must not hold up the others.
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        with self.answering:
            body = list(self.application(environ, start))
        status, headers, failure = begun[0]
        start_response(status, to_google(headers), failure)
        return body


def main() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    application = GoogleDialect(DomainDispatcherApplication(create_backend_app))
    run_simple(sys.argv[1], int(sys.argv[2]), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
