"""URLs and paths as users type them, parsed into (store root, key).

Accepted: `s3://bucket/key`, `gs://bucket/key`, `az://account/container/key`, `r2://account/bucket/key`,
`file:///path`, `mem:`, plain paths, `-`, and pasted `https://` addresses of S3, GCS and Azure. `guest://NAME` and
`guest://NAME/` are a file and a folder of the guest of a job of the transfer service. In our own schemes a key is taken
literally (`%20` is three characters); `file://` and `https://` are real URLs and are percent-decoded. A URL never holds
a credential: user names, passwords and signatures are refused.
"""

from __future__ import annotations

import re
from typing import Literal

from tradewind.errors import UrlError
from tradewind.model.records import dataclass, field

Kind = Literal["s3", "gs", "az", "r2", "file", "mem", "pipe", "guest"]

#: Number of path segments before the key.
_ROOT_PARTS: dict[str, int] = {"s3": 1, "gs": 1, "az": 2, "r2": 2}
_ROOT_NAMES = {
    "s3": "s3://BUCKET/KEY",
    "gs": "gs://BUCKET/KEY",
    "az": "az://ACCOUNT/CONTAINER/KEY",
    "r2": "r2://ACCOUNT/BUCKET/KEY",
}

#: `s3:/b`, `s3//b`, `s3:b` and `s3:`: a URL without a slash or colon.
_MISTYPED = r"(?i)(s3|gs|az|r2)(?::/|//|:(?=[a-z0-9])|:\Z)"

#: An account: a URL that ends before the bucket.
_ACCOUNT = r"(?i)(?:(?P<cloud>s3|gs)://|(?P<kind>az|r2)://(?P<account>[a-z0-9-]+)/?)"

#: Query parameters that occur only in signed addresses.
_SIGNED = (
    r"(?i)[?&](x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|signature|sig"
    r"|awsaccesskeyid|googleaccessid|access_token)="
)


#: Beginning of the places of a guest.
GUEST_ROOT = "guest://"


def is_guest(text: str) -> bool:
    """Return whether a place is that of a guest."""
    return text.startswith(GUEST_ROOT)


@dataclass(frozen=True, slots=True)
class Location:
    """One place: `root` is the store (`s3://bucket`; for files the absolute directory path `file:///`), `key` the rest.

    For `file` the key is the absolute path as typed, with a trailing `/` kept. `options` holds the options of `mem:`;
    `endpoint` and `region` come from a pasted https address.
    """

    kind: Kind
    root: str
    key: str
    endpoint: str | None = None
    region: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        """True for a place typed as a directory: a bare bucket, a trailing slash, or `.` or `..` as its last part."""
        if self.kind == "mem":
            return True
        last = self.key.rpartition("/")[2]
        return last == "" or (self.kind == "file" and last in (".", ".."))

    @property
    def name(self) -> str:
        """Last part of the key without a trailing slash; empty at the root."""
        return self.key.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        if self.kind == "pipe":
            return "-"
        if self.kind == "file":
            return self.key
        if self.kind in ("mem", "guest"):
            return self.root + self.key
        return f"{self.root}/{self.key}"


def parse_url(text: str, *, cwd: str = "") -> Location:
    """Parse one argument; `cwd` (absolute) makes plain relative paths absolute. Raises UrlError."""
    if text == "-":
        return Location("pipe", "-", "")
    if not text.strip():
        raise UrlError("an empty path", hint="is a shell variable unset? for the working directory, write .")
    if "\0" in text:
        raise UrlError("a path cannot hold a NUL character")
    scheme, separator, rest = text.partition("://")
    # Most paths have neither, and compiling the expression takes longer than all else here.
    mistyped = re.match(_MISTYPED, text) if not separator and (":" in text or "//" in text) else None
    if separator or mistyped:
        _refuse_signature(text)
    if not separator:
        if text == "mem:" or text.startswith("mem:?"):
            return _memory(text)
        if mistyped:
            url = f"{mistyped[1].lower()}://{text[mistyped.end() :]}"
            raise UrlError(f"{text}: neither a URL nor a likely path", hint=f"write {url}, or ./{text} for a path")
        return _path(text, cwd)
    scheme = scheme.lower()
    if scheme in _ROOT_PARTS:
        return _bucket(scheme, rest, text)
    if scheme == "file":
        return _file_url(rest, text)
    if scheme in ("http", "https"):
        return _pasted(scheme, rest)
    if scheme == "guest":
        return _guest(rest, text)
    raise UrlError(f"{text}: unknown scheme {scheme}://", hint=_nearest_scheme(scheme))


def as_typed(url: str) -> str:
    """Return the URL of an event or a store as users type it: a file by its path. Nothing is encoded in such URLs."""
    return url.removeprefix("file://")


def parse_account(text: str) -> Location | None:
    """Parse what is above buckets: `s3://`, `gs://`, `az://ACCOUNT` or `r2://ACCOUNT`; None for any other place."""
    match = re.fullmatch(_ACCOUNT, text)
    if match is None:
        return None
    kind = (match["cloud"] or match["kind"]).lower()
    return Location(kind, f"{kind}://{match['account'] or ''}", "")  # type: ignore[arg-type]


def _refuse_signature(text: str) -> None:
    """Raise UrlError for a signed URL: its signature would appear in messages, logs and the job's folder."""
    if "%" in text:
        from urllib.parse import unquote

        text = unquote(text)
    # Most URLs have no parameters, and compiling the expression takes longer than all else here.
    signed = re.search(_SIGNED, text) if "?" in text or "&" in text else None
    if signed is not None:
        raise UrlError(
            f"the URL holds a credential: the parameter {signed[1]}",
            hint="write the part before the ?, and give credentials through the cloud's own chain",
        )


def _nearest_scheme(scheme: str) -> str:
    aliases = {"gcs": "gs", "s3a": "s3", "s3n": "s3", "azure": "az", "abfs": "az", "wasb": "az"}
    known = "s3://, gs://, az://, r2://, file://, https:// and plain paths are understood"
    return f"write {aliases[scheme]}://" if scheme in aliases else known


def _bucket(scheme: str, rest: str, text: str) -> Location:
    parts = rest.split("/", _ROOT_PARTS[scheme])
    names, key = parts[: _ROOT_PARTS[scheme]], "".join(parts[_ROOT_PARTS[scheme] :])
    if len(names) < _ROOT_PARTS[scheme] or not all(names):
        raise UrlError(f"{text}: incomplete", hint=f"the form is {_ROOT_NAMES[scheme]}")
    if scheme == "s3" and names[0].startswith("arn:"):
        raise UrlError(
            f"{text}: the ARN of an access point is not supported",
            hint="use the alias of the access point, which ends in -s3alias, as the bucket",
        )
    if "@" in "".join(names) or ":" in "".join(names):
        raise UrlError(
            f"{scheme}:// URL with credentials or a port in it",
            hint="credentials come from the cloud's own chain; see --src-profile and --src-endpoint",
        )
    if any(wildcard in "".join(names) for wildcard in "*?"):
        above = f"{scheme}://{''.join(f'{name}/' for name in names[:-1])}"
        raise UrlError(
            f"{text}: wildcards match keys, not buckets", hint=f"name one bucket; `tradewind ls {above}` lists them"
        )
    return Location(scheme, f"{scheme}://{'/'.join(names)}", key)  # type: ignore[arg-type]


def _memory(text: str) -> Location:
    options = {}
    for pair in filter(None, text[5:].split("&")):
        name, equals, content = pair.partition("=")
        if not equals:
            raise UrlError(f"{text}: {pair!r} is not NAME=VALUE", hint="for example mem:?objects=1000&size_bytes=65536")
        options[name] = content
    return Location("mem", "mem:", "", options=options)


def _path(text: str, cwd: str) -> Location:
    path = text if text.startswith("/") else f"{cwd.rstrip('/')}/{text}"
    return Location("file", "file:///", path)


def _file_url(rest: str, text: str) -> Location:
    from urllib.parse import unquote

    host, slash, path = rest.partition("/")
    if not slash or host not in ("", "localhost"):
        raise UrlError(f"{text}: a file URL can only name this machine", hint="the form is file:///absolute/path")
    return Location("file", "file:///", "/" + unquote(path, errors="surrogateescape"))


def _guest(name: str, text: str) -> Location:
    if "/" in name.removesuffix("/") or name.removesuffix("/") in (".", ".."):
        raise UrlError(f"{text}: not the name of a file or folder", hint="the form is guest://NAME, or guest://NAME/")
    return Location("guest", GUEST_ROOT, name)


_S3_HOST = (
    r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]+)\.)?s3(?:[.-](?:dualstack\.)?(?P<region>[a-z]{2}(?:-[a-z]+)+-\d))?"
    r"\.amazonaws\.com(?:\.cn)?"
)
_AZURE_HOST = r"(?P<account>[a-z0-9]{3,24})\.(?:blob|dfs)\.core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)"
_R2_HOST = r"(?P<account>[0-9a-f]{32})(?:\.(?:eu|fedramp))?\.r2\.cloudflarestorage\.com"
_GCS_HOSTS = ("storage.googleapis.com", "storage.cloud.google.com")


def _pasted(scheme: str, rest: str) -> Location:
    from urllib.parse import unquote

    host, _, tail = rest.partition("/")
    tail = tail.partition("?")[0]
    if "@" in host:
        raise UrlError(
            "the address holds a credential: a user name",
            hint="use the part after the @, and give credentials through the cloud's own chain",
        )
    tail, host = unquote(tail.partition("#")[0]), host.lower()
    first, _, key = tail.partition("/")
    if match := re.fullmatch(_S3_HOST, host):
        bucket, key = (match["bucket"], tail) if match["bucket"] else (first, key)
        found = Location("s3", f"s3://{bucket}", key, region=match["region"])
    elif match := re.fullmatch(_R2_HOST, host):
        found = Location("r2", f"r2://{match['account']}/{first}", key)
        bucket = first
    elif match := re.fullmatch(_AZURE_HOST, host):
        found = Location("az", f"az://{match['account']}/{first}", key)
        bucket = first
    elif host in _GCS_HOSTS:
        found, bucket = Location("gs", f"gs://{first}", key), first
    elif host.endswith(".storage.googleapis.com"):
        bucket = host.removesuffix(".storage.googleapis.com")
        found = Location("gs", f"gs://{bucket}", tail)
    else:
        raise UrlError(
            f"{scheme}://{host}: not an address of S3, GCS, Azure Blob or R2",
            hint="for a compatible server write s3://BUCKET/KEY with --src-endpoint or --dst-endpoint",
        )
    if not bucket:
        raise UrlError(f"{scheme}://{host}: names no bucket")
    return found
