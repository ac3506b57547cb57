"""Finding `JobCfg` classes in files, and loading one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ditk_ray
from ditk_ray.config.job_files import JobEntry, find_job, list_jobs, load_job
from ditk_ray.errors import BadConfigError

SHIPPED = {"CartpoleDQNJobCfg", "CartpolePPOJobCfg", "PendulumSACJobCfg"}
JOBS = '''
from ray import tune
import ditk_ray
from ditk_ray import JobCfg

class FirstJob(JobCfg):
    """The first one.

    With more to say."""

    config = ({"lr": 0.1}, {})
    space = {"lr": tune.uniform(0, 1)}

class SecondJob(FirstJob):
    num_samples = 5

class ThirdJob(ditk_ray.JobCfg):
    pass

class _Hidden(JobCfg):
    pass

class OfHidden(_Hidden):
    config = ({}, {})

class Other:
    pass

class MyStopper(tune.Stopper):
    def __call__(self, trial_id, result):
        return True

    def stop_all(self):
        return False
'''


@pytest.fixture
def jobs_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_jobs.py"
    path.write_text(JOBS)
    return path


def test_the_classes_of_a_file_are_listed_with_the_first_line_of_their_docstrings(jobs_file):
    assert list_jobs(jobs_file) == [
        JobEntry("FirstJob", jobs_file, "The first one."),
        JobEntry("SecondJob", jobs_file, ""),
        JobEntry("ThirdJob", jobs_file, ""),
        JobEntry("OfHidden", jobs_file, ""),
    ]


def test_a_file_in_another_encoding_is_read_as_python_reads_it(tmp_path):
    path = tmp_path / "job.py"
    text = '# coding: latin-1\nraise SystemExit\nclass A(JobCfg):\n    """F\xfcr Erika."""\n'
    path.write_bytes((text + "class B(Imported): pass\n").encode("latin-1"))

    assert list_jobs(path) == [JobEntry("A", path, "F\xfcr Erika.")]
    assert find_job("B", path).name == "B"


def test_a_file_that_only_python_can_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "job.py"
    path.touch()

    def refuse(self):
        raise OSError("Stale file handle")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BadConfigError, match=r"job.py: cannot be read: Stale file handle"):
        list_jobs(path)


def test_listing_runs_no_file(tmp_path):
    marker = tmp_path / "was_run"
    path = tmp_path / "job.py"
    path.write_text(f"open({str(marker)!r}, 'w')\nimport no_such_module\nclass A(JobCfg): pass\n")

    assert [entry.name for entry in list_jobs(path)] == ["A"]
    assert find_job("A", path).name == "A"
    assert not marker.exists()


def test_the_jobs_of_the_working_directory_come_before_the_shipped_ones(tmp_path, monkeypatch):
    (tmp_path / "job_cfgs").mkdir()
    (tmp_path / "job_cfgs" / "mine.py").write_text("class Mine(JobCfg): pass\n")
    monkeypatch.chdir(tmp_path)

    names = [entry.name for entry in list_jobs()]

    assert names[0] == "Mine"
    assert set(names[1:]) >= SHIPPED


def test_the_shipped_jobs_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert {entry.name for entry in list_jobs()} >= SHIPPED
    assert find_job("CartpoleDQNJobCfg").file.name == "cartpole.py"


@pytest.mark.parametrize(("project", "here"), [("a", "b"), ("b", "a")])
def test_a_job_of_ones_own_hides_the_shipped_one_of_the_same_name(tmp_path, project, here):
    package = Path(ditk_ray.__file__).parent
    shutil.copytree(package, tmp_path / project / "ditk_ray")
    for folder in (project, here):
        (tmp_path / folder / "job_cfgs").mkdir(parents=True)
        (tmp_path / folder / "job_cfgs" / "jobs.py").write_text("class SameJob(JobCfg): pass\n")
    code = "from ditk_ray.config.job_files import find_job; print(find_job('SameJob').file)"

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / here,
        env={**os.environ, "PYTHONPATH": str(tmp_path / project)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert Path(done.stdout.strip()) == tmp_path / here / "job_cfgs" / "jobs.py"


def complaint(*arguments: object) -> str:
    with pytest.raises(BadConfigError) as caught:
        find_job(*arguments)
    return str(caught.value)


def test_an_unknown_class_names_the_similar_ones():
    text = complaint("CartpoleDqnJobCgf")

    assert "--cfg_class CartpoleDqnJobCgf: no such class in job_cfgs/" in text
    assert "did you mean 'CartpoleDQNJobCfg'" in text


def test_an_unknown_class_of_a_file_lists_what_the_file_has(jobs_file):
    text = complaint("Zzz", jobs_file)

    assert str(jobs_file) in text
    assert "FirstJob, OfHidden, SecondJob, ThirdJob" in text


def test_a_file_without_jobs_says_so(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("")

    assert "there is no JobCfg at all" in complaint("Any", path)


def test_a_file_with_one_job_needs_no_class(tmp_path):
    path = tmp_path / "job.py"
    path.write_text("class Only(JobCfg): pass\n")

    assert find_job(None, path).name == "Only"


def test_a_file_with_several_jobs_needs_a_class(jobs_file):
    assert "FirstJob, SecondJob, ThirdJob, OfHidden" in complaint(None, jobs_file)


def test_without_a_file_a_class_is_needed():
    text = complaint(None)

    assert "--cfg_class: is needed" in text
    assert "PendulumSACJobCfg" in text


@pytest.mark.parametrize("use", [lambda path: find_job("A", path), list_jobs])
def test_a_missing_file_names_the_similar_ones(jobs_file, use):
    with pytest.raises(BadConfigError) as caught:
        use(jobs_file.with_name("my_job.py"))

    assert "no such file" in str(caught.value)
    assert "'my_jobs.py'" in str(caught.value)


def test_a_syntax_error_names_its_line(tmp_path):
    path = tmp_path / "job.py"
    path.write_text("\n\nclass A(JobCfg:\n")

    assert f"{path}:3: SyntaxError" in complaint("A", path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "job.py"
    path.write_bytes(b"x = '\xff\xfe'\n")

    assert str(path) in complaint("A", path)


def test_a_job_is_loaded_and_checked(jobs_file):
    spec = load_job("SecondJob", jobs_file, {"set": {"+extra": 1}})

    assert (spec.name, spec.num_samples, spec.file) == ("SecondJob", 5, jobs_file)
    assert [item.name for item in spec.space.parameters] == ["lr", "extra"]


def test_a_job_knows_its_file_from_any_folder(jobs_file, monkeypatch):
    monkeypatch.chdir(jobs_file.parent)
    assert load_job("FirstJob", Path(jobs_file.name)).file == jobs_file


def test_a_class_that_only_looks_like_a_job_is_refused(tmp_path):
    path = tmp_path / "job.py"
    path.write_text("class FakeJobCfg: pass\nclass A(FakeJobCfg): pass\n")

    with pytest.raises(BadConfigError, match=r"A: is not a subclass of ditk_ray\.JobCfg"):
        load_job("A", path)


def test_a_stopper_is_found_by_the_name_of_its_class_in_the_file(jobs_file):
    spec = load_job("FirstJob", jobs_file, {"stopper": "MyStopper"})

    assert spec.stopper.__name__ == "MyStopper"


def test_an_unknown_stopper_class_names_the_similar_ones(jobs_file):
    with pytest.raises(BadConfigError) as caught:
        load_job("FirstJob", jobs_file, {"stopper": "MyStoper"})

    assert "--stopper MyStoper: no such class" in str(caught.value)
    assert "'MyStopper'" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text"),
    [("stopper", "eval_value>=195"), ("stopper", "nan"), ("progress_reporter", "plain")],
)
def test_a_rule_and_a_named_reporter_are_no_classes(jobs_file, key, text):
    assert getattr(load_job("FirstJob", jobs_file, {key: text}), key) == text


@pytest.mark.parametrize(
    ("name", "entry", "env"),
    [
        ("CartpoleDQNJobCfg", "serial", "cartpole"),
        ("CartpolePPOJobCfg", "serial_onpolicy", "cartpole"),
        ("PendulumSACJobCfg", "serial", "pendulum"),
    ],
)
def test_a_shipped_job_loads(name, entry, env):
    spec = load_job(name)

    assert (spec.name, spec.entry) == (name, entry)
    assert spec.config.create["env"]["type"] == env
    assert len(spec.space.tune_space()) >= 3


def test_loading_the_shipped_jobs_imports_neither_ding_nor_torch():
    code = (
        "import sys\n"
        "from ditk_ray.config.job_files import list_jobs, load_job\n"
        "jobs = list_jobs()\n"
        "light = [m for m in ('ray', 'pydantic', 'numpy') if m in sys.modules]\n"
        f"[load_job(name) for name in {sorted(SHIPPED)}]\n"
        "print(light, [m for m in ('ding', 'torch', 'gym', 'mlflow') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[] []"
