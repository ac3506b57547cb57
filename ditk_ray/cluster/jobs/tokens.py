"""The tokens that Ray's clusters are guarded by: one of the user's, and one for each cluster."""

from __future__ import annotations

import os
from pathlib import Path

from ditk_ray.config.whole_file import write_private
from ditk_ray.errors import BadConfigError, Problem

_OWN = "RAY_AUTH_TOKEN"
_OWN_PATH = "RAY_AUTH_TOKEN_PATH"


def token_file(name: str) -> Path:
    """Return where the token of a cluster of `~/.cluster_config` is kept."""
    return Path.home() / ".ray" / "tokens" / name


def write_token(name: str, token: str) -> Path:
    """Keep the token of a cluster, for its owner alone, and return the file.

    Raises BadConfigError if that cannot be written.
    """
    path = token_file(name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, f"{token.strip()}\n")
    except OSError as error:
        raise BadConfigError(Problem(str(path), f"the token cannot be kept: {error}")) from error
    return path


def forget_token(name: str) -> None:
    """Remove the token of a cluster, if there is one; BadConfigError if that cannot be done."""
    path = token_file(name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BadConfigError(Problem(str(path), f"the token stays: {error}")) from error


def token_of(name: str | None) -> str | None:
    """Return the token to show a cluster; None if the user has none.

    A token that is kept for the cluster by its name comes first, then those that Ray itself
    looks for, in its order: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token.
    """
    if name and (token := _read(token_file(name))):
        return token
    if token := os.environ.get(_OWN, "").strip():
        return token
    if path := os.environ.get(_OWN_PATH):
        if token := _read(Path(path).expanduser()):
            return token
        what = f"there is no token in {path}"
        raise BadConfigError(Problem(_OWN_PATH, what, f"mend the file, or unset {_OWN_PATH}"))
    return _read(Path.home() / ".ray" / "auth_token")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem(str(path), f"the token cannot be read: {error}")) from error
