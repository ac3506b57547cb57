"""Where a web server of this machine listens, and how it is reached."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass

from ditk_ray.errors import BadConfigError, Problem

_EVERYWHERE = ("0.0.0.0", "::")
_PORTS_TRIED = 100


@dataclass(frozen=True)
class Address:
    """A host and a port to listen at."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return _is_loopback(self.host)

    @property
    def url(self) -> str:
        """What to type into a browser."""
        host = socket.gethostname() if self.host in _EVERYWHERE else self.host
        return f"http://{_bracketed(host)}:{self.port}"

    @property
    def own_url(self) -> str:
        """How this machine itself reaches it."""
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{_bracketed(local)}:{self.port}"

    def names(self) -> list[str]:
        """Return the names that a browser may know the machine by, as URLs have them."""
        names = ["localhost", "127.0.0.1", "::1"]
        if self.host in _EVERYWHERE:
            names += [socket.gethostname(), socket.getfqdn(), *_own_addresses()]
        else:
            names.append(self.host)
        return [_bracketed(name) for name in dict.fromkeys(names)]


def choose_address(host: str, wanted: int | None, usual: int) -> Address:
    """Return where to listen: at the wanted port, else at the first free one from `usual` on.

    Raises `BadConfigError` if the host is not this machine or the port cannot be had.
    """
    if wanted is None:
        return Address(host, _free_port(host, usual))
    if not _is_free(host, wanted):
        free = _free_port(host, wanted + 1 if wanted < 65535 else usual)
        raise BadConfigError(Problem(f"--port {wanted}", "is taken", f"{free} is free"))
    return Address(host, wanted)


def _free_port(host: str, first: int) -> int:
    for port in range(first, min(first + _PORTS_TRIED, 65536)):
        if _is_free(host, port):
            return port
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def _is_free(host: str, port: int) -> bool:
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(place)
            return True
    except PermissionError as error:
        hint = "ports from 1024 on are for everyone"
        raise BadConfigError(Problem(f"--port {port}", "is not allowed", hint)) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        hint = "127.0.0.1 is for this machine alone, 0.0.0.0 for everybody who reaches it"
        what = f"is no address of this machine: {error.strerror or error}"
        raise BadConfigError(Problem(f"--host {host}", what, hint)) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _own_addresses() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    return [str(place[0]) for *_, place in found] + _outward_address()


def _outward_address() -> list[str]:
    """Return the address that others see; connecting by UDP sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # of a network that is kept for documentation
        except OSError:
            return []
        return [str(sock.getsockname()[0])]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
