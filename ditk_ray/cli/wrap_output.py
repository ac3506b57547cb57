"""What `ditk-ray wrap` prints: commands' lines as they come, who waits, and how it went."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from ditk_ray.cli.output import LineBuffer, note, print_items, print_value
from ditk_ray.ray_cluster.isolation import View
from ditk_ray.ray_cluster.wrap import CommandRun, WrappedRun, log_name
from ditk_ray.util.units import show_bytes, show_seconds

_FIRST_SECONDS = 3.0


class WaitingLine:
    """Says who waits for what, after a moment and then when that has changed."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _FIRST_SECONDS
        self._said = ""

    def show(self, waiting: Sequence[CommandRun]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _FIRST_SECONDS
        names = ", ".join(f"[{run.command.name}]" for run in waiting[:3])
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        need = waiting[0].command.describe_needs()
        amounts = ray.available_resources()
        free = ", ".join(f"{amounts.get(name, 0):g} {name}" for name in ("CPU", "GPU"))
        # Ray counts a command's share as taken while its worker starts.
        text = f"starting, or waiting for {need}: {names}{more}; free in the cluster: {free}"
        if text != self._said:
            self._said = text
            note(text)


class CommandLog:
    """The output of one command, written to its file as it comes and handed out by lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb", buffering=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines = LineBuffer()

    def take(self, data: bytes) -> list[str]:
        """Keep some output and return the lines that it completes."""
        self._file.write(data)
        return [line.rstrip("\r") for line in self._lines.take(self._decoder.decode(data))]

    def close(self) -> list[str]:
        """End the file, and return the last line if it was not ended."""
        self._file.close()
        return self._lines.take(self._decoder.decode(b"", final=True)) + self._lines.close()


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
        path = self.folder / log_name(run.number, run.command.name)
        self._logs[run.number] = CommandLog(path)
        has = f"cores {','.join(map(str, run.cores))}" if run.cores else "all cores"
        has += f", GPUs {','.join(run.gpus)}" if run.gpus else ""
        note(f"[{run.command.name}] runs on {run.node}, {has}: {run.command}")

    def prints(self, run: CommandRun, data: bytes) -> None:
        self._show(run, self._logs[run.number].take(data))

    def ends(self, run: CommandRun) -> None:
        if run.number in self._logs:
            self._show(run, self._logs[run.number].close())
        took = f" after {show_seconds(run.seconds)}" if run.seconds else ""
        code = f" with exit code {run.exit_code}" if run.exit_code else ""
        why = f": {run.why}" if run.why else ""
        note(f"[{run.command.name}] {run.state}{code}{took}{why}")

    def waits(self, waiting: Sequence[CommandRun]) -> None:
        self._waiting.show(waiting)

    def _show(self, run: CommandRun, lines: Any) -> None:
        for line in lines:
            print(f"[{run.command.name}] {line}", file=self._stream, flush=True)


def print_summary(run: WrappedRun, display: RunDisplay, form: str) -> None:
    items = [_as_dict(one, display) for one in run.runs]
    if form == "json":
        print_value({"folder": str(display.folder.resolve()), "commands": items}, form)
        return
    print()
    keys = ["name", "state", "exit_code", "node", "time", "log", "command"]
    for one, item in zip(run.runs, items, strict=True):
        item |= {"time": show_seconds(one.seconds), "log": display.log(one)}
    print_items(items, keys, form)
    for one in run.runs:
        if one.why:
            print(f"[{one.command.name}] {one.why}")


def print_views(views: Sequence[View], faults: Sequence[str], form: str) -> None:
    if form == "json":
        shown = [{"node": view.node.name, "node_id": view.node.id, **view.seen} for view in views]
        print_value({"isolated": not faults, "faults": list(faults), "workers": shown}, form)
        return
    items = [
        {
            "worker": f"[{view.number}]",
            "node": f"{view.node.name} {view.node.id[:6]}",
            "has": view.resources,
            "cores": ", ".join(map(str, view.cores)),
            "cuda_visible_devices": ",".join(view.gpus) or "(none)",
            "memory": show_bytes(view.seen["memory"]) if view.seen["memory"] > 0 else "no limit",
        }
        for view in views
    ]
    print_items(items, list(items[0]) if items else [], form)
    for fault in faults:
        print(f"not isolated: {fault}")
    if not faults:
        print(
            f"isolated: {len(views)} workers at once, none shares a core or a GPU beyond its part"
        )


def _as_dict(run: CommandRun, display: RunDisplay) -> dict[str, Any]:
    log, command = display.log(run), run.command
    return {
        "name": command.name,
        "command": str(command),
        "state": run.state,
        "exit_code": run.exit_code,
        "why": run.why,
        "node": run.node,
        "cores": list(run.cores),
        "gpus": list(run.gpus),
        "seconds": round(run.seconds, 3),
        "log": str(log.resolve()) if log else None,
    }
