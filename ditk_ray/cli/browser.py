"""What is looked at in a browser: `ditk-ray report`, `ditk-ray ui` and `ditk-ray tensorboard`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from functools import partial
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from ditk_ray.cli.flags import StorageCommand, SweepCommand
from ditk_ray.cli.output import note, short_path
from ditk_ray.cli.servers import Address, ServerCommand, open_page
from ditk_ray.config.options import option
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.record.record import read_record
from ditk_ray.record.sweep_folder import TRIAL_PREFIX, find_sweep, look_at, sweep_to_type
from ditk_ray.record.trial_folder import attempts, event_folders
from ditk_ray.tracking import recording as records
from ditk_ray.tracking.recording import Recording, read_recording

_QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""What a person who looks at runs does not need; their own settings win."""


class Report(SweepCommand):
    """Write the report of a sweep: one file that opens in any browser.

      ditk-ray report my_sweep --open
      ditk-ray report my_sweep --output for_my_colleague.html

    The file needs no network and no other file. A sweep writes it by itself at its end;
    while it runs, this command shows how far it is.
    """

    output: Path | None = option(
        "where to write it (default: report.html in the sweep's folder)", metavar="FILE"
    )
    open: bool = option("open it in a browser", False)

    def run(self) -> int:
        folder = find_sweep(self.sweep, self.storage_path)
        read_record(folder)
        # After what may be a mistake: plotting libraries take a second to import.
        from ditk_ray.report.page import write_report

        written = write_report(folder, self.output and _target(self.output))
        print(short_path(written), flush=True)
        if self.open:
            open_page(written.resolve().as_uri())
        return 0


def _target(output: Path) -> Path:
    target = output.expanduser()
    if target.exists() and not target.is_file():
        # The report takes the place of what is there: never that of a folder or a device.
        raise BadConfigError(Problem(f"--output {output}", "is not a file", "give a file's name"))
    if not target.absolute().parent.is_dir():
        raise BadConfigError(Problem(f"--output {output}", "its folder does not exist"))
    return target


class Ui(ServerCommand, StorageCommand):
    """Run MLflow's UI on the store in the results' folder.

      ditk-ray ui                       all sweeps in ditk_ray_results
      ditk-ray ui my_sweep --open       straight to this one
      ditk-ray ui --port 8080 --host 0.0.0.0

    Ctrl-C ends it. Of a sweep that was recorded on a server, the address there is printed.
    On a machine that others know by another name, set MLFLOW_SERVER_ALLOWED_HOSTS and
    MLFLOW_SERVER_CORS_ALLOWED_ORIGINS to it.
    """

    sweep: str | None = option("a sweep's name or folder to go straight to", None, positional=True)

    def run(self) -> int:
        recording = _recording(self.sweep, self.storage_path) if self.sweep else None
        if recording is not None and recording.is_on_server:
            return _point_to(recording, self.open)
        uri = recording.uri if recording else records.embedded_uri(self.storage_path.expanduser())
        database = records.sqlite_file(uri)
        if database is not None and not database.is_file():  # MLflow would create it
            hint = "`ditk-ray tune` makes one; give --storage_path DIR if it is elsewhere, or a "
            hint += "SWEEP that is recorded on a server"
            raise BadConfigError(Problem(str(database), "there is no such store", hint))
        address = self.address(5000, "read and delete what is recorded")
        page = recording.page(address.url) if recording else records.mlflow_page(address.url)
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        self.serve("MLflow's UI", command, address, page, _mlflow_environment(uri, address))
        return 0


def _recording(sweep: str, storage: Path) -> Recording:
    folder = find_sweep(sweep, storage)
    recording = read_recording(folder)
    if recording is None:
        hint = f"see `ditk-ray report {sweep_to_type(folder)}`, which needs no MLflow"
        raise BadConfigError(Problem(folder.name, "is not recorded in MLflow", hint))
    return recording


def _point_to(recording: Recording, is_opened: bool) -> int:
    server = urlsplit(recording.uri)
    if not server.hostname:
        note(f"it is recorded in {recording.uri}, experiment {recording.experiment}")
        return 0
    plain = server._replace(netloc=server.netloc.rpartition("@")[2])  # no password on the screen
    page = recording.page(plain.geturl())
    note("it is recorded on a server:")
    print(page, flush=True)
    if is_opened:
        open_page(page)
    return 0


def _mlflow_environment(uri: str, address: Address) -> dict[str, str]:
    """Return the server's environment: other users do not see it, as they would a command line."""
    env = _QUIET | os.environ | {"MLFLOW_BACKEND_STORE_URI": uri}
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_STORE_URI", "MLFLOW_WORKERS"):
        env.pop(name, None)
    database = records.sqlite_file(uri)
    if database is not None:
        env["MLFLOW_ARTIFACTS_DESTINATION"] = str(database.parent / records.ARTIFACTS_FOLDER)
    if not address.is_loopback:
        names = address.names()
        hosts = [place for name in names for place in (name, f"{name}:{address.port}")]
        env.setdefault("MLFLOW_SERVER_ALLOWED_HOSTS", ",".join(hosts))
        origins = [f"http://{name}:{address.port}" for name in names]
        env.setdefault("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", ",".join(origins))
    return env


class Tensorboard(ServerCommand, SweepCommand):
    """Run TensorBoard on what DI-engine itself writes in each trial.

      ditk-ray tensorboard my_sweep --open
      ditk-ray tensorboard my_sweep --all_attempts

    Each trial is a run; trials of a running sweep appear as they start. Ctrl-C ends it.
    """

    all_attempts: bool = option("show each attempt of a trial, not the last", False)

    def run(self) -> int:
        folder = find_sweep(self.sweep, self.storage_path)
        with tempfile.TemporaryDirectory(prefix="ditk_ray_tensorboard_") as place:
            found = link_events(Path(place), folder, self.all_attempts)
            if not found and not look_at(folder).is_running:
                raise DitkRayError(f"{folder.name}: its trials have left no event files")
            if not found:
                note("there are no event files yet; they appear when trials have started")
            address = self.address(6006, "look at it")
            command = [sys.executable, "-m", "tensorboard.main", "--logdir", place]
            command += ["--window_title", folder.name]
            tick = partial(link_events, Path(place), folder, self.all_attempts)
            self.serve("TensorBoard", command, address, address.url, tick=tick)
        return 0


def link_events(links: Path, sweep: Path, all_attempts: bool = False) -> int:
    """Link the trials' event files by the names that TensorBoard shows; return how many links.

    A trial is `trial_00000`, or `trial_00000/seed_0` with several seeds. Of its attempts the
    newest that has event files is linked, or each of them as `trial_00000/attempt_0`. The
    folder `links` has nothing else; a link that is right stays, as TensorBoard would read it anew.
    """
    wanted = {
        "/".join(filter(None, [trial.name, place])): target.resolve()
        for trial in sorted(sweep.glob(f"{TRIAL_PREFIX}*"))
        for place, target in _events_of(trial, all_attempts).items()
    }
    known = {link for link in links.rglob("*") if link.is_symlink()}
    linked = {str(link.relative_to(links)): link.readlink() for link in known}
    for name in linked.keys() - dict(linked.items() & wanted.items()).keys():
        (links / name).unlink()
        with contextlib.suppress(OSError):  # up to the first folder that has something else
            for folder in PurePath(name).parents[:-1]:
                (links / folder).rmdir()
    for name, target in wanted.items() - linked.items():
        (links / name).parent.mkdir(parents=True, exist_ok=True)
        (links / name).symlink_to(target, target_is_directory=True)
    return len(wanted)


def _events_of(trial: Path, all_attempts: bool) -> dict[str, Path]:
    if all_attempts:
        return {
            "/".join(filter(None, [folder.name, place])): target
            for folder in attempts(trial).values()
            for place, target in event_folders(folder).items()
        }
    newest_first = reversed(attempts(trial).values())
    return next(filter(None, map(event_folders, newest_first)), {})
