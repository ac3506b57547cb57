"""Asking DI-engine, before a sweep starts, what a config and an entry may hold.

DI-engine is not imported into the driver: the question is put to a fork of the
node's fork server, which is made ready for trials on this occasion.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from functools import partial
from types import SimpleNamespace
from typing import Any

from easydict import EasyDict

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import (
    MAIN_ENTRY,
    EngineConfig,
    entry_arguments,
    entry_name,
    fitting_arguments,
)
from ditk_ray.errors import Problem
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.execution.guard import Channel
from ditk_ray.trial.training import resolve_entry
from ditk_ray.util import dotted
from ditk_ray.util.suggest import did_you_mean

_TRAINING = ("ditk_ray.trial.training", "ditk_ray.trial.engine_state")
_TASKS = "ding.framework.middleware.functional.evaluator"
"""Hooked for entries that may build a task pipeline; a second's work, with matplotlib and wandb."""


def training_modules(config: EngineConfig, entry: Any) -> list[str]:
    """Return what a node's fork server imports, once for all trials of this config."""
    tasks = [_TASKS] if entry == MAIN_ENTRY or not isinstance(entry, str) else []
    return [*_TRAINING, *tasks, *config.environment_modules]


def inspect_experiment(
    node: ForkClient, config: EngineConfig, call: EntryCall, python_path: tuple[str, ...] = ()
) -> tuple[EngineConfig, list[Problem]]:
    """Compile the config as DI-engine would, without training anything.

    Returns it with all that DI-engine adds to it, and what is wrong with it or the call.
    """
    process = node.run(partial(_answer, config, call), python_path)
    try:
        answer = process.receive()
    finally:
        process.stop()
    if answer is None:
        what = f"DI-engine ended with code {process.exit_code} when compiling it"
        return config, [Problem("config", what)]
    problems = [Problem(**fields) for fields in answer["problems"]]
    return EngineConfig(answer["main"], answer["create"]), problems


def _answer(config: EngineConfig, call: EntryCall, channel: Channel) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    builds_itself = call.entry == MAIN_ENTRY or not isinstance(call.entry, str)
    problems = [] if call.entry == MAIN_ENTRY else _check_call(call)
    main: dotted.Tree = {}
    try:
        main = _compiled(config)
    except Exception as error:
        # A function or a file of the user's may build what it trains in its own way.
        if not builds_itself:
            what = f"DI-engine cannot compile it: {type(error).__name__}: {error}"
            problems.append(Problem("config", what))
    channel.send(
        "inspection",
        main=_known_values(main),
        create=_known_values(dotted.merged(_CREATE_KEYS, config.create)),
        problems=[vars(problem) for problem in problems],
    )


_CREATE_KEYS = {
    key: {"type": None, "import_names": None}
    for key in ("env", "env_manager", "policy", "collector", "evaluator", "replay_buffer")
}


def _compiled(config: EngineConfig) -> dotted.Tree:
    from ding.config import compile_config  # DI-engine
    from ding.utils import POLICY_REGISTRY

    main, create = EasyDict(config.main), EasyDict(config.create)
    for module in create.policy.get("import_names", []):
        __import__(module)
    if f"{create.policy.type}_command" in POLICY_REGISTRY:
        create.policy.type += "_command"
    compiled = compile_config(main, auto=True, create_cfg=create, save_cfg=False, seed=0)
    tree: dotted.Tree = dotted.plain(compiled)
    tree.setdefault("seed", 0)
    tree["policy"]["model"] = dotted.merged(_model_arguments(compiled), tree["policy"]["model"])
    tree["policy"].setdefault("load_path", None)
    return tree


def _model_arguments(compiled: Any) -> dotted.Tree:
    from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY  # DI-engine

    # A policy without a default model, or one that wants more of itself to name
    # it, only means that fewer names are known.
    with contextlib.suppress(Exception):
        policy = POLICY_REGISTRY.get(compiled.policy.type)
        name, modules = policy.default_model(SimpleNamespace(_cfg=compiled.policy))
        for module in modules:
            __import__(module)
        parameters = inspect.signature(MODEL_REGISTRY.get(name)).parameters.values()
        return {
            item.name: None if item.default is item.empty else item.default
            for item in parameters
            if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        }
    return {}


def _check_call(call: EntryCall) -> list[Problem]:
    function = resolve_entry(call.entry)
    name = entry_name(call.entry)
    taken, refused = fitting_arguments(function, entry_arguments(call.entry, call.arguments))
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return [Problem("entry", f"{name} takes no argument; it has to take the config")]
    known = [item.name for item in parameters[1:]]
    problems = [
        Problem(
            f"entry_args.{item}" if item not in _LIMITS else item,
            f"entry {name!r} takes no such argument",
            did_you_mean(item, known),
        )
        for item in refused
        if item != "seed"
    ]
    return problems + [
        Problem("entry_args", f"entry {name!r} needs {item.name!r}")
        for item in parameters[1:]
        if item.default is item.empty
        and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        and item.name not in taken
    ]


_LIMITS = ("max_env_step", "max_train_iter")


def _known_values(tree: dotted.Tree) -> Any:
    return json.loads(json.dumps(tree, default=lambda _: None, skipkeys=True))
