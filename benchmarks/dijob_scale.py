"""What it costs to follow many DIJobs, and how soon Tune knows what happens to them.

A real sweep with real Tune on a Ray of its own, against a real Kubernetes API server. There is no
operator and no kubelet: a stand-in plays both, in a process of its own, with simulated
pods, which print evaluations at foreseen times without training anything. Seven of ten end
with their result and a last word, two end without a word, so that only the job's phase tells
their end, and one fails. The contestants, one after the other, each in a process and in a
namespace of its own:

  ditk_ray  a sweep with `--backend dijob`
  poller    a Tune function, as one would write it: each trial makes its DIJob, then, once a
            second, gets the DIJob and reads its pod's whole log, and deletes it at its end

Measured are

  requests  to the API server by the sweep's user, from the server's audit log, for each
            trial. Streams of logs are counted apart; a watch counts when it begins
  delivery  how many evaluations and results came to Tune, of those that were printed, and how
            many came twice or changed
  delay     from a line being printed, or the API server receiving a job's final phase, to
            Tune having told the sweep's listeners. While a sweep's actors start, the machine is
            busy with importing Ray: what came before the first `--at_once` trials ran counts
            as start-up and stands apart
  memory    of a trial's actor, which only waits, as its unique set size (USS), and by how
            much what speaks to Kubernetes for all of them grew, divided by their number

    python benchmarks/dijob_scale.py                                # ten minutes
    python benchmarks/dijob_scale.py --trials 20 --at_once 5 --only ditk_ray

The last lines are for programs: `requests_per_trial` of ditk_ray (limit: 8); `exactly_once`;
`phase_p95` and `line_p95`, the delays' 95th percentiles over the whole run in seconds
(limit: 1); `steady_phase_p95` and `steady_line_p95`, the same after the start-up; the memory of
a waiting trial; and the poller's requests, delay and memory, divided by those of ditk_ray. Needs
the programs that `make kube-assets` makes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dijob_contestants import CONTESTANTS, Asked, Told  # noqa: E402
from played_cluster import FAILS, TELLS, Play, Played, PlayedCluster  # noqa: E402

from ditk_ray.cli.output import note  # noqa: E402
from ditk_ray.ray_cluster.session import quiet_ray  # noqa: E402
from tests.kube.api_server import ApiServer  # noqa: E402
from tests.lifeline import Lifeline  # noqa: E402

TEMPLATE = ROOT / "tests" / "dijob" / "templates" / "sweep.yaml"
LOOK_SECONDS = 2.0
LOOKS_PER_SIZING = 5
"""Reading how much memory a process has alone takes the kernel a while."""

NO_ACTORS = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
RIGHTS = [
    {"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": ["*"]},
    {
        "apiGroups": [""],
        "resources": ["pods", "pods/log", "configmaps", "events"],
        "verbs": ["*"],
    },
]


@dataclass
class Sizes:
    """The processes of a sweep while it ran."""

    actors: set[int] = field(default_factory=set)
    """The ids of all processes that were a trial's actor."""
    actor_uss: list[tuple[float, int]] = field(default_factory=list)
    """When it was looked, and the bytes of the median actor."""
    office_uss: list[tuple[float, int]] = field(default_factory=list)

    def look(self, driver: int, sizes_too: bool) -> None:
        """See which processes there are below the driver."""
        found: list[int] = []
        for process in _below(driver):
            with contextlib.suppress(psutil.Error):
                title = (process.cmdline() or [""])[0]
                if not title.startswith("ray::") or title.startswith(NO_ACTORS):
                    continue
                is_office = "KubeGateway" in title
                if not is_office:
                    self.actors.add(process.pid)
                if sizes_too:
                    size = process.memory_full_info().uss
                    if is_office:
                        self.office_uss.append((time.time(), size))
                    else:
                        found.append(size)
        if found:
            self.actor_uss.append((time.time(), int(statistics.median(found))))


@dataclass(frozen=True)
class Measured:
    """One contestant's run."""

    told: Told
    played: Played
    requests: Counter[tuple[str, str]]
    sizes: Sizes
    wall_seconds: float
    final_at: dict[int, float]
    """When the API server received the final phase of each trial's job."""


def measure(name: str, given: argparse.Namespace, kube: ApiServer, folder: Path) -> Measured:
    """Run a contestant in a process of its own, beside a cluster of its own."""
    folder.mkdir()
    namespace = f"scale-{name.replace('_', '-')}"
    kube.admin.create("api/v1/namespaces", {"metadata": {"name": namespace}})
    kube.grant(namespace, name, RIGHTS)
    command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--run", name]
    command += ["--trials", str(given.trials), "--at_once", str(given.at_once)]
    command += ["--kubeconfig", str(kube.kubeconfig(name, namespace)), "--namespace", namespace]
    command += ["--folder", str(folder)]
    sizes = Sizes()
    with PlayedCluster(kube, namespace, folder, Play(given.evaluations, given.pause)) as cluster:
        begun = time.monotonic()
        with _driver(command, folder) as driver:
            _watch(driver, sizes)
        if driver.returncode != 0:
            raise RuntimeError(f"{name} ended with exit code {driver.returncode}")
        wall = time.monotonic() - begun
        played = cluster.played()
    told = Told.read(folder / "told.json")
    requests = kube.request_counts(name)
    return Measured(told, played, requests, sizes, wall, _received(kube, namespace, played))


@contextlib.contextmanager
def _driver(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that ends with this one, however that ends."""
    lifeline = Lifeline()
    driver = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True
    )
    lifeline.hold(driver.pid)
    try:
        yield driver
        lifeline.release(driver.pid)
    finally:
        lifeline.close()
        driver.wait()


def _received(kube: ApiServer, namespace: str, played: Played) -> dict[int, float]:
    """Return when the API server was told the final phases that the stand-in set about to tell."""
    told_from = {
        trial: phases.get("Succeeded", phases.get("Failed"))
        for trial, phases in played.phases.items()
    }
    found: dict[int, float] = {}
    for request in kube.requests("stand-in"):
        if request.namespace == namespace and request.resource == "dijobs/status":
            trial = int(request.name.split("-")[-2])
            since = told_from.get(trial)
            if since is not None and request.at >= since:
                found[trial] = min(request.at, found.get(trial, request.at))
    return found


def summarise(measured: Measured, play: Play, trials: int, at_once: int) -> dict[str, Any]:
    told, played = measured.told, measured.played
    steady_from = sorted(told.started.values())[at_once - 1]
    lines = list(_line_delays(told, played))
    phases = list(_phase_delays(told, measured.final_at, play))
    apart = {
        f"{verb} {resource}": count for (verb, resource), count in sorted(measured.requests.items())
    }
    streams = sum(count for (_, of), count in measured.requests.items() if of == "pods/log")
    return {
        "requests_per_trial": round((sum(apart.values()) - streams) / trials, 2),
        "log_requests_per_trial": round(streams / trials, 2),
        "requests": apart,
        "delivery": _delivery(told, played, play, trials),
        "wrong_failures": dict(
            Counter(text for n, text in told.errors.items() if play.end_of(n) != FAILS)
        ),
        "line_delay": _delays(lines, steady_from),
        "phase_delay": _delays(phases, steady_from),
        "stand_in_delay": _delays(list(_write_delays(played, measured.final_at)), steady_from),
        "submit_delay": _delays(list(_submit_delays(told, played)), steady_from),
        "start_seconds": round(steady_from - min(told.started.values()), 1),
        "actors_made": len(measured.sizes.actors),
        "actor_mib": _actor_mib(measured.sizes, steady_from),
        "office_mib_per_job": _office_mib(measured, steady_from, at_once),
        "sweep_seconds": round(told.seconds, 1),
        "wall_seconds": round(measured.wall_seconds, 1),
    }


def _delivery(told: Told, played: Played, play: Play, trials: int) -> dict[str, Any]:
    """Compare what was printed with what came; sound means all of it, once and in order."""
    printed = {trial: [number for number, _ in rows] for trial, rows in played.printed.items()}
    came = {trial: [number for number, _ in rows] for trial, rows in told.reports.items()}
    numbers = range(trials)
    missing = sum(len(set(printed.get(n, ())) - set(came.get(n, ()))) for n in numbers)
    repeated = sum(len(came.get(n, ())) - len(set(came.get(n, ()))) for n in numbers)
    results = {n: play.result_of(n) for n in numbers if play.end_of(n) == TELLS}
    right_results = sum(told.results.get(n) == result for n, result in results.items())
    right_ends = sum(
        told.ended.get(n, ("",))[0] == ("failed" if play.end_of(n) == FAILS else "succeeded")
        for n in numbers
    )
    is_sound = all(printed.get(n) == came.get(n) for n in numbers)
    return {
        "printed": sum(map(len, printed.values())),
        "came": sum(map(len, came.values())),
        "missing": missing,
        "repeated": repeated,
        "results_printed": len(results),
        "results_came": right_results,
        "right_ends": right_ends,
        "exactly_once": is_sound and right_results == len(results) and right_ends == trials,
    }


def _line_delays(told: Told, played: Played) -> Iterator[tuple[float, float]]:
    """Yield when an evaluation was printed, and how long it took to be known."""
    for trial, rows in played.printed.items():
        came = dict(reversed(told.reports.get(trial, [])))
        for number, at in rows:
            if number in came:
                yield at, came[number] - at


def _phase_delays(
    told: Told, final_at: dict[int, float], play: Play
) -> Iterator[tuple[float, float]]:
    """Yield the same of the ends that only a phase tells."""
    for trial, at in final_at.items():
        if play.end_of(trial) != TELLS and trial in told.ended:
            yield at, told.ended[trial][1] - at


def _write_delays(played: Played, final_at: dict[int, float]) -> Iterator[tuple[float, float]]:
    """Yield how long a final phase took from the stand-in to the API server."""
    for trial, at in final_at.items():
        phases = played.phases[trial]
        begun = phases.get("Succeeded", phases.get("Failed", at))
        yield begun, at - begun


def _submit_delays(told: Told, played: Played) -> Iterator[tuple[float, float]]:
    """Yield how long after its start at Tune a trial's job was there."""
    for trial, phases in played.phases.items():
        if trial in told.started and "Pending" in phases:
            yield told.started[trial], phases["Pending"] - told.started[trial]


def _delays(found: list[tuple[float, float]], steady_from: float) -> dict[str, Any]:
    every = [delay for _, delay in found]
    steady = [delay for at, delay in found if at >= steady_from]
    starting = [delay for at, delay in found if at < steady_from]
    return {
        "count": len(every),
        **_percentiles("", every),
        **_percentiles("steady_", steady),
        **_percentiles("starting_", starting),
    }


def _percentiles(prefix: str, delays: list[float]) -> dict[str, float | None]:
    if not delays:
        return {f"{prefix}{name}": None for name in ("median", "p95", "max")}
    ordered = sorted(delays)
    at_95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {
        f"{prefix}median": round(statistics.median(ordered), 3),
        f"{prefix}p95": round(at_95, 3),
        f"{prefix}max": round(ordered[-1], 3),
    }


def _actor_mib(sizes: Sizes, steady_from: float) -> float | None:
    found = [size for at, size in sizes.actor_uss if at >= steady_from] or [
        size for _, size in sizes.actor_uss
    ]
    return round(statistics.median(found) / 2**20, 1) if found else None


def _office_mib(measured: Measured, steady_from: float, at_once: int) -> float | None:
    sizes = measured.sizes.office_uss
    first_job = min(phases["Pending"] for phases in measured.played.phases.values())
    before = [size for at, size in sizes if at < first_job]
    after = [size for at, size in sizes if at >= steady_from]
    if not before or not after:
        return None
    return round((max(after) - before[-1]) / at_once / 2**20, 2)


def _watch(driver: subprocess.Popen[bytes], sizes: Sizes) -> None:
    """Look at the processes of a sweep until it ends."""
    looks = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(LOOK_SECONDS)
            return
        sizes.look(driver.pid, looks % LOOKS_PER_SIZING == 0 or not sizes.actors)
        looks += 1


def _below(driver: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(driver).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def show(found: dict[str, dict[str, Any]]) -> None:
    columns = ("contestant", "requests", "logs", "line s", "p95", "phase s", "p95", "actor MiB")
    print("".join(f"{text:>11}" for text in (*columns, "seconds")))
    for name, row in found.items():
        line, phase = row["line_delay"], row["phase_delay"]
        cells = [name, row["requests_per_trial"], row["log_requests_per_trial"]]
        cells += [line["median"], line["p95"], phase["median"], phase["p95"]]
        cells += [row["actor_mib"], row["sweep_seconds"]]
        print("".join(f"{cell!s:>11}" for cell in cells))
    for name, row in found.items():
        print(f"\n{name}")
        for key, value in row.items():
            shown = value
            if isinstance(value, dict):
                shown = ", ".join(f"{part}: {number}" for part, number in value.items())
            print(f"  {key}: {shown}")
    print()


def last_lines(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    ours, theirs = found.get("ditk_ray"), found.get("poller")
    last: dict[str, Any] = {}
    if ours:
        last |= {
            "requests_per_trial": ours["requests_per_trial"],
            "exactly_once": "yes" if ours["delivery"]["exactly_once"] else "no",
            "phase_p95": ours["phase_delay"]["p95"],
            "line_p95": ours["line_delay"]["p95"],
            "steady_phase_p95": ours["phase_delay"]["steady_p95"],
            "steady_line_p95": ours["line_delay"]["steady_p95"],
            "actor_mib": ours["actor_mib"],
            "office_mib_per_job": ours["office_mib_per_job"],
        }
    if ours and theirs:
        last |= {
            "poller_requests_ratio": _ratio(theirs, ours, "requests_per_trial"),
            "poller_all_requests_ratio": round(_all(theirs) / _all(ours), 2),
            "poller_line_median_ratio": _ratio(
                theirs["line_delay"], ours["line_delay"], "steady_median"
            ),
            "poller_phase_median_ratio": _ratio(
                theirs["phase_delay"], ours["phase_delay"], "steady_median"
            ),
            "poller_actor_ratio": _ratio(theirs, ours, "actor_mib"),
            "poller_seconds_ratio": _ratio(theirs, ours, "sweep_seconds"),
        }
    return last


def _all(row: dict[str, Any]) -> float:
    return float(row["requests_per_trial"] + row["log_requests_per_trial"])


def _ratio(theirs: dict[str, Any], ours: dict[str, Any], key: str) -> float | None:
    if not theirs[key] or not ours[key]:
        return None
    return round(float(theirs[key]) / float(ours[key]), 2)


def compare(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "kube").mkdir()
        try:
            kube = ApiServer(folder / "kube")
        except pytest.skip.Exception as error:
            sys.exit(str(error))
        kube.start()
        try:
            for name in given.only:
                measured = measure(name, given, kube, folder / name)
                play = Play(given.evaluations, given.pause)
                found[name] = summarise(measured, play, given.trials, given.at_once)
                note(f"{name}: {measured.wall_seconds:.0f} s")
        finally:
            kube.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--at_once", type=int, default=50, help="how many trials run at once")
    parser.add_argument("--evaluations", type=int, default=8, help="of each trial")
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between evaluations")
    parser.add_argument("--only", nargs="*", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--output", type=Path, help="a file to write all figures to, as JSON")
    for hidden in ("--kubeconfig", "--folder"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--namespace", help=argparse.SUPPRESS)
    parser.add_argument("--run", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trials < given.at_once:
        parser.error("there have to be as many trials as run at once")
    quiet_ray()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends, too
    if given.run:
        asked = Asked(
            given.trials,
            given.at_once,
            given.kubeconfig,
            given.namespace,
            TEMPLATE,
            given.folder,
        )
        CONTESTANTS[given.run](asked).write(given.folder / "told.json")
        return
    found = compare(given)
    last = last_lines(found)
    show(found)
    for key, value in last.items():
        print(f"{key}: {value}")
    if given.output:
        about = {key: getattr(given, key) for key in ("trials", "at_once", "evaluations", "pause")}
        given.output.write_text(json.dumps(about | last | {"contestants": found}, indent=1))


if __name__ == "__main__":
    main()
