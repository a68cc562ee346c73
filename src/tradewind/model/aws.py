"""Settings of machines rented from Amazon EC2: the table `[aws]` of the configuration."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from tradewind.errors import ConfigError
from tradewind.model.records import dataclass, field, fields
from tradewind.model.table import ENTRIES_MAX, TableReader

__all__ = ["AwsNetwork", "AwsSettings", "read_aws"]

#: Longest life of a machine that may be configured: a month, as in a cluster.
AWS_HOURS_MAX = 720
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
_VPC = re.compile(r"vpc-[0-9a-f]{8,32}")
_SUBNET = re.compile(r"subnet-[0-9a-f]{8,32}")
_GROUP = re.compile(r"sg-[0-9a-f]{8,32}")
_IMAGE = re.compile(r"ami-[0-9a-f]{8,32}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[A-Za-z0-9_.+=,@/-]{1,512}")
_WORD = re.compile(r"[A-Za-z0-9_.:/@+=,-]{1,256}")
_ENDPOINT = re.compile(r"https?://[^\s/]+")


@dataclass(frozen=True, slots=True)
class AwsNetwork:
    """Where machines of one region are attached. Whatever is None is made or chosen by Tradewind.

    - `vpc`: the network; None: the region's default VPC
    - `subnets`: subnets that may be used, at most one in each zone; empty: the default subnets
    - `security_group`: a group that admits the gateways already; None: each fleet gets one of its own
    - `image`: the machine image; None: the newest Amazon Linux 2023
    """

    vpc: str | None = None
    subnets: tuple[str, ...] = ()
    security_group: str | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """How machines are rented. It has no secrets: credentials are found as the AWS command line finds them.

    - `regions`: where machines may run; empty: in all regions of the account
    - `profile`: name of a profile of the AWS configuration; None: the default
    - `instance_profile`: name or ARN of the identity of the machines; None: they have none
    - `public_address`: False for machines without a public address: they call home, through a NAT of the network
    - `end_role`: ARN of a role with which Amazon's scheduler ends machines after `hours_max`, whatever happens inside;
      None: nothing but the machine itself ends it
    - `hours_max`: longest life of a machine, if there is an `end_role`
    - `joined`: True if the user has joined the networks of all regions: private machines reach each other
    - `spot`: rent spot machines where a plan does not choose
    - `networks`: settings of single regions, by the region's name
    - `home_cidr`: addresses from which the owner dials the machines, such as `198.51.100.7/32`
    - `peer_cidrs`: addresses of the fleet's machines outside this provider, which may open data connections
    - `proxy`: URL of an HTTP proxy with which machines reach the program and the stores
    - `endpoint`: address of an emulator of the API. It gets no credentials but those of the environment
    """

    regions: tuple[str, ...] = ()
    profile: str | None = None
    instance_profile: str | None = None
    end_role: str | None = None
    hours_max: int = 24
    public_address: bool = True
    joined: bool = False
    spot: bool = False
    networks: Mapping[str, AwsNetwork] = field(default_factory=dict)
    home_cidr: str | None = None
    peer_cidrs: tuple[str, ...] = ()
    proxy: str | None = None
    endpoint: str | None = None

    @property
    def called_home(self) -> str | None:
        """The address of home that instances without a public address call; None if `home_cidr` is not one address."""
        home = None if self.home_cidr is None else ipaddress.ip_network(self.home_cidr)
        return str(home.network_address) if home is not None and home.num_addresses == 1 else None

    def network(self, region: str) -> AwsNetwork:
        """Return the settings of a region, by its name without `aws:`."""
        return self.networks.get(region) or AwsNetwork()

    def document(self) -> dict[str, Any]:
        """Return the settings as a JSON object."""
        found: dict[str, Any] = {of.name: getattr(self, of.name) for of in fields(AwsSettings)}
        found["networks"] = {
            region: {of.name: getattr(network, of.name) for of in fields(AwsNetwork)}
            for region, network in self.networks.items()
        }
        return found

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> AwsSettings:
        """Return the settings of `document`. Other keys are ignored."""
        given: dict[str, Any] = {of.name: document[of.name] for of in fields(cls) if of.name in document}
        for name in ("regions", "peer_cidrs"):
            given[name] = tuple(given.get(name, ()))
        given["networks"] = {
            region: AwsNetwork(**{**network, "subnets": tuple(network.get("subnets", ()))})
            for region, network in given.get("networks", {}).items()
        }
        return cls(**given)


def read_aws(table: Mapping[str, Any], place: str) -> AwsSettings:
    """Return the settings of the table `[aws]` of a configuration. `place` names it in errors. Raises ConfigError."""
    read = _reader(table, f"{place}: aws", tuple(of.name for of in fields(AwsSettings)))
    networks = table.get("networks", {})
    if not isinstance(networks, Mapping) or len(networks) > ENTRIES_MAX:
        raise ConfigError(f"{place}: aws.networks must be tables", hint="for example [aws.networks.us-east-1]")
    settings = AwsSettings(
        regions=read.texts("regions", _REGION, "a region of AWS, such as us-east-1"),
        profile=read.text("profile", _WORD, "the name of a profile"),
        instance_profile=read.text("instance_profile", _WORD, "the name or ARN of an instance profile"),
        end_role=read.text("end_role", _ROLE, "the ARN of a role, such as arn:aws:iam::123456789012:role/NAME"),
        hours_max=read.whole("hours_max", 24, AWS_HOURS_MAX),
        public_address=read.flag("public_address", True),
        joined=read.flag("joined", False),
        spot=read.flag("spot", False),
        networks={region: _network(region, network, place) for region, network in networks.items()},
        home_cidr=read.cidr("home_cidr"),
        peer_cidrs=read.cidrs("peer_cidrs"),
        proxy=read.text("proxy", _ENDPOINT, "an address such as http://proxy.example:3128"),
        endpoint=read.text("endpoint", _ENDPOINT, "an address such as http://127.0.0.1:8080"),
    )
    for region in settings.networks:
        if settings.regions and region not in settings.regions:
            raise ConfigError(f"{place}: aws.networks.{region}: {region} is not in aws.regions")
    return settings


def _network(region: str, table: Any, place: str) -> AwsNetwork:
    where = f"{place}: aws.networks.{region}"
    if not _REGION.fullmatch(region) or not isinstance(table, Mapping):
        raise ConfigError(f"{where} must be a table named after a region", hint="for example [aws.networks.us-east-1]")
    read = _reader(table, where, tuple(of.name for of in fields(AwsNetwork)))
    network = AwsNetwork(
        vpc=read.text("vpc", _VPC, "the id of a VPC, such as vpc-0a1b2c3d"),
        subnets=read.texts("subnets", _SUBNET, "the id of a subnet, such as subnet-0a1b2c3d"),
        security_group=read.text("security_group", _GROUP, "the id of a security group, such as sg-0a1b2c3d"),
        image=read.text("image", _IMAGE, "the id of an image, such as ami-0a1b2c3d"),
    )
    if network.vpc is not None and not network.subnets:
        raise ConfigError(f"{where}: a VPC needs subnets", hint='for example subnets = ["subnet-0a1b2c3d"]')
    return network


def _reader(table: Mapping[str, Any], place: str, known: tuple[str, ...]) -> TableReader:
    if unknown := sorted(table.keys() - set(known)):
        raise ConfigError(f"{place} has no setting {unknown[0]!r}", hint=f"known: {', '.join(known)}")
    return TableReader(table, place)
