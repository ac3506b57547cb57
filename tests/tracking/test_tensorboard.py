"""Runs on a real MLflow server become event files that TensorBoard itself reads."""

from __future__ import annotations

import math
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunData, RunInfo, RunTag
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from ditk_ray.errors import BadConfigError, DitkRayError, StoreUnreachableError
from ditk_ray.tracking import mlflow_store
from ditk_ray.tracking.mlflow_store import StoredExperiment
from ditk_ray.tracking.tensorboard import RunExport, export_experiment, run_folders
from tests.processes import PATIENCE, free_port, wait_until
from tests.tracking.mlflow_proxy import Proxy

pytestmark = pytest.mark.mlflow


@pytest.fixture
def mlflow_uri(mlflow_server, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    return mlflow_server.uri


@pytest.fixture
def client(mlflow_uri):
    return MlflowClient(mlflow_uri)


@pytest.fixture
def proxy(mlflow_uri):
    proxy = Proxy(mlflow_uri)
    yield proxy
    if not proxy.is_gone:
        proxy.shut()


@pytest.fixture
def name(request):
    """An experiment of the test's own."""
    return request.node.name


@pytest.fixture
def three_runs(client, name):
    """An experiment with three runs that have ended; returns their ids."""
    experiment = client.create_experiment(name)
    return [add_run(client, experiment, f"run {number}") for number in range(3)]


def add_run(client, experiment, run_name, points=4, parent=None, ended=True):
    tags = {"mlflow.parentRunId": parent} if parent else {}
    run_id = client.create_run(experiment, tags=tags, run_name=run_name).info.run_id
    log(client, run_id, range(points))
    params = {"policy.learn.lr": "0.001", "seed": str(points), "eps.type": "exp", "her": "True"}
    client.log_batch(run_id, params=[Param(key, value) for key, value in params.items()])
    if ended:
        client.set_terminated(run_id)
    return run_id


def log(client, run_id, steps):
    values = [
        Metric(key, step * factor + 0.1, 1_700_000_000_000 + 7 * step, 100 * step)
        for step in steps
        for key, factor in (("eval_value", 1.5), ("loss/td error: mean", -2))
    ]
    client.log_batch(run_id, values)


def export(uri, name, target, workers=4) -> dict[str, RunExport]:
    told: list[RunExport] = []
    export_experiment(StoredExperiment(uri, name), target, workers, told.append)
    return {item.run_id: item for item in told}


def events(folder) -> EventAccumulator:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return read.Reload()


def as_float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def points_in(folder):
    read = events(folder)
    return {
        key: [(item.step, round(item.wall_time * 1000), item.value) for item in read.Scalars(key)]
        for key in read.Tags()["scalars"]
    }


def points_on(client, run_id):
    return {
        key: [
            (item.step, item.timestamp, as_float32(item.value))
            for item in client.get_metric_history(run_id, key)
        ]
        for key in client.get_run(run_id).data.metrics
    }


def assert_complete(client, done, run_ids):
    """Compare every point of every run, and see that there is nothing else."""
    for run_id in run_ids:
        assert points_in(done[run_id].folder) == points_on(client, run_id)
        assert len(list(done[run_id].folder.glob("*tfevents*"))) == 1


def test_every_point_arrives_with_its_step_and_time_and_below_its_parents_folder(
    client, mlflow_uri, name, tmp_path
):
    experiment = client.create_experiment(name)
    parent = add_run(client, experiment, "a sweep/of mine", points=1)
    children = [add_run(client, experiment, f"trial_{n}", 5 + n, parent) for n in range(3)]
    grandchild = add_run(client, experiment, "seed", parent=children[0])

    done = export(mlflow_uri, name, tmp_path / "tb")

    assert set(done) == {parent, *children, grandchild}
    assert {item.outcome for item in done.values()} == {"written"}
    assert_complete(client, done, done)
    above = tmp_path / "tb" / f"a_sweep_of_mine_{parent[:8]}"
    assert done[parent].folder == above
    assert done[children[1]].folder == above / f"trial_1_{children[1][:8]}"
    assert done[grandchild].folder.parent == done[children[0]].folder


def test_numbers_that_are_none_are_kept_and_no_name_is_changed(client, mlflow_uri, name, tmp_path):
    run_id = client.create_run(client.create_experiment(name)).info.run_id
    odd = {"nan": math.nan, "up": math.inf, "down": -math.inf, "a b": 1.0, "a_b": 2.0}
    client.log_batch(run_id, [Metric(key, value, 5, -3) for key, value in odd.items()])

    (done,) = export(mlflow_uri, name, tmp_path).values()

    found = {key: values[0][2] for key, values in points_in(done.folder).items()}
    assert math.isnan(found.pop("nan"))
    assert found == {"up": math.inf, "down": -math.inf, "a b": 1.0, "a_b": 2.0}
    assert points_in(done.folder)["a b"][0][:2] == (-3, 5)


def test_parameters_and_tags_are_text_and_parameters_can_be_compared(
    client, mlflow_uri, name, tmp_path
):
    run_id = add_run(client, client.create_experiment(name), "one")
    client.log_batch(run_id, tags=[RunTag("note", "a | b\nc")], params=[Param("long", "x" * 900)])

    (done,) = export(mlflow_uri, name, tmp_path).values()

    read = events(done.folder)
    text = {
        key: read.Tensors(f"{key}/text_summary")[0].tensor_proto.string_val[0].decode()
        for key in ("params", "tags")
    }
    assert "| policy.learn.lr | 0.001 |" in text["params"]
    assert f"| long | {'x' * 900} |" in text["params"]
    assert "| note | a \\| b c |" in text["tags"]
    content = read.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["policy.learn.lr"].number_value == 0.001
    assert hparams["eps.type"].string_value == "exp"
    assert hparams["her"].bool_value is True
    assert "_hparams_/experiment" not in read.PluginTagToContent("hparams")


def test_only_what_is_new_is_downloaded_again(client, proxy, name, three_runs, tmp_path):
    ended, late, _ = three_runs
    experiment = client.get_experiment_by_name(name).experiment_id
    running = add_run(client, experiment, "running", ended=False)
    idle = add_run(client, experiment, "idle", ended=False)
    first = export(proxy.uri, name, tmp_path)
    proxy.asked.clear()
    log(client, running, range(4, 9))
    log(client, late, [50])
    new = add_run(client, experiment, "new")

    second = export(proxy.uri, name, tmp_path)

    assert set(proxy.asked) == {running, idle, late, new}
    written = {item.run_id for item in second.values() if item.outcome == "written"}
    assert written == {running, idle, late, new}
    assert second[ended].points == first[ended].points == 8
    assert_complete(client, second, second)


@pytest.mark.parametrize("lose", [Path.unlink, lambda file: os.truncate(file, 0)])
def test_a_file_that_was_deleted_or_lost_its_content_is_written_anew(
    client, mlflow_uri, name, three_runs, tmp_path, lose
):
    gone = three_runs[0]
    first = export(mlflow_uri, name, tmp_path)
    lose(next(first[gone].folder.glob("*tfevents*")))

    second = export(mlflow_uri, name, tmp_path)

    written = {run_id for run_id, item in second.items() if item.outcome == "written"}
    assert written == {gone}
    assert_complete(client, second, three_runs)


def test_a_file_is_on_the_disk_before_it_has_its_name(
    mlflow_uri, name, three_runs, tmp_path, monkeypatch
):
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )

    done = export(mlflow_uri, name, tmp_path)

    assert sorted(synced) == sorted(item.folder / ".partial" for item in done.values())


def test_a_renamed_run_moves_with_its_children_and_is_not_there_twice(
    client, mlflow_uri, name, tmp_path
):
    experiment = client.create_experiment(name)
    parent = add_run(client, experiment, "old")
    child = add_run(client, experiment, "child", parent=parent)
    export(mlflow_uri, name, tmp_path)
    client.update_run(parent, name="new")

    done = export(mlflow_uri, name, tmp_path)

    assert done[parent].folder.name == f"new_{parent[:8]}"
    assert_complete(client, done, [parent, child])
    assert len(list(tmp_path.rglob("*tfevents*"))) == 2
    assert list(tmp_path.glob("old*")) == []


def test_there_may_be_more_runs_and_experiments_than_a_page_holds(
    client, mlflow_uri, name, three_runs, tmp_path, monkeypatch
):
    monkeypatch.setattr(mlflow_store, "PAGE_SIZE", 1)

    assert set(export(mlflow_uri, name, tmp_path)) == set(three_runs)
    with pytest.raises(BadConfigError, match=name):
        StoredExperiment(mlflow_uri, f"{name}_")


def test_a_history_may_be_longer_than_a_page(client, mlflow_uri, name, tmp_path, monkeypatch):
    page_size = "mlflow.tracking._tracking_service.client.GET_METRIC_HISTORY_MAX_RESULTS"
    monkeypatch.setattr(page_size, 100)
    run_id = client.create_run(client.create_experiment(name)).info.run_id
    client.log_batch(run_id, [Metric("loss", step / 7, step, step) for step in range(350)])

    (done,) = export(mlflow_uri, name, tmp_path).values()

    assert done.points == 350
    expected = [(step, step, as_float32(step / 7)) for step in range(350)]
    assert points_in(done.folder) == {"loss": expected}


def test_a_run_that_fails_does_not_keep_the_others_back_and_comes_with_the_next_try(
    client, proxy, name, three_runs, tmp_path
):
    bad = three_runs[1]
    proxy.refused.add(bad)

    done = export(proxy.uri, name, tmp_path)

    assert Counter(item.outcome for item in done.values()) == {"written": 2, "failed": 1}
    assert "not this one" in done[bad].error
    assert list(done[bad].folder.iterdir()) == []
    proxy.refused.clear()
    again = export(proxy.uri, name, tmp_path)
    assert Counter(item.outcome for item in again.values()) == {"written": 1, "kept": 2}
    assert_complete(client, again, three_runs)


def test_a_server_that_goes_away_ends_it_and_what_is_complete_stays(
    client, proxy, name, three_runs, tmp_path
):
    proxy.held.update(three_runs[1:])
    told: list[RunExport] = []

    def take(result: RunExport) -> None:
        told.append(result)
        proxy.shut()

    experiment = StoredExperiment(proxy.uri.replace("//", "//me:pa55@"), name)
    with pytest.raises(StoreUnreachableError, match="refused") as caught:
        export_experiment(experiment, tmp_path, 2, take)
    assert "pa55" not in f"{caught.value} {told}"

    assert [(item.run_id, item.outcome) for item in told[:1]] == [(three_runs[0], "written")]
    assert_complete(client, {three_runs[0]: told[0]}, three_runs[:1])
    assert len(list(tmp_path.rglob("*tfevents*"))) == 1


def test_a_server_that_is_away_is_an_error_within_seconds():
    begun = time.monotonic()
    with pytest.raises(StoreUnreachableError, match=r"no MLflow server answers at .*: .*refused"):
        StoredExperiment(f"http://127.0.0.1:{free_port()}", "any")
    assert time.monotonic() - begun < 5 * PATIENCE


def test_a_server_that_takes_calls_and_never_answers_is_an_error_too(monkeypatch):
    monkeypatch.setattr(mlflow_store, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnreachableError, match="timed out"):
            StoredExperiment(uri, "any")


def test_an_unknown_experiment_is_refused_with_the_names_like_it(client, mlflow_uri, name):
    gone = client.create_experiment(f"{name}_gone")
    client.delete_experiment(gone)
    client.create_experiment(name)

    with pytest.raises(BadConfigError, match=f"no such experiment\n.*{name}'"):
        StoredExperiment(mlflow_uri, name.replace("unknown", "unknwon"))
    with pytest.raises(BadConfigError, match="was deleted"):
        StoredExperiment(mlflow_uri, f"{name}_gone")
    with pytest.raises(DitkRayError, match="has no runs"):
        StoredExperiment(mlflow_uri, name)


@pytest.mark.parametrize("uri", ["sqlite:///{}/no.db", "{}/mlruns", "localhost:5000", "ftp://x"])
def test_a_store_that_is_not_there_is_refused_and_not_made(uri, tmp_path):
    with pytest.raises(BadConfigError):
        StoredExperiment(uri.format(tmp_path), "any")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "no.db").write_text("something else\n" * 100)
    with pytest.raises(BadConfigError, match=r"is not an MLflow store: .*not a database"):
        StoredExperiment(f"sqlite:///{tmp_path}/no.db", "any")


def test_a_killed_export_leaves_no_half_run_and_a_new_one_completes_it(
    client, proxy, name, three_runs, tmp_path
):
    proxy.held.update(three_runs[1:])
    code = (
        "from pathlib import Path\n"
        "from ditk_ray.tracking.mlflow_store import StoredExperiment\n"
        "from ditk_ray.tracking.tensorboard import export_experiment\n"
        f"experiment = StoredExperiment({proxy.uri!r}, {name!r})\n"
        f"export_experiment(experiment, Path({str(tmp_path)!r}), 2, lambda result: None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: set(three_runs) <= set(proxy.asked), 60, "the runs to be asked for")
        wait_until(lambda: list(tmp_path.rglob("*tfevents*")), 60, "the first run to be complete")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10 * PATIENCE)
    assert len(list(tmp_path.rglob(".partial"))) == 2
    (whole,) = tmp_path.rglob("*tfevents*")
    assert points_in(whole.parent) == points_on(client, three_runs[0])
    proxy.opened.set()

    done = export(proxy.uri, name, tmp_path)

    assert {run_id: item.outcome for run_id, item in done.items()} == {
        three_runs[0]: "kept",
        three_runs[1]: "written",
        three_runs[2]: "written",
    }
    assert_complete(client, done, three_runs)
    assert list(tmp_path.rglob(".partial")) == []


def test_two_exports_do_not_write_to_the_same_folder(
    client, mlflow_uri, name, three_runs, tmp_path
):
    def meddle(result: RunExport) -> None:
        with pytest.raises(DitkRayError, match="another export"):
            export(mlflow_uri, name, tmp_path)

    export_experiment(StoredExperiment(mlflow_uri, name), tmp_path, 1, meddle)


def fake_run(run_id: str, name: str, parent: str = "") -> Run:
    info = RunInfo(run_id, "0", "user", "FINISHED", 0, 0, "active", run_name=name)
    tags = [RunTag("mlflow.parentRunId", parent)] if parent else []
    return Run(info, RunData([], [], tags))


def test_folders_are_readable_and_never_shared():
    runs = [
        fake_run("a" * 32, "x"),
        fake_run("b" * 32, "x"),
        fake_run("c" * 32, "../../etc/passwd"),
        fake_run("d" * 32, ""),
        fake_run("e" * 32, "n" * 300, parent="not among them"),
        fake_run("f" * 32, "f", parent="0" * 32),
        fake_run("0" * 32, "o", parent="f" * 32),
    ]
    folders = {run_id: str(path) for run_id, path in run_folders(runs).items()}
    assert folders["a" * 32] == "x_aaaaaaaa"
    assert folders["b" * 32] == "x_bbbbbbbb"
    assert folders["c" * 32] == "etc_passwd_cccccccc"
    assert folders["d" * 32] == "run_dddddddd"
    assert folders["e" * 32] == "n" * 60 + "_eeeeeeee"
    assert len(set(folders.values())) == len(runs)
    assert Path(folders["f" * 32]).parent == Path("o_00000000")
