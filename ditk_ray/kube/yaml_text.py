"""YAML as people write it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import yaml


def yaml_text(value: Any) -> str:
    return yaml_documents([value])


def yaml_documents(values: Iterable[Any]) -> str:
    """Return values as documents of one file, in the order of their keys."""
    return str(yaml.dump_all(values, Dumper=_ReadableDumper, sort_keys=False))


def read_yaml(text: str) -> Any:
    """Return what a document holds, which may be JSON; raises ValueError if it is neither."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # of an impossible date, say
        raise ValueError(" ".join(str(error).split())) from None


def read_yaml_documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


class _ReadableDumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and everything out where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _show_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


_ReadableDumper.add_representer(str, _show_text)
_ReadableDumper.add_multi_representer(StrEnum, _show_text)
