"""The identity that a cloud gives the machine on which this command runs, by the cloud's metadata service.

The service is asked only where this machine is known to be one of the cloud: by what its firmware says, or because a
variable of the cloud's own tools names the service. Elsewhere nothing is asked, so nothing waits.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tradewind.model.records import dataclass

__all__ = ["MachineIdentity", "machine_identity"]

#: Timeout of each request to a metadata service. It answers within milliseconds.
ANSWER_S = 1.0
ANSWER_BYTES_MAX = 64 << 10
FIRMWARE = Path("/sys/class/dmi/id")
LINK_LOCAL = "http://169.254.169.254"
#: Asset tag of all virtual machines in Azure. Other machines of the same vendor have others.
AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """An identity of this machine: its name, and what else the metadata service says about the machine."""

    name: str
    region: str | None = None
    project: str | None = None
    """Google's project."""
    subscription: str | None = None
    resource_group: str | None = None


def machine_identity(kind: str) -> MachineIdentity | None:
    """Return the identity of this machine in a cloud; None without one, and on machines elsewhere."""
    found = {"aws": _aws, "gcp": _gcp, "azure": _azure}[kind]
    with suppress(OSError, ValueError, KeyError):
        return found()
    return None


def _aws() -> MachineIdentity | None:
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    service = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if service is None and not _firmware("sys_vendor").startswith("Amazon"):
        return None
    base = (service or LINK_LOCAL).rstrip("/")
    token = _asked(f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    header = {"X-aws-ec2-metadata-token": token}
    role = _asked(f"{base}/latest/meta-data/iam/security-credentials/", header).split("\n")[0].strip()
    region = _asked(f"{base}/latest/meta-data/placement/region", header).strip()
    return MachineIdentity(f"role {role}", region) if role else None


def _gcp() -> MachineIdentity | None:
    host = os.environ.get("GCE_METADATA_HOST")
    if host is None and not _firmware("product_name").startswith("Google"):
        return None
    base, header = f"http://{host or 'metadata.google.internal'}/computeMetadata/v1", {"Metadata-Flavor": "Google"}
    email = _asked(f"{base}/instance/service-accounts/default/email", header).strip()
    project = _asked(f"{base}/project/project-id", header).strip()
    zone = _asked(f"{base}/instance/zone", header).strip().rpartition("/")[2]
    return MachineIdentity(email, zone.rpartition("-")[0] or None, project) if email else None


def _azure() -> MachineIdentity | None:
    if _firmware("chassis_asset_tag") != AZURE_TAG:
        return None
    header = {"Metadata": "true"}
    about = json.loads(_asked(f"{LINK_LOCAL}/metadata/instance/compute?api-version=2021-02-01", header))
    # Without an identity the service refuses this. The token is not kept.
    query = "api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F"
    _asked(f"{LINK_LOCAL}/metadata/identity/oauth2/token?{query}", header)
    return MachineIdentity(
        "managed identity",
        about["location"],
        subscription=about["subscriptionId"],
        resource_group=about["resourceGroupName"],
    )


def _firmware(name: str) -> str:
    try:
        return (FIRMWARE / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _asked(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Return an answer of a metadata service, which no proxy may answer. Raises OSError, ValueError."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=ANSWER_S) as answer:
        found: bytes = answer.read(ANSWER_BYTES_MAX)
    return found.decode()
