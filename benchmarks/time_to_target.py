"""What a searcher and a scheduler save on the way to a good configuration.

A sweep over DQN on CartPole, in a wide space, looks for a configuration that holds
195: the mean of three evaluations in a row, each of ten episodes, is at least that.
The space, a trial's budget and how many trials run at once are the same for all
contestants; nothing but the scheduler ends a trial before its budget is spent:

  grid      two points for each parameter, in the order in which Tune goes through
            them (by name, the first varies fastest)
  random    drawn at random, every trial to its end
  tpe       Optuna's TPE, every trial to its end
  tpe+asha  the same, with trials ended early by ASHA

Counted are the environment steps of all trials of the sweep, those that still run
included, up to the evaluation that shows the target, and the wall time since the sweep
began. A sweep that has spent the steps of `--trials` whole trials without finding it is
ended, and counts with all its steps and its whole time.

Printed are each sweep, the medians, and their ratios to random search. The last line is
for programs: `tpe+asha_to_random: R`, the ratio of the environment steps. The exit code is
1 if it is more than a third.

    python benchmarks/time_to_target.py                 # half an hour on two cores
    python benchmarks/time_to_target.py --seeds 1 --only random tpe+asha
"""

# Ray takes its settings when it is imported.
# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ditk_ray.cli.output import note
from ditk_ray.ray_cluster.session import quiet_ray

quiet_ray()

from ray import tune
from ray.tune.search.sample import Domain, Integer, LogUniform
from ray.tune.stopper import Stopper

from ditk_ray import JobCfg
from ditk_ray.config.job_spec import JobSpec, check_job
from ditk_ray.config.options import SweepOptions
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.record.record import SweepStatus
from ditk_ray.sweep.prepare import prepared_sweep
from ditk_ray.sweep.run import run_sweep

TARGET = 195.0
HELD = 3
"""Over how many evaluations in a row the mean has to reach the target."""
LIMIT = 1 / 3
NEVER = 10**9
SAMPLES = 64
"""Environment steps of a collection; updates follow each."""
EVALUATIONS = 25
"""How many there are within a trial's budget."""

SPACE: Mapping[str, Any] = {
    "policy.discount_factor": tune.uniform(0.9, 0.999),
    "policy.nstep": tune.randint(1, 6),
    "policy.model.encoder_hidden_size_list": [tune.lograndint(4, 129), tune.lograndint(4, 129)],
    "policy.learn.learning_rate": tune.loguniform(1e-6, 1e-1),
    "policy.learn.batch_size": tune.lograndint(4, 129),
    "policy.learn.update_per_collect": tune.lograndint(1, 17),
    "policy.learn.target_update_freq": tune.lograndint(1, 2001),
    "policy.other.eps.start": tune.uniform(0.5, 1.0),
    "policy.other.eps.end": tune.uniform(0.01, 0.5),
    "policy.other.eps.decay": tune.lograndint(100, 100_001),
    "policy.other.replay_buffer.replay_buffer_size": tune.lograndint(500, 50_001),
}


def train(configs: tuple[Any, Any], seed: int, max_env_step: int) -> None:
    """Train as DI-engine's serial entry does, with `eval_freq` in collections.

    DI-engine counts updates, and how many of them go with an environment step is tuned.
    """
    from ding.entry import serial_pipeline

    policy = configs[0].policy
    policy.eval.evaluator.eval_freq *= policy.learn.update_per_collect
    serial_pipeline(configs, seed, max_env_step=max_env_step)


class CartpoleRace(JobCfg):
    """DQN on CartPole; the contestants set the space, the searcher and the scheduler."""

    config = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"
    num_samples = 1000  # more than the steps allow
    max_concurrent = 2


def two_points(domain: Domain) -> Any:
    """Return a grid of the middles of a range's halves."""
    low, high = domain.lower, domain.upper
    is_log = isinstance(domain.get_sampler(), LogUniform)
    points = [
        low * (high / low) ** share if is_log else low + (high - low) * share
        for share in (0.25, 0.75)
    ]
    return tune.grid_search([round(x) for x in points] if isinstance(domain, Integer) else points)


def coarse(value: Any) -> Any:
    return [coarse(item) for item in value] if isinstance(value, list) else two_points(value)


@dataclass(frozen=True)
class Contestant:
    """A way to look for a configuration."""

    space: Mapping[str, Any] = field(default_factory=lambda: SPACE)
    num_samples: int = CartpoleRace.num_samples
    searcher: str = "random"
    scheduler: str = "fifo"

    def job(self, steps: int, stopper: Stopper) -> JobSpec:
        """Return its sweep, with trials of so many steps."""
        fixed = {
            "env.stop_value": NEVER,  # DI-engine itself would end a trial at a single evaluation
            "env.evaluator_env_num": 10,
            "env.n_evaluator_episode": 10,
            "policy.collect.n_sample": SAMPLES,
            "policy.eval.evaluator.eval_freq": max(1, steps // SAMPLES // EVALUATIONS),
        }
        changes = {
            "entry": train,
            "space": {**self.space, **fixed},
            "num_samples": self.num_samples,
            "max_env_step": steps,
            "searcher": self.searcher,
            "scheduler": self.scheduler,
            "stopper": stopper,
        }
        return check_job(CartpoleRace, changes)


CONTESTANTS = {
    "grid": Contestant({name: coarse(value) for name, value in SPACE.items()}, num_samples=1),
    "random": Contestant(),
    "tpe": Contestant(searcher="tpe"),
    "tpe+asha": Contestant(searcher="tpe", scheduler="asha"),
}


class Finish(Stopper):
    """Ends the sweep when a trial holds the target, or when too many steps were made."""

    def __init__(self, target: float, most_steps: int) -> None:
        self._target = target
        self._most_steps = most_steps
        self._steps: dict[str, int] = {}
        self._scores: dict[str, list[float]] = {}
        self.reached = False
        self.ended: datetime | None = None

    @property
    def trials(self) -> int:
        """How many trials were evaluated at all."""
        return len(self._steps)

    @property
    def steps(self) -> int:
        """The environment steps of all trials, each up to its last evaluation."""
        return sum(self._steps.values())

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Take an evaluation; no trial is ended for its own sake."""
        # A trial's last report says the last evaluation again, and what comes from
        # other trials after the end does not count.
        step, score = result.get("env_step"), result.get("eval_value")
        if step is None or score is None:
            return False  # it has failed
        if self.ended is None and step > self._steps.get(trial_id, -1):
            self._steps[trial_id] = step
            self._take(self._scores.setdefault(trial_id, []), score)
        return False

    def _take(self, scores: list[float], score: float) -> None:
        scores.append(score)
        last = scores[-HELD:]
        self.reached = len(last) == HELD and statistics.mean(last) >= self._target
        if self.reached or self.steps >= self._most_steps:
            self.ended = datetime.now(UTC)

    def stop_all(self) -> bool:
        """Say whether the sweep is over."""
        return self.ended is not None


@dataclass(frozen=True)
class Race:
    """One sweep, up to the target or to its limit."""

    contestant: str
    seed: int
    steps: int
    seconds: float
    trials: int
    reached: bool

    def __str__(self) -> str:
        end = "reached" if self.reached else "missed"
        counts = f"{self.steps:>8} {self.seconds:>8.0f} {self.trials:>7}"
        return f"{self.contestant:<9} {self.seed:>4} {counts}  {end}"


def race(name: str, seed: int, given: argparse.Namespace, warm: ForkClient) -> Race:
    finish = Finish(given.target, given.trials * given.steps)
    job = CONTESTANTS[name].job(given.steps, finish)
    with tempfile.TemporaryDirectory() as folder:
        options = SweepOptions(storage_path=Path(folder), seed=seed)
        with prepared_sweep(job, options, warm) as sweep:
            record = run_sweep(sweep).record
    if record.status is not SweepStatus.FINISHED or finish.ended is None:
        raise RuntimeError(f"the sweep of {name} did not come to its end: {record.status}")
    seconds = (finish.ended - datetime.fromisoformat(record.started)).total_seconds()
    return Race(name, seed, finish.steps, seconds, finish.trials, finish.reached)


def measure(given: argparse.Namespace) -> list[Race]:
    """Run all sweeps, the contestants interleaved because machines drift."""
    races: list[Race] = []
    with ForkClient() as warm:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            for name in given.only:
                races.append(race(name, seed, given, warm))
                note(str(races[-1]))
    return races


def summarise(races: list[Race]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(item.contestant for item in races):
        own = [item for item in races if item.contestant == name]
        rows.append(
            {
                "contestant": name,
                "steps": statistics.median(item.steps for item in own),
                "seconds": round(statistics.median(item.seconds for item in own), 1),
                "trials": statistics.median(item.trials for item in own),
                "reached": sum(item.reached for item in own) / len(own),
            }
        )
    random = next((row for row in rows if row["contestant"] == "random"), None)
    for row in rows:
        for key in ("steps", "seconds"):
            row[f"{key}_ratio"] = random and round(row[key] / random[key], 3)
    return rows


def show(races: list[Race], rows: list[dict[str, Any]]) -> None:
    print(f"{'':<9} {'seed':>4} {'steps':>8} {'seconds':>8} {'trials':>7}")
    order = list(CONTESTANTS)
    for item in sorted(races, key=lambda item: (order.index(item.contestant), item.seed)):
        print(item)
    headings = ("steps", "ratio", "seconds", "ratio", "trials", "reached")
    print("medians   " + " ".join(f"{heading:>8}" for heading in headings))
    for row in rows:
        print(
            f"{row['contestant']:<9} {row['steps']:>8.0f} {row['steps_ratio'] or '-':>8} "
            f"{row['seconds']:>8.0f} {row['seconds_ratio'] or '-':>8} {row['trials']:>8g} "
            f"{row['reached']:>8.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many sweeps of each contestant")
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8000, help="environment steps of a trial")
    parser.add_argument("--trials", type=int, default=24, help="worth of steps of a sweep, at most")
    parser.add_argument("--target", type=float, default=TARGET)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    names = list(CONTESTANTS)
    parser.add_argument("--only", nargs="*", choices=names, default=names, help="fewer contestants")
    given = parser.parse_args()
    races = measure(given)
    rows = summarise(races)
    ratio = next((row["steps_ratio"] for row in rows if row["contestant"] == "tpe+asha"), None)
    if given.format == "json":
        about = {"steps": given.steps, "target": given.target, "tpe+asha_to_random": ratio}
        sweeps = [asdict(item) for item in races]
        print(json.dumps(about | {"contestants": rows, "sweeps": sweeps}, indent=1))
    else:
        show(races, rows)
        print(f"tpe+asha_to_random: {ratio} (limit: {LIMIT:.3f})")
    sys.exit(1 if ratio is not None and ratio > LIMIT else 0)


if __name__ == "__main__":
    main()
