"""A config file with other values, run as it would be itself."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ditk_ray import JobCfg
from ditk_ray.config.config_file import EntryCall, render_config
from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.job_spec import check_job
from ditk_ray.config.main_block import has_main_block, is_patched, patched_source
from ditk_ray.errors import BadConfigError

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
