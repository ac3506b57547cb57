"""What tests have in place of a pod: an image, and a process that runs a trial's script in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.dijob.pod_protocol import PodProtocol
from ditk_ray.dijob.pod_runner import MARK
from ditk_ray.dijob.tracker import Message
from ditk_ray.execution.executor import Ended, Evaluated
from tests.processes import PATIENCE

# DI-engine takes seconds to import; these are the places that the script reaches into.
_STAND_IN_DING = {
    "worker/collector/base_serial_evaluator.py": "class ISerialEvaluator:\n    pass\n",
    "framework/middleware/functional/evaluator.py": (
        "def interaction_evaluator(*_):\n    pass\n\n\ninteraction_evaluator_ttorch = None\n"
    ),
}

TRAININGS = """
import threading

import numpy as np


def evaluate(*infos):
    from ding.worker.collector.base_serial_evaluator import ISerialEvaluator

    class Own(ISerialEvaluator):
        def eval(self, save_ckpt_fn=None, train_iter=-1, envstep=-1):
            return False, infos[train_iter]

    evaluator = Own()
    for number in range(len(infos)):
        evaluator.eval(None, number, 10 * number)


def score(config, seed=0):
    main, create = config
    evaluate({"eval_episode_return": [main.policy.rate, float(seed)]})
    return {"own": np.float32(0.5), "text": "no number"}


def print_then_score(config):
    print("half a line", end="")
    evaluate({"eval_episode_return": [1.0]})


def lose_numbers(config):
    evaluate({"eval_episode_return": [float("nan")], "high": float("inf"), "low": -float("inf")})


def say_much(config):
    evaluate({"eval_episode_return": [1.0], **{"metric_%03d" % n: n / 3 for n in range(500)}})
    return {"returned_%03d" % n: n / 3 for n in range(500)}


def return_a_large_result(config):
    import pickle
    from pathlib import Path

    Path("deep").mkdir()
    Path("deep/result.pkl").write_bytes(pickle.dumps({"eval_value": 3.0, "bytes": b"x" * 20000}))


def fail_badly(config):
    raise ValueError("\\U0001f4a5" * 5000)


def fail(config):
    raise ValueError("no such luck")


def run_out_of_memory(config):
    try:
        raise MemoryError("no room")
    except MemoryError as error:
        raise RuntimeError("an environment died") from error


def fill_the_disk(config):
    raise OSError(28, "No space left on device")


def lose_a_thread(config):
    def work():
        raise MemoryError("no room")

    threading.Thread(target=work).start()
    threading.Event().wait()


def leave(config):
    raise SystemExit(3)


def diverge(config):
    raise ValueError("Expected parameter logits, but found invalid values:\\ntensor([[nan]])")


class Trainer:
    def train(self, config):
        pass
"""


@dataclass(frozen=True)
class PodRun:
    """How a script ended, and what it said."""

    code: int
    log: str
    messages: list[Message]

    @property
    def evaluations(self) -> list[Evaluated]:
        return [each.said for each in self.messages if isinstance(each.said, Evaluated)]

    @property
    def ends(self) -> list[Ended]:
        return [each.said for each in self.messages if isinstance(each.said, Ended)]

    @property
    def results(self) -> list[bytes]:
        return [each.said for each in self.messages if isinstance(each.said, bytes)]

    @property
    def marked(self) -> list[str]:
        return [line for line in self.log.splitlines() if MARK in line]


@dataclass(frozen=True)
class PodImage:
    """A folder of packages, one of which stands in for DI-engine or is DI-engine itself."""

    folder: Path
    has_engine: bool = False

    @property
    def packages(self) -> Path:
        """Where those of the user are, which a test may import too."""
        return self.folder / "packages"

    @property
    def stand_in(self) -> Path:
        """Where the stand-in for DI-engine is."""
        return self.folder / "stand_in"

    def make(self) -> None:
        self.packages.mkdir(parents=True)
        (self.packages / "trainings.py").write_text(TRAININGS)
        for name, text in _STAND_IN_DING.items():
            path = self.stand_in / "ding" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            for package in [*path.relative_to(self.stand_in).parents][:-1]:
                (self.stand_in / package / "__init__.py").touch()

    def run(self, text: str, cwd: Path | None = None, **environment: str) -> PodRun:
        """Run a script as a pod does: in an empty folder, by `python` and the file's path."""
        script = self.write(text)
        return self.python(str(script), cwd=cwd, **environment)

    def write(self, text: str) -> Path:
        script = self.folder / "etc/config.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        return script

    def python(self, *arguments: str, cwd: Path | None = None, **environment: str) -> PodRun:
        if cwd is None:
            cwd = self.folder / "work"
            cwd.mkdir(exist_ok=True)
        path = [self.packages] if self.has_engine else [self.packages, self.stand_in]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *arguments],
            cwd=cwd,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(map(str, path)),
                **({"OMP_NUM_THREADS": "1"} if self.has_engine else {}),
                "DITK_RAY_JOB": "job-0",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120 * PATIENCE,
        )
        lines = PodProtocol()
        read = [lines.read(line) for line in done.stdout.splitlines()]
        return PodRun(done.returncode, done.stdout, [message for message in read if message])
