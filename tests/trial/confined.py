"""Running what may hang, grow or crash in a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEADROOM = 200 * 1024 * 1024


def outcome_of(function: Callable[..., Any], *arguments: Any, seconds: float = 20) -> str:
    """Call a function in a fork that may allocate only `HEADROOM` bytes more.

    Returns "returned", the type and text of the exception, "hung", or "died".
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(there, function, arguments))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            return "hung"
        return str(here.recv())
    except EOFError:
        return "died"
    finally:
        process.kill()
        process.join()
        here.close()


def _call(answer: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    limit = _address_space() + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    told = "returned"
    try:
        function(*arguments)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        answer.send(told)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
