"""The metadata service that instances reach at Amazon's address, version 2: a token first, then the notice of a spot
instance that Amazon takes back (Instance metadata and Spot interruption notices, EC2 User Guide).

Run as a program, it serves: metadata.py FOLDER, in the network namespace of the instances' bridge. FOLDER has a file
for each instance with a notice, named by its address.
"""

from __future__ import annotations

import http.server
import sys
from pathlib import Path

ADDRESS, PORT = "169.254.169.254", 80
TOKEN = "a-token-of-the-testbed"


class Instances(http.server.BaseHTTPRequestHandler):
    """Answers instances, which it knows by their addresses."""

    notices: Path

    def do_PUT(self) -> None:
        """Give a token. Real instances must say for how long."""
        known = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._answer(200 if known else 400, TOKEN if known else "")

    def do_GET(self) -> None:
        """Answer with the notice of the instance that asks, if it has one and shows its token."""
        notice = self.notices / self.client_address[0]
        if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            self._answer(401, "")
        elif self.path == "/latest/meta-data/spot/instance-action" and notice.exists():
            self._answer(200, notice.read_text(encoding="utf-8"))
        else:
            self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    Instances.notices = Path(sys.argv[1])
    http.server.ThreadingHTTPServer((ADDRESS, PORT), Instances).serve_forever()
