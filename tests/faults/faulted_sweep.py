"""A sweep in a folder, driven by a process of its own, that is harmed while it runs."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import psutil

import tests.conftest  # noqa: F401 - a token of our own for Ray, and Ctrl-C that works
from ditk_ray.record.record import SweepRecord
from tests.faults.sound_sweep import ended, require_sound
from tests.processes import PATIENCE, wait_until


class FaultedSweep(ABC):
    """A sweep, and the means to harm it.

    The same seed makes the same faults in the same order; whom they hit depends on how far
    the sweep has come. Every kind of fault comes once before any comes again.
    """

    recovery_seconds: ClassVar[float]
    """How long it may take after a fault until the sweep evaluates again, resuming included."""

    between: ClassVar[tuple[int, int]]
    """At least and at most so many times the sweep gets on between two faults."""

    def __init__(
        self, place: Path, name: str, seed: int, trials: int, environment: Mapping[str, str]
    ) -> None:
        self.place = place
        self.folder = place / "ditk_ray_results" / name
        self.struck = 0
        """How many faults there were."""
        self.chance = random.Random(seed + 1)
        """What a fault may choose by; the faults themselves are chosen apart from it."""
        self._name = name
        self._seed = seed
        self.trials = trials
        self._environment = {**os.environ, **environment}
        self._log = (place / "driver.log").open("ab")
        self._driver = self._start("tune", *self.arguments(), "--name", name, "--seed", "3")

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return what `ditk-ray tune` is given, after writing the files that it needs."""

    @abstractmethod
    def faults(self) -> list[Callable[[], None]]:
        """Return what may happen."""

    @abstractmethod
    def processes(self) -> list[psutil.Process]:
        """Return the processes that have to end with the driver."""

    def run(self, faults: int) -> SweepRecord:
        """Let so many faults happen, and the sweep end; return its record if that is sound."""
        for pause, fault in itertools.islice(self._plan(), faults):
            self._wait_for_progress(pause)
            if self._all_ended:
                break
            self.struck += 1
            print(f"fault {self.struck}: {fault.__name__}", flush=True)
            fault()
        while not self.is_over:
            self._wait_for_progress(3)
        return require_sound(self.folder, self.trials)

    @property
    def is_over(self) -> bool:
        """Whether all trials have ended, and the driver with them."""
        return self._all_ended and self._driver.poll() is not None

    @property
    def _all_ended(self) -> bool:
        return len(set(ended(self.folder))) == self.trials

    def close(self) -> None:
        """Leave nothing behind."""
        self._driver.kill()
        self._driver.wait()
        self._log.close()

    def kill_driver(self) -> None:
        """End the driver at once."""
        self._driver.kill()
        self._resume()

    def interrupt_driver(self) -> None:
        """Press Ctrl-C."""
        self._driver.send_signal(signal.SIGINT)
        self._resume()

    def _plan(self) -> Iterator[tuple[int, Callable[[], None]]]:
        chosen = random.Random(self._seed)
        while True:
            round_of_all = self.faults()
            chosen.shuffle(round_of_all)
            for fault in round_of_all:
                yield chosen.randint(*self.between), fault

    def _resume(self) -> None:
        self._driver.wait(self.recovery_seconds * PATIENCE)
        wait_until(
            lambda: not self.processes(), self.recovery_seconds, "all to end with the driver"
        )
        if not self._all_ended:
            self._driver = self._start("resume", self._name)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("ditk-ray")), *arguments],
            cwd=self.place,
            stdout=self._log,
            stderr=self._log,
            env=self._environment,
        )

    def _wait_for_progress(self, evaluations: int) -> None:
        """Wait for so many evaluations; fail if the sweep does not get on."""
        for _ in range(evaluations):
            before = self._evaluated()
            wait_until(
                lambda seen=before: self.is_over or self._evaluated() > seen,
                self.recovery_seconds,
                f"the sweep to get on (see {self.place / 'driver.log'})",
            )

    def _evaluated(self) -> int:
        files = self.folder.glob("trial_*/metrics.jsonl")
        return sum(file.stat().st_size for file in files)


def run_as_asked(
    description: str, run: Callable[[Path, int, int, int], tuple[SweepRecord, int]]
) -> None:
    """Run `run(place, seed, faults, trials)` as the command line says, and tell its outcome.

    It returns the record and how many faults there were. What it leaves in `place` is
    removed if all went well.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--trials", type=int, default=30)
    given = parser.parse_args()
    begun = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="chaos_"))
    record, struck = run(place, given.seed, given.faults, given.trials)
    shutil.rmtree(place)
    kinds = sorted(one["kind"] for trial in record.trials.values() for one in trial.failures)
    told = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    seconds = time.monotonic() - begun
    print(f"sound: {len(record.trials)} trials, {struck} faults in {seconds:.0f} s; {told}")
