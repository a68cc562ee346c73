"""The metadata service that VMs reach at Google's address: whether Google takes the VM back (Preemption process, Spot
VMs of Compute Engine).

Run as a program, it serves: metadata.py FOLDER, in the network namespace of the VMs' bridge. FOLDER has a file for each
VM that is preempted, named by its address.
"""

from __future__ import annotations

import http.server
import sys
from pathlib import Path

ADDRESS, PORT = "169.254.169.254", 80


class Instances(http.server.BaseHTTPRequestHandler):
    """Answers VMs, which it knows by their addresses."""

    notices: Path

    def do_GET(self) -> None:
        """Answer whether the VM that asks is preempted. Requests without Google's header are refused."""
        if self.headers.get("Metadata-Flavor") != "Google":
            return self._answer(403, "")
        if self.path != "/computeMetadata/v1/instance/preempted":
            return self._answer(404, "")
        return self._answer(200, "TRUE" if (self.notices / self.client_address[0]).exists() else "FALSE")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    Instances.notices = Path(sys.argv[1])
    http.server.ThreadingHTTPServer((ADDRESS, PORT), Instances).serve_forever()
