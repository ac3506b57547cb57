"""Becomes a container: its own mounts, processes and host name, then its command.

Run as a program, with what it needs as JSON in its argument and nothing but the standard
library, since it starts for each container. The image is this machine: the container sees its
files, under a root of its own in which mounts can be made anywhere, and what it writes
beside them goes with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from types import FrameType
from typing import Any

_NEW_MOUNTS, _NEW_HOST_NAME, _NEW_PROCESSES = 0x00020000, 0x04000000, 0x20000000
_BIND, _RECURSIVE, _PRIVATE, _REMOUNT, _READ_ONLY = 0x1000, 0x4000, 0x40000, 0x20, 0x1
_HOST = "/.host"
"""Where the machine's own root is inside a container."""

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None = None, flags: int = 0) -> None:
    kind_bytes = None if kind is None else kind.encode()
    done = _libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), None)
    _checked(done, f"mounting {source} on {target}")


def _make_root(root: str) -> None:
    """Make a root that shows this machine's folders, and go into it."""
    _mount("none", "/", flags=_RECURSIVE | _PRIVATE)
    _mount("tmpfs", root, "tmpfs")
    os.mkdir(root + _HOST)
    _mount("/", root + _HOST, flags=_BIND | _RECURSIVE)
    for entry in os.scandir("/"):
        place = f"{root}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir():
            os.mkdir(place)
            if entry.name != "proc":
                _mount(entry.path, place, flags=_BIND | _RECURSIVE)
    _mount("proc", f"{root}/proc", "proc")
    os.chroot(root)
    os.chdir("/")


def _cover(folder: str) -> None:
    """Lay a folder of the container's own over one of the machine's, with the same content."""
    names = os.listdir(folder)
    _mount("tmpfs", folder, "tmpfs")
    for name in names:
        os.symlink(f"{_HOST}{folder}/{name}", f"{folder}/{name}")


def _make_place(target: str, is_folder: bool, own: set[str]) -> None:
    """Have something to mount on at `target`, without making it on the machine."""
    path = "/"
    parts = target.strip("/").split("/")
    for number, name in enumerate(parts):
        here = os.path.realpath(os.path.join(path, name))
        if not os.path.exists(here):
            if path not in own:
                _cover(path)
                own.add(path)
            if is_folder or number < len(parts) - 1:
                os.mkdir(here)
                own.add(here)
            else:
                os.close(os.open(here, os.O_CREAT))
        path = here


def _mount_volumes(mounts: list[dict[str, Any]]) -> None:
    own = {"/"}
    # An outer mount would hide an inner one that came before it.
    for mount in sorted(mounts, key=lambda mount: mount["target"]):
        source, target = _HOST + mount["source"], mount["target"]
        _make_place(target, os.path.isdir(source), own)
        _mount(source, target, flags=_BIND | _RECURSIVE)
        if mount["read_only"]:
            _mount("none", target, flags=_BIND | _REMOUNT | _READ_ONLY)


def _run(asked: dict[str, Any]) -> int:
    """Run the command below this process, the first of the container, and return its exit code.

    All other processes of the container end with this one.
    """
    _make_root(asked["root"])
    _mount_volumes(asked["mounts"])
    socket.sethostname(asked["host_name"][:63])
    child = os.fork()
    if child == 0:
        _execute(asked)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        ended, status = os.wait()
        if ended == child:
            return _exit_code(status)


def _execute(asked: dict[str, Any]) -> None:
    """Become the command; what prevents that is said in the log, as container runtimes do."""
    command, environment = asked["command"], asked["environment"]
    try:
        os.makedirs(asked["folder"], exist_ok=True)
        os.chdir(asked["folder"])
        os.execvpe(command[0], command, environment)
    except OSError as error:
        print(f"exec {command[0]}: {error.strerror}", flush=True)
        os._exit(127)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main() -> None:
    asked = json.loads(sys.argv[1])
    _checked(_libc.unshare(_NEW_MOUNTS | _NEW_HOST_NAME | _NEW_PROCESSES), "unshare")
    first = os.fork()
    if first == 0:
        os._exit(_run(asked))
    # The group is asked to end as a whole; this process stays to tell how that went.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os._exit(_exit_code(os.waitpid(first, 0)[1]))


if __name__ == "__main__":
    main()
