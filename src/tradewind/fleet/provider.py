"""Interface of a provider: what it rents out, and the calls that start, list and end machines.

A provider is one file of `fleet/providers`. Its calls may block; the fleet runs each in a thread under a time limit. A
call is about many machines and never handles them one after the other. A provider keeps nothing that it could not find
again by the tags of its machines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tradewind.errors import GatewayError
from tradewind.gateway.owner import Join

__all__ = [
    "ANY_TYPE",
    "FLEET_TAG",
    "GENERATION_TAG",
    "KEY_TAG",
    "NAME_TAG",
    "OWNER_TAG",
    "Billing",
    "CallRefused",
    "Ended",
    "Home",
    "Host",
    "LaunchOrder",
    "LaunchResult",
    "Lease",
    "Leftover",
    "Machine",
    "NetworkChoice",
    "Offer",
    "Provider",
    "Quota",
    "Refusal",
    "RefusalKind",
    "Role",
]

#: Tags of every machine. Names and values are letters, digits and `-`, at most 63 of them: every cloud takes them.
FLEET_TAG = "tradewind-fleet"
NAME_TAG = "tradewind-machine"
KEY_TAG = "tradewind-order"
GENERATION_TAG = "tradewind-generation"
OWNER_TAG = "tradewind-owner"

#: Type of an offer that stands for every machine type: of emulated machines.
ANY_TYPE = "any"

RefusalKind = Literal["permission", "quota", "capacity", "throttled", "bad request", "transient"]
Role = Literal["source", "relay", "sink", "probe"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a provider did not do something. An error that no rule classifies is `transient`, never `capacity`."""

    kind: RefusalKind
    reason: str
    """In the provider's own words, one line."""
    action: str | None = None
    """For `permission`: the action that is missing, such as `ec2:CreateFleet`."""
    retry_after_s: float | None = None
    """For `throttled`: the wait that the provider asks for."""


class CallRefused(GatewayError):
    """A provider refused a whole call."""

    def __init__(self, refusal: Refusal) -> None:
        needed = None if refusal.action is None else f"the missing permission is {refusal.action}"
        super().__init__(refusal.reason, hint=needed)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Billing:
    """When a machine begins to cost, and how its time is counted."""

    unit_s: float = 1.0
    """Billed time is rounded up to a multiple of this."""
    least_s: float = 0.0
    """Minimum billed time."""
    begins: Literal["launched", "running"] = "launched"
    """The event from which a machine is billed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine that can be rented in a region."""

    region: str
    type: str
    spot: bool = False
    usd_per_s: float = 0.0
    price_source: str = ""
    billing: Billing = field(default_factory=Billing)
    egress_gbps: float = float("inf")
    """Cap on what one machine sends; infinite if no limit is known, as is `ingress_gbps`."""
    ingress_gbps: float = float("inf")
    boot_s: float = 0.0
    """Time from the order until a gateway answers."""
    zones: tuple[str, ...] = ()
    """Zones in which the type is offered; empty if the region has none."""
    left: int | None = None
    """How many more of it the account may start; None if there is no limit, or it is unknown."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limit on the machines of a region, and how many of them are in use, by whomever."""

    most: int
    used: int = 0

    @property
    def left(self) -> int:
        """Machines that can still be started."""
        return max(0, self.most - self.used)


@dataclass(frozen=True, slots=True)
class Lease:
    """A machine ends by itself `seconds` after its launch or its last renewal. `owner` says who may renew it."""

    seconds: int
    owner: str
    """Host id, boot id, process id and start time of the owner, as `owner.Owner.label`."""


@dataclass(frozen=True, slots=True)
class NetworkChoice:
    """How a machine is attached to networks. None lets the provider choose."""

    listen: str | None = None
    """Address where its gateway listens for others, `ip:port`."""
    network: str | None = None
    """Name of the network, such as a VPC or subnet."""
    public_address: bool | None = None


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One machine that a fleet needs.

    The same `key` always means the same machine: a repeated order returns the machine that is there.
    """

    fleet_id: str
    name: str
    """Name of its gateway: a DNS label, unique in the fleet."""
    region: str
    key: str
    generation: int
    """Number of the intent that wants the machine; see `FleetJournal.intend`."""
    lease: Lease
    role: Role = "relay"
    type: str | None = None
    """Machine type; None lets the provider choose."""
    zone: str | None = None
    spot: bool = False
    peers: tuple[str, ...] = ()
    """Names of the gateways that connect to it, for firewall rules. Without any it listens to nobody."""
    network: NetworkChoice = field(default_factory=NetworkChoice)
    join: Join | None = None
    """What its gateway needs to join the fleet; None if there are no hops, or plain ones. A cloud passes it as user
    data, which others may read: its token works once, and for minutes.
    """

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the machine, by which it is found without local state."""
        return {
            FLEET_TAG: self.fleet_id,
            NAME_TAG: self.name,
            KEY_TAG: self.key,
            GENERATION_TAG: str(self.generation),
            OWNER_TAG: self.lease.owner,
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """A rented unit: a VM, a pod, a host, a process. `id` is the provider's own name for it."""

    id: str
    name: str
    region: str
    type: str | None = None
    zone: str | None = None
    spot: bool = False
    launched_unix_s: float | None = None
    """Times as the provider reports them; None if it does not, or not yet."""
    running_unix_s: float | None = None
    ended_unix_s: float | None = None
    ended: bool = False
    """True if the provider says that it has ended. A machine that is not listed has ended too, after `settles_s`."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Its address on each of its networks, by the network's name."""
    control: str | None = None
    """Where its gateway listens for control: `host:port` for the owner, or `unix:PATH` on this host; None while that is
    unknown, and if the gateway calls home.
    """
    inbound: bool = True
    """False if nobody outside its network can open a connection to it: its gateway calls home."""
    lease: Lease | None = None
    """The lease that it was launched with."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The answer to one order: a machine, or why there is none."""

    order: LaunchOrder
    machine: Machine | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer to the termination of one machine. Without `refusal` it is gone, or was gone before."""

    id: str
    ended_unix_s: float | None = None
    """End as the provider reports it; None for a machine that it does not know."""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something of ours that costs money or is clutter: a machine, an address, a disk, a folder."""

    id: str
    """What `terminate` takes."""
    kind: str
    region: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Home:
    """Where the lead of a fleet runs: beside the client. It is not a machine: never ordered, charged or leased.

    `enter` are the words of a command that becomes the one behind it, there; `address` is where gateways can reach it.
    """

    enter: tuple[str, ...] = ()
    address: str = "127.0.0.1"


class Host(Protocol):
    """Access to a machine, where that is possible. All calls raise GatewayError."""

    def put(self, name: str, content: bytes) -> str:
        """Write a file of mode 0700 that ends with the machine, and return its path there."""
        ...

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Run a command; return its exit code and its output, both streams together. One that is missing fails."""
        ...

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of what the gateway wrote to its standard error."""
        ...

    def ending(self, timeout_s: float) -> str | None:
        """Describe how the gateway ended, waiting for it up to the timeout; None if it still runs."""
        ...


class Provider(Protocol):
    """Rents out machines. Each call raises CallRefused if it is refused as a whole."""

    @property
    def kind(self) -> str:
        """`local`, `sky`, …: the name of its file."""
        ...

    @property
    def settles_s(self) -> float:
        """Time after which `machines` shows every change; 0 if it always does."""
        ...

    def document(self) -> dict[str, Any]:
        """Facts that a later process needs to connect to this provider again. No secrets."""
        ...

    def home(self, region: str) -> Home:
        """Return where the client is said to be, for a fleet whose source is in `region`."""
        ...

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return what can be rented in these regions, the cheapest first within each."""
        ...

    def quota(self, region: str) -> Quota | None:
        """Return the limit on machines in a region; None if there is none, or it cannot be read."""
        ...

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start machines, all at the same time, and return one result per order. Some may be refused, and only those.

        A machine that is there already by its key is returned and not started again.
        """
        ...

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return the machines that have all these tags, whoever ordered them; those that ended are listed as such, or
        not at all.
        """
        ...

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """End machines, all at the same time, with everything that belongs to them, and return one answer per id.

        Gateways have `grace_s` seconds to put down what they hold. Ending a machine that is gone is no error.
        """
        ...

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return everything of ours that the provider has, also what belongs to fleets in use."""
        ...

    def host(self, machine: Machine) -> Host | None:
        """Return access to a machine; None where there is none."""
        ...
