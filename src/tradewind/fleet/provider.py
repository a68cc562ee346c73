"""Interface of a provider: its offers, and the calls that start, list and end machines.

A provider is one file of `fleet/providers`. Its calls may block; the fleet runs each in a thread under a time limit. A
call is about many machines and must not handle them one after the other. A provider keeps no state of its own: it finds
everything again by the tags of its machines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from tradewind.errors import GatewayError
from tradewind.model.network_tier import NetworkTier
from tradewind.model.records import dataclass, field

if TYPE_CHECKING:
    from tradewind.gateway.owner import Join

__all__ = [
    "ANY_TYPE",
    "FLEET_TAG",
    "GENERATION_TAG",
    "KEY_TAG",
    "NAME_TAG",
    "OWNER_TAG",
    "Accountable",
    "Admitting",
    "Adopting",
    "Billing",
    "CallRefused",
    "Checking",
    "Connected",
    "Ended",
    "Exposing",
    "Home",
    "Host",
    "Keepable",
    "LaunchOrder",
    "LaunchResult",
    "Lease",
    "Leftover",
    "ListIncomplete",
    "Machine",
    "NetworkChoice",
    "Offer",
    "PermissionAnswer",
    "Provider",
    "Quota",
    "Refusal",
    "RefusalKind",
    "Role",
]

#: Tags of every machine. Names and values are up to 63 letters, digits and `-`, which every cloud accepts.
FLEET_TAG = "tradewind-fleet"
NAME_TAG = "tradewind-machine"
KEY_TAG = "tradewind-order"
GENERATION_TAG = "tradewind-generation"
OWNER_TAG = "tradewind-owner"

#: Type of an offer that matches every machine type. Emulated machines have it.
ANY_TYPE = "any"

RefusalKind = Literal["permission", "quota", "capacity", "throttled", "bad request", "transient"]
Role = Literal["source", "relay", "sink", "probe"]
#: Longest wait between a few attempts, whatever wait the provider asks for.
PAUSE_S_MAX = 20.0
#: Beginnings of an action that describes something else than a permission, such as a login.
_PHRASES = ("a ", "an ", "the ", "valid ", "`")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a provider refused a call or an order. An unclassified error is `transient`, never `capacity`."""

    kind: RefusalKind
    reason: str
    """In the provider's own words, one line."""
    action: str | None = None
    """The missing permission, such as `ec2:CreateFleet`, or another need, such as `a sign-in to …`."""
    retry_after_s: float | None = None
    """For `throttled`: the wait that the provider asks for."""

    def pause_s(self, least_s: float, most_s: float | None = None) -> float:
        """Return the wait before the next attempt: that of the provider, from `least_s` to `most_s`.

        Providers may ask for hours, for which machines would run. Without `most_s` it is PAUSE_S_MAX at most.
        """
        return max(least_s, min(self.retry_after_s or 0.0, PAUSE_S_MAX if most_s is None else most_s))

    @property
    def lacks_permission(self) -> bool:
        """True if one permission is missing and named, and not another need such as a login."""
        return self.kind == "permission" and self.action is not None and not self.action.startswith(_PHRASES)

    @property
    def missing(self) -> str | None:
        """The action in words, as a hint; None without an action."""
        if self.action is None:
            return None
        return (
            f"this needs {self.action}"
            if self.action.startswith(_PHRASES)
            else f"the missing permission is {self.action}"
        )


class CallRefused(GatewayError):
    """A provider refused a whole call."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason, hint=refusal.missing)
        self.refusal = refusal


class ListIncomplete(CallRefused):
    """Some of the places of a provider did not list their machines. `found` are those of the others.

    Machines that are not among them may run. Those that are can be ended.
    """

    def __init__(self, refusal: Refusal, found: Iterable[Machine]) -> None:
        super().__init__(refusal)
        self.found = tuple(found)


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """Answer to whether this login has one permission of the provider's smallest policy."""

    place: str
    """The region, project, resource group or cluster that it is for."""
    action: str
    """The permission, as in `Refusal.action`."""
    granted: bool | None
    """None if it cannot be known."""
    why: str | None = None
    """Why it cannot be known."""
    loss: str | None = None
    """Consequence if it is missing; None if machines cannot be rented, watched or ended without it."""
    is_error: bool = False
    """True if it is not known because the question failed."""


@dataclass(frozen=True, slots=True)
class Billing:
    """From when a machine is billed, and how its time is rounded."""

    unit_s: float = 1.0
    """Billed time is rounded up to a multiple of this."""
    least_s: float = 0.0
    """Minimum billed time."""
    begins: Literal["launched", "running"] = "launched"
    """The event that starts billing."""


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
    """Cap on the rate at which one machine sends. This and `ingress_gbps` are infinite if no limit is known."""
    ingress_gbps: float = float("inf")
    boot_s: float = 0.0
    """Time from the order until a gateway answers."""
    zones: tuple[str, ...] = ()
    """Zones in which the type is offered; empty if the region has none."""
    left: int | None = None
    """Number of further machines of this type that the account may start; None if unlimited or unknown."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limit on the machines of a region, and how many are in use, including those outside Tradewind."""

    most: int
    used: int = 0

    @property
    def left(self) -> int:
        """Machines that can still be started."""
        return max(0, self.most - self.used)


@dataclass(frozen=True, slots=True)
class Lease:
    """A machine ends by itself `seconds` after its launch or its last renewal. Only `owner` may renew it."""

    seconds: int
    owner: str
    """Host id, boot id, process id and start time of the owner, as `owner.Owner.label`."""


@dataclass(frozen=True, slots=True)
class NetworkChoice:
    """How a machine is attached to networks. None lets the provider choose."""

    listen: str | None = None
    """Address at which its gateway listens for other gateways, `ip:port`."""
    network: str | None = None
    """Name of the network, such as a VPC or subnet."""
    public_address: bool | None = None
    network_tier: NetworkTier | None = None
    """How its traffic to other networks leaves the cloud; None leaves that to the settings."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One machine that a fleet needs.

    The same `key` always means the same machine: repeating an order returns the machine that was launched before.
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
    """Names of the gateways that connect to it, for firewall rules. If empty, its gateway has no data port."""
    network: NetworkChoice = field(default_factory=NetworkChoice)
    join: Join | None = None
    """Data with which its gateway joins the fleet; None if there are no hops, or only plain ones. A cloud passes it as
    user data, which others may read. Therefore its token works only once and for minutes.
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
    """This time and the next two are reported by the provider; None if it does not report them, or not yet."""
    running_unix_s: float | None = None
    ended_unix_s: float | None = None
    ended: bool = False
    """True if the provider reports its end. A machine that is not listed `settles_s` after its launch has ended too."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Its address on each of its networks, by the network's name."""
    control: str | None = None
    """Control address of its gateway: `host:port` for the owner, or `unix:PATH` on this host. None while that is
    unknown, and if the gateway calls home. Of a guest it is `unix:NAME/PATH`, relative to the fleet's folder.
    """
    is_guest: bool = False
    """True for a user's host that takes part by itself: no credentials are sent there."""
    data_at_home: str | None = None
    """Address at which the lead at home reaches the gateway's data port, `host:port`, if that is forwarded."""
    inbound: bool = True
    """False if no connection can be opened to it from outside its network. Without `control` its gateway calls home."""
    network: str | None = None
    """Name of a network of several regions: machines with the same name open connections to each other."""
    lease: Lease | None = None
    """Its lease at launch."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The answer to one order: a machine or a refusal."""

    order: LaunchOrder
    machine: Machine | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer to the termination of one machine. Without a `refusal` the machine no longer exists."""

    id: str
    ended_unix_s: float | None = None
    """The end that the provider reports; None for a machine that it does not know."""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A resource of ours that costs money or is clutter: a machine, an address, a disk, a folder."""

    id: str
    """The id that `terminate` accepts."""
    kind: str
    """Its kind, in words. `machine` is one that has not ended: other leftovers of its fleet may be in use."""
    region: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> str:
        """Its kind in a line for the user."""
        return "copied program" if self.kind == "program" else self.kind


@dataclass(frozen=True, slots=True)
class Home:
    """Where the lead of a fleet runs: beside the client. It is not a machine: never ordered, charged or leased.

    `enter` is a command prefix that runs the command after it at home. Gateways reach the home at `address`.
    `before_end` is called while the lead still answers, when it is about to be ended.
    """

    enter: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    before_end: Callable[[], None] | None = field(default=None, compare=False)


class Host(Protocol):
    """Access to a machine, where that is possible. All calls raise GatewayError."""

    def put(self, name: str, content: bytes) -> str:
        """Write a file of mode 0700 that ends with the machine, and return its path there."""
        ...

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Run a command; return its exit code (not 0 if it is missing), and its standard output and error together."""
        ...

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the gateway's standard error."""
        ...

    def ending(self, timeout_s: float) -> str | None:
        """Describe how the gateway ended; None if it still runs. Waits up to the timeout for its end."""
        ...


class Provider(Protocol):
    """Rents out machines. A call raises CallRefused if it is refused as a whole."""

    @property
    def kind(self) -> str:
        """Name of the provider and of its file, such as `local` or `sky`."""
        ...

    @property
    def settles_s(self) -> float:
        """Maximum time until `machines` shows a change; 0 if it shows changes at once."""
        ...

    def document(self) -> dict[str, Any]:
        """Return what a later process needs to connect to this provider again. It contains no secrets."""
        ...

    def home(self, region: str) -> Home:
        """Return the home of a fleet whose source is in `region`."""
        ...

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return the offers of these regions, the cheapest first within each region."""
        ...

    def quota(self, region: str) -> Quota | None:
        """Return the limit on machines in a region; None if it has none or it cannot be read."""
        ...

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Start machines concurrently, and return one result per order. A refused order does not affect the others.

        A machine that was launched before with the same key is returned and not started again.
        """
        ...

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return the machines with all these tags, whichever process ordered them. Ended machines are listed as ended,
        or not at all. Raises ListIncomplete if some regions, hosts or clusters do not answer.
        """
        ...

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """End machines concurrently, with all resources that belong to them, and return one answer per id.

        Gateways have `grace_s` seconds to save their work. Ending a machine that is gone is not an error.
        """
        ...

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all resources of ours that the provider has, including those of fleets in use."""
        ...

    def host(self, machine: Machine) -> Host | None:
        """Return access to a machine; None if the provider offers none."""
        ...


@runtime_checkable
class Admitting(Protocol):
    """A provider with a firewall of its own, which must be told about machines of the same fleet at other providers."""

    def admit(self, fleet_id: str, addresses: Collection[str]) -> None:
        """Let machines at these IP addresses, and no others elsewhere, open connections to the data ports of a fleet.

        Replaces the addresses of the last call. They also hold for machines that are launched later, even if the fleet
        has had none here meanwhile. Raises CallRefused.
        """
        ...


@runtime_checkable
class Accountable(Provider, Protocol):
    """A provider whose machines may leave something that costs money or is clutter."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of resources that `left_of` looks for, in words and the plural; none if there can be none."""
        ...

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return all resources of a fleet that the provider has. Raises CallRefused if it cannot be asked."""
        ...


@runtime_checkable
class Checking(Protocol):
    """A provider that can say which permissions of its smallest policy a login has."""

    def permissions(self) -> Sequence[PermissionAnswer]:
        """Return an answer for each permission of the smallest policy, in each place. Nothing is made or changed.

        Raises CallRefused if no permission can be asked for.
        """
        ...


@runtime_checkable
class Keepable(Protocol):
    """A provider whose machines a later command may not reach, or which end at a time that no lease moves."""

    def kept_s_max(self, region: str) -> float:
        """Return the maximum time for which machines of a region can be kept for later commands [s].

        Zero if their gateways call home: a later command does not reach them.
        """
        ...


@runtime_checkable
class Exposing(Protocol):
    """A provider whose machines other programs near them reach at names."""

    def expose(self, machine: Machine, services: Mapping[str, Mapping[int, int]]) -> None:
        """Make Services that lead to a machine, and that end with it.

        `services` are ports of the machine by the Service's port, by name. One that leads to this machine already
        stays. Raises CallRefused.
        """
        ...


@runtime_checkable
class Adopting(Protocol):
    """A provider that reaches machines only through connections which each process opens for itself."""

    def adopt(self, fleet_id: str) -> None:
        """Open connections to the machines of a fleet that another process has launched.

        `machines` then shows at which addresses this process reaches them. Raises CallRefused.
        """
        ...


@runtime_checkable
class Connected(Protocol):
    """A provider that keeps connections open from one call to the next."""

    def disconnect(self) -> None:
        """Close the connections that no machine of this object needs. A later call opens them again."""
        ...
