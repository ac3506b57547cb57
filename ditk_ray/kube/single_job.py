"""A job that is no trial of a sweep: a template as it is, with a config put in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.config import dotted
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.job_limits import name_problems, size_problems
from ditk_ray.kube.labels import CREATION, MANAGED_BY, MANAGER
from ditk_ray.kube.script_mount import mount_script, rename_config_map
from ditk_ray.kube.script_place import blank_keys, config_map_name
from ditk_ray.kube.template import DijobTemplate
from ditk_ray.kube.template_check import metadata_problems


@dataclass(frozen=True)
class SingleJob:
    """What is sent to the API server, and the name of the job and of its ConfigMap."""

    name: str
    dijob: dotted.Tree
    config_map: dotted.Tree | None


def build_job(
    template: DijobTemplate, namespace: str, script: str | None = None, name: str | None = None
) -> SingleJob:
    """Make a job of a template, which stays as it is.

    `script` goes into the key of the ConfigMap that is left empty, as it is; the ConfigMap
    gets the job's name. Raises BadConfigError with all that is wrong.
    """
    named = name or template.name
    spec = dotted.plain(template.dijob["spec"])
    config_map = _config_map(template, script)
    problems = [*_script_problems(template, script), *metadata_problems({"name": named})]
    problems += name_problems(spec, named)
    problems += size_problems(config_map or {}, template.script_key)
    problems += _namespace_problems(template, namespace)
    if problems:
        raise BadConfigError(
            Problem(f"{template.source}: {item.where}", item.what, item.hint) for item in problems
        )
    if template.config_map is not None:
        rename_config_map(spec, config_map_name(template.config_map), named)
    elif config_map is not None:
        mount_script(spec, named, template.script_key)
    labels = {MANAGED_BY: MANAGER, CREATION: secrets.token_hex(6)}
    dijob = _labelled({**template.dijob, "spec": spec}, named, namespace, labels)
    if config_map is not None:
        config_map = _labelled(config_map, named, namespace, labels)
    return SingleJob(named, dijob, config_map)


def _config_map(template: DijobTemplate, script: str | None) -> dotted.Tree | None:
    if template.config_map is None and script is None:
        return None
    base = dotted.plain(template.config_map or {"apiVersion": "v1", "kind": "ConfigMap"})
    data = {key: value or "" for key, value in (base.get("data") or {}).items()}
    return {**base, "data": data if script is None else {**data, template.script_key: script}}


def _labelled(
    document: dotted.Tree, name: str, namespace: str, labels: dict[str, str]
) -> dotted.Tree:
    given = dotted.plain(document.get("metadata") or {})
    own = {
        "name": name,
        "namespace": namespace,
        "labels": {**(given.get("labels") or {}), **labels},
    }
    return {**document, "metadata": {**given, **own}}


def _script_problems(template: DijobTemplate, script: str | None) -> Iterator[Problem]:
    blank = blank_keys(template.config_map)
    data = (template.config_map or {}).get("data") or {}
    if script is None and blank:
        what = f"the key {blank[0]} is left empty for a config"
        yield Problem("ConfigMap data", what, "pass --config CONFIG.py")
    if script is not None and not blank and template.script_key in data:
        what = f"no key is empty, and {template.script_key} holds something already"
        yield Problem("ConfigMap data", what, "empty it, or leave --config out")


def _namespace_problems(template: DijobTemplate, namespace: str) -> Iterator[Problem]:
    if template.namespace not in (None, namespace):
        what = f"is {template.namespace!r}, and --namespace is {namespace!r}"
        yield Problem("metadata.namespace", what, "leave one of them out")


def read_config(path: Path) -> str:
    """Return the text of a config; raises BadConfigError."""
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem("--config", f"cannot be read: {error}")) from None
