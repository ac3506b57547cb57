"""A template for DIJobs: a file with a DIJob and, if it likes, a ConfigMap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ditk_ray.config import dotted
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.script_place import script_key
from ditk_ray.kube.template_check import template_problems

API_VERSION = "diengine.opendilab.org/v2alpha1"
_VERSIONS = {"DIJob": API_VERSION, "ConfigMap": "v1"}


@dataclass(frozen=True)
class DijobTemplate:
    """A template that was checked. Nothing changes what it holds.

    `dijob` has no `projectPath` any more, which is none of Kubernetes' fields:
    it is in `project_path`.
    """

    source: str
    dijob: dotted.Tree
    config_map: dotted.Tree | None = None
    project_path: str | None = None

    @property
    def name(self) -> str:
        """What the names of all jobs begin with."""
        return str(self.dijob["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """Where the template wants its jobs, if it says so."""
        found = self.dijob["metadata"].get("namespace")
        return str(found) if found else None

    @property
    def script_key(self) -> str:
        """The ConfigMap's key that is left empty for the script, or `config.py`."""
        return script_key(self.config_map)


def read_template(path: Path, needs_script: bool = True) -> DijobTemplate:
    """Read a template; raises `BadConfigError` with all that is wrong with it.

    One that `needs_script` has to have a container that can be meant to run the script.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem(str(path), f"cannot be read: {error}")) from error
    return parse_template(text, str(path), needs_script)


def parse_template(text: str, source: str, needs_script: bool = True) -> DijobTemplate:
    """Read a template from its text; `source` is what it is called in errors."""
    try:
        documents = [item for item in yaml.safe_load_all(text) if item is not None]
    except yaml.YAMLError as error:
        raise BadConfigError(Problem(source, f"is no YAML: {error}")) from error
    problems = list(_kind_problems(documents))
    if problems:
        raise BadConfigError(_at(source, problems))
    by_kind = {item["kind"]: item for item in documents}
    dijob, config_map = by_kind["DIJob"], by_kind.get("ConfigMap")
    problems = list(template_problems(dijob, config_map, needs_script))
    if problems:
        raise BadConfigError(_at(source, problems))
    spec = {key: value for key, value in dijob["spec"].items() if key != "projectPath"}
    project = dijob["spec"].get("projectPath")
    return DijobTemplate(source, {**dijob, "spec": spec}, config_map, project or None)


def _kind_problems(documents: list[Any]) -> Iterator[Problem]:
    found = []
    for number, document in enumerate(documents, start=1):
        where = f"document {number}"
        if not isinstance(document, dict):
            yield Problem(where, f"is a {type(document).__name__}, not an object of Kubernetes")
            continue
        kind, version = document.get("kind"), document.get("apiVersion")
        if not isinstance(kind, str) or kind not in _VERSIONS:
            what = f"its kind is {kind!r}; a template holds a DIJob and at most one ConfigMap"
            yield Problem(where, what, "create other objects once, with kubectl")
            continue
        if version != _VERSIONS[kind]:
            what = f"apiVersion is {version!r}; it has to be {_VERSIONS[kind]!r}"
            yield Problem(f"{where}, {kind}", what)
        if kind in found:
            yield Problem(where, f"is a second {kind}", "a template holds one of each kind")
        found.append(kind)
    if "DIJob" not in found:
        yield Problem("the file", "holds no DIJob")


def _at(source: str, problems: list[Problem]) -> list[Problem]:
    return [Problem(f"{source}: {item.where}", item.what, item.hint) for item in problems]
