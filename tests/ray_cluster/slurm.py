"""A real Slurm on this machine: a controller and two nodes with two CPUs and a GPU each.

The GPUs are files that only Slurm believes in; everything else is real. All of it lives in
one folder, on free ports, and is ended by its processes' ids.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE, alive, end, free_port, wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
NODES = ("one", "two")


def require_slurm() -> None:
    """Skip where Slurm is not installed, unless that is forbidden."""
    missing = [name for name in _PROGRAMS if _found(name) is None]
    if not missing:
        return
    reason = f"no Slurm: {', '.join(missing)} missing (Debian: slurmctld slurmd slurm-client munge)"
    if os.environ.get("DITK_RAY_REQUIRE_SLURM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class Slurm:
    """The running Slurm; `stop` ends all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[psutil.Popen] = []
        _write_settings(folder)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        folder = self.folder
        munge = {name: folder / f"munge.{name}" for name in ("socket", "pid", "log", "seed", "key")}
        files = ("--socket", "--pid-file", "--log-file", "--seed-file", "--key-file")
        places = [f"{file}={place}" for file, place in zip(files, munge.values(), strict=True)]
        # --force: the folder of a test is one that others could write to.
        self._daemon("munged", "--foreground", "--force", *places)
        wait_until(munge["socket"].exists, 30, "munge to answer")
        self._daemon("slurmctld", "-D")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        wait_until(self._is_idle, 60, "Slurm's nodes to register")

    def _daemon(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.out").open("ab") as said:
            command = [str(_found(program)), *arguments]
            started = psutil.Popen(
                command, env=self.environment, stdout=said, stderr=said, start_new_session=True
            )
        self._daemons.append(started)

    def _is_idle(self) -> bool:
        shown = self.run("sinfo", "--noheader", "--Node", "--format=%T", is_checked=False)
        return shown.stdout.split() == ["idle"] * len(NODES)

    def run(
        self, program: str, *arguments: str, is_checked: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands."""
        return subprocess.run(
            [str(_found(program)), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=is_checked,
        )

    def submit(
        self, script: Path, command: Sequence[str], *options: str, **environment: str
    ) -> Job:
        """Submit a script with a command for it, as a user does, and return the job."""
        log = self.folder / f"job-{secrets.token_hex(4)}.log"
        sbatch = [str(_found("sbatch")), "--parsable", f"--output={log}", "--time=20", *options]
        answer = subprocess.run(
            [*sbatch, str(script), *command],
            env={**self._user_environment(), **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=True,
        )
        return Job(self, answer.stdout.strip(), log)

    def _user_environment(self) -> Mapping[str, str]:
        """Return the surroundings of somebody who has the environment on their PATH."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{self.environment['PATH']}"
        return {**self.environment, "PATH": path}

    def stop(self) -> None:
        """End all jobs, and then the daemons, the controller first."""
        if len(self._daemons) > 1:
            self.run("scancel", "--full", f"--user={getpass.getuser()}", is_checked=False)
        below = [child for daemon in self._daemons for child in daemon.children(recursive=True)]
        for daemon in self._daemons[1:] + self._daemons[:1]:
            daemon.terminate()
        end([*self._daemons, *below])


class Job:
    """A job that was submitted."""

    def __init__(self, slurm: Slurm, number: str, log: Path) -> None:
        self.number = number
        self._slurm = slurm
        self._log = log

    def log(self) -> str:
        """Return what the job has said so far."""
        return self._log.read_text() if self._log.exists() else ""

    def facts(self) -> dict[str, str]:
        """Return what Slurm knows of the job."""
        shown = self._slurm.run("scontrol", "--oneliner", "show", "job", self.number).stdout
        return dict(fact.split("=", 1) for fact in shown.split() if "=" in fact)

    def wait_for(self, line: str, seconds: float = 120) -> None:
        """Wait until the job has said something."""

        def is_said() -> bool:
            if self.facts()["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING"):
                assert line in self.log(), f"the job ended without {line!r}:\n{self.log()}"
            return line in self.log()

        wait_until(is_said, seconds, f"{line!r} in the log of job {self.number}:\n{self.log()}")

    def wait(self, seconds: float = 120) -> int:
        """Wait for the job's end on all nodes, and return its exit code."""
        going = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        wait_until(lambda: self.facts()["JobState"] not in going, seconds, "the job to end")
        code, _, signal = self.facts()["ExitCode"].partition(":")
        return int(code) or int(signal)

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that were started within the job."""
        marks = {"SLURM_JOB_ID": self.number, "SLURM_CONF": self._slurm.environment["SLURM_CONF"]}
        found = []
        for process in psutil.process_iter():
            try:
                if marks.items() <= process.environ().items():
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if alive(process)]


def _found(program: str) -> str | None:
    """Return where a program is: daemons lie in folders that a user's PATH may lack."""
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def _write_settings(folder: Path) -> None:
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    host, user = socket.gethostname(), getpass.getuser()
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
        "CPUs=2 RealMemory=4000 Gres=gpu:1"
        for node in NODES
    )
    (folder / "slurm.conf").write_text(
        _SLURM_CONF.format(folder=folder, host=host, user=user, nodes=nodes, port=free_port())
    )
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
    for node in NODES:
        (folder / f"spool-{node}").mkdir()


_SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
MinJobAge=3600
KillWait=120
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""
