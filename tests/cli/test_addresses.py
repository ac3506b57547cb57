"""Where a server may listen."""

from __future__ import annotations

import socket

import pytest

from ditk_ray.cli.addresses import Address, choose_address
from ditk_ray.errors import BadConfigError
from tests.processes import free_port


@pytest.fixture
def taken():
    """A port that somebody listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_the_usual_port_is_taken_if_it_is_free():
    port = free_port()
    assert choose_address("127.0.0.1", None, port) == Address("127.0.0.1", port)


def test_if_the_usual_port_is_taken_the_next_free_one_is_chosen(taken):
    assert choose_address("127.0.0.1", None, taken).port > taken


def test_a_wanted_port_that_is_taken_is_refused_with_one_that_is_free(taken):
    with pytest.raises(BadConfigError, match=rf"--port {taken}: is taken\n +\d+ is free"):
        choose_address("127.0.0.1", taken, 5000)


@pytest.mark.parametrize("host", ["192.0.2.77", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_is_refused(host):
    with pytest.raises(BadConfigError, match=f"--host {host}: is no address of this machine"):
        choose_address(host, None, 5000)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.77", False),
        ("myhost", False),
    ],
)
def test_only_loopback_addresses_are_for_this_machine_alone(host, loopback):
    assert Address(host, 80).is_loopback is loopback


def test_an_address_is_shown_as_a_browser_takes_it():
    assert Address("127.0.0.1", 5000).url == "http://127.0.0.1:5000"
    assert Address("::1", 5000).url == "http://[::1]:5000"
    assert Address("0.0.0.0", 5000).url == f"http://{socket.gethostname()}:5000"
    assert Address("0.0.0.0", 5000).own_url == "http://127.0.0.1:5000"


def test_a_server_for_everybody_is_known_by_the_machines_names():
    names = Address("0.0.0.0", 5000).names()
    assert {"localhost", "127.0.0.1", "[::1]", socket.gethostname()} <= set(names)
    assert "*" not in "".join(names)
