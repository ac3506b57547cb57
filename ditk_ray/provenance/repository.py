"""What git knows about the code that a sweep runs: its commit and its changes.

Asked is the `git` command, since it reads any repository that the user's git reads.
Nothing in a repository is changed, not even git's own notes in the index.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ditk_ray.provenance.bounded_run import CommandFailedError, Printed, run_bounded
from ditk_ray.provenance.masking import mask_text
from ditk_ray.provenance.secret_names import is_secret_file

GIT_SECONDS = 10.0
"""For everything that is asked of git in a sweep."""
MAX_DIFF = 1024 * 1024
MAX_UNTRACKED = 100
_MAX_ANSWER = 64 * 1024
_MAX_STATUS = 4 * 1024 * 1024

# A user's settings are kept, for git needs those of trusted folders and of filters such as
# LFS. These ones start programs, write to the repository or change what a diff looks like.
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "true",
    "diff.autoRefreshIndex": "false",
    "diff.suppressBlankEmpty": "false",
    "diff.interHunkContext": "0",
}
_DIFF = (
    *("diff", "--patch", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"),
    *("--unified=3", "--src-prefix=a/", "--dst-prefix=b/", f"-O{os.devnull}"),
    *("--submodule=short", "--ignore-submodules=dirty"),
)
_STATUS = (
    *("status", "--porcelain=v1", "-z", "--no-renames"),
    *("--untracked-files=normal", "--ignore-submodules=dirty"),
)
_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_KEPT_VARIABLES = ("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_CEILING", "GIT_DISCOVERY")
_FILE_START = re.compile(r"^(?=diff --(?:git|cc) )", re.MULTILINE)


class Git:
    """The `git` command, with one allowance of time for all that it is asked."""

    def __init__(self, seconds: float = GIT_SECONDS) -> None:
        self._deadline = time.monotonic() + seconds
        self._program = shutil.which("git")
        self._environment = _environment()

    def ask(self, folder: Path, *arguments: str, limit: int = _MAX_ANSWER) -> Printed:
        """Return what git prints in a folder; raise `CommandFailedError` if it fails."""
        if self._program is None:
            raise CommandFailedError("git is not installed")
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise CommandFailedError("there was no time left to ask git")
        settings = [part for item in _SETTINGS.items() for part in ("-c", "=".join(item))]
        command = [self._program, "--no-pager", *settings, *arguments]
        return run_bounded(command, limit, seconds, folder, self._environment)

    def line(self, folder: Path, *arguments: str) -> str:
        """Return the one line that git prints."""
        return os.fsdecode(self.ask(folder, *arguments).kept.removesuffix(b"\n"))

    def answers_no(self, folder: Path, *arguments: str) -> bool:
        """Say whether git leaves with 1, which is its no to a question."""
        try:
            self.ask(folder, *arguments)
        except CommandFailedError as error:
            if error.code != 1:
                raise
            return True
        return False


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
    root = Path(git.line(folder, "rev-parse", "--show-toplevel"))
    if place != root and not git.answers_no(folder, "check-ignore", "--quiet", "--", str(place)):
        raise CommandFailedError(f"it is ignored by the repository at {shown(str(root))}")
    return root


@dataclass
class RepositoryState:
    """What is written down about a repository; what could not be found out is in `notes`."""

    root: str
    labels: list[str]
    commit: str | None = None
    branch: str | None = None
    is_detached: bool | None = None
    remotes: dict[str, str] = field(default_factory=dict)
    is_dirty: bool | None = None
    untracked: list[str] = field(default_factory=list)
    untracked_count: int | None = None
    secret_files: list[str] = field(default_factory=list)
    diff: str | None = None
    notes: list[str] = field(default_factory=list)


class RepositoryReader:
    """Reads one repository's state and its diff; whatever goes wrong becomes a note."""

    def __init__(self, git: Git, root: Path, labels: Sequence[str]) -> None:
        self._git = git
        self._root = root
        self.state = RepositoryState(shown(str(root)), list(labels))

    def read(self) -> str:
        """Fill in `state` and return the text of the diff, which is empty without changes."""
        for ask in (self._ask_commit, self._ask_branch, self._ask_remotes, self._ask_status):
            try:
                ask()
            except CommandFailedError as error:
                self._note(error)
        return "".join(self._diffs())

    def _note(self, error: CommandFailedError) -> None:
        note = shown(str(error))
        if note not in self.state.notes:
            self.state.notes.append(note)

    def _ask_commit(self) -> None:
        if self._git.answers_no(self._root, "rev-parse", "--quiet", "--verify", "HEAD"):
            self.state.notes.append("there is no commit yet")
        else:
            self.state.commit = self._git.line(self._root, "rev-parse", "--verify", "HEAD")

    def _ask_branch(self) -> None:
        question = ("symbolic-ref", "--quiet", "--short", "HEAD")
        self.state.is_detached = self._git.answers_no(self._root, *question)
        if not self.state.is_detached:
            self.state.branch = shown(self._git.line(self._root, *question))

    def _ask_remotes(self) -> None:
        question = ("config", "--null", "--get-regexp", r"^remote\..*\.url$")
        if self._git.answers_no(self._root, *question):
            return
        for item in self._git.ask(self._root, *question).kept.split(b"\0")[:-1]:
            key, _, url = _decoded(item).partition("\n")
            self.state.remotes[key.removeprefix("remote.").removesuffix(".url")] = mask_text(url)

    def _ask_status(self) -> None:
        printed = self._git.ask(self._root, *_STATUS, limit=_MAX_STATUS)
        entries = [_decoded(entry) for entry in printed.kept.split(b"\0")[:-1]]
        untracked = [entry[3:] for entry in entries if entry.startswith("??")]
        self.state.is_dirty = len(untracked) < len(entries)
        self.state.untracked = untracked[:MAX_UNTRACKED]
        self.state.untracked_count = len(untracked)
        if printed.left_out:
            self.state.notes.append("there are more changed and untracked files than were counted")

    def _diffs(self) -> Iterator[str]:
        for title, options in (("staged", ["--cached"]), ("unstaged", [])):
            try:
                printed = self._git.ask(self._root, *_DIFF, *options, limit=MAX_DIFF)
            except CommandFailedError as error:
                self._note(error)
                continue
            if printed.kept:
                yield f"# {title} changes in {self.state.root}\n"
                yield from self._files(_whole_lines(printed))
                yield _about_the_rest(printed)

    def _files(self, diff: str) -> Iterator[str]:
        """Return the diff file by file, masked and without files of secrets."""
        for part in _FILE_START.split(diff):
            path = _path_of(part.partition("\n")[0])
            if is_secret_file(path):
                self.state.secret_files.append(shown(path))
                yield f"# {path}: left out, it is likely to hold secrets\n"
            else:
                yield mask_text(part)


def _path_of(header: str) -> str:
    """Return the path in the first line of a file's diff.

    Without renames, `diff --git` names it twice, alike but for the first letter.
    """
    _, kind, names = (*header.split(" ", 2), "", "")[:3]
    if kind == "--git":
        names = names[: len(names) // 2].strip('"').removeprefix("a/")
    return names.strip('"')


def _whole_lines(printed: Printed) -> str:
    """Return the output up to its limit, cut at the end of a line."""
    kept = printed.kept
    if printed.left_out:
        kept = kept[: kept.rfind(b"\n") + 1]
    text = kept.decode("utf-8", "surrogateescape")
    return text if not text or text.endswith("\n") else f"{text}\n"


def _about_the_rest(printed: Printed) -> str:
    if not printed.left_out:
        return ""
    cut = len(printed.kept) - (printed.kept.rfind(b"\n") + 1)
    at_least = "at least " if printed.was_ended else ""
    return f"# {at_least}{printed.left_out + cut} more bytes were left out\n"


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def shown(text: str) -> str:
    """Return a path or message as text that can be written, with odd bytes as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
