"""What a trial's script does in a pod: train, and print what is to be known of it.

The text of this module is put into the script. In the image there are DI-engine and what
it brings, and maybe a Python as old as 3.8, but not this package: it imports only those of
its neighbours whose text goes with it. `dijob/pod_protocol.py` reads what is printed here.
"""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ditk_ray.trial.evaluation_hook import Evaluation, install_hook, install_task_hook
from ditk_ray.trial.outcome import (
    RESULT_FILE,
    failure_of,
    is_divergence,
    newest_result,
    one_line,
    plain_numbers,
)

MARK = "::ditk-ray:: "
MAX_LINE = 8000
"""The most bytes of a line; container runtimes split those of 16 KiB."""

MAX_TEXT = 2000
MAX_RESULT_BYTES = 1024 * 1024
PART_BYTES = 5400
OWN_METRICS = ("eval_value", "env_step", "train_iter", "time")
STANDARD_OUTPUT = 1


class Speaker:
    """Prints messages, each on a line of its own, numbered from 1."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def say(self, kind: str, **fields: Any) -> None:
        with self._lock:
            self._count += 1
            said = json.dumps({"n": self._count, "kind": kind, **fields})
            sys.stdout.flush()
            line = f"{MARK}{said}\n".encode()
            while line:
                line = line[os.write(STANDARD_OUTPUT, line) :]

    def say_evaluation(self, evaluation: Evaluation) -> None:
        self.say("evaluation", metrics=_spoken(evaluation.metrics))

    def say_result(self, data: bytes) -> None:
        """Print the bytes of a result in parts; one that is too large is left out."""
        if len(data) > MAX_RESULT_BYTES:
            return
        pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        for number, piece in enumerate(pieces, start=1):
            text = base64.b64encode(piece).decode()
            self.say("result", part=number, parts=len(pieces), data=text)

    def say_error(self, error: BaseException) -> None:
        message = one_line(error)[:MAX_TEXT]
        while len(json.dumps(message)) > MAX_LINE - 200:  # not all characters are one byte
            message = message[: len(message) // 2]
        if is_divergence(error):
            self.say("diverged", message=message)
        else:
            self.say("error", message=message, failure=failure_of(error))


def install(is_task: bool = False) -> Speaker:
    """Have every evaluation of this process printed; `is_task`: also those of task pipelines."""
    speaker = Speaker()
    install_hook(speaker.say_evaluation)
    if is_task:
        install_task_hook(speaker.say_evaluation)
    return speaker


def run(train: Callable[[], Any], is_task: bool) -> None:
    """Train in a new folder, and print the result and how it ended; raises SystemExit(1)."""
    speaker = Speaker()
    try:
        speaker = install(is_task)
        _set_threads()
        _end_with_threads(speaker)
        folder = _enter_folder()
        returned = plain_numbers(train())
        data = _result_of(folder, returned)
        if data is not None:
            _keep_in_project(data)
            speaker.say_result(data)
    except BaseException as error:
        traceback.print_exc()
        speaker.say_error(error)
        raise SystemExit(1) from None
    speaker.say("end", returned=_spoken(returned))


def _end_with_threads(speaker: Speaker) -> None:
    """End the training if a thread that it would wait for dies for want of room or memory."""
    original = threading.excepthook

    def note_death(died: Any) -> None:
        original(died)
        error = died.exc_value or died.exc_type()
        if failure_of(error) != "bug":
            speaker.say_error(error)
            os._exit(1)

    threading.excepthook = note_death


def _set_threads() -> None:
    count = os.environ.get("OMP_NUM_THREADS", "")
    if count.isdigit() and int(count):
        import torch  # slow to import

        torch.set_num_threads(int(count))


def _enter_folder() -> Path:
    name = os.environ.get("DITK_RAY_JOB", "trial")
    folder = Path.cwd() / name
    try:
        folder.mkdir()
    except FileExistsError:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=str(Path.cwd())))
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    os.chdir(str(folder))
    return folder


def _result_of(folder: Path, returned: dict[str, float]) -> bytes | None:
    found = newest_result(folder)
    if found is not None:
        return found.read_bytes()
    if not returned:
        return None
    data = pickle.dumps(returned)
    (folder / RESULT_FILE).write_bytes(data)
    return data


def _keep_in_project(data: bytes) -> None:
    """Put the result where the project's path says, in one step; the log has it anyway."""
    project, job = os.environ.get("DITK_RAY_PROJECT"), os.environ.get("DITK_RAY_JOB")
    if not project or not job:
        return
    try:
        folder = Path(project) / job
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f".{RESULT_FILE}.new"
        new.write_bytes(data)
        new.replace(folder / RESULT_FILE)
    except OSError as error:
        print(f"the result is not in {project}: {error}", file=sys.stderr)


def _spoken(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return the metrics that a line has room for, ours before those of the environment.

    Those that JSON has no number for become texts.
    """
    own = [name for name in OWN_METRICS if name in metrics]
    kept: dict[str, Any] = {}
    room = MAX_LINE - 200
    for name in [*own, *(name for name in metrics if name not in own)]:
        value = metrics[name]
        said = value if math.isfinite(value) else str(float(value))
        room -= len(json.dumps({name: said}))
        if room > 0:
            kept[name] = said
    return kept
