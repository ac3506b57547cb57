"""Commands that run web servers, and asking those servers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.processes import PATIENCE, processes_in


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a folder; also after a failed test nothing of it is left."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        for left in processes_in(folder):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        process.communicate()


def fetch(url: str, data: Any = None, **headers: str) -> tuple[int, bytes]:
    """Return the status and the body that a URL answers with; data are posted as JSON."""
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20 * PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
