"""The machine and the Python that a sweep is started from."""

from __future__ import annotations

import contextlib
import csv
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from typing import Any

from ditk_ray.provenance.bounded_run import run_bounded
from ditk_ray.provenance.masking import mask_text

GPU_SECONDS = 5.0
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version")
_GPU_BYTES = 64 * 1024
_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("PYTHONHASHSEED", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_DEFAULT_ENV"),
    *("RAY_ADDRESS", "RAY_NAMESPACE", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION"),
)


def python() -> dict[str, str]:
    """Return which Python this is."""
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
    }


def host() -> dict[str, Any]:
    """Return the machine's name and size."""
    return {
        "name": socket.gethostname(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def gpus() -> list[dict[str, str]]:
    """Return what `nvidia-smi` says of each GPU; nothing if there is no such command.

    Raises `CommandFailedError` if there is one and it fails, or takes too long.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    printed = run_bounded(command, _GPU_BYTES, GPU_SECONDS)
    lines = printed.kept.decode("utf-8", "backslashreplace").splitlines()
    rows = csv.reader(lines, skipinitialspace=True)
    return [dict(zip(_GPU_FIELDS, row, strict=False)) for row in rows if row]


def packages() -> dict[str, str]:
    """Return the version of each installed distribution; none is imported."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(Exception):  # one that is half removed
            found.setdefault(distribution.name, distribution.version)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def variables() -> dict[str, str]:
    """Return the few environment variables that matter to a sweep, if they are set."""
    return {name: mask_text(os.environ[name]) for name in _VARIABLES if name in os.environ}
