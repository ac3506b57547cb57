"""Code as one zip file, in the shape in which Ray's clusters take it.

The same code makes the same bytes, hence the same name: what a cluster has already is not
sent to it again.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ditk_ray
from ditk_ray.cluster.jobs.code_files import CodeFiles
from ditk_ray.config.job_files import JOB_FOLDER
from ditk_ray.config.quantities import show_bytes
from ditk_ray.errors import BadConfigError, Problem

MAX_PACKAGE = 100 * 1024 * 1024
"""What Ray's dashboard takes in one request."""
_MAX_FILES = 10 * MAX_PACKAGE
"""What is not even tried to be packed: no code becomes ten times smaller."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class CodePackage:
    """A zip file and the name by which a cluster knows it."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """What a job's runtime environment names it by."""
        return f"gcs://{self.name}"

    @property
    def size(self) -> str:
        """How large it is, for people."""
        return show_bytes(len(self.data))


def pack_code(code: CodeFiles, more: Mapping[str, bytes]) -> CodePackage:
    """Pack a folder's files, and `more` files by their names.

    Raises BadConfigError, with the largest folders, if that is more than Ray takes.
    """
    if code.size > _MAX_FILES:
        raise _too_large(code, f"has {show_bytes(code.size)}")
    return _packed(((name, code.root / name) for name in code.names), more, code)


def pack_this_package() -> CodePackage:
    """Pack ditk_ray itself, with the jobs that come along, as Ray's `py_modules` wants it."""
    package = Path(ditk_ray.__file__).resolve().parent
    folders = [package, package.parent / JOB_FOLDER]
    files = sorted(
        file
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    return _packed(((file.relative_to(package.parent).as_posix(), file) for file in files), {})


def _packed(
    files: Iterable[tuple[str, Path]], more: Mapping[str, bytes], code: CodeFiles | None = None
) -> CodePackage:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, file in files:
            try:
                _add(package, name, file.read_bytes(), file.stat().st_mode & 0o100 != 0)
            except OSError as error:
                where = f"--working_dir: {name}"
                raise BadConfigError(Problem(where, f"cannot be read: {error}")) from error
            if code is not None and buffer.tell() > MAX_PACKAGE:
                raise _too_large(code, f"has more than {show_bytes(MAX_PACKAGE)} when packed")
        for name, data in more.items():
            _add(package, name, data)
    data = buffer.getvalue()
    return CodePackage(f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data)


def _add(package: zipfile.ZipFile, name: str, data: bytes, is_program: bool = False) -> None:
    entry = zipfile.ZipInfo(name, _LONG_AGO)
    entry.external_attr = (0o755 if is_program else 0o644) << 16
    package.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)


def _too_large(code: CodeFiles, what: str) -> BadConfigError:
    hint = (
        f"most of it is in {code.largest()}: name what the job does not need in "
        f"{code.root / '.rayignore'}, or give another --working_dir"
    )
    limit = f"{what}; Ray takes {show_bytes(MAX_PACKAGE)} in one piece"
    return BadConfigError(Problem(f"--working_dir {code.root}", limit, hint))
