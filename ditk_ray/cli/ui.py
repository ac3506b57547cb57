"""`ditk-ray ui`: MLflow's own UI on the store that sweeps are recorded in."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ditk_ray.cli.server_arguments import add_server_arguments
from ditk_ray.cli.sweep_arguments import add_sweep
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.tracking.folders import sweep_to_type

if TYPE_CHECKING:
    from ditk_ray.cli.addresses import Address
    from ditk_ray.cli.server_process import Server
    from ditk_ray.tracking.recording import Recording

_EXAMPLES = """\
examples:
  ditk-ray ui                       all sweeps in ditk_ray_results
  ditk-ray ui my_sweep --open       straight to this one
  ditk-ray ui --port 8080 --host 0.0.0.0

Ctrl-C ends it. A sweep that was recorded on a server is there: its address is printed.
On a machine that others know by another name, say so in MLFLOW_SERVER_ALLOWED_HOSTS and
MLFLOW_SERVER_CORS_ALLOWED_ORIGINS.
"""

_PORT = 5000
_QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""What a person who looks at runs does not need; their own settings win."""


def add_command(commands: Any) -> None:
    """Add `ui` to the parser's commands."""
    parser = commands.add_parser(
        "ui",
        help="show sweeps in MLflow's UI",
        description="Run MLflow's UI on the store in the results' folder.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser, is_optional=True, more=" to go straight to")
    add_server_arguments(parser, _PORT)


def run(given: argparse.Namespace) -> int:
    """Show the UI until it is ended, and return the exit code."""
    recording = _recording(given)
    if recording is not None and recording.is_on_server:
        return _point_to(recording, given.open)
    uri = recording.uri if recording is not None else _embedded(given.storage_path)
    _show(uri, recording, given)
    return 0


def _show(uri: str, recording: Recording | None, given: argparse.Namespace) -> None:
    from ditk_ray.cli.addresses import choose_address
    from ditk_ray.cli.browser import open_page
    from ditk_ray.cli.output import note
    from ditk_ray.cli.server_process import serve
    from ditk_ray.tracking.recording import mlflow_page

    _require_store(uri)
    address = choose_address(given.host, given.port, _PORT)
    if given.port is None and address.port != _PORT:
        note(f"port {_PORT} is taken")
    if not address.is_loopback:
        note("everybody who reaches this machine can read and delete what is recorded")
    note("starting MLflow's UI (some seconds)")
    page = recording.page(address.url) if recording is not None else mlflow_page(address.url)

    def ready() -> None:
        print(page, flush=True)
        note("Ctrl-C ends it")
        if given.open:
            open_page(page)

    serve(_server(uri, address, given.verbose), ready)


def _server(uri: str, address: Address, is_verbose: bool) -> Server:
    from ditk_ray.cli.server_process import Server

    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", address.host, "--port", str(address.port)]
    health = f"{address.own_url}/health"
    return Server("MLflow's UI", command, health, _environment(uri, address), is_verbose)


def _environment(uri: str, address: Address) -> dict[str, str]:
    """Return the server's environment: other users do not see it, as they would a command line."""
    from ditk_ray.tracking.store import ARTIFACTS_FOLDER, sqlite_file

    env = _QUIET | os.environ | {"MLFLOW_BACKEND_STORE_URI": uri}
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_STORE_URI", "MLFLOW_WORKERS"):
        env.pop(name, None)
    database = sqlite_file(uri)
    if database is not None:
        env["MLFLOW_ARTIFACTS_DESTINATION"] = str(database.parent / ARTIFACTS_FOLDER)
    if not address.is_loopback:
        names = address.names()
        hosts = [place for name in names for place in (name, f"{name}:{address.port}")]
        env.setdefault("MLFLOW_SERVER_ALLOWED_HOSTS", ",".join(hosts))
        origins = [f"http://{name}:{address.port}" for name in names]
        env.setdefault("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", ",".join(origins))
    return env


def _recording(given: argparse.Namespace) -> Recording | None:
    """Return where the sweep that is given is recorded, None if none is given."""
    if given.sweep is None:
        return None
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.tracking.recording import read_recording

    folder = find_sweep(given.sweep, given.storage_path)
    recording = read_recording(folder)
    if recording is None:
        hint = f"see `ditk-ray report {sweep_to_type(folder)}`, which needs no MLflow"
        raise BadConfigError(Problem(folder.name, "is not recorded in MLflow", hint))
    return recording


def _point_to(recording: Recording, is_opened: bool) -> int:
    """Say where a sweep is that a server has."""
    from ditk_ray.cli.browser import open_page
    from ditk_ray.cli.output import note

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


def _embedded(storage: Path) -> str:
    from ditk_ray.tracking.store import embedded_uri

    return embedded_uri(storage.expanduser())


def _require_store(uri: str) -> None:
    """Refuse a file that is not there: MLflow would create it."""
    from ditk_ray.tracking.folders import list_sweeps
    from ditk_ray.tracking.store import sqlite_file

    database = sqlite_file(uri)
    if database is None or database.is_file():
        return
    sweeps = list_sweeps(database.parent)
    hint = "`ditk-ray tune` makes one; give --storage_path DIR if it is elsewhere"
    if sweeps:
        name = sweep_to_type(sweeps[0])
        hint = f"sweeps there are recorded elsewhere, if at all: see `ditk-ray status {name}`"
    raise BadConfigError(Problem(str(database), "there is no such store", hint))
