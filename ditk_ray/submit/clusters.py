"""Known clusters: the file `~/.cluster_config`, which of them are meant, and their tokens.

A line of the file reads `name: lab address: http://10.0.0.7:8265`. Blank lines and lines that
begin with `#` are allowed, and further pairs (`num_gpu: 8`) that other tools write are ignored.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.execution.fork_client import runtime_folder
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.util.files import write_private
from ditk_ray.util.locks import locked
from ditk_ray.util.suggest import did_you_mean

_EXPECTED = "a line reads `name: NAME address: http://HOST:PORT`"
_LINE = re.compile(r"\s*name:\s+([A-Za-z0-9][A-Za-z0-9._-]*)\s+address:\s+(\S+?)/*(\s.*)?")
_COMMENT = re.compile(r"\s*(#.*)?")


@dataclass(frozen=True)
class KnownCluster:
    """A Ray cluster: what people call it, and where its dashboard and job API answer."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.shown_address})"

    @property
    def shown_address(self) -> str:
        return mask_text(self.address)

    @property
    def flag(self) -> str:
        """What names it to a command: its address, or its name if that has a password."""
        has_name = self.name != _host_of(self.address) and self.shown_address != self.address
        return f"--cluster {self.name}" if has_name else f"--address {self.shown_address}"


def _host_of(address: str) -> str:
    return urlsplit(address).netloc.rpartition("@")[2]


def default_cluster_file() -> Path:
    return Path.home() / ".cluster_config"


def is_address(text: str) -> bool:
    """Say whether a text is an http(s) address with a host and, if it has a port, a valid one."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises if it is not a number, or too large
    except ValueError:  # also a bracket that is not closed
        return False
    has_blanks = any(letter.isspace() for letter in text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not has_blanks


def read_clusters(path: Path) -> list[KnownCluster]:
    """Return the clusters of a file, if there is one; BadConfigError has every wrong line."""
    problems: list[Problem] = []
    clusters: dict[str, KnownCluster] = {}
    for number, line in enumerate(_read(path).splitlines(), 1):
        cluster = _parse(line)
        if cluster is None and not _COMMENT.fullmatch(line):
            what = f"cannot be understood: {mask_text(line.strip())!r}"
            problems.append(Problem(f"{path}, line {number}", what, _EXPECTED))
        elif cluster and cluster.name in clusters:
            what = f"the cluster {cluster.name!r} is listed twice"
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
    _change(path, {cluster.name: cluster for cluster in clusters})


def forget_clusters(path: Path, names: Collection[str]) -> None:
    """Take the lines of clusters out of a file, if there is one; the others stay."""
    _change(path, dict.fromkeys(names))


def _change(path: Path, new: Mapping[str, KnownCluster | None]) -> None:
    # Of two commands that change it at once, each would lose the other's lines.
    with _explained(path, "cannot be written"), locked(runtime_folder() / "clusters.lock"):
        before, after, left = _read(path).splitlines(), [], dict(new)
        for line in before:
            cluster = _parse(line)
            if cluster is None or cluster.name not in new:
                after.append(line)
            elif changed := left.pop(cluster.name, None):
                after.append(_line_of(changed))
        after += [_line_of(cluster) for cluster in left.values() if cluster]
        target = path.resolve()  # a link to a file kept elsewhere stays one
        if after != before:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_private(target, "".join(f"{line}\n" for line in after))


@contextlib.contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem(str(path), f"{what}: {error}")) from error


def _parse(line: str) -> KnownCluster | None:
    match = _LINE.fullmatch(line)
    return KnownCluster(match[1], match[2]) if match and is_address(match[2]) else None


def _line_of(cluster: KnownCluster) -> str:
    return f"name: {cluster.name} address: {cluster.address}"


def _read(path: Path) -> str:
    with _explained(path, "cannot be read"), contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8")
    return ""


def choose_clusters(
    names: Sequence[str], addresses: Sequence[str], file: Path, has_several_jobs: bool
) -> list[KnownCluster]:
    """Return where jobs go; raises BadConfigError if that is not clear.

    Without names and addresses that is $RAY_ADDRESS if it is a URL, else the only cluster of
    the file, or all of them for several jobs, else a Ray on this machine.
    """
    known = read_clusters(file)
    chosen = [*_by_name(known, names), *(_at(address, known) for address in addresses)]
    if chosen:
        return list(dict.fromkeys(chosen))
    surrounding = os.environ.get("RAY_ADDRESS", "")
    if surrounding.startswith(("http://", "https://")):
        return [_at(surrounding, known)]
    if len(known) > 1 and not has_several_jobs:
        listed = ", ".join(cluster.name for cluster in known)
        what = f"is needed: there are several clusters in {file}"
        raise BadConfigError(Problem("--cluster", what, f"choose one of {listed}"))
    return known or [_at("http://127.0.0.1:8265", known)]


def _by_name(known: Sequence[KnownCluster], names: Iterable[str]) -> list[KnownCluster]:
    by_name = {cluster.name: cluster for cluster in known}
    how = "add it: `ditk-ray cluster discover` finds clusters on Kubernetes; for others "
    how += f"{_EXPECTED} in {default_cluster_file()}"
    if unknown := [name for name in names if name not in by_name]:
        what = "is not in the file of clusters"
        raise BadConfigError(
            Problem(f"--cluster {name}", what, did_you_mean(name, by_name) or how)
            for name in unknown
        )
    return [by_name[name] for name in names]


def _at(address: str, known: Sequence[KnownCluster]) -> KnownCluster:
    address = address.rstrip("/")
    if not is_address(address):
        what = "is not the address of a dashboard"
        raise BadConfigError(
            Problem(f"--address {mask_text(address)}", what, "write http://HOST:8265")
        )
    unnamed = KnownCluster(_host_of(address), address)
    return next((cluster for cluster in known if cluster.address == address), unnamed)


def token_file(name: str) -> Path:
    """Return where the token of a cluster of `~/.cluster_config` is kept."""
    return Path.home() / ".ray" / "tokens" / name


def write_token(name: str, token: str) -> Path:
    """Keep the token of a cluster, for its owner alone, and return the file."""
    path = token_file(name)
    with _explained(path, "the token cannot be kept"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, f"{token.strip()}\n")
    return path


def forget_token(name: str) -> None:
    path = token_file(name)
    with _explained(path, "the token cannot be removed"):
        path.unlink(missing_ok=True)


def token_of(name: str) -> str | None:
    """Return the token to show a cluster; None if the user has none.

    A token that is kept for the cluster by its name comes first, then those that Ray itself
    looks for, in its order: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token.
    """
    if token := _read(token_file(name)).strip() or os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    token = _read(Path(path or "~/.ray/auth_token").expanduser()).strip()
    if path and not token:
        where, hint = "RAY_AUTH_TOKEN_PATH", "correct the file, or unset RAY_AUTH_TOKEN_PATH"
        raise BadConfigError(Problem(where, f"there is no token in {path}", hint))
    return token or None
