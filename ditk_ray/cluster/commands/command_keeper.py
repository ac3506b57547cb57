"""The process that guards one wrapped command: a trial's keeper around a program.

`python -m ditk_ray.cluster.commands.command_keeper CONNECTION LOCK` is started by a Ray worker
with two open files: the connection to it, over which the first message says what to run, and the
lock of the command's cores. Both are held to the end, and neither reaches the command.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NoReturn

from ditk_ray.trial.channel import Channel, Message, decode
from ditk_ray.trial.keeper import keep

CANNOT_RUN = 126
NOT_FOUND = 127
"""The exit codes that a shell has for a command that cannot be started."""


def main(arguments: Sequence[str]) -> None:
    """Be the keeper of the command that the first message describes."""
    # Ray kills the children of a worker that ends; a keeper has to outlive it, and so must be
    # no child of it.
    if os.fork():
        os._exit(0)
    descriptors = [int(text) for text in arguments]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    connection = Connection(descriptors[0])
    with contextlib.suppress(EOFError, OSError):  # the worker is gone: there is nothing to do
        order = decode(connection.recv_bytes())
        keep(connection, functools.partial(become, order))


def become(order: Message, channel: Channel) -> NoReturn:
    """Turn this process into the command, with its share of the node and no more.

    Sends `started` with the process id, or `unstartable` with the reason.
    """
    channel.send("started", pid=os.getpid())
    try:
        os.chdir(order["folder"])
    except OSError as error:
        _give_up(channel, f"it cannot run in {order['folder']}: {error.strerror}", CANNOT_RUN)
    try:
        _take_share(order)
        # What this Python ignores, and what a worker may block, is not for the command.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        arguments = order["arguments"]
        os.execvpe(arguments[0], arguments, order["env"])
    except FileNotFoundError:
        _give_up(channel, f"{order['arguments'][0]} is not found on its node", NOT_FOUND)
    except OSError as error:
        why = f"{order['arguments'][0]} cannot be started: {error.strerror}"
        _give_up(channel, why, CANNOT_RUN)


def _take_share(order: Message) -> None:
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])
    if order["memory"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (order["memory"], order["memory"]))


def _give_up(channel: Channel, why: str, code: int) -> NoReturn:
    channel.send("unstartable", why=why)
    raise SystemExit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
