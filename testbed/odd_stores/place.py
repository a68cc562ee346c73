"""An odd store as a place that tests copy from and to (see ``testbed.places``)."""

from __future__ import annotations

import json
import secrets

from testbed.drive import Command
from testbed.odd_stores.azure_dialect import ACCOUNT, ACCOUNT_KEY
from testbed.odd_stores.server import OddStore


class OddPlace:
    """A new bucket of an odd store. ``command`` gets credentials, which the store does not check."""

    def __init__(self, store: OddStore, command: Command) -> None:
        self.store = store
        self.bucket = f"odd-{secrets.token_hex(4)}"
        store.objects.create_bucket(self.bucket)
        scheme = {"s3": "s3", "gcs": "gs", "azure": "az"}[store.kind]
        account = f"{ACCOUNT}/" if store.kind == "azure" else ""
        self.url = f"{scheme}://{account}{self.bucket}"
        self.endpoint = store.endpoint + (f"/{ACCOUNT}" if store.kind == "azure" else "")
        if store.kind == "azure":
            command.environment["AZURE_STORAGE_ACCOUNT_KEY"] = ACCOUNT_KEY
        if store.kind == "gcs":
            account_file = command.home / "odd-service-account.json"
            no_key = {"client_email": "", "private_key": "", "private_key_id": ""}
            account_file.write_text(json.dumps({"gcs_base_url": store.endpoint, "disable_oauth": True, **no_key}))
            command.environment["GOOGLE_SERVICE_ACCOUNT"] = str(account_file)

    def flags(self, side: str = "src") -> list[str]:
        """Return the options to reach the store as ``src`` (also for ls, du, rm and cat) or ``dst``."""
        unsigned = [f"--{side}-no-sign"] if self.store.kind == "s3" else []
        return [f"--{side}-endpoint", self.endpoint, *unsigned]

    def put(self, key: str, content: bytes) -> None:
        """Write one object, bypassing HTTP."""
        self.store.objects.put(self.bucket, key, content)

    def get(self, key: str) -> bytes:
        """Read one object, bypassing HTTP."""
        return self.store.objects.find(self.bucket, key).body

    def contents(self) -> dict[str, bytes]:
        """Return the content of every visible object, by key."""
        return {each.key: each.body for each in self.store.objects.newest(self.bucket)}

    def sizes(self) -> dict[str, int]:
        """Return sizes by key."""
        return {key: len(body) for key, body in self.contents().items()}

    def unfinished(self) -> list[str]:
        """Return the keys of uploads that are neither completed nor aborted (Azure: with uncommitted blocks)."""
        return [upload.key for upload in self.store.objects.uploads(self.bucket)]
