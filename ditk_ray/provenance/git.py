"""Which code there is: the repositories that hold it, each with its changes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from ditk_ray.provenance.secrets import is_secret_file, mask_text

GIT_SECONDS = 10.0
"""For everything that is asked of git in a sweep."""
MAX_DIFF = 1024 * 1024
MAX_UNTRACKED = 100
_MAX_ANSWER = 4 * 1024 * 1024
_KEPT_ERRORS = 4 * 1024
_POLL_SECONDS = 0.002
_END_SECONDS = 1.0

# A user's settings are kept, for git needs those of trusted folders and of filters such as
# LFS. These ones start programs, write to the repository or change what a diff looks like.
_SETTINGS = ("core.fsmonitor=false", "core.quotePath=true", "diff.autoRefreshIndex=false")
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--unified=3"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty"),
)
_STATUS = (
    *("status", "--porcelain", "-z", "--no-renames"),
    *("--untracked-files=normal", "--ignore-submodules=dirty"),
)
_COMMIT = ("rev-parse", "--quiet", "--verify", "HEAD")
_REMOTES = ("config", "--get-regexp", r"^remote\..*\.url$")
_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_KEPT_VARIABLES = ("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_CEILING", "GIT_DISCOVERY")
_FILE_START = re.compile(r"^(?=diff --git )", re.MULTILINE)


class CommandFailedError(Exception):
    """A program is missing, failed (`code`), or took too long."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


def run_limited(
    command: Sequence[str],
    limit: int,
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run a program without input and return the first `limit` bytes that it prints.

    It is ended, with what it has started, when it prints more or its time is over. Raises
    `CommandFailedError` if it cannot be started, fails or takes longer.
    """
    name, deadline = Path(command[0]).name, time.monotonic() + seconds
    try:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
            try:
                while process.poll() is None and os.fstat(output.fileno()).st_size < limit:
                    if time.monotonic() > deadline:
                        raise TimeoutError
                    time.sleep(_POLL_SECONDS)
            finally:
                _end(process)
            output.seek(0)
            errors.seek(0)
            printed = output.read(limit)
            reason = _decoded(errors.read(_KEPT_ERRORS)).strip().partition("\n")[0]
    except TimeoutError as error:
        raise CommandFailedError(f"{name} took longer than {seconds:.1f} s") from error
    except (OSError, ValueError) as error:
        raise CommandFailedError(f"{name} cannot be run: {error}") from error
    if process.returncode and len(printed) < limit:
        what = reason or f"{name} exited with code {process.returncode}"
        raise CommandFailedError(what, process.returncode)
    return printed


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # One that hangs in a system call does not even heed this.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


class Git:
    """The `git` command, with one allowance of time for all that it is asked."""

    def __init__(self, seconds: float = GIT_SECONDS) -> None:
        self._deadline = time.monotonic() + seconds

    def ask(self, folder: Path, *arguments: str, limit: int = _MAX_ANSWER) -> bytes:
        """Return the first `limit` bytes that git prints in a folder.

        Raises `CommandFailedError` if it fails or no time is left.
        """
        program = shutil.which("git")
        if program is None:
            raise CommandFailedError("git is not installed")
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise CommandFailedError("there was no time left to ask git")
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        command = [program, *settings, *arguments]
        return run_limited(command, limit, seconds, folder, _environment())

    def text(self, folder: Path, *arguments: str) -> str | None:
        """Return what git prints, or None if it exits with 1, which is its no."""
        try:
            return os.fsdecode(self.ask(folder, *arguments).removesuffix(b"\n"))
        except CommandFailedError as error:
            if error.code != 1:
                raise
            return None


def _environment() -> dict[str, str]:
    """Return ours without what points git elsewhere, as it is set in a git hook."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_KEPT_VARIABLES)
    }
    return kept | _VARIABLES


def find_root(git: Git, place: Path) -> Path:
    """Return the root of the repository that holds a file or folder.

    Raises `CommandFailedError` if there is none: the place does not exist, git
    refuses, or the repository ignores it, as it does an environment inside it.
    """
    if not place.exists():
        raise CommandFailedError("it does not exist")
    place = place.resolve()
    folder = place if place.is_dir() else place.parent
    root = Path(git.text(folder, "rev-parse", "--show-toplevel") or folder)
    question = ("check-ignore", "--quiet", "--", str(place))
    if place != root and git.text(folder, *question) is not None:
        raise CommandFailedError(f"it is ignored by the repository at {shown(str(root))}")
    return root


def read_repository(git: Git, root: Path) -> tuple[dict[str, Any], str]:
    """Return what is written down about a repository, and its diff.

    What cannot be found out is None or empty, and `notes` says why.
    """
    facts: dict[str, Any] = {
        "root": shown(str(root)),
        **dict.fromkeys(("commit", "branch", "is_dirty", "untracked_count", "diff")),
        **{"remotes": {}, "untracked": [], "secret_files": [], "notes": []},
    }
    diff = ""
    try:
        facts["commit"] = git.text(root, *_COMMIT)
        facts["branch"] = shown(git.text(root, "branch", "--show-current") or "") or None
        for line in (git.text(root, *_REMOTES) or "").splitlines():
            name, _, url = shown(line).partition(" ")
            facts["remotes"][name.split(".", 1)[1].removesuffix(".url")] = mask_text(url)
        status = git.ask(root, *_STATUS, limit=_MAX_ANSWER)
        facts |= _status(status)
        if len(status) == _MAX_ANSWER:
            facts["notes"].append("there are more changed and untracked files than were counted")
        against = "HEAD" if facts["commit"] else "--cached"
        diff, facts["secret_files"] = _masked(git.ask(root, *_DIFF, against, limit=MAX_DIFF))
    except CommandFailedError as error:
        facts["notes"].append(shown(str(error)))
    if not facts["commit"] and not facts["notes"]:
        facts["notes"].append("there is no commit yet")
    return facts, diff


def _status(printed: bytes) -> dict[str, Any]:
    entries = [_decoded(entry) for entry in printed.split(b"\0")[:-1]]
    untracked = [entry[3:] for entry in entries if entry.startswith("??")]
    return {
        "is_dirty": len(untracked) < len(entries),
        "untracked": untracked[:MAX_UNTRACKED],
        "untracked_count": len(untracked),
    }


def _masked(printed: bytes) -> tuple[str, list[str]]:
    is_cut = len(printed) == MAX_DIFF
    whole = printed[: printed.rfind(b"\n") + 1] if is_cut else printed
    parts, secret_files = [], []
    for part in _FILE_START.split(whole.decode("utf-8", "surrogateescape")):
        # The first line of a file's diff has its path twice, as `a/...` and `b/...`.
        names = part.partition("\n")[0].removeprefix("diff --git ")
        path = names[: len(names) // 2].strip('"').removeprefix("a/")
        if is_secret_file(path):
            secret_files.append(shown(path))
            parts.append(f"# {path}: left out, it is likely to hold secrets\n")
        else:
            parts.append(mask_text(part))
    if is_cut:
        parts.append(f"# what follows the first {MAX_DIFF} bytes was left out\n")
    return "".join(parts), secret_files


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def shown(text: str) -> str:
    """Return a path or message as text that can be written, with odd bytes as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def code_facts(provenance: Path, places: Mapping[str, Path]) -> dict[str, Any]:
    """Return the repositories that hold the places, and the places that none holds.

    The diffs of changed repositories are written into the folder `provenance`.
    """
    git = Git()
    labels: dict[Path, list[str]] = {}
    outside: dict[str, dict[str, str]] = {}
    for label, place in places.items():
        try:
            labels.setdefault(find_root(git, place), []).append(label)
        except (CommandFailedError, OSError, ValueError, RuntimeError) as error:
            outside[label] = {"path": shown(str(place)), "note": shown(str(error))}
    repositories = []
    for root, its_labels in labels.items():
        facts, diff = read_repository(git, root)
        if diff:
            file = unused_diff(provenance, its_labels[0])
            file.write_bytes(diff.encode("utf-8", "surrogateescape"))
            facts["diff"] = file.name
        repositories.append({**facts, "labels": its_labels})
    return {"repositories": repositories, "outside_of_repositories": outside}


def unused_diff(provenance: Path, label: str) -> Path:
    """Return a file for the diff of a repository that is named after its label."""
    name = re.sub(r"[^\w.-]+", "_", label).strip("._") or "repository"
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(file for name in names if not (file := provenance / f"{name}.diff").exists())
