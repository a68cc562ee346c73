"""One lab for all workers of a test run: the first starts it, and ends it when no other one uses it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.kubelab.image import gateway_image
from testbed.kubelab.lab import Lab, kubelab

__all__ = ["GATEWAY_IMAGE", "shared_lab"]

GATEWAY_IMAGE = "local.test/tradewind-gateway:test"


@contextmanager
def shared_lab(folder: Path, regions: Mapping[str, int], gateway: Path) -> Iterator[Lab]:
    """Yield a lab whose nodes have the image of a gateway. All processes with the same `folder` share it."""
    folder.mkdir(parents=True, exist_ok=True)
    card = folder / "lab.json"
    with card.with_suffix(".lock").open("w") as lock, card.with_suffix(".users").open("w") as users:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if card.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield Lab(folder / "lab", json.loads(card.read_text(encoding="utf-8")))
            return
        image = folder / "gateway.tar"
        gateway_image(image, GATEWAY_IMAGE, gateway)
        with kubelab(folder / "lab", regions, images=[image]) as lab:
            card.write_text(json.dumps(list(regions)), encoding="utf-8")
            fcntl.flock(lock, fcntl.LOCK_UN)
            try:
                yield lab
            finally:
                # From now on, a process that needs a lab starts another one.
                fcntl.flock(lock, fcntl.LOCK_EX)
                card.unlink()
                fcntl.flock(lock, fcntl.LOCK_UN)
                fcntl.flock(users, fcntl.LOCK_EX)
