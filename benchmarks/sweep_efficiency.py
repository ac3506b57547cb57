"""How much of a machine's time a sweep turns into training.

The same CartPole trials, of equal environment steps and without early stop, are
run by these contestants, interleaved in rounds because machines drift:

  limit        a pool of warm processes, one for each core, running
               `serial_pipeline` back to back: no tuning, no isolation
  ditk_ray     this project, from `tuner.fit` to its end
  limit_quick  the limit once more, with this project's quick way to save DI-engine's
               config: the formatter that it replaces takes two seconds of a trial
  ray_tune     stock Ray Tune: a function trainable and Tune's defaults
  new_process  a new process for every trial, as LightTuner and Isaac Lab do

Printed are the median wall time of each, its ratio to the limit (a contestant
that needs twice the time has 0.5), and the memory that one running trial holds
for itself (USS). The last line is `efficiency: R`, the ratio of ditk_ray.

    python benchmarks/sweep_efficiency.py --trials 16
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ditk_ray.cli.output import note
from ditk_ray.ray_cluster.session import local_ray, quiet_ray
from ditk_ray.util.units import show_bytes

CONFIG = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"
NEVER = 10**9
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}


@dataclass
class Contestant:
    """A way to run trials, and what was measured of it."""

    name: str
    run: Callable[[int, int, Path], float]
    is_trial: Callable[[psutil.Process], bool]
    seconds: list[float] = field(default_factory=list)
    uss: list[int] = field(default_factory=list)


def train(steps: int) -> None:
    """Train one trial in the current directory, as a user without this project would."""
    import importlib

    import torch
    from ding.entry import serial_pipeline

    torch.set_num_threads(1)
    config = importlib.import_module(CONFIG)
    config.main_config.env.stop_value = NEVER
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        serial_pipeline((config.main_config, config.create_config), seed=0, max_env_step=steps)


def train_in_fresh_folder(job: tuple[int, str]) -> None:
    steps, parent = job
    os.chdir(tempfile.mkdtemp(dir=parent))
    train(steps)


def warm_up(parent: str) -> None:
    """Import everything, and train for a moment, so that nothing is left to be loaded."""
    silence()
    train_in_fresh_folder((1, parent))


def silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def run_limit(
    trials: int, steps: int, folder: Path, prepare: Callable[[str], None] = warm_up
) -> float:
    os.environ.update(ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count(), prepare, (str(folder),)) as pool:
        pool.map(time.sleep, [1.0] * (os.cpu_count() or 1), chunksize=1)  # all are up
        begun = time.monotonic()
        pool.map(train_in_fresh_folder, [(steps, str(folder))] * trials, chunksize=1)
        return time.monotonic() - begun


def warm_up_quick(parent: str) -> None:
    import ding.config.config

    from ditk_ray.trial.training import save_config_py

    warm_up(parent)
    ding.config.config.save_config_py = save_config_py


def run_limit_quick(trials: int, steps: int, folder: Path) -> float:
    return run_limit(trials, steps, folder, warm_up_quick)


def run_ditk_ray(trials: int, steps: int, folder: Path) -> float:
    from ditk_ray import JobCfg
    from ditk_ray.config.job_spec import check_job
    from ditk_ray.config.options import SweepOptions
    from ditk_ray.execution.fork_client import ForkClient
    from ditk_ray.sweep.prepare import prepared_sweep
    from ditk_ray.sweep.run import run_sweep

    class Fixed(JobCfg):
        config = CONFIG
        space = {"env.stop_value": NEVER}  # noqa: RUF012
        num_samples = trials
        max_env_step = steps

    options = SweepOptions(storage_path=folder)
    with ForkClient() as warm, prepared_sweep(check_job(Fixed, {}), options, warm) as sweep:
        outcome = run_sweep(sweep)
    if not outcome.succeeded or len(outcome.record.trials) != trials:
        raise RuntimeError(f"the sweep in {outcome.folder} did not succeed")
    return outcome.seconds


def run_ray_tune(trials: int, steps: int, folder: Path) -> float:
    from ray import tune

    def trial(config: dict[str, int]) -> None:
        from ding.worker import InteractionSerialEvaluator

        original = InteractionSerialEvaluator.eval

        def reporting(
            self: object, *args: object, **kwargs: object
        ) -> tuple[bool, dict[str, list[float]]]:
            stop, info = original(self, *args, **kwargs)
            returns = info["eval_episode_return"]
            tune.report({"eval_value": float(sum(returns) / len(returns))})
            return stop, info

        InteractionSerialEvaluator.eval = reporting
        train(config["steps"])

    tuner = tune.Tuner(
        trial,
        param_space={"steps": steps},
        tune_config=tune.TuneConfig(metric="eval_value", mode="max", num_samples=trials),
        run_config=tune.RunConfig(storage_path=str(folder)),
    )
    ours = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "RAY_AIR_NEW_OUTPUT"
    kept = {name: os.environ.pop(name) for name in ours if name in os.environ}
    with local_ray(), Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        begun = time.monotonic()
        results = tuner.fit()
        seconds = time.monotonic() - begun
    os.environ.update(kept)
    if results.num_errors:
        raise RuntimeError(f"stock Ray Tune failed: {results.errors[0]}")
    return seconds


def run_new_process(trials: int, steps: int, folder: Path) -> float:
    code = f"import sweep_efficiency as s; s.train_in_fresh_folder(({steps}, {str(folder)!r}))"
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(Path(__file__).parent)}
    begun = time.monotonic()
    waiting = trials
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            running.append(
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", code],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            waiting -= 1
        for process in [process for process in running if process.poll() is not None]:
            running.remove(process)
            if process.returncode:
                raise RuntimeError("a trial in a new process failed")
        time.sleep(0.01)
    return time.monotonic() - begun


def is_pool_worker(process: psutil.Process) -> bool:
    return "spawn_main" in " ".join(process.cmdline())


def is_forked_trial(process: psutil.Process) -> bool:
    """Say whether it is a trial: server, keeper, trial, one below the other."""
    line, parent = process.cmdline(), process.parent()
    keeper = parent and parent.parent()
    return "ditk_ray.execution.fork_server" in line and bool(keeper and keeper.cmdline() == line)


def is_tune_worker(process: psutil.Process) -> bool:
    return bool(process.cmdline()[:1] == ["ray::ImplicitFunc.train"])


def is_own_process(process: psutil.Process) -> bool:
    return "import sweep_efficiency" in " ".join(process.cmdline())


@contextmanager
def memory_watched(contestant: Contestant) -> Iterator[None]:
    """Note now and then how much memory the trials hold for themselves."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(2.0):
            for process in psutil.process_iter():
                try:
                    if contestant.is_trial(process):
                        contestant.uss.append(process.memory_full_info().uss)
                except (psutil.Error, OSError):
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def measure(trials: int, steps: int, rounds: int, names: list[str]) -> list[Contestant]:
    contestants = [
        Contestant("limit", run_limit, is_pool_worker),
        Contestant("ditk_ray", run_ditk_ray, is_forked_trial),
        Contestant("limit_quick", run_limit_quick, is_pool_worker),
        Contestant("ray_tune", run_ray_tune, is_tune_worker),
        Contestant("new_process", run_new_process, is_own_process),
    ]
    chosen = [item for item in contestants if item.name in names]
    for number in range(rounds):
        for contestant in chosen:
            with tempfile.TemporaryDirectory() as folder, memory_watched(contestant):
                seconds = contestant.run(trials, steps, Path(folder))
            contestant.seconds.append(seconds)
            note(f"round {number + 1}/{rounds}: {contestant.name} {seconds:.1f} s")
    return chosen


def summarise(contestants: list[Contestant]) -> list[dict[str, object]]:
    limit = statistics.median(contestants[0].seconds)
    rows: list[dict[str, object]] = []
    for item in contestants:
        seconds = statistics.median(item.seconds)
        rows.append(
            {
                "contestant": item.name,
                "seconds": round(seconds, 2),
                "ratio_to_limit": round(limit / seconds, 3),
                "rounds": [round(value, 2) for value in item.seconds],
                "uss_bytes": int(statistics.median(item.uss)) if item.uss else None,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=16, help="of each contestant, each round")
    parser.add_argument("--steps", type=int, default=2000, help="environment steps of a trial")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    names = ["limit", "ditk_ray", "limit_quick", "ray_tune", "new_process"]
    parser.add_argument("--only", nargs="*", choices=names, default=names, help="fewer contestants")
    given = parser.parse_args()
    quiet_ray()
    contestants = measure(
        given.trials, given.steps, given.rounds, ["limit", "ditk_ray", *given.only]
    )
    rows = summarise(contestants)
    efficiency = rows[1]["ratio_to_limit"]
    if given.format == "json":
        about = {"trials": given.trials, "steps": given.steps, "efficiency": efficiency}
        print(json.dumps(about | {"contestants": rows}, indent=1))
    else:
        print(f"{given.trials} trials of {given.steps} steps, median of {given.rounds} rounds")
        print(f"{'contestant':<12} {'seconds':>8} {'ratio':>6} {'USS of a trial':>15}")
        for row in rows:
            memory = show_bytes(float(str(row["uss_bytes"]))) if row["uss_bytes"] else "-"
            print(
                f"{row['contestant']:<12} {row['seconds']:>8} {row['ratio_to_limit']:>6} "
                f"{memory:>15}"
            )
        print(f"efficiency: {efficiency}")


if __name__ == "__main__":
    main()
