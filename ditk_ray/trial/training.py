"""What a trial's own process does: set itself up, train, and tell."""

from __future__ import annotations

import atexit
import contextlib
import numbers
import os
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from easydict import EasyDict

from ditk_ray.config import dotted
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.entries import MAIN_ENTRY, entry_arguments, entry_function_name
from ditk_ray.config.failure_kinds import FailureKind
from ditk_ray.config.main_block import patched_source
from ditk_ray.trial.channel import Channel
from ditk_ray.trial.checkpoint_saving import CheckpointSaver
from ditk_ray.trial.checkpoints import buffer_name, policy_name, state_name
from ditk_ray.trial.evaluation_hook import Evaluation, install_hook, install_task_hook
from ditk_ray.trial.failures import is_divergence, kind_of_exception
from ditk_ray.trial.files import CONFIG_FILE, RESULT_FILE
from ditk_ray.trial.main_run import run_as_main
from ditk_ray.trial.quick_config_save import install_quick_save
from ditk_ray.trial.spec import Attempt


def train(attempt: Attempt, channel: Channel) -> None:
    """Train one attempt to its end in this process, which is given over to it.

    Sends an `evaluation` message for each evaluation, then `end`, `error` or `diverged`.
    """
    atexit._clear()  # those of the process this one was forked from
    _enter_folder(attempt)
    _take_resources(attempt)
    threading.excepthook = partial(_end_with_thread, channel)
    try:
        returned = _train(attempt, channel)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the log is on a disk that may be full
            traceback.print_exc()
        if is_divergence(error):
            channel.send("diverged", message=_one_line(error))
        else:
            channel.send("error", message=_one_line(error), failure=kind_of_exception(error))
        raise SystemExit(1) from None
    finally:
        atexit._run_exitfuncs()  # TensorBoard writers flush there
    channel.send("end", result=_result_file(attempt.folder), returned=_plain_numbers(returned))


def _end_with_thread(channel: Channel, died: threading.ExceptHookArgs) -> None:
    """End the training if one of its threads died for want of room or memory.

    TensorBoard's writer is such a thread: without it the training would wait for ever to be
    rid of its next number. Other threads may be there to fail.
    """
    with contextlib.suppress(OSError):
        threading.__excepthook__(died)
    error = died.exc_value or died.exc_type()
    kind = kind_of_exception(error)
    if kind in (FailureKind.DISK_FULL, FailureKind.OUT_OF_MEMORY):
        channel.send("error", message=_one_line(error), failure=kind)
        os._exit(1)


def _train(attempt: Attempt, channel: Channel) -> Any:
    from ditk_ray.trial.engine_parts import EngineParts  # with it comes DI-engine

    parts = EngineParts(*_saved_files(attempt))
    reporter = _Reporter(channel, attempt, CheckpointSaver(attempt, parts))
    install_hook(reporter, parts.recall)
    install_quick_save()
    return _call_entry(attempt, reporter)


def _saved_files(attempt: Attempt) -> tuple[Path | None, Path | None]:
    if attempt.restore_from is None:
        return None, None
    names = (state_name(attempt.seed), buffer_name(attempt.seed))
    state, buffer = (attempt.restore_from / name for name in names)
    return state if state.is_file() else None, buffer if buffer.is_file() else None


def resolve_entry(entry: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that trains; a main block is none."""
    if not isinstance(entry, str):
        return entry
    import ding.entry

    function: Callable[..., Any] = getattr(ding.entry, entry_function_name(entry))
    return function


def _call_entry(attempt: Attempt, reporter: _Reporter) -> Any:
    entry = attempt.call.entry
    main, create = EasyDict(attempt.config.main), EasyDict(attempt.config.create)
    if attempt.restore_from is not None:
        _restore(main, attempt)
    if entry == MAIN_ENTRY or not isinstance(entry, str):
        install_task_hook(reporter)
    if entry == MAIN_ENTRY:
        _run_main_block(replace(attempt.config, main=dotted.plain(main)))
        return None
    function, arguments = resolve_entry(entry), entry_arguments(entry, attempt.call.arguments)
    return function((main, create), **{key: _easy(value) for key, value in arguments.items()})


_TITLE = "This is the file of that name in the trial's folder."


def _run_main_block(config: EngineConfig) -> None:
    assert config.source is not None
    text = patched_source(config, _TITLE, is_at_home=True)
    run_as_main(text, CONFIG_FILE, config.source)


def _easy(value: Any) -> Any:
    """Turn dicts into what DI-engine expects of configs, such as an expert's."""
    if isinstance(value, Mapping):
        return EasyDict(value)
    if isinstance(value, tuple):
        return tuple(_easy(item) for item in value)
    return value


def _restore(main: EasyDict, attempt: Attempt) -> None:
    """Have DI-engine load its own file of the checkpoint, where there is one."""
    assert attempt.restore_from is not None
    checkpoint = attempt.restore_from / policy_name(attempt.seed)
    if not checkpoint.is_file():
        return
    learn = main.policy.setdefault("learn", EasyDict())
    learn.resume_training = True
    learner = learn.setdefault("learner", EasyDict())
    learner.setdefault("hook", EasyDict()).load_ckpt_before_run = str(checkpoint)
    if (attempt.restore_from / buffer_name(attempt.seed)).is_file():
        main.policy.random_collect_size = 0  # what it is for is in the buffer


class _Reporter:
    """Numbers the evaluations and passes them on, with whether what is needed was saved."""

    def __init__(self, channel: Channel, attempt: Attempt, saver: CheckpointSaver) -> None:
        self._channel = channel
        self._seconds = attempt.seconds
        self._number = attempt.evaluations
        self._saver = saver

    def __call__(self, evaluation: Evaluation) -> None:
        self._number += 1
        metrics = {**evaluation.metrics, "time": self._seconds + evaluation.metrics["time"]}
        is_saved = self._saver.save(evaluation, self._number)
        self._channel.send("evaluation", number=self._number, metrics=metrics, saved=is_saved)


def _enter_folder(attempt: Attempt) -> None:
    attempt.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(attempt.folder)
    log = os.open(attempt.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _take_resources(attempt: Attempt) -> None:
    """Keep to the share of the node that the trial was given."""
    import torch

    for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR"):
        os.environ[f"{name}_NUM_THREADS"] = str(attempt.threads)
    torch.set_num_threads(attempt.threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(attempt.gpu_ids)
    if 0 < attempt.gpu_share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(attempt.gpu_share)
    if attempt.memory is not None:
        _limit_memory(attempt.memory)


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


def _result_file(folder: Path) -> str | None:
    files = [*folder.glob(RESULT_FILE), *folder.glob(f"*/{RESULT_FILE}")]
    found = sorted(files, key=lambda path: path.lstat().st_mtime)
    return str(found[-1]) if found else None


def _plain_numbers(returned: Any) -> dict[str, float]:
    """Return the numbers of a dict that a user's own entry gave back."""
    if not isinstance(returned, Mapping):
        return {}
    return {
        str(key): float(value) for key, value in returned.items() if isinstance(value, numbers.Real)
    }


def _one_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
