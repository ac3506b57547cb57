"""A cluster that plays: a stand-in whose pods print what is foreseen, and what it did, when.

It runs in a process of its own, so that it shares no interpreter with those who watch it.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import pickle
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from ditk_ray.dijob.jobs import TRIAL
from ditk_ray.dijob.pod_runner import MARK
from tests.kube.api_server import ApiServer
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated

TELLS, SILENT, FAILS = "tells", "silent", "fails"
"""How a trial ends: with its result and a last word; without a word; with exit code 1."""

START_SECONDS = 60.0


@dataclass(frozen=True)
class Play:
    """What the pods do: so many evaluations, with about so many seconds before each."""

    evaluations: int
    pause: float

    def end_of(self, number: int) -> str:
        """Return how a trial ends. Of ten, two are silent and one fails."""
        return {3: SILENT, 6: SILENT, 9: FAILS}.get(number % 10, TELLS)

    def result_of(self, number: int) -> dict[str, float]:
        """Return what the `result.pkl` of a trial holds."""
        return {"eval_value": float(self.evaluations), "number": float(number)}


@dataclass(frozen=True)
class Played:
    """What happened in the cluster, by the clock of this machine."""

    printed: dict[int, list[tuple[int, float]]]
    """The evaluations of each trial: their numbers, and when they were printed."""
    last_words: dict[int, float]
    phases: dict[int, dict[str, float]]

    @classmethod
    def read(cls, file: Path) -> Played:
        """Read what a `PlayedCluster` wrote."""
        played = cls({}, {}, {})
        for line in file.read_text().splitlines():
            kind, trial, what, at = json.loads(line)
            if kind == "evaluation":
                played.printed.setdefault(trial, []).append((what, at))
            elif kind == "end":
                played.last_words[trial] = at
            else:
                played.phases.setdefault(trial, {}).setdefault(what, at)
        return played


class PlayedCluster:
    """Plays while it is entered; writes what happens to `folder`/played.jsonl."""

    def __init__(self, kube: ApiServer, namespace: str, folder: Path, play: Play) -> None:
        self._file = folder / "played.jsonl"
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        arguments = (kube, namespace, folder, play, self._ours, theirs)
        self._process = context.Process(target=_run, args=arguments)
        self._theirs = theirs

    def __enter__(self) -> PlayedCluster:
        self._process.start()
        self._theirs.close()
        if not self._ours.poll(START_SECONDS):
            raise RuntimeError("the stand-in does not start")
        self._ours.recv()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ours.close()
        self._process.join()

    def played(self) -> Played:
        """Return what has happened."""
        return Played.read(self._file)


def _run(
    kube: ApiServer,
    namespace: str,
    folder: Path,
    play: Play,
    parents: Connection,
    ours: Connection,
) -> None:
    parents.close()  # else the parent's end would not be noticed
    notes = _Notes(folder / "played.jsonl")

    def simulate(pod: dict[str, Any]) -> Simulated:
        return _script(play, _number(_trial_of(pod)), notes)

    def on_phase(job: dict[str, Any], phase: str) -> None:
        notes.add("phase", _number(job["metadata"]["labels"][TRIAL]), phase)

    with StandInCluster(kube, namespace, folder / "stand_in", simulate, on_phase):
        ours.send("ready")
        ours.poll(None)  # true when the other end is closed


class _Notes:
    def __init__(self, file: Path) -> None:
        self._file = file.open("w", buffering=1)
        self._lock = threading.Lock()

    def add(self, kind: str, trial: int, what: int | str) -> float:
        """Write down what is about to happen, and return the time."""
        at = time.time()
        with self._lock:
            self._file.write(json.dumps([kind, trial, what, at]) + "\n")
        return at


def _script(play: Play, number: int, notes: _Notes) -> Simulated:
    chance = random.Random(number)
    end = play.end_of(number)

    def lines() -> Iterator[tuple[float, str]]:
        yield 0.0, "begun"
        for evaluation in range(1, play.evaluations + 1):
            yield play.pause * chance.uniform(0.5, 1.5), f"about to evaluate: {evaluation}"
            at = notes.add("evaluation", number, evaluation)
            metrics = {"eval_value": float(evaluation), "env_step": 100 * evaluation}
            metrics |= {"train_iter": evaluation, "number": evaluation, "printed_at": at}
            yield 0.0, _marked(evaluation, "evaluation", metrics=metrics)
        if end != TELLS:
            yield play.pause, "nothing more is said"
            return
        data = base64.b64encode(pickle.dumps(play.result_of(number))).decode()
        n = play.evaluations + 1
        yield play.pause, _marked(n, "result", part=1, parts=1, data=data)
        at = notes.add("end", number, n + 1)
        returned = {"eval_value": float(play.evaluations), "printed_at": at}
        yield 0.0, _marked(n + 1, "end", returned=returned)

    return Simulated(_Lazy(lines), exit_code=1 if end == FAILS else 0)


class _Lazy:
    """Begins anew each time that it is iterated over, and not before."""

    def __init__(self, begin: Any) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[tuple[float, str]]:
        return iter(self._begin())


def _marked(n: int, kind: str, **said: Any) -> str:
    return MARK + json.dumps({"n": n, "kind": kind, **said})


def _trial_of(pod: dict[str, Any]) -> str:
    environment = pod["spec"]["containers"][0]["env"]
    return str(next(each["value"] for each in environment if each["name"] == "DITK_RAY_TRIAL"))


def _number(trial: str) -> int:
    return int(trial.rpartition("_")[2])
