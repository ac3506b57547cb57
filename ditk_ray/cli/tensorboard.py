"""`ditk-ray tensorboard`: the trials' own event files in TensorBoard."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.server_arguments import add_server_arguments
from ditk_ray.cli.sweep_arguments import add_sweep
from ditk_ray.errors import BadConfigError, DitkRayError, Problem

if TYPE_CHECKING:
    from ditk_ray.cli.addresses import Address
    from ditk_ray.cli.server_process import Server
    from ditk_ray.tracking.event_links import EventLinks

_EXAMPLES = """\
examples:
  ditk-ray tensorboard my_sweep --open
  ditk-ray tensorboard my_sweep --all_attempts

Each trial is a run; trials of a running sweep appear as they start. Ctrl-C ends it.
"""

_PORT = 6006
_REFRESH_SECONDS = 5.0


def add_command(commands: Any) -> None:
    """Add `tensorboard` to the parser's commands."""
    parser = commands.add_parser(
        "tensorboard",
        help="show a sweep's trials in TensorBoard",
        description="Run TensorBoard on what DI-engine itself writes in each trial.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser)
    parser.add_argument(
        "--all_attempts", action="store_true", help="show each attempt of a trial, not the last"
    )
    add_server_arguments(parser, _PORT)


def run(given: argparse.Namespace) -> int:
    """Show TensorBoard until it is ended, and return the exit code."""
    from ditk_ray.tracking.event_links import EventLinks
    from ditk_ray.tracking.folders import find_sweep

    folder = find_sweep(given.sweep, given.storage_path)
    if importlib.util.find_spec("tensorboard") is None:
        hint = "pip install tensorboard"
        raise BadConfigError(Problem("TensorBoard", "is not installed", hint))
    with tempfile.TemporaryDirectory(prefix="ditk_ray_tensorboard_") as place:
        links = EventLinks(Path(place), folder, given.all_attempts)
        _require_events(links, folder)
        _show(links, Path(place), folder, given)
    return 0


def _show(links: EventLinks, place: Path, folder: Path, given: argparse.Namespace) -> None:
    from ditk_ray.cli.addresses import choose_address
    from ditk_ray.cli.browser import open_page
    from ditk_ray.cli.output import note
    from ditk_ray.cli.server_process import serve

    address = choose_address(given.host, given.port, _PORT)
    if given.port is None and address.port != _PORT:
        note(f"port {_PORT} is taken")
    if not address.is_loopback:
        note("everybody who reaches this machine can look at it")
    note("starting TensorBoard (some seconds)")

    def ready() -> None:
        print(address.url, flush=True)
        note("Ctrl-C ends it")
        if given.open:
            open_page(address.url)

    serve(_server(place, folder.name, address, given.verbose), ready, _refresher(links))


def _server(place: Path, title: str, address: Address, is_verbose: bool) -> Server:
    from ditk_ray.cli.server_process import Server

    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(place)]
    command += ["--host", address.host, "--port", str(address.port), "--window_title", title]
    return Server("TensorBoard", command, address.own_url, is_verbose=is_verbose)


def _refresher(links: EventLinks) -> Callable[[], None]:
    """Return what looks for new trials now and then."""
    due = time.monotonic() + _REFRESH_SECONDS

    def refresh() -> None:
        nonlocal due
        begun = time.monotonic()
        if begun < due:
            return
        links.refresh()
        # Thousands of trials take a while to look through.
        due = time.monotonic() + max(_REFRESH_SECONDS, 20 * (time.monotonic() - begun))

    return refresh


def _require_events(links: EventLinks, folder: Path) -> None:
    from ditk_ray.cli.output import note
    from ditk_ray.tracking.seen_sweep import look_at

    if links.refresh():
        return
    if not look_at(folder).is_running:
        raise DitkRayError(f"{folder.name}: its trials have left no event files")
    note("there are no event files yet; they appear when trials have started")
