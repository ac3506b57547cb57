"""What it costs Tune's event loop to have a sweep recorded.

All trials of a sweep report to one loop in one thread. However many machines train,
no more reports come through than it can take, so what a callback spends there
is spent by the whole sweep. Simulated trials, whose steps return at once, report
to it as fast as it will take them, with these contestants, each in a process of its
own, interleaved in rounds because machines drift:

  bare        Tune with its own loggers off, and nothing recorded
  ditk_ray    the same with this project's record and its recording in MLflow (SQLite)
  stock       Tune with the loggers that it turns on by itself
  ray_mlflow  Tune with its loggers off, and Ray's own MLflow callback (SQLite)

The cost of a report is the time in which the loop does not wait for trials, divided
by the reports; it holds whatever a callback waits for, such as a disk. Beside it stands
the CPU time of the loop's thread, which other load on the machine disturbs less, and
how much of the cost is spent in callbacks. The first trial of each actor is left out:
the actors start in it.

Growth is the cost in the last tenth of the reports, divided by that in the first. A
machine that others use drifts more than that within minutes; what does not drift is
the share of callbacks, so there is also the overhead, the whole cost divided by the
cost without callbacks, in the first and in the last tenth. Afterwards MLflow's client
reads back every point of every trial.

    python benchmarks/tracking_cost.py                  # five to ten minutes
    python benchmarks/tracking_cost.py --trials 1000 --rounds 1 --only bare ditk_ray

The last lines are for programs: `report_cost_ratio`, of ditk_ray to bare (limit: 1.3);
the same of CPU time; the growth of both; the overhead of ditk_ray in the first and in the
last tenth; and whether all of it is in MLflow's store, `complete`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loop_meter import Cost, Meter

from ditk_ray.cli.output import note
from ditk_ray.ray_cluster.nodes import usable_cpus
from ditk_ray.ray_cluster.session import local_ray, quiet_ray
from ditk_ray.tracking.recording import calm_mlflow

AT_ONCE = 4
START_SECONDS = 120.0
EXPERIMENT = "cost"
METRICS = (
    "eval_value",
    "eval_value_std",
    "eval_value_min",
    "eval_value_max",
    "env_step",
    "train_iter",
    "eval_episodes",
    "trial_seconds",
)
LOGGERS_OFF = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"


@dataclass(frozen=True)
class Measured:
    """One run of one contestant."""

    all: Cost
    first: Cost
    last: Cost
    reports: int
    fit_seconds: float
    after_seconds: float
    """How long it took after the sweep until everything was recorded."""
    complete: bool | None


@dataclass(frozen=True)
class Recording:
    """How a contestant records: its callbacks, and what has to be done after the sweep."""

    callbacks: list[Any]
    finish: Callable[[], None] = lambda: None
    uri: str = ""


def record_nothing(folder: Path) -> Recording:
    os.environ[LOGGERS_OFF] = "1"
    return Recording([])


def record_stock(folder: Path) -> Recording:
    os.environ[LOGGERS_OFF] = "0"
    return Recording([])


def record_ray_mlflow(folder: Path) -> Recording:
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    os.environ[LOGGERS_OFF] = "1"
    uri = f"sqlite:///{folder}/mlflow.db"
    return Recording([MLflowLoggerCallback(uri, experiment_name=EXPERIMENT)], uri=uri)


def record_ditk_ray(folder: Path) -> Recording:
    from ditk_ray.record.record import SweepRecord, SweepStatus
    from ditk_ray.sweep.observer import SweepObserver
    from ditk_ray.tracking.recorder import Recorder, TrackingOptions
    from ditk_ray.tracking.recording import EMBEDDED, embedded_uri

    os.environ[LOGGERS_OFF] = "1"
    sweep = folder / "sweep"
    sweep.mkdir()
    recorder = Recorder(sweep, TrackingOptions(EMBEDDED, EXPERIMENT), note)
    observer = SweepObserver(SweepRecord("sweep", METRICS[0], "max"), sweep, space(), [recorder])
    observer.begin()

    def finish() -> None:
        observer.settle(SweepStatus.FINISHED)
        observer.end()

    return Recording([observer], finish, embedded_uri(folder))


CONTESTANTS = {
    "bare": record_nothing,
    "ditk_ray": record_ditk_ray,
    "stock": record_stock,
    "ray_mlflow": record_ray_mlflow,
}


def space() -> Any:
    from ray import tune

    from ditk_ray.config.space import build_space

    names = ("discount_factor", "nstep", "learn.learning_rate", "learn.batch_size", "eps.decay")
    return build_space({f"policy.{name}": tune.uniform(0, 1) for name in names})


def simulated(reports: int, folder: Path) -> Any:
    """Return a trainable whose every step is over at once."""
    from ray import tune

    from ditk_ray.trial.reports import ENDED

    class Simulated(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            """Wait for the other actors: one alone would be through before they are there."""
            (folder / f"actor_{os.getpid()}").touch()
            deadline = time.monotonic() + START_SECONDS
            while len(list(folder.glob("actor_*"))) < AT_ONCE and time.monotonic() < deadline:
                time.sleep(0.05)

        def step(self) -> dict[str, Any]:
            number = self.iteration + 1  # of this step
            result: dict[str, Any] = dict.fromkeys(METRICS, number + 0.5)
            result["env_step"] = 100 * number
            if number < reports:
                return result
            return {**result, ENDED: "training", "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

    return tune.with_resources(Simulated, {"cpu": usable_cpus() / AT_ONCE})


def run_contestant(name: str, trials: int, reports: int, folder: Path) -> Measured:
    """Run one sweep in this process, and look at what is left of it."""
    from ray import tune
    from ray.tune.search import BasicVariantGenerator

    from ditk_ray.sweep.trials import trial_name

    recording = CONTESTANTS[name](folder)
    tuner = tune.Tuner(
        simulated(reports, folder),
        param_space=space().tune_space(),
        tune_config=tune.TuneConfig(
            metric=METRICS[0],
            mode="max",
            num_samples=trials,
            # As many again wait: Tune keeps an actor only if a trial waits for one.
            search_alg=BasicVariantGenerator(max_concurrent=2 * AT_ONCE),
            reuse_actors=True,
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(folder),
            callbacks=recording.callbacks,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=0, checkpoint_at_end=False
            ),
            verbose=0,
        ),
    )
    meter = Meter()
    with local_ray():
        begun = time.monotonic()
        with meter.attached():
            results = tuner.fit()
        ended = time.monotonic()
        recording.finish()
        finished = time.monotonic()
    if results.num_errors:
        raise RuntimeError(f"{name}: trials failed: {results.errors[0]}")
    number = len(meter.marks)
    if number != trials * reports:
        raise RuntimeError(f"{name}: {number} reports came instead of {trials * reports}")
    warm, tenth = AT_ONCE * reports, (number - AT_ONCE * reports) // 10
    return Measured(
        all=meter.cost(warm, number - 1),
        first=meter.cost(warm, warm + tenth),
        last=meter.cost(number - 1 - tenth, number - 1),
        reports=number,
        fit_seconds=ended - begun,
        after_seconds=finished - ended,
        complete=is_complete(recording.uri, trials, reports) if recording.uri else None,
    )


def is_complete(uri: str, trials: int, reports: int) -> bool:
    """Read all points of all trials with MLflow's client, and count."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    runs = client.search_runs([experiment.experiment_id], max_results=50_000)
    of_trials = [run for run in runs if run.info.run_name.startswith("trial_")]
    return len(of_trials) == trials and all(
        run.info.status == "FINISHED"
        and len(client.get_metric_history(run.info.run_id, name)) == reports
        for run in of_trials
        for name in METRICS
    )


def measure_apart(name: str, trials: int, reports: int) -> Measured:
    """Run a contestant in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--run", name]
        command += ["--trials", str(trials), "--reports", str(reports), "--folder", folder]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    values = json.loads(done.stdout.splitlines()[-1])
    for key in ("all", "first", "last"):
        values[key] = Cost(**values[key])
    return Measured(**values)


def measure(given: argparse.Namespace) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {name: [] for name in CONTESTANTS if name in given.only}
    for number in range(given.rounds):
        for name, measured in found.items():
            trials = min(given.trials, given.slow_trials) if name == "ray_mlflow" else given.trials
            one = measure_apart(name, trials, given.reports)
            measured.append(one)
            note(
                f"round {number + 1}/{given.rounds}: {name} {one.all.busy:.2f} ms a report, "
                f"{one.fit_seconds:.0f} s and {one.after_seconds:.0f} s after the sweep"
            )
    return found


def summarise(found: dict[str, list[Measured]]) -> list[dict[str, Any]]:
    """Return medians; a ratio is the median of the rounds' own, where drift is least."""
    rows: list[dict[str, Any]] = []
    for name, measured in found.items():
        rounds = list(zip(measured, found["bare"], strict=True))
        stores = [item.complete for item in measured if item.complete is not None]
        rows.append(
            {
                "contestant": name,
                "reports": measured[0].reports,
                "ms": median([item.all.busy for item in measured]),
                "ratio": median([item.all.busy / bare.all.busy for item, bare in rounds]),
                "cpu_ms": median([item.all.cpu for item in measured]),
                "cpu_ratio": median([item.all.cpu / bare.all.cpu for item, bare in rounds]),
                "callbacks_ms": median([item.all.callbacks for item in measured]),
                "first_ms": median([item.first.busy for item in measured]),
                "last_ms": median([item.last.busy for item in measured]),
                "growth": median([item.last.busy / item.first.busy for item in measured]),
                "overhead": median([item.all.overhead for item in measured]),
                "overhead_first": median([item.first.overhead for item in measured]),
                "overhead_last": median([item.last.overhead for item in measured]),
                "cpu_growth": median([item.last.cpu / item.first.cpu for item in measured]),
                "after_seconds": median([item.after_seconds for item in measured]),
                "complete": all(stores) if stores else None,
                "rounds": [asdict(item) for item in measured],
            }
        )
    return rows


def median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def show(rows: list[dict[str, Any]]) -> None:
    columns = {
        "reports": "reports",
        "ms": "ms each",
        "ratio": "ratio",
        "cpu_ms": "CPU ms",
        "cpu_ratio": "ratio",
        "callbacks_ms": "callbacks",
        "overhead": "overhead",
        "growth": "growth",
        "cpu_growth": "CPU growth",
        "after_seconds": "after s",
    }
    words = {None: "-", True: "yes", False: "no"}
    print(f"{'contestant':<11}" + "".join(f"{text:>11}" for text in columns.values()), "  complete")
    for row in rows:
        cells = "".join(f"{row[key]:>11}" for key in columns)
        print(f"{row['contestant']:<11}{cells}   {words[row['complete']]:>8}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=60, help="of each contestant, each round")
    parser.add_argument("--reports", type=int, default=50, help="of each trial")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--slow_trials", type=int, default=6, help="ray_mlflow runs no more (default: 6)"
    )
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument("--only", nargs="*", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--run", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if (min(given.trials, given.slow_trials) - AT_ONCE) * given.reports < 10:
        parser.error(f"more than {AT_ONCE} trials, and 10 reports besides those of the first")
    quiet_ray()
    calm_mlflow()
    if given.run:
        measured = run_contestant(given.run, given.trials, given.reports, given.folder)
        print(json.dumps(asdict(measured)))
        return
    given.only = ["bare", "ditk_ray", *given.only]
    rows = summarise(measure(given))
    ours = next(row for row in rows if row["contestant"] == "ditk_ray")
    last = {
        "report_cost_ratio": ours["ratio"],
        "report_cpu_ratio": ours["cpu_ratio"],
        "growth": ours["growth"],
        "growth_bare": rows[0]["growth"],
        "overhead_first": ours["overhead_first"],
        "overhead_last": ours["overhead_last"],
        "complete": "yes" if ours["complete"] else "no",
    }
    if given.format == "json":
        about = {"trials": given.trials, "reports": given.reports}
        print(json.dumps(about | last | {"contestants": rows}, indent=1))
        return
    show(rows)
    for key, value in last.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
