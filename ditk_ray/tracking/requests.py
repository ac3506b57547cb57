"""Asking a sweep that runs for something, from another process.

A request is a file in the sweep's folder, an answer is a file beside it: that works from
another terminal as from another host that sees the folder, and leaves nothing to be open
to strangers. The sweep looks for requests about twice a second.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from ditk_ray.config.whole_file import write_whole
from ditk_ray.errors import DitkRayError

FOLDER = "requests"
ANSWER_SECONDS = 30.0
_ANSWER = ".answer"
_REQUEST = ".request"


class Action(StrEnum):
    """What can be asked for."""

    PAUSE = "pause"
    CONTINUE = "continue"
    CANCEL = "cancel"
    PRIORITY = "priority"


@dataclass(frozen=True)
class Request:
    """What a sweep is asked to do; without a trial it concerns the whole sweep."""

    action: Action
    trial: str | None = None
    priority: int | None = None


@dataclass(frozen=True)
class Answer:
    """What the sweep says to it."""

    is_done: bool
    message: str


class NoAnswerError(DitkRayError):
    """The sweep runs, but does not take requests."""


def ask(folder: Path, request: Request, seconds: float = ANSWER_SECONDS) -> Answer:
    """Put a request and wait for the answer; raises `NoAnswerError`, the request is then undone."""
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    # By their names, requests are in the order they were made.
    path = place / f"{time.time_ns()}-{uuid.uuid4().hex[:8]}{_REQUEST}"
    answer = path.with_suffix(_ANSWER)
    write_whole(path, json.dumps(asdict(request)))
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if answer.exists():
                return Answer(**json.loads(answer.read_text()))
            time.sleep(0.05)
    finally:
        path.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    raise NoAnswerError(f"{folder.name} has not answered for {seconds:.0f} s; nothing was changed")


def discard_requests(folder: Path) -> None:
    """Forget what an earlier process of the sweep was asked, by somebody who is gone."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def waiting_requests(folder: Path) -> Iterator[tuple[Path, Request]]:
    """Yield the requests that have not been answered, oldest first; what is none is removed."""
    for path in sorted((folder / FOLDER).glob(f"*{_REQUEST}")):
        try:
            values = json.loads(path.read_text())
            yield path, Request(Action(values["action"]), values["trial"], values["priority"])
        except FileNotFoundError:  # withdrawn
            continue
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)


def give_answer(path: Path, answer: Answer) -> None:
    """Answer a request; one that was withdrawn meanwhile needs none."""
    if path.exists():
        write_whole(path.with_suffix(_ANSWER), json.dumps(asdict(answer)))
        path.unlink(missing_ok=True)
