"""Dotted paths into nested dicts and lists, such as `policy.learn.batch_size`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Tree = dict[str, Any]


class MissingPathError(KeyError):
    """A path leads nowhere."""


def plain(value: Any) -> Any:
    """Copy nested mappings, lists and tuples; leaves are shared, not copied."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(plain(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def get(tree: Any, path: str) -> Any:
    """Return what stands at `path`, or raise `MissingPathError`."""
    for part in path.split("."):
        tree = _child(tree, part, path)
    return tree


def find(tree: Any, path: str) -> Any:
    try:
        return get(tree, path)
    except MissingPathError:
        return None


def put(tree: Tree, path: str, value: Any) -> None:
    """Set what stands at `path` in place, making the dicts on the way."""
    _put(tree, path.split("."), value, path)


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every path and its value; lists and empty dicts count as values."""
    if isinstance(tree, Mapping) and tree:
        for key, item in tree.items():
            yield from leaves(item, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, tree


def merged(base: Any, over: Any) -> Any:
    """Return `base` with `over` laid on it, dict by dict; both stay as they are."""
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return plain(over)
    result = plain(base)
    for key, item in over.items():
        result[key] = merged(base[key], item) if key in base else plain(item)
    return result


def _put(node: Any, parts: list[str], value: Any, path: str) -> Any:
    if not parts:
        return value
    part, *rest = parts
    if node is None or isinstance(node, dict):
        node = {} if node is None else node
        key = _key(node, part)
        node[key] = _put(node.get(key), rest, value, path)
        return node
    new = _put(_child(node, part, path), rest, value, path)
    items = list(node)
    items[int(part)] = new
    return tuple(items) if isinstance(node, tuple) else items


def _key(node: Mapping[Any, Any], part: str) -> Any:
    # DI-engine configs have a few dicts with numbers for keys.
    if part not in node and part.isdecimal() and int(part) in node:
        return int(part)
    return part


def _child(node: Any, part: str, path: str) -> Any:
    if isinstance(node, Mapping):
        key = _key(node, part)
        if key in node:
            return node[key]
    elif isinstance(node, (list, tuple)) and part.isdecimal() and int(part) < len(node):
        return node[int(part)]
    raise MissingPathError(path)
