"""Loading DI-engine configs, and laying values over them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from easydict import EasyDict

from ditk_ray.config.engine_config import (
    SERIAL_ENTRIES,
    EngineConfig,
    entry_function_name,
    load_engine_config,
)
from ditk_ray.errors import BadConfigError

CARTPOLE = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"
CONFIG = """
from easydict import EasyDict

main_config = EasyDict(dict(exp_name="x", policy=dict(nstep=1, learn=dict(batch_size=64))))
create_config = EasyDict(dict(policy=dict(type="dqn")))
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_dqn_config.py"
    path.write_text(CONFIG)
    return path


def complaint(ref: object, **options: object) -> str:
    with pytest.raises(BadConfigError) as caught:
        load_engine_config(ref, **options)
    return str(caught.value)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_config_is_loaded_from_a_path(config_file, kind):
    config = load_engine_config(kind(config_file))

    assert config.main == {
        "exp_name": "x",
        "policy": {"nstep": 1, "learn": {"batch_size": 64}},
    }
    assert config.create == {"policy": {"type": "dqn"}}
    assert config.source == str(config_file)


def test_a_loaded_config_is_made_of_plain_dicts(config_file):
    config = load_engine_config(config_file)

    assert type(config.main["policy"]["learn"]) is dict


def test_a_config_is_loaded_from_a_dotted_module():
    config = load_engine_config(CARTPOLE)

    assert config.main["policy"]["learn"]["batch_size"] == 64
    assert config.create["env"]["type"] == "cartpole"
    assert config.source.endswith("cartpole_dqn_config.py")


def test_a_config_is_loaded_from_a_module():
    module = ModuleType("made_by_hand")
    module.main_config, module.create_config = EasyDict(a=1), EasyDict(b=2)

    config = load_engine_config(module)

    assert (config.main, config.create) == ({"a": 1}, {"b": 2})


def test_a_config_is_loaded_from_a_pair_of_dicts():
    main = EasyDict(policy={"nstep": 1})

    config = load_engine_config((main, {"policy": {"type": "dqn"}}))
    main.policy.nstep = 7

    assert config.main == {"policy": {"nstep": 1}}
    assert config.source is None


@pytest.mark.parametrize("pair", [({},), ({}, {}, {}), ({}, None), ("a.py", "b.py")])
def test_a_tuple_that_is_no_pair_of_dicts_is_refused(pair):
    assert "two dicts" in complaint(pair)


def test_a_relative_path_is_looked_for_beside_the_file_that_names_it(config_file):
    config = load_engine_config("my_dqn_config.py", relative_to=config_file.parent)

    assert config.source == str(config_file)


def test_a_relative_path_is_looked_for_in_the_working_directory_next(
    config_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(config_file.parent)
    (tmp_path / "jobs").mkdir()

    config = load_engine_config("my_dqn_config.py", relative_to=tmp_path / "jobs")

    assert Path(config.source).resolve() == config_file


def test_a_missing_file_names_the_similar_ones(config_file):
    text = complaint(config_file.with_name("my_dqm_config.py"))

    assert "my_dqm_config.py: no such file" in text
    assert "did you mean 'my_dqn_config.py'?" in text


def test_a_missing_folder_is_named(tmp_path):
    assert f"no folder {tmp_path / 'nowhere'}" in complaint(tmp_path / "nowhere" / "config.py")


def test_a_missing_module_names_the_similar_ones():
    assert "did you mean 'cartpole_dqn_config'" in complaint(CARTPOLE.replace("_dqn_", "_dqm_"))


def test_a_missing_package_names_the_similar_ones():
    text = complaint(CARTPOLE.replace("cartpole.", "cartpol."))

    assert "no 'cartpol' in" in text
    assert "'cartpole'" in text


def test_a_package_that_is_not_installed_is_named():
    assert "no package 'dizzoo'" in complaint("dizzoo.classic_control.config")


def test_a_file_without_main_config_says_what_it_defines(tmp_path):
    path = tmp_path / "config.py"
    path.write_text("main_cfg = {}\ncreate_config = {}\n")

    text = complaint(path)

    assert "defines no `main_config`" in text
    assert "'main_cfg'" in text
    assert "no `create_config`" not in text


def test_a_file_that_lacks_both_configs_says_so_at_once(tmp_path):
    path = tmp_path / "config.py"
    path.write_text("")

    text = complaint(path)

    assert "no `main_config`" in text
    assert "no `create_config`" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = = 1", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_file_that_fails_names_its_line_and_the_error(tmp_path, line, message):
    path = tmp_path / "config.py"
    path.write_text(f"main_config = {{}}\n\n{line}\n")

    text = complaint(path)

    assert f"{path}:3: {message}" in text


def test_a_syntax_error_in_an_imported_file_is_not_blamed_on_the_config(tmp_path):
    (tmp_path / "broken_helper.py").write_text("\n\n\n\nx = = 1\n")
    path = tmp_path / "config.py"
    path.write_text("import broken_helper\n")

    text = complaint(path)

    assert f"{path}:5" not in text
    assert "broken_helper.py" in text


def test_a_file_may_import_its_neighbour_and_leaves_no_trace(tmp_path):
    (tmp_path / "neighbour_of_config.py").write_text("STEPS = 5\n")
    path = tmp_path / "config.py"
    path.write_text(
        "from neighbour_of_config import STEPS\n"
        "main_config = dict(nstep=STEPS)\ncreate_config = {}\n"
    )
    before = list(sys.path)

    config = load_engine_config(path)

    assert config.main == {"nstep": 5}
    assert sys.path == before


def test_loading_a_file_twice_gives_independent_values(config_file):
    first, second = load_engine_config(config_file), load_engine_config(config_file)
    first.main["policy"]["nstep"] = 99

    assert second.main["policy"]["nstep"] == 1


def test_loading_a_dizoo_module_imports_neither_ding_nor_torch():
    code = (
        "import sys\n"
        "from ditk_ray.config.engine_config import load_engine_config\n"
        f"load_engine_config({CARTPOLE!r})\n"
        "print([m for m in ('ding', 'torch', 'gym', 'ray') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


BASE = EngineConfig(
    {"policy": {"nstep": 1, "learn": {"lr": 0.1, "sizes": [1, 2], "noise": None}}},
    {"policy": {"type": "dqn"}},
)


def test_an_overlay_sets_the_values_at_the_dotted_paths():
    config = BASE.overlaid(
        {"policy.learn.lr": 0.5, "policy.learn.sizes.1": 9, "policy.learn.new.deep": 1},
        {"policy.type": "rainbow"},
    )

    assert config.main["policy"]["learn"] == {
        "lr": 0.5,
        "sizes": [1, 9],
        "noise": None,
        "new": {"deep": 1},
    }
    assert config.create == {"policy": {"type": "rainbow"}}


def test_an_overlay_never_touches_the_original():
    base = EngineConfig({"a": {"list": [1, {"b": 2}], "t": (1, [2])}}, {"c": {"d": 1}})

    config = base.overlaid({"a.list.0": 5, "a.list.1.b": 6, "a.new": 7}, {"c.d": 8})
    config.main["a"]["t"][1].append(3)

    assert base.main == {"a": {"list": [1, {"b": 2}], "t": (1, [2])}}
    assert base.create == {"c": {"d": 1}}


def test_two_overlays_of_one_dict_do_not_share_it():
    choice = {"sizes": [64, 64]}
    first, second = (EngineConfig({}, {}).overlaid({"model": choice}) for _ in range(2))

    first.main["model"]["sizes"].append(1)

    assert second.main == {"model": {"sizes": [64, 64]}}
    assert choice == {"sizes": [64, 64]}


def test_a_dict_laid_on_a_dict_is_merged_into_it():
    config = BASE.overlaid({"policy": {"learn": {"lr": 0.5}}})

    assert config.main["policy"]["nstep"] == 1
    assert config.main["policy"]["learn"]["lr"] == 0.5
    assert config.main["policy"]["learn"]["sizes"] == [1, 2]


def test_a_list_laid_on_a_list_replaces_it():
    assert BASE.overlaid({"policy.learn.sizes": [7]}).main["policy"]["learn"]["sizes"] == [7]


def test_a_later_path_may_go_into_an_earlier_value():
    config = BASE.overlaid({"policy.learn.sizes": [7, None], "policy.learn.sizes.1": 8})

    assert config.main["policy"]["learn"]["sizes"] == [7, 8]


def test_a_path_below_a_none_makes_a_dict_of_it():
    config = BASE.overlaid({"policy.learn.noise.sigma": 0.1})

    assert config.main["policy"]["learn"]["noise"] == {"sigma": 0.1}


def test_an_item_of_a_tuple_can_be_set():
    base = EngineConfig({"kernel": (3, 5)}, {})

    assert list(base.overlaid({"kernel.1": 7}).main["kernel"]) == [3, 7]
    assert base.main == {"kernel": (3, 5)}


@pytest.mark.parametrize(
    ("entry", "function"),
    [
        ("serial", "serial_pipeline"),
        ("serial_onpolicy", "serial_pipeline_onpolicy"),
        ("serial_offline", "serial_pipeline_offline"),
        ("serial_reward_model", "serial_pipeline_reward_model_offpolicy"),
        ("serial_trex_onpolicy", "serial_pipeline_preference_based_irl_onpolicy"),
        ("serial_pipeline_bc", "serial_pipeline_bc"),
    ],
)
def test_an_entry_is_known_by_its_short_and_its_full_name(entry, function):
    assert entry_function_name(entry) == function


def test_the_entries_are_exactly_the_serial_pipelines_that_di_engine_exports():
    ding = Path(importlib.util.find_spec("ding").submodule_search_locations[0])
    exports = (ding / "entry" / "__init__.py").read_text()

    assert set(SERIAL_ENTRIES.values()) == set(re.findall(r"\bserial_pipeline\w*", exports))


@pytest.mark.parametrize(
    ("wrong", "right"), [("serial_onpolcy", "serial_onpolicy"), ("Serial", "serial")]
)
def test_an_unknown_entry_names_the_similar_ones(wrong, right):
    with pytest.raises(ValueError, match=f"unknown entry '{wrong}'; did you mean '{right}'"):
        entry_function_name(wrong)


@pytest.mark.parametrize("entry", ["parallel", "dist", "eval"])
def test_what_ding_runs_that_cannot_be_a_trial_is_not_an_entry(entry):
    with pytest.raises(ValueError, match=f"unknown entry '{entry}'"):
        entry_function_name(entry)
