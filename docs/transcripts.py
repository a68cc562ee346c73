"""`python docs/transcripts.py [PROVIDER ...]` runs, for each provider, the test in which a relay is killed.

Writes what the user's commands printed to docs/results/fleet-transcripts.md. Needs root, and `make clusters` for
Kubernetes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "results" / "fleet-transcripts.md"
#: The title of each provider's part, and its test.
RUNS = {
    "ssh": (
        "Hosts over SSH, behind a jump host",
        "tests/sky/test_ssh.py::test_a_relay_that_dies_is_replaced",
    ),
    "kubernetes": (
        "Three Kubernetes clusters",
        "tests/fleet/test_kubernetes_transfer.py::test_a_relay_is_killed_and_replaced_and_nothing_is_left",
    ),
    "aws": (
        "AWS (the API is moto's)",
        "tests/sky/test_ec2.py::test_a_relay_is_killed_and_replaced_and_nothing_is_left",
    ),
    "gcp": (
        "Google Cloud (our stand-in of the API)",
        "tests/sky/test_compute_engine.py::test_a_relay_is_killed_and_replaced_and_nothing_is_left",
    ),
    "azure": (
        "Azure (a stand-in of the API) with a relay on a host",
        "tests/sky/test_clouds.py::test_a_relay_on_a_host_between_two_regions_of_a_cloud_is_killed_and_replaced",
    ),
}
HEAD = """\
# Transcripts: a transfer through each provider, with a relay that is killed

Output of `python docs/transcripts.py`, which runs the named tests. The commands are real. The machines of clouds
boot on one host ([what is emulated](../guides/fleet.md#providers-compared)). Each test also compares all files byte
by byte, and asks the provider itself what it would still bill. Lines that begin with `#` say what the test does.
`~` is the folder of the test. Rates are limited, so that the relay can be killed in time.
"""


def run(test: str) -> str:
    """Run a test and return its transcript. Raises SystemExit with pytest's output if the test fails or is skipped."""
    from testbed.transcript import TRANSCRIPT

    with tempfile.TemporaryDirectory(prefix="tw-transcript-") as folder:
        path = Path(folder, "transcript.txt")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        done = subprocess.run(
            words, cwd=ROOT, env={**os.environ, TRANSCRIPT: str(path)}, capture_output=True, text=True
        )
        if done.returncode != 0 or "1 passed" not in done.stdout:
            raise SystemExit(f"error: {test} did not pass\n{done.stdout[-3000:]}")
        return path.read_text(encoding="utf-8")


def main(providers: list[str]) -> None:
    """Run the tests of some providers, by default all, and write the page. Parts of other providers are kept."""
    if unknown := set(providers) - set(RUNS):
        raise SystemExit(f"error: no such provider: {', '.join(sorted(unknown))}\nhint: {', '.join(RUNS)}")
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    kept = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    parts = [HEAD]
    for provider, (title, test) in RUNS.items():
        if providers and provider not in providers:
            body = kept.get(title)
        else:
            today = datetime.now(timezone.utc).date()
            body = f"\n`{test}`, {today}:\n\n```text\n{run(test)}```\n"
        if body is not None:
            parts.append(f"## {title}\n{body.rstrip()}\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
