"""Access to one store: one side of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tradewind.model.records import dataclass, field

#: Credentials that gateways on rented machines get: temporary ones that are limited to the job; those of this machine,
#: as they are; none, because the machines have an identity of their own.
Lending = Literal["scoped", "whole", "machine"]


@dataclass(frozen=True)
class Access:
    """Access to one side: endpoint, region, name of a credential profile. Never a credential.

    `path_style` None: the store decides (with a custom endpoint, in the path). `ca_file` is a PEM file. `lending` says
    which credentials gateways on other machines get; with an AWS `role` (an ARN) they get sessions of that role. With
    `resolved_root` the path of a file has no links: one that becomes a part of it is an error. With
    `is_given` the credentials come with the job, and the environment of this machine names no endpoint and no region.
    """

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool | None = None
    anonymous: bool = False
    requester_pays: bool = False
    ca_file: str | None = None
    fsync: bool = False
    follow_symlinks: bool = False
    resolved_root: bool = False
    lending: Lending = "scoped"
    role: str | None = None
    is_given: bool = False
    hides_words: bool = False
    """True if the gateway of a guest learns only code and status of what this store answers to a sink."""
    has_guest: bool = False
    """True if a place of a guest is allowed: its own gateway reads or writes there, whatever the job says."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """One store of a job, as the contract has it. `url` is its root: `s3://bucket`, `file:///dir`, `mem:`."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool | None = None
    anonymous: bool = False
    requester_pays: bool = False
    ca_file: str | None = None
    fsync: bool = False
    follow_symlinks: bool = False
    resolved_root: bool = False
    hides_words: bool = False
    lending: Lending = "scoped"
    role: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
