"""Packet filters of booted machines: rules of nftables in their network namespaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testbed.clouds.debian_packages import unpacked

__all__ = ["accept_only", "drop_inbound", "dropped_packets", "filter_unavailable", "only_to", "set_filter"]

#: nft, with the libraries that small installations lack.
PACKAGES = ("nftables", "libnftables1", "libnftnl11", "libmnl0", "libedit2", "libjansson4", "libxtables12")
#: The device of a machine to itself, as a packet enters it or leaves it.
LOOPBACK = {"input": 'iifname "lo"', "output": 'oifname "lo"'}


def filter_unavailable() -> str | None:
    """Return why machines cannot have filters here, or None. Raises InstallError if nft cannot be downloaded."""
    done = _nft(["unshare", "--net"], drop_inbound())
    return None if done.returncode == 0 else f"the kernel refuses filters: {done.stderr.strip()}"


def drop_inbound() -> str:
    """Return rules with which a machine opens connections and accepts none."""
    return _table("input", "")


def accept_only(*connections: tuple[str, int]) -> str:
    """Return rules with which a machine opens connections, and accepts these alone: from networks, to ports."""
    rules = (f"ip saddr {source} tcp dport {port} accept" for source, port in connections)
    return _table("input", "\n    ".join(rules))


def only_to(*addresses: str) -> str:
    """Return rules with which a machine opens connections to these addresses (`IP . PORT`) alone, and accepts all."""
    return _table("output", f"ip daddr . tcp dport {{ {', '.join(addresses)} }} accept")


def set_filter(pid: int, rules: str) -> None:
    """Filter the packets of a process's network namespace. Raises RuntimeError if nft refuses the rules."""
    done = _nft(_inside(pid), rules)
    if done.returncode != 0:
        raise RuntimeError(f"nft: {done.stderr.strip()}")


def dropped_packets(pid: int) -> int:
    """Return how many packets the filter of a process's network namespace has dropped."""
    listed = _nft(_inside(pid), "list counter inet tradewind dropped").stdout
    return int(listed.partition("packets ")[2].split()[0])


def _table(hook: str, rule: str) -> str:
    return f"""
table inet tradewind {{
  counter dropped {{ }}
  chain filter {{
    type filter hook {hook} priority 0; policy drop;
    {LOOPBACK[hook]} accept
    ct state established,related accept
    {rule}
    counter name "dropped"
  }}
}}
"""


def _inside(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _nft(enter: list[str], rules: str) -> subprocess.CompletedProcess[str]:
    """Run nft in a network namespace."""
    folder = unpacked("nftables-1", PACKAGES)
    libraries = sorted({str(Path(library).parent) for library in folder.glob("usr/lib/**/*.so.*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    words = [*enter, str(folder / "usr/sbin/nft"), "-f", "-"]
    return subprocess.run(words, input=rules, capture_output=True, text=True, env=environment, check=False)
