"""Writing a config as a file that trains it."""

from __future__ import annotations

import ast
import importlib
import math
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ditk_ray import JobCfg
from ditk_ray.config.config_file import (
    EntryCall,
    has_main_block,
    is_patched,
    patched_source,
    render_config,
)
from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.job_spec import check_job
from ditk_ray.errors import BadConfigError
from ditk_ray.util.plain import literal

CALL = EntryCall("serial", {"seed": 0})


class Level(IntEnum):
    LOW = 1


def written(folder: Path, config: EngineConfig, call: EntryCall = CALL) -> Path:
    path = folder / "written_config.py"
    path.write_text(render_config(config, call, "A trial"))
    return path


def round_trip(folder: Path, config: EngineConfig) -> EngineConfig:
    return load_engine_config(written(folder, config))


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1.5e-12,
        1e100,
        True,
        None,
        'it\'s "quoted"\n and {braced}',
        b"bytes",
        [],
        {},
        (),
        (1,),
        [1, (2, [3, ()])],
        {"a": {"b": {}}, "a key": 1},
        math.inf,
        -math.inf,
        ["a long string " * 5, ("another " * 9, {"key": "value " * 20})],
        {f"key_{i}": {"nested": list(range(30))} for i in range(5)},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_written_config_loads_as_the_same_values(tmp_path, value):
    config = EngineConfig({"policy": {"value": value}}, {"env": {"value": value}})

    again = round_trip(tmp_path, config)

    assert again.main == config.main
    assert again.create == config.create


def test_a_tuple_comes_back_as_a_tuple_and_a_list_as_a_list(tmp_path):
    again = round_trip(tmp_path, EngineConfig({"t": (1, [2, (3,)])}, {}))

    assert repr(again.main["t"]) == "(1, [2, (3,)])"


def test_nan_comes_back_as_nan(tmp_path):
    assert math.isnan(round_trip(tmp_path, EngineConfig({"x": math.nan}, {})).main["x"])


@pytest.mark.parametrize(
    ("drawn", "plain"),
    [
        (np.float64(0.25), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("relu"), "relu"),
        (np.float64("inf"), math.inf),
        (Level.LOW, 1),
    ],
)
def test_a_number_that_is_not_pythons_own_is_written_as_pythons(tmp_path, drawn, plain):
    again = round_trip(tmp_path, EngineConfig({"x": [drawn]}, {})).main["x"][0]

    assert again == plain
    assert type(again) is type(plain)


def test_a_real_config_survives_the_round_trip(tmp_path):
    config = load_engine_config("dizoo.classic_control.cartpole.config.cartpole_dqn_config")
    changed = config.overlaid({"policy.learn.learning_rate": 0.1234})

    again = round_trip(tmp_path, changed)

    assert (again.main, again.create) == (changed.main, changed.create)


def test_long_values_are_broken_into_lines_that_fit():
    text = literal({"policy": {f"name_{i}": ["a word"] * 12 for i in range(4)}})

    assert max(len(line) for line in text.splitlines()) <= 100
    assert ast.literal_eval(text) == {"policy": {f"name_{i}": ["a word"] * 12 for i in range(4)}}


def source_file(folder: Path) -> Path:
    path = folder / "source_config.py"
    path.write_text(
        "from os.path import join\n\n"
        "def shape_reward(reward):\n"
        "    return reward * 2\n\n"
        "main_config = dict(\n"
        "    reward=shape_reward, join=join, hooks=[shape_reward], lr=0.1, policy=dict(nstep=1)\n"
        ")\n"
        "create_config = dict(policy=dict(type='dqn'))\n"
    )
    return path


def test_a_function_of_the_config_is_written_by_reference_to_its_source_file(tmp_path):
    config = load_engine_config(source_file(tmp_path))

    again = round_trip(tmp_path, config)

    assert again.main["reward"](21) == 42
    assert again.main["hooks"][0](21) == 42
    assert again.main["lr"] == 0.1


def test_an_imported_function_is_written_by_reference_to_the_source_file(tmp_path):
    path = tmp_path / "source_config.py"
    path.write_text(
        "from os.path import join\nmain_config = dict(join=join, lr=1.0)\ncreate_config = {}\n"
    )

    again = round_trip(tmp_path, load_engine_config(path).overlaid({"lr": 0.5}))

    assert again.main["join"]("a", "b") == "a/b"
    assert again.main["lr"] == 0.5


def test_values_that_differ_from_the_source_file_are_written_beside_the_reference(tmp_path):
    config = load_engine_config(source_file(tmp_path))
    changed = config.overlaid({"lr": 0.5, "policy.nstep": 3}, {"policy.type": "rainbow"})

    again = round_trip(tmp_path, changed)

    assert again.main["reward"](1) == 2
    assert (again.main["lr"], again.main["policy"]) == (0.5, {"nstep": 3})
    assert again.create == {"policy": {"type": "rainbow"}}


def test_new_keys_are_written_beside_the_reference_with_the_dicts_they_need(tmp_path):
    path = tmp_path / "source_config.py"
    path.write_text("from os.path import join\nmain_config = dict(f=join)\ncreate_config = {}\n")
    config = load_engine_config(path).overlaid({"policy.learn.lr": 0.5})

    assert round_trip(tmp_path, config).main["policy"] == {"learn": {"lr": 0.5}}


def test_a_config_that_cannot_be_written_becomes_a_file_that_says_so(tmp_path):
    file = tmp_path / "config.py"
    file.write_text(render_config(EngineConfig({"f": print}, {}), CALL, "A trial"))
    shown = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert shown.returncode == 1
    assert "cannot be written as Python" in shown.stderr


def takes_the_config_alone(config):
    return None


def test_a_users_function_is_called_with_what_it_takes():
    call = EntryCall(takes_the_config_alone, {"seed": 3, "max_env_step": 5})
    text = render_config(EngineConfig({}, {}), call, "A trial")
    assert "takes_the_config_alone((main_config, create_config))" in text


def test_a_function_without_a_name_is_not_called_but_explained():
    call = EntryCall(lambda config: None, {"seed": 3})
    assert "raise SystemExit" in render_config(EngineConfig({}, {}), call, "A trial")


def test_entries_that_learn_from_data_have_their_own_name_for_the_limit():
    call = EntryCall("serial_bc", {"seed": 3, "max_train_iter": 5})
    text = render_config(EngineConfig({}, {}), call, "A trial")
    assert "serial_pipeline_bc((main_config, create_config), seed=seed, max_iter=5)" in text


def test_a_users_function_finds_the_modules_beside_its_file(tmp_path):
    (tmp_path / "job.py").write_text("import beside\ndef go(config):\n    print(beside.WORD)\n")
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    scope: dict = {}
    exec("def go(config): ...", scope)
    call = EntryCall(scope["go"], {}, str(tmp_path / "job.py"))
    file = tmp_path / "elsewhere" / "config.py"
    file.parent.mkdir()
    file.write_text(render_config(EngineConfig({}, {}), call, "A trial"))
    shown = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert shown.stdout == "found\n", shown.stderr


@pytest.mark.parametrize(
    ("entry", "function"),
    [
        ("serial", "serial_pipeline"),
        ("serial_onpolicy", "serial_pipeline_onpolicy"),
        ("serial_pipeline_offline", "serial_pipeline_offline"),
        ("serial_trex", "serial_pipeline_preference_based_irl"),
    ],
)
def test_a_written_file_trains_by_its_entry_with_its_arguments(tmp_path, entry, function):
    call = EntryCall(entry, {"seed": 3, "max_env_step": 100, "limit": math.inf})
    training = train_function(written(tmp_path, EngineConfig({}, {}), call))

    assert ast.unparse(training.args) == "seed=3"
    assert ast.unparse(training.body[0]) == f"from ding.entry import {function}"
    arguments = "(main_config, create_config), seed=seed, max_env_step=100, limit=float('inf')"
    assert ast.unparse(training.body[1]) == f"return {function}({arguments})"


def train_function(path: Path) -> ast.FunctionDef:
    *_, function, block = ast.parse(path.read_text()).body
    assert ast.unparse(block) == "if __name__ == '__main__':\n    train()"
    assert isinstance(function, ast.FunctionDef)
    assert function.name == "train"
    return function


def test_a_written_file_runs_the_users_own_function(tmp_path):
    home = tmp_path / "my_job.py"
    home.write_text(
        "def train(cfg, seed):\n    print(cfg[0].policy.nstep, cfg[1]['env'], seed, end='')\n"
    )
    train = namespace_of(home)["train"]
    config = EngineConfig({"policy": {"nstep": 3}}, {"env": "cartpole"})
    path = written(tmp_path, config, EntryCall(train, {"seed": 7}, str(home)))

    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)

    assert done.stdout == "3 cartpole 7"


def test_a_written_file_can_be_trained_with_another_seed(tmp_path):
    home = tmp_path / "my_job.py"
    home.write_text("def train(cfg, seed):\n    return seed\n")
    call = EntryCall(namespace_of(home)["train"], {"seed": 7}, str(home))

    written_file = namespace_of(written(tmp_path, EngineConfig({}, {}), call))

    assert (written_file["train"](), written_file["train"](8)) == (7, 8)


def namespace_of(path: Path) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(path.read_text(), namespace)
    return namespace


def test_a_function_from_a_package_is_imported_from_there(tmp_path):
    file = written(tmp_path, EngineConfig({}, {}), EntryCall(ast.literal_eval))

    assert ast.unparse(train_function(file).body[0]) == "from ast import literal_eval"


def test_loading_a_written_file_trains_nothing(tmp_path):
    home = tmp_path / "my_job.py"
    home.write_text("def train(cfg):\n    raise RuntimeError('it trains')\n")
    call = EntryCall(namespace_of(home)["train"], {}, str(home))

    path = written(tmp_path, EngineConfig({"a": 1}, {}), call)

    assert load_engine_config(path).main == {"a": 1}


CONFIG = '''#!/usr/bin/env python
"""A config of one's own."""
from __future__ import annotations
import beside
own_config = dict(policy=dict(rate=0.25, learn=dict(batch=2)), reward=beside.double)
main_config = own_config
create_config = dict(env=dict(type="none"))


def train(config: Anything = main_config):
    print(own_config["policy"], config["reward"](2), create_config["env"])


if __name__ == "__main__":
    train()
elif False:
    pass
print("the end of", __name__)
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "own" / "own_config.py"
    path.parent.mkdir()
    path.write_text(CONFIG)
    (path.parent / "beside.py").write_text("def double(value):\n    return 2 * value\n")
    return path


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = folder / "config.py"
    path.write_text(text)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=folder)


def test_the_written_file_runs_the_main_block_with_the_values(source, tmp_path):
    config = load_engine_config(source).overlaid(
        {"policy.rate": 0.5, "policy.learn.new": [1]}, {"env.type": "other"}
    )
    text = render_config(config, EntryCall("main", {"seed": 0}), "A trial")
    ran = run(tmp_path, text)
    assert ran.stdout.splitlines() == [
        "{'rate': 0.5, 'learn': {'batch': 2, 'new': [1]}} 4 {'type': 'other'}",
        "the end of __main__",
    ], ran.stderr
    assert text.startswith("# A trial\n")


def test_the_written_file_is_a_config_file_itself(source, tmp_path):
    config = load_engine_config(source).overlaid({"policy.rate": 0.5})
    path = tmp_path / "config.py"
    path.write_text(render_config(config, EntryCall("main", {"seed": 0}), "A trial"))
    again = load_engine_config(path)
    assert (again.main["policy"], again.create) == (config.main["policy"], config.create)


def test_only_a_written_file_is_known_as_one(source):
    assert is_patched(patched_source(load_engine_config(source), "A trial"))
    assert not is_patched(CONFIG)


def test_a_file_of_a_package_finds_its_neighbours(tmp_path, monkeypatch):
    package = tmp_path / "own_zoo"
    package.mkdir()
    (package / "shared.py").write_text("RATE = 0.25\n")
    (package / "own.py").write_text(
        "from .shared import RATE\nmain_config = dict(rate=RATE)\ncreate_config = {}\n"
        'if __name__ == "__main__":\n    from .shared import RATE\n    print(main_config, RATE)\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    config = load_engine_config("own_zoo.own").overlaid({"rate": 1.0})
    ran = run(tmp_path, render_config(config, EntryCall("main", {"seed": 0}), "A trial"))
    assert ran.stdout == "{'rate': 1.0} 0.25\n", ran.stderr


def test_a_value_that_cannot_be_written_becomes_a_file_that_says_so(source, tmp_path):
    config = load_engine_config(source).overlaid({"policy.rate": print})
    ran = run(tmp_path, render_config(config, EntryCall("main", {"seed": 0}), "A trial"))
    assert ran.returncode == 1
    assert "cannot be written as Python" in ran.stderr


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ('if __name__ == "__main__":\n    pass\n', True),
        ("if '__main__' == __name__:\n    pass\n", True),
        ("if __name__ == 'main':\n    pass\n", False),
        ("def f():\n    if __name__ == '__main__':\n        pass\n", False),
        ("", False),
    ],
)
def test_a_main_block_is_found_where_python_would_run_it(tmp_path, text, has):
    (tmp_path / "file.py").write_text(text)
    assert has_main_block(str(tmp_path / "file.py")) is has


def job(config: Any, **attributes: Any) -> type[JobCfg]:
    return type("MyJob", (JobCfg,), {"config": config, "entry": "main", **attributes})


def test_a_job_may_be_trained_by_its_configs_main_block(source):
    assert check_job(job(str(source)), {}).entry == "main"


def test_what_a_main_block_cannot_be_given_is_refused_at_once(source):
    wrong = job(str(source), max_env_step=5, max_train_iter=5, seeds=2, entry_args={"a": 1})
    with pytest.raises(BadConfigError, match="the main block of the config file") as caught:
        check_job(wrong, {})
    assert {problem.where for problem in caught.value.problems} == {
        "MyJob.max_env_step",
        "MyJob.max_train_iter",
        "MyJob.seeds",
        "MyJob.entry_args",
    }


def test_a_config_without_a_main_block_is_refused(tmp_path):
    (tmp_path / "file.py").write_text("main_config = {}\ncreate_config = {}\n")
    for config in (({}, {}), str(tmp_path / "file.py")):
        with pytest.raises(BadConfigError, match="block, which entry 'main' runs"):
            check_job(job(config), {})


def test_a_config_from_no_file_becomes_a_file_that_says_so():
    text = render_config(EngineConfig({}, {}), EntryCall("main"), "A trial")
    assert "raise SystemExit" in text
