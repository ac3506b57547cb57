"""A program that tells what it sees of its machine, and stays until it is ended.

It is sent to the nodes as text, and so needs nothing but Python.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path


def seen() -> dict[str, object]:
    """Return what this process may use, as far as it can tell."""
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "machine_cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "memory": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "nvidia": _nvidia(),
    }


def _machine() -> str:
    """Return what all containers of a machine have in common, and no other machine has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return socket.gethostname()


def _nvidia() -> list[str]:
    """Return the GPUs that the driver lists: all of the machine, whatever is visible."""
    try:
        asked = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return asked.stdout.splitlines()


if __name__ == "__main__":
    print(json.dumps(seen()), flush=True)
    while os.getppid() != 1:
        time.sleep(1)
    sys.exit(1)
