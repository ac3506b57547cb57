"""Which files of a folder are shipped to a cluster with a job.

In a git repository those that git knows or would let be added, elsewhere all but what tools
leave behind; in both without what a `.rayignore` (written as a `.gitignore`) names.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ditk_ray.config.quantities import show_bytes
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.bounded_run import CommandFailedError
from ditk_ray.provenance.repository import Git, shown

_RESULTS = "ditk_ray_results"
_LEFT_OUT = frozenset(
    (
        *(".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules"),
        *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"),
        *("mlruns", _RESULTS),
    )
)
_IGNORE_FILE = ".rayignore"
_LISTED = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
_MAX_LISTED = 64 * 1024 * 1024
_LISTING_SECONDS = 60.0
_FOLDERS_NAMED = 5


@dataclass(frozen=True)
class CodeFiles:
    """The files to ship, by their place in the folder, in order."""

    root: Path
    names: tuple[str, ...]
    size: int
    notes: tuple[str, ...] = ()
    """What was left out that a person might miss."""

    def __str__(self) -> str:
        return f"{len(self.names)} files, {show_bytes(self.size)}, of {self.root}"

    def largest(self) -> str:
        """Name the folders, or files of the root, that hold most of it."""
        sizes: Counter[str] = Counter()
        for name in self.names:
            first, *rest = PurePosixPath(name).parts
            sizes[f"{first}/" if rest else first] += (self.root / name).stat().st_size
        named = sizes.most_common(_FOLDERS_NAMED)
        return ", ".join(f"{name} {show_bytes(size)}" for name, size in named)


def find_code(root: Path) -> CodeFiles:
    """Return what is to be shipped of a folder; nothing is changed.

    A link to a file is shipped as that file, and one to a folder of the same root as what is
    shipped of that folder. Links to other folders, links to nothing, empty folders, sockets
    and the like are left out. Raises BadConfigError if the folder cannot be read, or files
    of it.
    """
    root = root.expanduser().resolve()
    if not root.is_dir():
        raise BadConfigError(Problem(f"--working_dir {root}", "there is no such folder"))
    notes: list[str] = []
    problems: list[Problem] = []
    names: list[str] = []
    size = 0
    for name in sorted(_without_ignored(root, _through_links(root, _listed(root)))):
        try:
            found = _size_of(root / name, name, notes)
        except (OSError, ValueError) as error:
            problems.append(_unusable(root, name, error))
            continue
        if found is not None:
            names.append(name)
            size += found
    if problems:
        raise BadConfigError(problems)
    if not names and any(root.iterdir()):
        notes.append("nothing of this folder is shipped: git or .rayignore ignores all of it")
    return CodeFiles(root, tuple(names), size, tuple(notes))


def _listed(root: Path) -> set[str]:
    """Return all that may be shipped, by its place below the root."""
    try:
        printed = Git(_LISTING_SECONDS).ask(root, *_LISTED, limit=_MAX_LISTED)
    except CommandFailedError as error:
        # What git ignores may well be secret: it is not shipped because git has trouble.
        if any((folder / ".git").exists() for folder in (root, *root.parents)):
            what = f"git does not say what of it is to be shipped: {error}"
            hint = "mend that, or ship a copy that is no repository"
            raise BadConfigError(Problem(f"--working_dir {root}", what, hint)) from error
        return set(_walked(root))
    if printed.left_out:
        raise BadConfigError(Problem(f"--working_dir {root}", "has more files than can be listed"))
    found: set[str] = set()
    for raw in printed.kept.split(b"\0")[:-1]:
        name = os.fsdecode(raw).rstrip("/")
        place = root / name
        if _RESULTS in PurePosixPath(name).parts:
            continue
        if place.is_dir() and not place.is_symlink():  # a repository inside this one
            found |= {f"{name}/{inner}" for inner in _listed(place)}
        elif os.path.lexists(place):  # else it was deleted without git's knowing
            found.add(name)
    return found


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root, onerror=_refuse_folder):
        inside = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in [*links, *files]:
            if not name.endswith(".pyc"):
                yield (inside / name).as_posix()


def _through_links(root: Path, names: set[str]) -> set[str]:
    """Put what a link to a folder of the root leads to in the link's place."""
    seen = set(names)
    for name in names:
        link = root / name
        if not (link.is_symlink() and link.is_dir()):
            continue
        target = link.resolve()
        if target.is_relative_to(root) and not link.parent.is_relative_to(target):
            start = f"{target.relative_to(root).as_posix()}/"
            below = [other.removeprefix(start) for other in names if other.startswith(start)]
            seen = seen - {name} | {f"{name}/{inner}" for inner in below}
    return seen


def _refuse_folder(error: OSError) -> None:
    raise BadConfigError(
        Problem(f"--working_dir: {error.filename}", f"cannot be read: {error.strerror}")
    ) from error


def _without_ignored(root: Path, names: set[str]) -> Iterable[str]:
    """Leave out what a `.rayignore` in one of the folders above a file names."""
    folders = {folder for name in names for folder in PurePosixPath(name).parents}
    # Looked for on the disk: it counts, too, where git ignores it and so does not list it.
    specs = {
        folder: _ignored_by(root / folder / _IGNORE_FILE)
        for folder in folders
        if os.path.lexists(root / folder / _IGNORE_FILE)
    }
    if not specs:
        return names

    def is_ignored(name: str) -> bool:
        path = PurePosixPath(name)
        return any(
            specs[folder].match_file(path.relative_to(folder).as_posix())
            for folder in path.parents
            if folder in specs
        )

    return (name for name in names if not is_ignored(name))


def _ignored_by(file: Path) -> Any:
    from ray._private.thirdparty.pathspec import PathSpec  # what Ray itself reads it with

    try:
        return PathSpec.from_lines("gitwildmatch", file.read_text("utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise BadConfigError(Problem(str(file), f"cannot be read: {error}")) from error


def _size_of(path: Path, name: str, notes: list[str]) -> int | None:
    """Return a file's size, or None if it is nothing to ship; raises if it cannot be read."""
    name.encode("utf-8")
    if "\\" in name:
        raise ValueError("Ray does not unpack names with a backslash")
    try:
        found = path.stat()
    except FileNotFoundError:
        notes.append(f"left out {shown(name)}: a link to nothing")
        return None
    if stat.S_ISDIR(found.st_mode):
        target = shown(str(path.resolve()))
        notes.append(f"left out {shown(name)}: a link to the folder {target}")
    if not stat.S_ISREG(found.st_mode):
        return None
    with path.open("rb"):
        return found.st_size


def _unusable(root: Path, name: str, error: Exception) -> Problem:
    reason = "its name is not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error)
    hint = f"mend it, or name it in {root / _IGNORE_FILE}, so that it is not shipped"
    return Problem(f"--working_dir: {shown(name)}", f"cannot be shipped: {reason}", hint)
