"""A DI-engine experiment: `main_config` and `create_config` as one value, and its entries."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util import dotted
from ditk_ray.util.python_file import load_python_file
from ditk_ray.util.suggest import did_you_mean

ConfigRef = str | Path | ModuleType | tuple[Mapping[str, Any], Mapping[str, Any]]

# The suffixes of `ding.entry.serial_pipeline_*` in DI-engine 0.5.3.
_PIPELINES = (
    *("bc", "bco", "dqfd", "dream", "dreamer", "dyna", "gail", "guided_cost", "ngu", "offline"),
    *("onpolicy", "onpolicy_ppg", "pc", "preference_based_irl", "preference_based_irl_onpolicy"),
    *("r2d3", "reward_model_offpolicy", "reward_model_onpolicy", "sqil", "td3_vae"),
)
SERIAL_ENTRIES: dict[str, str] = {
    "serial": "serial_pipeline",
    **{f"serial_{suffix}": f"serial_pipeline_{suffix}" for suffix in _PIPELINES},
    # Names that `ding -m` uses for pipelines that are called otherwise.
    "serial_reward_model": "serial_pipeline_reward_model_offpolicy",
    "serial_trex": "serial_pipeline_preference_based_irl",
    "serial_trex_onpolicy": "serial_pipeline_preference_based_irl_onpolicy",
}
"""What `ding -m` calls an entry, and the function in `ding.entry` that it is."""

MAIN_ENTRY = "main"
"""The entry that is the config file's own `if __name__ == "__main__":` block."""

_LEARN_FROM_DATA = {"serial_pipeline_bc", "serial_pipeline_pc"}
"""The entries that call their limit `max_iter`."""


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
        if len(ref) != 2 or not all(isinstance(item, Mapping) for item in ref):
            what = "a tuple must be (main_config, create_config), two dicts"
            raise BadConfigError(Problem("", what))
        return EngineConfig(dotted.plain(ref[0]), dotted.plain(ref[1]))
    if isinstance(ref, ModuleType):
        source = getattr(ref, "__file__", None) or ref.__name__
        return _from_module(ref, source, ref.__package__ or "")
    if isinstance(ref, Path) or ref.endswith(".py") or "/" in ref:
        path = find_beside(Path(ref).expanduser(), relative_to)
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
        dotted.put(result, path, dotted.merged(dotted.find(result, path), value))
    return result


def _from_module(module: ModuleType, source: str, package: str = "") -> EngineConfig:
    names = [name for name in vars(module) if not name.startswith("_")]
    wanted = ("main_config", "create_config")
    missing = [name for name in wanted if not isinstance(getattr(module, name, None), Mapping)]
    if missing:
        hint = "a DI-engine config file defines main_config and create_config"
        raise BadConfigError(
            Problem(source, f"defines no `{name}`", f"{hint}; {did_you_mean(name, names)}")
            for name in missing
        )
    system = getattr(module, "system_config", None)
    system = dotted.plain(system) if isinstance(system, Mapping) else None
    main, create = dotted.plain(module.main_config), dotted.plain(module.create_config)
    return EngineConfig(main, create, source, package, system)


def find_beside(path: Path, relative_to: Path | None) -> Path:
    """Return a path beside the folder if there is such a file, else in the working directory."""
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
    path = Path(next(iter(spec.submodule_search_locations or [])))
    for part in (*rest[:-1], f"{rest[-1]}.py"):
        if not (path / part).exists():
            known = [item.stem for item in path.iterdir()]
            what = f"no {part!r} in {path}"
            raise BadConfigError(Problem(dotted_name, what, did_you_mean(part, known)))
        path /= part
    return path, dotted_name.rpartition(".")[0]


def entry_function_name(entry: str) -> str:
    """Return the function's name in `ding.entry`; raises ValueError for an unknown entry."""
    if entry in SERIAL_ENTRIES:
        return SERIAL_ENTRIES[entry]
    if entry in SERIAL_ENTRIES.values():
        return entry
    raise ValueError(
        f"unknown entry {entry!r}; {did_you_mean(entry, [*SERIAL_ENTRIES, MAIN_ENTRY])}"
    )


def entry_name(entry: str | Callable[..., Any]) -> str:
    """Return what to call an entry in front of the user."""
    return entry if isinstance(entry, str) else getattr(entry, "__name__", repr(entry))


def entry_arguments(
    entry: str | Callable[..., Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments under the names that the entry knows them by.

    A function of the user's is given only what it takes. What a named entry
    takes is DI-engine's to say: it is asked before a sweep starts.
    """
    if not isinstance(entry, str):
        return fitting_arguments(entry, arguments)[0]
    if entry_function_name(entry) not in _LEARN_FROM_DATA:
        return dict(arguments)
    return {"max_iter" if key == "max_train_iter" else key: v for key, v in arguments.items()}


def fitting_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Split the arguments into those that the function takes and the names of the rest."""
    parameters = inspect.signature(function).parameters
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    taken = {key: v for key, v in arguments.items() if key in parameters or takes_all}
    return taken, [key for key in arguments if key not in taken]
