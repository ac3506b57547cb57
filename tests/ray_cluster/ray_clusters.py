"""Real Ray clusters on this machine, of one node or several, of which any can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from ditk_ray.util.locks import locked
from tests.processes import PATIENCE, TIED, can_connect, end, free_port, wait_until

_BIN = Path(sys.executable).parent
_COMMON = ("--block", "--disable-usage-stats", "--object-store-memory=100000000")
# Nodes of one machine must not all want the ports that a node has by default.
_PORTS = (
    "--dashboard-agent-listen-port=0",
    "--dashboard-agent-grpc-port=0",
    "--runtime-env-agent-port=0",
    "--metrics-export-port=0",
)
_OWN_FLAGS = {"CPU": "--num-cpus", "GPU": "--num-gpus", "memory": "--memory"}


def _one_starts() -> contextlib.AbstractContextManager[None]:
    """Have nodes start one after the other, also those of other test processes.

    Those that start at the same time choose the same ports, and some of them end.
    """
    return locked(Path(tempfile.gettempdir()) / f"ditk_ray_test_nodes_{os.getuid()}.lock")


class RayNode:
    """One node: a raylet and its workers, below a process of our own.

    Its folder is its own, for nodes of one machine that share one remove each other's
    shipped code; it is short, for there are Unix sockets in it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the node is there
        self._process = subprocess.Popen(
            [*TIED, *command, f"--temp-dir={self._folder}", *_COMMON, *_PORTS],
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
            # Told to end, Ray would wait for half a minute for its work to go elsewhere.
            env={**os.environ, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0", **environment},
        )

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the node."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def is_up(self) -> bool:
        """Say whether the node belongs to its cluster."""
        assert self._process.poll() is None, self.said()
        return "Ray runtime started" in self.said()

    def said(self) -> str:
        """Return what the node printed when it started."""
        size = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), size, 0).decode(errors="replace")

    def actors(self) -> list[psutil.Process]:
        """Return the processes of the node in which trials are looked after."""
        return [one for one in self.processes() if "ResourceTrainable" in _command_line(one)]

    def kill(self) -> None:
        """End the node as a power cut would."""
        below = self.processes()
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(10 * PATIENCE)
        psutil.wait_procs(below, timeout=10)
        self._clear()

    def stop(self) -> None:
        """End the node in good order."""
        below = self.processes()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        end(below)
        self._process.wait(10 * PATIENCE)
        self._clear()

    def _clear(self) -> None:
        self._said.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class RayCluster:
    """A head and nodes, each with the resources that are given, by Ray's names.

    `address` is where drivers connect, and `dashboard_url` where the job API answers, if there
    is a dashboard. The cluster is guarded by `token`, or by that of the tests' environment.
    Its processes find this Python as `python`, and what is in `environment`.
    """

    def __init__(
        self,
        head_resources: Mapping[str, float],
        *node_resources: Mapping[str, float],
        dashboard: bool = False,
        token: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        port, self._dashboard_port = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.dashboard_url = f"http://127.0.0.1:{self._dashboard_port}" if dashboard else ""
        self.token = token or os.environ["RAY_AUTH_TOKEN"]
        self._environment = {
            "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
            "RAY_AUTH_TOKEN": self.token,
            **(environment or {}),
        }
        self.nodes: list[RayNode] = []
        try:
            with _one_starts():
                self.head = self._start_head(port, head_resources)
                self._wait_for_head()
            for resources in node_resources:
                self.add_node(resources)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def add_node(self, resources: Mapping[str, float], prefix: Sequence[str] = ()) -> RayNode:
        """Start a node; `prefix` is a command that runs it in surroundings of its own."""
        command = [str(_BIN / "ray"), "start", f"--address={self.address}"]
        with _one_starts():
            node = RayNode([*prefix, *command, *_flags(resources)], self._environment)
            self.nodes.append(node)
            wait_until(node.is_up, 90, "a node to start")
        return node

    def kill(self) -> None:
        """End all nodes as a power cut would."""
        for node in [*self.nodes, self.head]:
            node.kill()
        self.nodes.clear()

    def stop(self) -> None:
        """End all nodes."""
        for node in [*self.nodes, self.head]:
            if node.processes():
                node.stop()

    def _start_head(self, port: int, resources: Mapping[str, float]) -> RayNode:
        command = [str(_BIN / "ray"), "start", "--head", f"--port={port}", *_flags(resources)]
        if self.dashboard_url:
            command.append(f"--dashboard-port={self._dashboard_port}")
        command.append(f"--include-dashboard={'true' if self.dashboard_url else 'false'}")
        return RayNode(command, self._environment)

    def _wait_for_head(self) -> None:
        wait_until(self.head.is_up, 90, "the head to start")
        if self.dashboard_url:
            wait_until(lambda: can_connect(self._dashboard_port), 90, "the dashboard to answer")


def _flags(resources: Mapping[str, float]) -> list[str]:
    known = [
        f"{_OWN_FLAGS[name]}={amount:g}" for name, amount in resources.items() if name in _OWN_FLAGS
    ]
    others = {name: amount for name, amount in resources.items() if name not in _OWN_FLAGS}
    return [*known, f"--resources={json.dumps(others)}"] if others else known


def _command_line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
