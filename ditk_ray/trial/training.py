"""What a trial's own process does: set itself up, train, and report."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import itertools
import os
import pprint
import re
import resource
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from easydict import EasyDict

from ditk_ray.config.config_file import is_patched, patched_source
from ditk_ray.config.engine_config import MAIN_ENTRY, entry_arguments, entry_function_name
from ditk_ray.config.resources import THREAD_VARIABLES
from ditk_ray.config.terms import FailureKind
from ditk_ray.execution.guard import Channel
from ditk_ray.trial.checkpoints import CheckpointSaver, buffer_name, policy_name, state_name
from ditk_ray.trial.evaluation_hook import Evaluation, install_hook, install_task_hook
from ditk_ray.trial.outcome import (
    failure_of,
    is_divergence,
    newest_result,
    one_line,
    plain_numbers,
    run_as_main,
)
from ditk_ray.trial.plan import SeedTask
from ditk_ray.trial.reports import CONFIG_FILE
from ditk_ray.util import dotted


def train(task: SeedTask, channel: Channel) -> None:
    """Train one seed to its end in this process, which is given over to it.

    Sends an `evaluation` message for each evaluation, then `end`, `error` or `diverged`.
    """
    atexit._clear()  # those of the process this one was forked from
    _enter_folder(task)
    _take_resources(task)
    threading.excepthook = partial(_end_with_thread, channel)
    try:
        returned = _train(task, channel)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the log is on a disk that may be full
            traceback.print_exc()
        if is_divergence(error):
            channel.send("diverged", message=one_line(error))
        else:
            channel.send("error", message=one_line(error), failure=failure_of(error))
        raise SystemExit(1) from None
    finally:
        atexit._run_exitfuncs()  # TensorBoard writers flush there
    result = newest_result(task.folder)
    channel.send("end", result=result and str(result), returned=plain_numbers(returned))


def _end_with_thread(channel: Channel, died: threading.ExceptHookArgs) -> None:
    """End the training if one of its threads died for want of room or memory.

    TensorBoard's writer is such a thread: without it the training would wait for ever to be
    rid of its next number. Other threads may be there to fail.
    """
    with contextlib.suppress(OSError):
        threading.__excepthook__(died)
    error = died.exc_value or died.exc_type()
    kind = failure_of(error)
    if kind in (FailureKind.DISK_FULL, FailureKind.OUT_OF_MEMORY):
        channel.send("error", message=one_line(error), failure=kind)
        os._exit(1)


def _train(task: SeedTask, channel: Channel) -> Any:
    import ding.config.config  # heavy

    from ditk_ray.trial.engine_state import EngineParts  # imports torch

    parts = EngineParts(_saved(task, state_name), _saved(task, buffer_name))
    saver = CheckpointSaver(task.seed, task.saving, parts) if task.saving else None
    numbers = itertools.count(task.evaluations + 1)

    def report(evaluation: Evaluation) -> None:
        number = next(numbers)
        metrics = {**evaluation.metrics, "time": task.seconds + evaluation.metrics["time"]}
        is_saved = saver is not None and saver.save(evaluation, number)
        channel.send("evaluation", number=number, metrics=metrics, saved=is_saved)

    install_hook(report, parts.recall)
    # DI-engine's own goes through yapf, which takes two seconds of each trial.
    ding.config.config.save_config_py = save_config_py
    return _call_entry(task, report)


def _saved(task: SeedTask, name: Callable[[int], str]) -> Path | None:
    file = task.restore_from / name(task.seed) if task.restore_from else None
    return file if file and file.is_file() else None


def resolve_entry(entry: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that trains; a main block has none."""
    if not isinstance(entry, str):
        return entry
    import ding.entry  # heavy

    function: Callable[..., Any] = getattr(ding.entry, entry_function_name(entry))
    return function


def _call_entry(task: SeedTask, report: Callable[[Evaluation], None]) -> Any:
    entry = task.call.entry
    main, create = EasyDict(task.config.main), EasyDict(task.config.create)
    _restore(main, task)
    if entry == MAIN_ENTRY or not isinstance(entry, str):
        install_task_hook(report)
    if entry == MAIN_ENTRY:
        assert task.config.source is not None
        config = replace(task.config, main=dotted.plain(main))
        title = "This is the file of that name in the trial's folder."
        text = patched_source(config, title, is_at_home=True)
        return run_as_main(text, CONFIG_FILE, task.config.source)
    function, arguments = resolve_entry(entry), entry_arguments(entry, task.call.arguments)
    return function((main, create), **{key: _easy(value) for key, value in arguments.items()})


def _easy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return EasyDict(value)
    if isinstance(value, tuple):
        return tuple(_easy(item) for item in value)
    return value


def _restore(main: EasyDict, task: SeedTask) -> None:
    checkpoint = _saved(task, policy_name)
    if checkpoint is None:
        return
    learn = main.policy.setdefault("learn", EasyDict())
    learn.resume_training = True
    learner = learn.setdefault("learner", EasyDict())
    learner.setdefault("hook", EasyDict()).load_ckpt_before_run = str(checkpoint)
    if _saved(task, buffer_name):
        main.policy.random_collect_size = 0  # what it is for is in the buffer


def _enter_folder(task: SeedTask) -> None:
    task.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(task.folder)
    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _take_resources(task: SeedTask) -> None:
    import torch  # heavy

    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(task.threads)))
    torch.set_num_threads(task.threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(task.gpu_ids)
    if 0 < task.gpu_share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(task.gpu_share)
    if task.memory is not None:
        _limit_memory(task.memory)


def _limit_memory(amount: int) -> None:
    """Let this process, and each that it starts, allocate `amount` bytes and no more.

    Counted is what is allocated from here on: the memory that came with the
    fork is shared with all other trials of the node.
    """
    held = 0
    with contextlib.suppress(OSError):
        fields = Path("/proc/self/statm").read_text().split()
        held = int(fields[5]) * os.sysconf("SC_PAGE_SIZE")
    limit = held + amount
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def save_config_py(config: dict[str, Any], path: str) -> None:
    """Write `exp_config = {...}`, as DI-engine's own function does."""
    text = pprint.pformat(dotted.plain(config), width=100, sort_dicts=False)
    text = re.sub(r"(?<![\w'\"])(inf|nan)\b(?!['\"])", r'float("\1")', text)
    Path(path).write_text(f"exp_config = {text}\n")


@dataclass(frozen=True)
class RecordedTraining:
    """An entry that trains what a trial's `config.py` says, exactly as that file does it."""

    file: Path

    def __call__(self, config: Any, seed: int = 0) -> Any:
        """Call the file's own `train`, or run its main block if that is what trained it.

        The config that is given is the file's already.
        """
        text = self.file.read_text(encoding="utf-8")
        if is_patched(text):
            return run_as_main(text, str(self.file), str(self.file))
        train = runpy.run_path(str(self.file))["train"]
        takes_seed = "seed" in inspect.signature(train).parameters
        return train(seed) if takes_seed else train()
