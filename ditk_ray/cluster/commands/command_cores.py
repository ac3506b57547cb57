"""Handing out a machine's cores, so that each wrapped command has its own.

A lease is a file in a folder of the user's, with the cores in it and a lock on it. Whoever
guards the command holds that lock to its end, however that comes: a lease whose lock is free
is over. So nothing has to be given back, and a killed worker keeps no core.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import uuid
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.trial.fork_server import locked
from ditk_ray.trial.warm_node import runtime_folder

_LEASES = "*.lease"
_ALMOST_NOTHING = 1e-6


@dataclass(frozen=True)
class CoreLease:
    """The cores of one command; `descriptor` is the open file that holds the lock."""

    shares: Mapping[int, float]
    """How much of each core it has."""
    path: Path
    descriptor: int

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores that the command may run on; none if it may run on all."""
        return tuple(sorted(self.shares))

    def close(self) -> None:
        """Let go of the lock; the cores are free once nobody else holds it, either."""
        os.close(self.descriptor)

    def forget(self) -> None:
        """Remove the file of a command that is over."""
        self.path.unlink(missing_ok=True)


def lease_cores(cpu: float, cores: Sequence[int] = (), folder: Path | None = None) -> CoreLease:
    """Take so many cores of this machine: idle ones first, then those with the least on them.

    `cores` are those to choose from, by default all that this process may use. Fractions share
    a core. More than there are cannot be had: then the lease has all of them.
    """
    place = folder or runtime_folder() / "cores"
    place.mkdir(mode=0o700, exist_ok=True)
    with locked(place / "lock"):
        taken = _taken(place)
        load = {core: taken[core] for core in cores or usable_cores()}
        shares = choose_cores(cpu, load)
        path = place / f"{uuid.uuid4().hex}.lease"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(shares).encode())
    return CoreLease(shares, path, descriptor)


def choose_cores(cpu: float, load: Mapping[int, float]) -> dict[int, float]:
    """Return which cores to take for so much CPU, and how much of each.

    `load` says what is taken of each already; of equal ones the first is chosen.
    """
    whole, part = int(cpu + _ALMOST_NOTHING), cpu % 1
    chosen = dict.fromkeys(sorted(load, key=lambda core: load[core])[:whole], 1.0)
    rest = [core for core in load if core not in chosen]
    if _ALMOST_NOTHING < part < 1 - _ALMOST_NOTHING and rest:
        # A core that has room for it and little else, so that whole ones stay whole.
        roomy = [core for core in rest if load[core] + part <= 1 + _ALMOST_NOTHING]
        best = max(roomy, key=load.__getitem__) if roomy else min(rest, key=load.__getitem__)
        chosen[best] = part
    return chosen


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use, in the order in which they are handed out.

    Containers of one machine do not know of each other's leases: each begins elsewhere, by
    its host name, so that they do not all crowd on the first cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    first = zlib.crc32(socket.gethostname().encode()) % len(cores)
    return (*cores[first:], *cores[:first])


def _taken(folder: Path) -> Counter[int]:
    """Return how much of each core is leased; removes the leases that are over."""
    taken: Counter[int] = Counter()
    for path in folder.glob(_LEASES):
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                shares = json.loads(file.read())
                taken.update({int(core): share for core, share in shares.items()})
            else:
                path.unlink()
    return taken
