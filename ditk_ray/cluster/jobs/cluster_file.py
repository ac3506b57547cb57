"""The file of known clusters, `~/.cluster_config`: a name and an address on each line.

A line reads `name: lab address: http://10.0.0.7:8265`. Blank lines and lines that begin with
`#` are allowed, and further pairs (`num_gpu: 8`) that other tools write are passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.whole_file import write_private
from ditk_ray.errors import BadConfigError, Problem

_EXPECTED = "a line reads `name: NAME address: http://HOST:PORT`"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class KnownCluster:
    """A Ray cluster: what people call it, and where its dashboard and job API answer."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def default_cluster_file() -> Path:
    """Return where the clusters of this user are written down."""
    return Path.home() / ".cluster_config"


def is_address(text: str) -> bool:
    """Tell whether a dashboard could answer at an address: with a host, and a port that is one."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises if it is no number, or too large a one
    except ValueError:  # also a bracket that is not closed
        return False
    has_blanks = any(letter.isspace() for letter in text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not has_blanks


def read_clusters(path: Path) -> list[KnownCluster]:
    """Return the clusters of a file in its order; none if there is no such file.

    Raises BadConfigError with every line that cannot be understood.
    """
    problems: list[Problem] = []
    clusters: dict[str, KnownCluster] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            cluster = _cluster_of(line)
        except ValueError as error:
            problems.append(Problem(f"{path}, line {number}", str(error), _EXPECTED))
            continue
        if cluster and cluster.name in clusters:
            what = f"names the cluster {cluster.name!r} once more"
            problems.append(Problem(f"{path}, line {number}", what, "remove one of the two lines"))
        elif cluster:
            clusters[cluster.name] = cluster
    if problems:
        raise BadConfigError(problems)
    return list(clusters.values())


def write_clusters(path: Path, clusters: Iterable[KnownCluster]) -> None:
    """Write clusters into a file, which only its owner may read.

    A cluster whose name is there already gets the new address; lines of other clusters,
    comments, and lines that cannot be understood stay as they are.
    """
    new = {cluster.name: cluster for cluster in clusters}
    for cluster in new.values():
        _cluster_of(_line_of(cluster))  # what is written has to be readable
    with _alone(path):
        _write_lines(path, _with(_lines(path), new))


def forget_clusters(path: Path, names: Collection[str]) -> None:
    """Take the lines of clusters out of a file, if there is one; the others stay."""
    with _alone(path):
        before = _lines(path)
        after = [line for line in before if _name_on(line) not in names]
        if after != before:
            _write_lines(path, after)


def chosen_clusters(known: Sequence[KnownCluster], names: Iterable[str]) -> list[KnownCluster]:
    """Return the clusters with these names; BadConfigError names those that are unknown."""
    by_name = {cluster.name: cluster for cluster in known}
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise BadConfigError(
            Problem(f"--cluster {name}", "is not in the file of clusters", _about(name, by_name))
            for name in unknown
        )
    return [by_name[name] for name in wanted]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other commands from changing the file meanwhile: each would lose the other's lines.

    The lock is on its folder, as the file itself is replaced. Where the file system has no such
    locks, there is none.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            folder = os.open(path.resolve().parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def _with(lines: Iterable[str], new: Mapping[str, KnownCluster]) -> list[str]:
    """Return the lines of a file after clusters, by their names, are written into it."""
    left = dict(new)
    after: list[str] = []
    for line in lines:
        name = _name_on(line)
        if name not in new:
            after.append(line)
        elif name in left:
            after.append(_line_of(left.pop(name)))
    return after + [_line_of(cluster) for cluster in left.values()]


def _about(name: str, known: Collection[str]) -> str:
    return did_you_mean(name, known) or (
        "add it: `ditk-ray cluster discover` finds clusters on Kubernetes; for others "
        f"{_EXPECTED} in {default_cluster_file()}"
    )


def _cluster_of(line: str) -> KnownCluster | None:
    """Return the cluster of a line, None if there is none; ValueError says what is wrong."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not all(key.endswith(":") for key in words[::2]):
        raise ValueError(f"cannot be understood: {line.strip()!r}")
    missing = [key for key in ("name:", "address:") if key not in pairs]
    if missing:
        raise ValueError(f"has no `{missing[0]}`")
    name, address = pairs["name:"], pairs["address:"].rstrip("/")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: letters, digits, and . _ - only")
    if not is_address(address):
        raise ValueError(f"{address!r} is no address like http://HOST:PORT or https://HOST")
    return KnownCluster(name, address)


def _name_on(line: str) -> str | None:
    try:
        cluster = _cluster_of(line)
    except ValueError:
        return None
    return cluster.name if cluster else None


def _line_of(cluster: KnownCluster) -> str:
    return f"name: {cluster.name} address: {cluster.address}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem(str(path), f"cannot be read: {error}")) from error


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    target = path.resolve()  # a link to a file kept elsewhere stays one
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_private(target, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise BadConfigError(Problem(str(path), f"cannot be written: {error}")) from error
