"""Ending a sweep from outside."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any


class Interrupts:
    """Ends the sweep cleanly at Ctrl-C, SIGTERM or a lost terminal, and at once at the second.

    Tune ends a run when it gets SIGUSR1; its own handling of Ctrl-C, which cannot be
    asked whether it happened, is off; `before` is called first. Before Tune listens, and
    outside the main thread, an interrupt is Python's usual one.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.happened = False
        self._before = before
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
        if threading.current_thread() is threading.main_thread():
            for number in (*self._SIGNALS, signal.SIGUSR1):
                self._earlier[number] = signal.getsignal(number)
            for number in self._SIGNALS:
                if number != signal.SIGHUP or self._earlier[number] != signal.SIG_IGN:  # nohup
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        listens = signal.getsignal(signal.SIGUSR1) is not self._earlier[signal.SIGUSR1]
        if self.happened or not listens:
            raise KeyboardInterrupt
        self.happened = True
        self._before()
        os.kill(os.getpid(), signal.SIGUSR1)
