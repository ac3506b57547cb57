"""The script of a trial in a pod, run as the pod runs it."""

from __future__ import annotations

import ast
import importlib
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.space import build_space
from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob import pod_runner
from ditk_ray.dijob.pod_script import render_pod_script
from ditk_ray.errors import BadConfigError
from ditk_ray.execution.executor import Ended
from ditk_ray.trial import evaluation_hook, outcome
from ditk_ray.util.python_file import load_python_file
from tests.dijob.pod_image import PodImage, PodRun
from tests.trial.experiments import CARTPOLE, attempt_here, make_plan
from tests.trial.test_attempt import run_to_end

PLAIN = EngineConfig({"policy": {"rate": 0.25}}, {"env": {"type": "none"}})

CONFIG = """
from easydict import EasyDict


def schedule(step):
    return 1 / (1 + step)


main_config = EasyDict(dict(exp_name="own", policy=dict(rate=0.25, schedule=schedule)))
create_config = EasyDict(dict(env=dict(type="none")))

if __name__ == "__main__":
    raise SystemExit("this is not asked for")
"""

MAIN = """
'''A config with a main block.'''

from __future__ import annotations

import sys

from easydict import EasyDict
from trainings import evaluate

own_config = EasyDict(dict(exp_name="own", policy=dict(rate=0.25, learn=dict(batch=2))))
main_config = own_config
create_config = EasyDict(dict(env=dict(type="none")))


def train():
    evaluate({"eval_episode_return": [own_config.policy.rate, main_config.policy.learn.batch]})


if __name__ == "__main__":
    train()
    sys.exit()
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodImage:
    """An image whose DI-engine is a stand-in: enough for a user's own entries, and quick."""
    made = PodImage(tmp_path / "image")
    made.make()
    monkeypatch.syspath_prepend(str(made.packages))
    return made


@pytest.fixture
def trainings(image: PodImage) -> Any:
    importlib.invalidate_caches()
    import trainings

    return importlib.reload(trainings)


@pytest.fixture
def run(image: PodImage, trainings: Any, tmp_path: Path) -> Callable[..., PodRun]:
    """Run a function of the image as the entry of a trial."""

    def run_it(
        name: str, base: EngineConfig = PLAIN, cwd: Path | None = None, **env: str
    ) -> PodRun:
        text = rendered(tmp_path, entry=getattr(trainings, name), base=base)
        return image.run(text, cwd, **env)

    return run_it


def rendered(folder: Path, drawn: Any = None, seed: int = 0, **changes: Any) -> str:
    plan = make_plan(folder, **{"base": PLAIN, "limits": {}, **changes})
    return render_pod_script(plan.config_of(drawn or {}), plan.call_of(seed), "A trial.")


def written(folder: Path, text: str, name: str = "own_config.py") -> EngineConfig:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return load_engine_config(path)


def kinds(run: PodRun) -> list[str]:
    said = [message.said for message in run.messages]
    return [each.kind if isinstance(each, Ended) else type(each).__name__ for each in said]


def test_all_that_goes_into_a_pod_is_python_3_8(tmp_path):
    for base in (PLAIN, written(tmp_path, CONFIG)):
        ast.parse(rendered(tmp_path, base=base), feature_version=(3, 8))
    for module in (evaluation_hook, pod_runner, outcome):
        ast.parse(Path(module.__file__).read_text(), feature_version=(3, 8))


def test_an_importable_function_trains_and_what_it_returns_is_told(run):
    ran = run("score")
    assert ran.code == 0
    assert [message.n for message in ran.messages] == [1, 2, 3]
    evaluation, result, end = (message.said for message in ran.messages)
    assert evaluation.metrics["eval_value"] == 0.125
    assert pickle.loads(result) == {"own": 0.5}
    assert end == Ended(returned={"own": 0.5})


def test_the_seed_and_the_drawn_values_are_in_the_script(image, trainings, tmp_path):
    space = build_space({"policy.rate": 1.0})
    text = rendered(tmp_path, entry=trainings.score, seed=3, space=space)
    ran = image.run(text)
    assert ran.evaluations[0].metrics["eval_value"] == 2.0


@pytest.mark.parametrize(
    ("entry", "failure", "message"),
    [
        ("fail", FailureKind.BUG, "ValueError: no such luck (trainings.py:"),
        ("run_out_of_memory", FailureKind.OUT_OF_MEMORY, "RuntimeError: an environment died"),
        ("fill_the_disk", FailureKind.DISK_FULL, "No space left on device"),
        ("lose_a_thread", FailureKind.OUT_OF_MEMORY, "MemoryError: no room"),
        ("leave", FailureKind.BUG, "SystemExit: 3"),
    ],
)
def test_a_training_that_raises_ends_with_what_it_failed_of(run, entry, failure, message):
    ran = run(entry)
    assert ran.code == 1
    assert kinds(ran) == ["failed"]
    (error,) = ran.ends
    assert error.failure is failure
    assert message in error.error
    assert "Traceback (most recent call last)" in ran.log


def test_a_policy_that_diverged_is_told_as_such(run):
    ran = run("diverge")
    assert ran.code == 1
    assert kinds(ran) == ["diverged"]
    assert "Traceback" in ran.log


def test_numbers_that_json_has_not_arrive(run):
    (evaluation,) = run("lose_numbers").evaluations
    assert math.isnan(evaluation.metrics["eval_value"])
    assert (evaluation.metrics["high"], evaluation.metrics["low"]) == (math.inf, -math.inf)


@pytest.mark.parametrize("entry", ["say_much", "fail_badly", "return_a_large_result"])
def test_no_marked_line_is_so_long_that_a_container_runtime_would_split_it(run, entry):
    ran = run(entry)
    assert all(len(line.encode()) < 8192 for line in ran.marked)
    assert ran.messages


def test_of_too_many_metrics_ours_are_kept(run):
    (evaluation,) = run("say_much").evaluations
    assert {"eval_value", "env_step", "train_iter", "time", "metric_000"} <= set(evaluation.metrics)


def test_a_result_in_many_parts_is_the_one_that_was_written(run, image):
    ran = run("return_a_large_result")
    assert len([line for line in ran.marked if '"result"' in line]) == 4
    (result,) = ran.results
    assert result == (image.folder / "work/job-0/deep/result.pkl").read_bytes()


def test_a_message_is_read_after_a_line_without_an_end(run):
    assert kinds(run("print_then_score")) == ["Evaluated", "finished"]


def test_a_working_directory_that_cannot_be_written_is_no_hindrance(run, tmp_path):
    ran = run("score", cwd=Path("/proc"), TMPDIR=str(tmp_path))
    assert ran.code == 0
    (folder,) = tmp_path.glob("job-0-*")
    assert (folder / "result.pkl").is_file()


def test_a_second_run_in_the_same_place_has_a_folder_of_its_own(run, image):
    for _ in range(2):
        assert run("score").code == 0
    assert len(list((image.folder / "work").glob("job-0*/result.pkl"))) == 2


def test_the_result_is_also_put_under_the_project_path(run, tmp_path):
    ran = run("score", DITK_RAY_PROJECT=str(tmp_path / "project"))
    kept = tmp_path / "project/job-0/result.pkl"
    assert kept.read_bytes() == ran.results[0]
    assert [path.name for path in kept.parent.iterdir()] == ["result.pkl"]


def test_a_project_path_that_cannot_be_written_does_not_fail_the_trial(run):
    ran = run("score", DITK_RAY_PROJECT="/proc/nowhere")
    assert ran.code == 0
    assert "the result is not in /proc/nowhere" in ran.log


def test_a_config_with_a_function_goes_along_as_its_file(image, trainings, tmp_path):
    space = build_space({"policy.rate": 4.0})
    base = written(tmp_path, CONFIG)
    ran = image.run(rendered(tmp_path, base=base, space=space, entry=trainings.score))
    assert ran.code == 0
    assert ran.evaluations[0].metrics["eval_value"] == 2.0
    ran = image.python("-c", "from config import main_config as c; print(c.policy.schedule(1))")
    assert ran.code == 1  # it is not beside this process
    ran = image.python(
        "-c",
        "import sys; sys.path.insert(0, '../etc')\n"
        "from config import main_config as c; print(c.policy.schedule(1), c.policy.rate)",
    )
    assert ran.log == "0.5 4.0\n"


def test_imported_outside_of_a_trial_the_script_does_nothing(image, trainings, tmp_path):
    image.write(rendered(tmp_path, entry=trainings.fail))
    code = "import sys; sys.path.insert(0, '../etc'); import config; from trainings import *"
    use = "evaluate({'eval_episode_return': [1.0]}); print(config.main_config.policy.rate)"
    ran = image.python("-c", f"{code}; {use}")
    assert (ran.code, ran.log) == (0, "0.25\n")
    assert list((image.folder / "work").iterdir()) == []


def test_a_system_config_is_part_of_the_script(image, tmp_path):
    for name, text in (("plain", PLAIN_SYSTEM), ("own", f"{CONFIG}\n{SYSTEM}")):
        base = written(tmp_path, text, f"{name}_config.py")
        image.write(rendered(tmp_path, base=base))
        ran = image.python("-c", _SHOW_SYSTEM)
        assert ran.log == "2 True\n"


SYSTEM = "system_config = EasyDict(dict(coordinator=dict(learners=2), path=None))\n"
PLAIN_SYSTEM = f"""
from easydict import EasyDict

main_config = EasyDict(dict(policy=dict(rate=1)))
create_config = EasyDict(dict(env=dict(type="none")))
{SYSTEM}
"""
_SHOW_SYSTEM = """
import sys
sys.path.insert(0, '../etc')
from config import system_config
print(system_config.coordinator.learners, system_config.path is None)
"""


@pytest.mark.parametrize("schedule", ["1.0", "half"], ids=["literal", "function"])
def test_a_config_in_a_package_may_import_its_neighbours(image, trainings, tmp_path, schedule):
    package = image.packages / "zoo/configs"
    package.mkdir(parents=True)
    (package / "shared.py").write_text("LEARNERS = 2\n\n\ndef half(step):\n    return step / 2\n")
    text = f"from .shared import LEARNERS, half\n{PLAIN_SYSTEM}".replace("=2", "=LEARNERS")
    (package / "own.py").write_text(f"{text}\nmain_config.policy.schedule = {schedule}\n")
    importlib.invalidate_caches()
    base = load_engine_config("zoo.configs.own")
    ran = image.run(rendered(tmp_path, base=base, entry=trainings.score))
    assert ran.code == 0, ran.log
    assert image.python("-c", _SHOW_SYSTEM).log == "2 True\n"


def test_an_entry_that_no_image_can_have_is_refused(trainings, tmp_path):
    (tmp_path / "my_job.py").write_text("def train(config):\n    pass\n")
    own = load_python_file(tmp_path / "my_job.py").train
    for entry, reason in (
        (lambda config: None, "has no name of its own"),
        (trainings.Trainer().train, "has no name of its own"),
        (own, "is not a module of a package"),
    ):
        with pytest.raises(BadConfigError, match=reason) as caught:
            rendered(tmp_path, entry=entry)
        assert "put it into a package that the image has" in str(caught.value)


def test_a_config_that_no_file_holds_is_refused(tmp_path):
    base = EngineConfig({"policy": {"schedule": print}}, {})
    with pytest.raises(BadConfigError, match="comes from no file"):
        rendered(tmp_path, base=base)


def test_a_main_block_is_run_with_the_values_of_the_trial(image, trainings, tmp_path):
    space = build_space({"policy.rate": 3.0, "policy.learn.batch": 5})
    text = rendered(tmp_path, base=written(tmp_path, MAIN), space=space, entry="main")
    ast.parse(text, feature_version=(3, 8))
    ran = image.run(text)
    assert kinds(ran) == ["Evaluated", "finished"], ran.log
    assert ran.evaluations[0].metrics["eval_value"] == 4.0


def test_an_error_in_a_main_block_shows_its_own_line(image, trainings, tmp_path):
    text = MAIN.replace("sys.exit()", 'raise ValueError("no such luck")')
    ran = image.run(rendered(tmp_path, base=written(tmp_path, text), entry="main"))
    assert ran.code == 1
    assert 'raise ValueError("no such luck")' in ran.log
    assert "ValueError: no such luck (own_config.py:" in ran.ends[0].error


def scores(metrics: list[Any]) -> list[Any]:
    keys = ("env_step", "train_iter", "eval_value", "eval_value_std", "eval_value_min")
    return [[row[key] for key in keys] for row in metrics]


@pytest.mark.engine
def test_a_trial_scores_in_a_pod_what_it_scores_here(warm, image, tmp_path):
    changes = {"base": load_engine_config(CARTPOLE), "limits": {"max_env_step": 300}}
    space = build_space({"policy.learn.learning_rate": 0.003})
    plan = make_plan(tmp_path, space=space, seeds=(7,), **changes)
    *here, end = run_to_end(attempt_here(plan, {}, tmp_path / "trial", warm))
    text = rendered(tmp_path, seed=7, space=space, **changes)
    ran = PodImage(image.folder, has_engine=True).run(text)
    assert ran.code == 0, ran.log
    assert kinds(ran) == [*["Evaluated"] * len(here), "bytes", "finished"]
    assert scores([one.metrics for one in ran.evaluations]) == scores(here)
    result = pickle.loads(ran.results[0])
    assert result["eval_value"] == end["eval_value"]


@pytest.mark.engine
def test_ding_trains_the_script_as_a_config_and_reports(image, tmp_path):
    base = load_engine_config(CARTPOLE)
    script = image.write(rendered(tmp_path, base=base))
    train = f"serial_pipeline({str(script)!r}, seed=0, max_env_step=100)"
    ran = PodImage(image.folder, has_engine=True).python(
        "-c", f"from ding.entry import serial_pipeline; {train}", DITK_RAY_TRIAL="trial_00000"
    )
    assert ran.code == 0, ran.log
    assert set(kinds(ran)) == {"Evaluated"}
    assert ran.evaluations[0].metrics["env_step"] == 0


CARTPOLE_MAIN = """
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import main_config, create_config

if __name__ == "__main__":
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=200)
"""


@pytest.mark.engine
def test_a_main_block_scores_the_same_here_in_a_pod_and_by_plain_python(warm, image, tmp_path):
    base = written(tmp_path, CARTPOLE_MAIN)
    space = build_space({"policy.learn.learning_rate": 0.01})
    plan = make_plan(tmp_path, base=base, space=space, entry="main", limits={})
    *here, end = run_to_end(attempt_here(plan, {}, tmp_path / "trial", warm))
    engine = PodImage(image.folder, has_engine=True)
    ran = engine.run(render_pod_script(plan.config_of({}), plan.call_of(0), "A trial."))
    assert scores([one.metrics for one in ran.evaluations]) == scores(here)
    assert kinds(ran)[-2:] == ["bytes", "finished"]
    alone = engine.python(str(tmp_path / "trial/config.py"))
    assert alone.code == 0, alone.log
    (result,) = (image.folder / "work").glob("cartpole*/result.pkl")
    assert pickle.loads(result.read_bytes())["eval_value"] == end["eval_value"]
