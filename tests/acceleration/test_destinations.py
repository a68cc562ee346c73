"""Names of redirected addresses: a proxy whose rules have names does not serve the addresses."""

from __future__ import annotations

from ipaddress import ip_address

from tradewind.acceleration.destinations import Destination, names_of

FIRST, SECOND, SIX = ip_address("192.0.2.1"), ip_address("192.0.2.2"), ip_address("2001:db8::1")


def test_names_of_one_address_are_told_apart_by_port() -> None:
    named = Destination("git.example", 443, (FIRST, SIX)), Destination("files.example", 8443, (FIRST, SIX))
    assert names_of(named) == {
        "192.0.2.1:443": "git.example",
        "[2001:db8::1]:443": "git.example",
        "192.0.2.1:8443": "files.example",
        "[2001:db8::1]:8443": "files.example",
    }


def test_the_first_of_several_names_of_an_address_and_port_counts() -> None:
    named = Destination("a.example", 443, (FIRST,)), Destination("b.example", 443, (FIRST, SECOND))
    assert names_of(named) == {"192.0.2.1:443": "a.example", "192.0.2.2:443": "b.example"}


def test_a_name_of_all_ports_is_that_of_its_address_and_addresses_have_none() -> None:
    named = Destination("a.example", None, (FIRST,)), Destination("192.0.2.2", 443, (SECOND,))
    assert names_of(named) == {"192.0.2.1": "a.example"}


def test_an_address_that_is_a_destination_itself_before_a_name_keeps_no_name() -> None:
    named = Destination("192.0.2.1", 443, (FIRST,)), Destination("a.example", 443, (FIRST,))
    assert names_of(named) == {}
    assert names_of(named[::-1]) == {"192.0.2.1:443": "a.example"}
