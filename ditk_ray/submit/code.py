"""The code that is shipped to a cluster with a job, as one zip file that Ray's clusters take.

Of a git repository those files are shipped that git tracks or does not ignore, of another
folder all but what tools leave behind; in both without what a `.rayignore` (written as a
`.gitignore`) names.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import ditk_ray
from ditk_ray.config.job_files import JOB_FOLDER
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.git import CommandFailedError, Git, shown
from ditk_ray.util.units import show_bytes

MAX_PACKAGE = 100 * 1024 * 1024
"""What Ray's dashboard takes in one request."""
_MAX_FILES = 10 * MAX_PACKAGE
"""What is not even read: no code becomes ten times smaller."""
_MAX_LISTED = 64 * 1024 * 1024
_LISTING_SECONDS = 60.0
_RESULTS = "ditk_ray_results"
_LEFT_OUT = {
    *(".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules", "mlruns", _RESULTS),
    *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"),
}
_IGNORE_FILE = ".rayignore"


@dataclass(frozen=True)
class CodePackage:
    """A zip file and the name by which a cluster knows it.

    The same code makes the same bytes, hence the same name: what a cluster has already is not
    sent to it again. `about` says how much is in it, and `notes` what was left out that a person
    might miss.
    """

    name: str
    data: bytes
    about: str = ""
    notes: tuple[str, ...] = ()

    @property
    def uri(self) -> str:
        """What a job's runtime environment names it by."""
        return f"gcs://{self.name}"


def pack_folder(folder: Path, more: Mapping[str, bytes]) -> CodePackage:
    """Pack what is to be shipped of a folder, and `more` files by their names.

    A link to a file is shipped as that file. Other links, empty folders, sockets and the like
    are left out. Raises BadConfigError with a file that cannot be shipped, or with the largest
    folders if that is more than Ray takes.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise BadConfigError(Problem(f"--working_dir {root}", "there is no such folder"))
    listed = _listed(root)
    names = sorted(listed - _ignored(root, listed))
    sizes = {name: _size(root / name) for name in names}
    files = {name: size for name, size in sizes.items() if size is not None}
    links = [name for name in names if name not in files and (root / name).is_symlink()]
    size = sum(files.values())
    data = _zipped({name: root / name for name in files}, more) if size <= _MAX_FILES else b""
    if size > _MAX_FILES or len(data) > MAX_PACKAGE:
        raise _too_large(root, files)
    about = f"{len(files)} files, {show_bytes(size)}, of {root} ({show_bytes(len(data))} packed)"
    notes = [f"left out {shown(name)}: a link to a folder, or to nothing" for name in links]
    if not files and any(root.iterdir()):
        notes.append("nothing of this folder is shipped: git or .rayignore ignores all of it")
    return CodePackage(_name_of(data), data, about, tuple(notes))


def pack_this_package() -> CodePackage:
    """Pack ditk_ray itself, with the jobs that come along, as Ray's `py_modules` wants it."""
    package = Path(ditk_ray.__file__).resolve().parent
    files = {
        file.relative_to(package.parent).as_posix(): file
        for folder in (package, package.parent / JOB_FOLDER)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    data = _zipped(files, {})
    return CodePackage(_name_of(data), data)


def _name_of(data: bytes) -> str:
    return f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip"


def _size(file: Path) -> int | None:
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # reading it says why: what cannot be looked at must not be missing silently
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _zipped(files: Mapping[str, Path], more: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, file in files.items():
            try:
                _add(package, name, file.read_bytes(), file.stat().st_mode & 0o100 != 0)
            except (OSError, UnicodeEncodeError) as error:
                what, hint = f"cannot be shipped: {error}", f"or name it in {_IGNORE_FILE}"
                where = f"--working_dir: {shown(name)}"
                raise BadConfigError(Problem(where, what, f"correct it, {hint}")) from error
            if buffer.tell() > MAX_PACKAGE:
                break
        for name, data in more.items():
            _add(package, name, data)
    return buffer.getvalue()


def _add(package: zipfile.ZipFile, name: str, data: bytes, is_program: bool = False) -> None:
    entry = zipfile.ZipInfo(name)  # whose time is always the same
    entry.external_attr = (0o755 if is_program else 0o644) << 16
    package.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)


def _too_large(root: Path, files: Mapping[str, int]) -> BadConfigError:
    sizes: Counter[str] = Counter()
    for name, size in files.items():
        first, *rest = PurePosixPath(name).parts
        sizes[f"{first}/" if rest else first] += size
    largest = ", ".join(f"{name} {show_bytes(size)}" for name, size in sizes.most_common(5))
    hint = (
        f"most of it is in {largest}: name what the job does not need in "
        f"{root / _IGNORE_FILE}, or give another --working_dir"
    )
    what = f"has {show_bytes(sizes.total())}; Ray takes {show_bytes(MAX_PACKAGE)} when packed"
    return BadConfigError(Problem(f"--working_dir {root}", what, hint))


def _listed(root: Path) -> set[str]:
    command = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        printed = Git(_LISTING_SECONDS).ask(root, *command, limit=_MAX_LISTED)
    except CommandFailedError as error:
        # What git ignores may well be secret: it is not shipped because git has trouble.
        if any((folder / ".git").exists() for folder in (root, *root.parents)):
            what = f"git does not say what of it is to be shipped: {error}"
            hint = "correct that, or ship a copy that is not a repository"
            raise BadConfigError(Problem(f"--working_dir {root}", what, hint)) from error
        return set(_walked(root))
    if len(printed) == _MAX_LISTED:
        raise BadConfigError(Problem(f"--working_dir {root}", "has more files than can be listed"))
    found: set[str] = set()
    for raw in printed.split(b"\0")[:-1]:
        name = os.fsdecode(raw).rstrip("/")
        place = root / name
        if _RESULTS in PurePosixPath(name).parts:
            continue
        if place.is_dir() and not place.is_symlink():  # a repository inside this one
            found |= {f"{name}/{inner}" for inner in _listed(place)}
        else:
            found.add(name)
    return found


def _walked(root: Path) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        what = f"cannot be read: {error.strerror}"
        raise BadConfigError(Problem(f"--working_dir: {error.filename}", what)) from error

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in [*links, *files]:
            if not name.endswith(".pyc"):
                yield Path(folder, name).relative_to(root).as_posix()


def _ignored(root: Path, names: set[str]) -> set[str]:
    ignored: set[str] = set()
    for folder in {folder for name in names for folder in PurePosixPath(name).parents}:
        file = root / folder / _IGNORE_FILE
        # Looked for on the disk: it counts, too, where git ignores it and so does not list it.
        if not os.path.lexists(file):
            continue
        # What Ray itself reads it with; heavy, and seldom needed.
        from ray._private.thirdparty.pathspec import PathSpec

        try:
            spec = PathSpec.from_lines("gitwildmatch", file.read_text("utf-8").splitlines())
        except (OSError, ValueError) as error:
            raise BadConfigError(Problem(str(file), f"cannot be read: {error}")) from error
        start = "" if folder == PurePosixPath() else f"{folder}/"
        inside = (name for name in names if name.startswith(start))
        ignored |= {name for name in inside if spec.match_file(name.removeprefix(start))}
    return ignored
