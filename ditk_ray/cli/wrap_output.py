"""What `ditk-ray wrap` prints: commands' lines as they come, who waits, and how it went."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.object_output import print_table, print_value, tell
from ditk_ray.cluster.commands.command_logs import CommandLog, log_name
from ditk_ray.cluster.commands.command_placement import show_need
from ditk_ray.config.quantities import show_bytes, show_seconds

if TYPE_CHECKING:
    from ditk_ray.cluster.commands.isolation_check import View
    from ditk_ray.cluster.commands.wrapped_run import CommandRun, WrappedRun

_FIRST_SECONDS = 3.0


class WaitingLine:
    """Says who waits for what, after a moment and then when that has changed."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _FIRST_SECONDS
        self._said = ""

    def show(self, waiting: Sequence[CommandRun]) -> None:
        """Say who waits, unless it was said already."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _FIRST_SECONDS
        names = ", ".join(f"[{run.command.name}]" for run in waiting[:3])
        more = f" and {len(waiting) - 3} more wait" if len(waiting) > 3 else ""
        verb = "" if more else (" waits" if len(waiting) == 1 else " wait")
        need = show_need(waiting[0].command)
        # Ray counts a command's share as taken while its worker starts.
        text = f"{names}{more}{verb} for {need}, or starting; free in the cluster: {_free()}"
        if text != self._said:
            self._said = text
            tell(text)


class RunDisplay:
    """Shows commands' lines, each with whose it is, and keeps all of it in files."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder = folder
        self._stream = sys.stderr if form == "json" else sys.stdout
        self._logs: dict[int, CommandLog] = {}
        self._waiting = WaitingLine()

    def log(self, run: CommandRun) -> Path | None:
        """Return the file with a command's output, if it ever began."""
        log = self._logs.get(run.number)
        return log.path if log else None

    def begins(self, run: CommandRun) -> None:
        """Say where a command runs, and with what."""
        path = self.folder / log_name(run.number, run.command.name)
        self._logs[run.number] = CommandLog(path)
        tell(f"[{run.command.name}] runs on {run.node}, {_has(run)}: {run.command}")

    def prints(self, run: CommandRun, data: bytes) -> None:
        """Show its lines."""
        self._show(run, self._logs[run.number].take(data))

    def ends(self, run: CommandRun) -> None:
        """Show its last line, and say how it ended."""
        if run.number in self._logs:
            self._show(run, self._logs[run.number].close())
        tell(f"[{run.command.name}] {_how(run)}")

    def waits(self, waiting: Sequence[CommandRun]) -> None:
        """Say who waits for what."""
        self._waiting.show(waiting)

    def _show(self, run: CommandRun, lines: Any) -> None:
        for line in lines:
            print(f"[{run.command.name}] {line}", file=self._stream, flush=True)


def print_summary(run: WrappedRun, display: RunDisplay, form: str) -> None:
    """Print how all commands went."""
    if form == "json":
        shown = [_as_dict(one, display) for one in run.runs]
        print_value({"folder": str(display.folder.resolve()), "commands": shown}, form)
        return
    headings = ["NAME", "STATE", "EXIT CODE", "NODE", "TIME", "LOG", "COMMAND"]
    rows = [
        [
            one.command.name,
            one.state.value,
            "-" if one.exit_code is None else str(one.exit_code),
            one.node or "-",
            show_seconds(one.seconds),
            str(display.log(one) or "-"),
            str(one.command),
        ]
        for one in run.runs
    ]
    print()
    print_table([headings, *rows])
    for one in run.runs:
        if one.why:
            print(f"[{one.command.name}] {one.why}")


def print_views(views: Sequence[View], faults: Sequence[str], form: str) -> None:
    """Print what each worker of a test sees, and whether they are kept apart."""
    if form == "json":
        shown = [{"node": view.node.name, "node_id": view.node.id, **view.seen} for view in views]
        print_value({"isolated": not faults, "faults": list(faults), "workers": shown}, form)
        return
    headings = ["WORKER", "NODE", "HAS", "CORES", "CUDA_VISIBLE_DEVICES", "MEMORY", "NVIDIA-SMI"]
    rows = [
        [
            f"[{view.number}]",
            f"{view.node.name} {view.node.id[:6]}",
            str(view.resources),
            ", ".join(map(str, view.cores)),
            ",".join(view.gpus) or "(none)",
            show_bytes(view.seen["memory"]) if view.seen["memory"] > 0 else "no limit",
            f"{len(view.seen['nvidia'])} GPUs" if view.seen["nvidia"] else "-",
        ]
        for view in views
    ]
    print_table([headings, *rows])
    for fault in faults:
        print(f"not isolated: {fault}")
    if not faults:
        print(
            f"isolated: {len(views)} workers at once, none shares a core or a GPU beyond its part"
        )


def _free() -> str:
    import ray

    amounts = ray.available_resources()
    return ", ".join(f"{amounts.get(name, 0):g} {name}" for name in ("CPU", "GPU"))


def _has(run: CommandRun) -> str:
    cores = "all cores" if not run.cores else f"cores {','.join(map(str, run.cores))}"
    return f"{cores}, GPUs {','.join(run.gpus)}" if run.gpus else cores


def _how(run: CommandRun) -> str:
    took = f" after {show_seconds(run.seconds)}" if run.seconds else ""
    code = "" if run.exit_code in (None, 0) else f" with exit code {run.exit_code}"
    return f"{run.state.value}{code}{took}{f': {run.why}' if run.why else ''}"


def _as_dict(run: CommandRun, display: RunDisplay) -> dict[str, Any]:
    log, command = display.log(run), run.command
    return {
        "name": command.name,
        "command": str(command),
        "state": run.state.value,
        "exit_code": run.exit_code,
        "why": run.why,
        "node": run.node,
        "cores": list(run.cores),
        "gpus": list(run.gpus),
        "seconds": round(run.seconds, 3),
        "log": str(log.resolve()) if log else None,
    }
