"""The web console: the files that `make console` builds, served at `/`.

The console is a client of the API: it has no rights of its own, and its files hold no data. So they need no token.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response

from tradewind.model.records import dataclass
from tradewind.service.problems import ApiProblem

__all__ = ["STATIC", "ConsoleFiles", "router"]

router = APIRouter(include_in_schema=False)
#: Folder of the built files.
STATIC = Path(__file__).parent / "static"
FIRST_FILE = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: The page runs its own scripts and talks to its own server, and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
#: The names of these files contain a hash of their content.
ASSETS = "assets/"


@dataclass(frozen=True)
class ConsoleFiles:
    """The files of the console in memory, by their path below `/`. Empty if it was not built."""

    files: dict[str, bytes]

    @classmethod
    def load(cls, folder: Path = STATIC) -> ConsoleFiles:
        """Return the files below a folder that have a known type."""
        found = [path for path in sorted(folder.rglob("*")) if path.suffix in TYPES]
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in found})

    def marked_own(self) -> ConsoleFiles:
        """Return the files with a mark on the first page: it is the console of the user who runs the server."""
        first = self.files.get(FIRST_FILE, b"").replace(b"<html ", b"<html data-own ", 1)
        return ConsoleFiles({**self.files, FIRST_FILE: first} if self.files else {})

    def answer(self, name: str) -> Response:
        """Return a file. Raises ApiProblem 404."""
        if not self.files:
            raise ApiProblem(404, "the console was not built", hint="install Node 20 and run `make console`")
        if name not in self.files:
            raise ApiProblem(404, "Not Found")
        kept = "public, max-age=31536000, immutable" if name.startswith(ASSETS) else "no-cache"
        headers = {**HEADERS, "Cache-Control": kept}
        return Response(self.files[name], headers=headers, media_type=TYPES[Path(name).suffix])


@router.api_route("/", methods=["GET", "HEAD"])
def first_page(request: Request) -> Response:
    """Return the console. Needs no token."""
    return _files(request).answer(FIRST_FILE)


@router.api_route("/icon.svg", methods=["GET", "HEAD"])
def icon(request: Request) -> Response:
    """Return the icon of the console. Needs no token."""
    return _files(request).answer("icon.svg")


@router.api_route("/assets/{name}", methods=["GET", "HEAD"])
def asset(name: str, request: Request) -> Response:
    """Return a script or a style sheet of the console. Needs no token."""
    return _files(request).answer(ASSETS + name)


def _files(request: Request) -> ConsoleFiles:
    files: ConsoleFiles = request.app.state.service.console
    return files
