"""What a trial's own process does: set itself up, train, and tell."""

from __future__ import annotations

import atexit
import contextlib
import numbers
import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from easydict import EasyDict

from ditk_ray.config.entries import entry_arguments, entry_function_name
from ditk_ray.trial.channel import Channel
from ditk_ray.trial.evaluation_hook import Evaluation, install_hook, install_task_hook
from ditk_ray.trial.files import RESULT_FILE
from ditk_ray.trial.quick_config_save import install_quick_save
from ditk_ray.trial.spec import Attempt

CHECKPOINT_NAME = "ditk_ray_{}.pth.tar"


def train(attempt: Attempt, channel: Channel) -> None:
    """Train one attempt to its end in this process, which is given over to it.

    Sends an `evaluation` message for each evaluation, then `end` or `error`.
    """
    atexit._clear()  # those of the process this one was forked from
    _enter_folder(attempt)
    _take_resources(attempt)
    reporter = _Reporter(channel, attempt.checkpoints)
    install_hook(reporter)
    install_quick_save()
    try:
        returned = _call_entry(attempt, reporter)
    except BaseException as error:
        traceback.print_exc()
        channel.send("error", message=_one_line(error))
        raise SystemExit(1) from None
    finally:
        atexit._run_exitfuncs()  # TensorBoard writers flush there
    channel.send("end", result=_result_file(attempt.folder), returned=_plain_numbers(returned))


def resolve_entry(entry: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that trains."""
    if not isinstance(entry, str):
        return entry
    import ding.entry

    function: Callable[..., Any] = getattr(ding.entry, entry_function_name(entry))
    return function


def _call_entry(attempt: Attempt, reporter: _Reporter) -> Any:
    function = resolve_entry(attempt.call.entry)
    if not isinstance(attempt.call.entry, str):
        install_task_hook(reporter)
    arguments = entry_arguments(attempt.call.entry, attempt.call.arguments)
    main, create = EasyDict(attempt.config.main), EasyDict(attempt.config.create)
    if attempt.restore_from is not None:
        _restore(main, attempt.restore_from)
    return function((main, create), **{key: _easy(value) for key, value in arguments.items()})


def _easy(value: Any) -> Any:
    """Turn dicts into what DI-engine expects of configs, such as an expert's."""
    if isinstance(value, Mapping):
        return EasyDict(value)
    if isinstance(value, tuple):
        return tuple(_easy(item) for item in value)
    return value


def _restore(main: EasyDict, checkpoint: Path) -> None:
    learn = main.policy.setdefault("learn", EasyDict())
    learn.resume_training = True
    learner = learn.setdefault("learner", EasyDict())
    learner.setdefault("hook", EasyDict()).load_ckpt_before_run = str(checkpoint)


class _Reporter:
    """Passes evaluations on, with a checkpoint of the policy when one is wanted."""

    def __init__(self, channel: Channel, checkpoints: bool) -> None:
        self._channel = channel
        self._checkpoints = checkpoints
        self._count = 0

    def __call__(self, evaluation: Evaluation) -> None:
        checkpoint = None
        if self._checkpoints and evaluation.save_checkpoint is not None:
            checkpoint = self._save(evaluation.save_checkpoint)
        self._count += 1
        self._channel.send(
            "evaluation", metrics=evaluation.metrics, checkpoint=checkpoint and str(checkpoint)
        )

    def _save(self, save: Callable[[str], None]) -> Path | None:
        name = CHECKPOINT_NAME.format(self._count)
        save(name)
        return next(Path.cwd().rglob(name), None)


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
    found = sorted(folder.glob(f"*/{RESULT_FILE}"), key=lambda path: path.lstat().st_mtime)
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
