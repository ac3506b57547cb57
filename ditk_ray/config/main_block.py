"""A config file with other values, to be run as it would be itself.

The file's text stays as it is; the values are set right before its main block, in the
dicts themselves: whatever else names them sees the same values.
"""

from __future__ import annotations

import ast
import io
from pathlib import Path

from ditk_ray.config.engine_config import EngineConfig, reloaded
from ditk_ray.config.literals import NotLiteralError, differences

VALUES_MARK = "# The values that differ from the file's:"


def has_main_block(source: str) -> bool:
    """Say whether a file has an `if __name__ == "__main__":` block."""
    return bool(_parted(source)[2])


def is_patched(text: str) -> bool:
    """Say whether a config file was written by `patched_source`."""
    return VALUES_MARK in text.splitlines()


def patched_source(config: EngineConfig, title: str, is_at_home: bool = False) -> str:
    """Return the text of the config's own file, with the config's values before its main block.

    With `is_at_home` it is to run on a machine that has the file, and finds what the file
    imports from beside itself. Raises `NotLiteralError` for values that have no literal, or a
    config from no file, and `BadConfigError` if that cannot be loaded any more.
    """
    if config.source is None:
        raise NotLiteralError("there is no source file")
    base = reloaded(config)
    head, body, block = _parted(config.source)
    place = [f"__package__ = {config.package!r}"] if config.package else []
    if is_at_home and not config.package:
        place = ["import sys", "", f"sys.path.insert(0, {str(Path(config.source).parent)!r})"]
    changes = [
        *differences("main_config", base.main, config.main),
        *differences("create_config", base.create, config.create),
    ]
    parts = [
        f"# {title}\n{head}",
        "\n".join(place),
        body,
        "\n".join([VALUES_MARK, *changes]),
        block,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _parted(source: str) -> tuple[str, str, str]:
    """Return what has to come first in a file, what follows, and what its main block starts."""
    text = Path(source).read_text(encoding="utf-8")
    lines = list(io.StringIO(text))  # as the parser counts them
    first, last = 0, len(lines)
    for number, node in enumerate(ast.parse(text).body):
        if _has_to_be_first(node, number):
            first = node.end_lineno or 0
        elif isinstance(node, ast.If) and _asks_for_main(node.test):
            last = node.lineno - 1
            break
    return "".join(lines[:first]), "".join(lines[first:last]), "".join(lines[last:])


def _has_to_be_first(node: ast.stmt, number: int) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return number == 0 and is_text


def _asks_for_main(test: ast.expr) -> bool:
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")
