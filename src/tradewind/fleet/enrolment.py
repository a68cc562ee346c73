"""Enrolment of a fleet's gateways: who may join with which token, and where each is reached.

The owner, a process at home, issues the certificates. It dials machines, or machines call it, and it carries control
calls to them through sockets in the fleet's folder.
"""

from __future__ import annotations

from pathlib import Path

from tradewind.errors import GatewayError, GatewayLost
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.home import start_owner
from tradewind.fleet.provider import KEY_TAG, Home, Machine
from tradewind.fleet.sockets import GUESTS, HOME, ControlFolder
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.owner import Join, JoinToken

__all__ = ["Enrolment"]


class Enrolment:
    """Runs the owner of a fleet's gateways. Close it after the machines have ended."""

    def __init__(
        self,
        binary: str,
        folder: Path,
        home: Home,
        logs: Path | None,
        *,
        keeps_ca: bool = False,
        credentials: GivenCredentials | None = None,
    ) -> None:
        """Start the owner. Its sockets are in `folder`, and with `keeps_ca` the CA's key. With `credentials` it sends
        gateways these, and none of this machine. Raises GatewayError.
        """
        self._sockets = ControlFolder(folder, make=True)
        self._desks: ControlFolder | None = None
        self._folder = folder
        #: Join tokens by the key of the order: a repeated order uses the same token.
        self._tokens: dict[str, JoinToken] = {}
        #: Id and control address of the machines that were added to the owner, by name.
        self._admitted: dict[str, tuple[str, str | None]] = {}
        try:
            self.owner = start_owner(binary, folder, home, logs, keeps_ca=keeps_ca, credentials=credentials)
        except BaseException:
            self._sockets.close()
            raise

    def lead_join(self, name: str) -> Join:
        """Return the join data of the lead, which calls the owner. Raises GatewayError."""
        token = JoinToken.new()
        join = self.owner.join(name, token)
        self.owner.add(name, token, calls_home=True, dial=f"unix:{HOME}/{name}")
        return join

    def join(self, name: str, key: str) -> Join:
        """Return the join data for the machine of an order with this key."""
        return self.owner.join(name, self._tokens.setdefault(key, JoinToken.new()))

    def reach(self, machine: Machine) -> str | None:
        """Let a machine enrol, if it has not yet, and return its control address; None while that is unknown.

        A socket on this host is used directly. Raises GatewayError.
        """
        if (machine.control or "").startswith("unix:") and not machine.is_guest:
            return machine.control
        if machine.inbound and machine.control is None:
            return None
        known = self._admitted.get(machine.name)
        if known != (machine.id, machine.control):
            if known is None or known[0] != machine.id:
                # An earlier machine of this name may still be known to the owner: its removal can be lost.
                self.owner.remove(machine.name)
            token = self._tokens[machine.tags[KEY_TAG]]
            calls_home = not machine.inbound and (machine.control is None or machine.is_guest)
            self.owner.add(machine.name, token, dial=machine.control, calls_home=calls_home)
            self._admitted[machine.name] = (machine.id, machine.control)
        if machine.is_guest:
            # The owner does not forward to a desk.
            self._desks = self._desks or ControlFolder(self._folder, name=GUESTS)
            return self._desks.address(machine.name)
        return self._sockets.address(machine.name)

    def renew_process(self, machine: Machine) -> bool:
        """Let the gateway of a machine become a new process that enrols again, and keeps nothing of an earlier job.

        It may have enrolled with an earlier owner of the fleet. Return whether it answered: if not, the answer may have
        been lost as the process ended its connections, or the machine does not live. Raises GatewayError if it refuses.
        """
        if machine.control is None or machine.control.startswith("unix:"):
            raise GatewayError(
                f"machine {machine.name} calls home, so a later command does not reach it",
                hint="warm fleets need machines to which this machine can connect",
            )
        if machine.name not in self._admitted:
            self.owner.add(machine.name, None, dial=machine.control)
        token = JoinToken.new()
        try:
            GatewayClient(self._sockets.address(machine.name)).join_again(token.hex, token.expires_unix_s)
            answered = True
        except GatewayLost:
            answered = False
        finally:
            self._admitted.pop(machine.name, None)
            self.owner.remove(machine.name)
        self._tokens[machine.tags[KEY_TAG]] = token
        return answered

    def dismiss(self, name: str) -> None:
        """Let a gateway neither enrol nor be reached any more. No effect on one that was never reached."""
        if self._admitted.pop(name, None) is not None:
            self.owner.remove(name)

    def close(self, grace_s: float) -> None:
        """End the owner within `grace_s`, and remove the sockets."""
        self.owner.close(grace_s)
        self._sockets.close()
        if self._desks is not None:
            self._desks.close()
