"""One seed of an attempt in a process of its own on this node."""

from __future__ import annotations

import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from ditk_ray.trial.channel import Message
from ditk_ray.trial.checkpoints import SeedProgress
from ditk_ray.trial.failures import (
    KernelKills,
    describe_exit,
    kind_of_exit,
    kind_of_message,
)
from ditk_ray.trial.seed import Seed
from ditk_ray.trial.spec import Attempt
from ditk_ray.trial.training import train
from ditk_ray.trial.warm_node import NodeProcess, WarmNode

EXIT_SECONDS = 5.0
"""How long a process has to leave after it said that training has ended."""


class SeedRun(Seed):
    """A seed that is not started until its first turn, then computes, waits, and ends."""

    def __init__(self, attempt: Attempt, kept_result: Path, progress: SeedProgress) -> None:
        super().__init__(attempt.seed, attempt.log, kept_result, attempt.evaluations, progress)
        self._attempt = attempt
        self._saved: set[int] = set()
        self._process: NodeProcess | None = None
        self._kills = KernelKills.now()

    @property
    def connection(self) -> Connection | None:
        """Where its messages come from, while it lives."""
        is_open = self._process is not None and not self._process.has_ended
        return self._process.connection if self._process and is_open else None

    def take_turn(self, node: WarmNode, python_path: tuple[str, ...]) -> None:
        """Compute from here on."""
        if self._computes:
            return
        self._begin()
        if self._process is None:
            self._process = node.run(partial(train, self._attempt), python_path)
        else:
            self._process.resume()

    def wait_turn(self) -> None:
        """Stand still until the next turn."""
        if self._computes and self._process is not None:
            self._process.pause()
        self._computes = False

    def listen(self) -> None:
        """Take one message; to be called when there is one."""
        assert self._process is not None
        message = self._process.receive()
        self._heard = time.monotonic()
        if message is None:
            self._note_exit(self._process)
        elif message["kind"] == "evaluation":
            self._note_evaluation(message["number"], message["metrics"])
            if message["saved"]:
                self._saved.add(self.evaluations)
        elif message["kind"] == "end":
            self._leave(self._process, message)
        elif message["kind"] == "diverged":
            self.has_diverged = True
        elif message["kind"] == "error":
            text = message["message"]
            kind = kind_of_message(message["failure"], text, self._kills.went_up())
            self._fail(text, kind)

    def has_saved(self, number: int) -> bool:
        """Say whether a checkpoint at that number has all that this seed needs of it."""
        return number in self._saved or (self.has_ended and self.evaluations < number)

    def stop(self) -> None:
        """End its process, and everything below it."""
        super().stop()
        if self._process is not None:
            self._process.stop()

    def _leave(self, process: NodeProcess, message: Message) -> None:
        process.resume()  # it may just have been told to wait its turn
        if process.connection.poll(EXIT_SECONDS):
            process.receive()
        result = Path(message["result"]) if message["result"] else None
        self._note_end(message["returned"], result)

    def _note_exit(self, process: NodeProcess) -> None:
        self._computes = False
        limit = self._attempt.memory
        has_outgrown = limit is not None and process.grown > limit
        ran_out = self._kills.went_up() or has_outgrown
        kind = kind_of_exit(process.exit_code, ran_out)
        self._fail(describe_exit(process.exit_code), kind)
