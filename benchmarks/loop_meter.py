"""Measuring what Tune's event loop spends on a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CALLBACKS = (
    "on_step_begin",
    "on_step_end",
    "on_trial_start",
    "on_trial_result",
    "on_trial_complete",
    "on_checkpoint",
)


@dataclass(frozen=True)
class Cost:
    """What a report cost the loop, in milliseconds."""

    busy: float
    cpu: float
    callbacks: float

    @property
    def overhead(self) -> float:
        """The whole cost, as a multiple of what it is without callbacks."""
        return self.busy / (self.busy - self.callbacks)


class Meter:
    """Watches the thread that it is made in: how long it waits, and what callbacks take."""

    def __init__(self) -> None:
        self._waited = 0.0
        self._in_callbacks = 0.0
        self.marks: list[tuple[float, float, float]] = []

    def mark(self) -> None:
        """Note what was spent so far; called at each report."""
        busy = time.perf_counter() - self._waited
        self.marks.append((busy, time.thread_time(), self._in_callbacks))

    def cost(self, begin: int, end: int) -> Cost:
        """Return what a report cost between two of them."""
        spent = zip(self.marks[begin], self.marks[end], strict=True)
        return Cost(*(1000 * (after - before) / (end - begin) for before, after in spent))

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Watch Tune for a while: its waiting for trials, and its calls of callbacks."""
        import ray
        from ray.tune.callback import CallbackList

        kept = {name: getattr(CallbackList, name) for name in CALLBACKS}
        wait = ray.wait
        ray.wait = self._waiting(wait)
        for name, call in kept.items():
            setattr(CallbackList, name, self._calling(call, name == "on_trial_result"))
        try:
            yield
        finally:
            ray.wait = wait
            for name, call in kept.items():
                setattr(CallbackList, name, call)

    def _waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*args: Any, **options: Any) -> Any:
            begun, used = time.perf_counter(), time.thread_time()
            try:
                return wait(*args, **options)
            finally:  # looking at what is there is no waiting: it takes CPU time
                self._waited += time.perf_counter() - begun - (time.thread_time() - used)

        return waiting

    def _calling(self, call: Callable[..., Any], is_report: bool) -> Callable[..., Any]:
        def calling(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self._in_callbacks += time.perf_counter() - begun
                if is_report:
                    self.mark()

        return calling
