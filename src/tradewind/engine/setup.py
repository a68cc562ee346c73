"""What `tradewind init` finds: hosts that the user can log in to, clouds of the configuration, and what they offer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.permissions import Answers, asked_permissions, counted, grouped
from tradewind.engine.survey import SiteMember, members_of, survey
from tradewind.errors import ConfigError, TradewindError
from tradewind.fleet.calls import CALL_S, InFlight, each_of
from tradewind.model.files import open_private
from tradewind.model.hosts import SshHost, SshHosts
from tradewind.model.records import dataclass
from tradewind.model.sites import CLOUDS, SSH, Sites
from tradewind.model.units import format_count, format_usd

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.fleet.site_catalog import Supply
    from tradewind.model.region import Region

__all__ = [
    "Caveat",
    "FoundHost",
    "Note",
    "Unusable",
    "append_tables",
    "available",
    "find_hosts",
    "host_tables",
    "policies",
]

#: Configuration of the user's ssh.
SSH_CONFIG = "~/.ssh/config"
#: Hosts that are asked at the same time.
HOSTS_AT_ONCE_MAX = 16
ADD = "add it to the policy or role of your login; `tradewind init` prints the smallest one"
MORE = "wait until other machines have ended, or ask the provider for a larger quota"


@dataclass(frozen=True, slots=True)
class FoundHost:
    """A host of the user's ssh configuration; `error` says why gateways cannot run there."""

    host: SshHost
    error: TradewindError | None = None


def find_hosts(control: JobControl, known: SshHosts) -> list[FoundHost]:
    """Return the hosts of an ssh configuration that are not known yet. Logs in to all of them at once, as gateways do.

    Without a region in the configuration each host gets one of its own, `site:NAME`.
    """
    from tradewind.fleet.ssh.aliases import address_of, host_aliases

    path = Path(os.path.expanduser(known.ssh_config or SSH_CONFIG))
    taken = {host.name for host in known.hosts}
    names = [name for name in host_aliases(path) if name not in taken]

    def look(name: str) -> FoundHost:
        host = SshHost(name, f"site:{_label(name)}", address_of(name, known.ssh_config) or name)
        document = {"kind": SSH, **SshHosts((host,), known.ssh_config).document()}
        found = survey(control, [SiteMember(name, (host.region,), document)])
        return FoundHost(host, next((failure.error for failure in found.failures), None))

    return each_of(names, look, HOSTS_AT_ONCE_MAX)


def _label(name: str) -> str:
    """Return a name as the second part of a region."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.rpartition("@")[2].lower()).strip("-") or "host"


def host_tables(hosts: Sequence[SshHost]) -> str:
    """Return the tables of hosts as TOML."""
    lines = []
    for host in hosts:
        lines += ["[[ssh.hosts]]", f"name = {json.dumps(host.name)}", f"region = {json.dumps(host.region)}"]
        lines += [] if host.address == host.name else [f"address = {json.dumps(host.address)}"]
        lines.append("")
    return "\n".join(lines)


def append_tables(path: str, text: str) -> None:
    """Add tables at the end of a configuration file, which is made if it does not exist. What is there stays.

    Raises ConfigError.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        before = Path(path).read_text(encoding="utf-8") if os.path.exists(path) else ""
        if "ssh.hosts" in text and "ssh.hosts" not in before and "hosts" in before:
            raise ConfigError(f"{path}: its hosts are not written as [[ssh.hosts]]", hint="add the tables by hand")
        gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        with open(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", encoding="utf-8") as file:
            file.write(gap + text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="--config names another file") from None


def policies(sites: Sites) -> Iterator[tuple[str, str]]:
    """Yield each cloud of the configuration with the smallest policy or role that suffices for it, as text to apply."""
    for cloud in sites.clouds:
        how = CLOUDS[cloud.kind]
        if how.policy is not None:
            module, _, function = how.policy.partition(":")
            found = getattr(import_module(module), function)(how.settings(cloud.settings))
            yield cloud.kind, found if isinstance(found, str) else json.dumps(found, indent=2)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A provider or region that could not be asked, and why."""

    place: str
    reason: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class Caveat:
    """A region that can be used, but not now or not as it should, and why."""

    place: str
    reason: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a provider that is as it should be."""

    place: str
    what: str


def available(control: JobControl, sites: Sites) -> Iterator[str | Note | Caveat | Unusable]:
    """Yield a line for each region where machines are available, a caveat for each where none is left or the quota
    cannot be read, and each provider or region that cannot be used: it cannot be asked, a permission is missing, or its
    machines could not download the program or be reached.

    The providers answer with dry runs and queries; nothing is started.
    """
    from tradewind.catalog.load import load_catalog
    from tradewind.engine.ground import launch_document

    members = members_of(sites, load_catalog().places)
    asked: tuple[Callable[[], Any], ...] = (
        lambda: survey(control, members),
        lambda: _unlisted(control, members),
        lambda: asked_permissions(control, members),
    )
    found, unlisted, permissions = each_of(asked, lambda ask: ask())
    hidden = {region for member in members if member.name in unlisted for region in member.regions}
    for region, supply in sorted(found.supplies(found.left).items()):
        if str(region) in hidden:
            continue
        if supply.left == 0:
            yield Caveat(str(region), "no machine is left, because the quota is used up", MORE)
        else:
            yield _line(region, supply)
    whole = {(failure.member.name, failure.reason) for failure in found.failures if failure.region is None}
    told = {name for name, _ in whole}
    for name, error in unlisted.items():
        if name not in told:
            yield Unusable(name, str(error), error.hint)
    for failure in found.failures:
        is_same = (failure.member.name, failure.reason) in whole or failure.region in hidden
        if failure.region is not None and is_same:
            continue  # Its provider cannot be used at all.
        if failure.hides_only_the_quota:
            yield Caveat(failure.place, f"the quota cannot be read: {failure.reason}", failure.error.hint)
        else:
            yield Unusable(failure.place, failure.reason, failure.error.hint)
    for name, answers in permissions.items():
        if not (isinstance(answers, TradewindError) and name in {*told, *unlisted}):
            yield from _of_permissions(name, answers)
    for member in members:
        try:
            launch_document(member, sites, control.gateway)
        except TradewindError as error:
            yield Unusable(member.name, str(error), error.hint)


def _of_permissions(name: str, answers: Answers) -> Iterator[Note | Caveat | Unusable]:
    """Yield what a provider's answers about permissions mean: each missing one, and how many are there."""
    if isinstance(answers, TradewindError):
        yield Caveat(name, f"its permissions cannot be checked: {answers}", answers.hint)
        return
    for action, missing in grouped([one for one in answers if one.granted is False], lambda one: one.action):
        words, loss = f"the permission {action} is missing in {counted(missing)}", missing[0].loss
        yield Unusable(name, words, ADD) if loss is None else Caveat(name, f"{words}: {loss}", ADD)
    if answers:
        granted = {one.action for one in answers if one.granted} - {one.action for one in answers if not one.granted}
        yield Note(name, f"{len(granted)} of {len({one.action for one in answers})} permissions are granted")
    for why, unknown in grouped([one for one in answers if one.granted is None], lambda one: one.why or ""):
        actions = dict.fromkeys(one.action for one in unknown)
        if unknown[0].is_error:
            yield Caveat(name, f"{format_count(len(actions), 'permission')} could not be checked: {why}", None)
        else:
            yield Note(name, f"not checked: {', '.join(actions)} ({why})")


def _unlisted(control: JobControl, members: Sequence[SiteMember]) -> dict[str, TradewindError]:
    """Return the clouds that do not list their machines, and why: without that nothing works there.

    Hosts and clusters list theirs when they are asked for their quotas.
    """
    from tradewind.fleet.journal import FleetJournal
    from tradewind.fleet.providers import make_provider

    journal, in_flight = FleetJournal(control.store.state_dir), InFlight()

    def ask(member: SiteMember) -> TradewindError | None:
        try:
            provider = make_provider(member.document, control.gateway, journal)
            in_flight.within(CALL_S, "list machines", lambda: provider.machines({}))
        except TradewindError as error:
            return error
        return None

    clouds = [member for member in members if member.name in CLOUDS and member.name != "kubernetes"]
    answers = zip(clouds, each_of(clouds, ask), strict=True)
    return {member.name: error for member, error in answers if error is not None}


def _line(region: Region, supply: Supply) -> str:
    types = sorted({offer.type for offer in supply.offers})
    cheapest = min(offer.usd_per_s for offer in supply.offers) * 3600
    left = "no known limit" if supply.left is None else format_count(supply.left, "machine") + " left"
    own = " as pods" if supply.provider == "kubernetes" else " on your hosts"
    what = own if types == ["any"] else f", {format_count(len(types), 'machine type')}"
    return f"{region}  {left}{what}, from {format_usd(cheapest)} per hour"
