"""A DI-engine experiment config: `main_config` and `create_config` as one value."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ditk_ray.config import dotted
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.python_file import load_python_file
from ditk_ray.errors import BadConfigError, Problem

ConfigRef = str | Path | ModuleType | tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class EngineConfig:
    """The two dicts that every DI-engine entry takes, as plain Python values.

    Nothing in this project changes the dicts in place; `overlaid` makes a new
    value. `source` is the file they came from, if there is one, and `package` what its
    relative imports start from, if it is a module of one.
    """

    main: dotted.Tree
    create: dotted.Tree
    source: str | None = None
    package: str = ""
    system: dotted.Tree | None = None
    """The `system_config` of a distributed training, as the file has it."""

    @property
    def environment_modules(self) -> tuple[str, ...]:
        """The modules that DI-engine imports for the environment."""
        return tuple(self.create.get("env", {}).get("import_names", ()))

    def overlaid(
        self, main: Mapping[str, Any], create: Mapping[str, Any] | None = None
    ) -> EngineConfig:
        """Return a copy with the values at the given dotted paths set.

        A dict laid on a dict is merged into it; anything else replaces.
        """
        return replace(
            self, main=_overlaid(self.main, main), create=_overlaid(self.create, create or {})
        )


def load_engine_config(ref: ConfigRef, relative_to: Path | None = None) -> EngineConfig:
    """Load a config from a `.py` path, a dotted module, a module or a pair of dicts.

    A relative path is looked for beside `relative_to` (the folder of the file
    that names it) and then in the working directory. Raises `BadConfigError`.
    """
    if isinstance(ref, tuple):
        return _from_pair(ref)
    if isinstance(ref, ModuleType):
        source = getattr(ref, "__file__", None) or ref.__name__
        return _from_module(ref, source, ref.__package__ or "")
    if isinstance(ref, Path) or ref.endswith(".py") or "/" in ref:
        path = _find(Path(ref).expanduser(), relative_to)
        return _from_module(load_python_file(path), str(path))
    path, package = _module_file(ref)
    return _from_module(load_python_file(path, package), str(path), package)


def reloaded(config: EngineConfig) -> EngineConfig:
    """Return a config as its file has it; raises `BadConfigError` if that cannot be loaded."""
    assert config.source is not None
    module = load_python_file(Path(config.source), config.package)
    return _from_module(module, config.source, config.package)


def _overlaid(tree: dotted.Tree, values: Mapping[str, Any]) -> dotted.Tree:
    result: dotted.Tree = dotted.plain(tree)
    for path, value in values.items():
        try:
            value = dotted.merged(dotted.get(result, path), value)
        except dotted.MissingPathError:
            value = dotted.plain(value)
        dotted.put(result, path, value)
    return result


def _from_pair(pair: tuple[Any, ...]) -> EngineConfig:
    if len(pair) != 2 or not all(isinstance(item, Mapping) for item in pair):
        raise BadConfigError(
            Problem("config", "a tuple must be (main_config, create_config), two dicts")
        )
    return EngineConfig(dotted.plain(pair[0]), dotted.plain(pair[1]))


def _from_module(module: ModuleType, source: str, package: str = "") -> EngineConfig:
    names = [name for name in vars(module) if not name.startswith("_")]
    problems = [
        Problem(
            source,
            f"defines no `{wanted}`",
            "a DI-engine config file defines main_config and create_config; "
            + (did_you_mean(wanted, names) or "this one defines nothing"),
        )
        for wanted in ("main_config", "create_config")
        if not isinstance(getattr(module, wanted, None), Mapping)
    ]
    if problems:
        raise BadConfigError(problems)
    system = getattr(module, "system_config", None)
    return EngineConfig(
        dotted.plain(module.main_config),
        dotted.plain(module.create_config),
        source,
        package,
        dotted.plain(system) if isinstance(system, Mapping) else None,
    )


def _find(path: Path, relative_to: Path | None) -> Path:
    if path.is_absolute() or relative_to is None:
        return path
    beside = relative_to / path
    return beside if beside.is_file() or not path.is_file() else path


def _module_file(dotted_name: str) -> tuple[Path, str]:
    """Find a module's file without importing its packages.

    The `__init__` files of dizoo's packages import environments, and with them
    all of DI-engine: seconds of work for a file of plain dicts.
    """
    top, *rest = dotted_name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None or (rest and not spec.submodule_search_locations):
        hint = "is DI-engine installed? `make setup` installs it" if top == "dizoo" else ""
        raise BadConfigError(Problem(dotted_name, f"no package {top!r} can be imported", hint))
    if not rest:
        return Path(str(spec.origin)), ""
    folder = Path(next(iter(spec.submodule_search_locations or [])))
    for part in rest[:-1]:
        if not (folder / part).is_dir():
            known = [item.name for item in folder.iterdir() if item.is_dir()]
            raise BadConfigError(
                Problem(dotted_name, f"no {part!r} in {folder}", did_you_mean(part, known))
            )
        folder /= part
    path = folder / f"{rest[-1]}.py"
    if not path.is_file():
        known = [item.stem for item in folder.glob("*.py")]
        raise BadConfigError(
            Problem(
                dotted_name, f"no module {rest[-1]!r} in {folder}", did_you_mean(rest[-1], known)
            )
        )
    return path, dotted_name.rpartition(".")[0]
