"""`ditk-ray dijob`, on a real API server with a stand-in for operator and kubelet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from ditk_ray.cli.main import main
from tests.kube.api_client import DIJOBS
from tests.kube.api_server import ApiServer
from tests.kube.job_files import dijob, task, write, write_job
from tests.processes import PATIENCE, wait_until

pytestmark = pytest.mark.kube

COMMAND = [sys.executable, "-m", "ditk_ray.cli.main", "dijob"]
SWEEP = {"app.kubernetes.io/managed-by": "ditk-ray", "ditk-ray/sweep": "mine-0a1b2c"}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]


@pytest.fixture
def run(
    kube: ApiServer,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Said]:
    """Run a command as somebody whose kubeconfig names the cluster and the namespace."""
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig(namespace=namespace)))

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(["dijob", *arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture
def submit(kube: ApiServer, namespace: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    return lambda body: kube.admin.create(path, body)


def names(kube: ApiServer, namespace: str, kind: str = "dijobs") -> list[str]:
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    if kind == "configmaps":
        path = f"api/v1/namespaces/{namespace}/configmaps"
    return sorted(item["metadata"]["name"] for item in kube.admin.get(path)["items"])


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def with_config(name: str, **data: str) -> list[dict[str, Any]]:
    """Make a job that runs the script in its ConfigMap."""
    job = dijob(name, task("none", "python /etc/config/config.py"))
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "config", "mountPath": "/etc/config"}]
    pod["volumes"] = [{"name": "config", "configMap": {"name": "config-"}}]
    job["spec"]["projectPath"] = "/data"
    return [job, config_map("config-", **data)]


# create


def test_a_config_is_put_into_the_empty_key_and_runs(run, kube, namespace, stand_in, tmp_path):
    config = tmp_path / "config.py"
    config.write_text("print('the text', 'as it is')\n")
    file = write(tmp_path, *with_config("first", **{"config.py": "\n"}))

    made = run("create", "-f", file, "--config", str(config))

    assert (made.code, made.out) == (0, "dijob/first created\n")
    assert run("wait", "first").code == 0
    assert run("logs", "first").out == "the text as it is\n"
    job = stand_in.job("first")
    labels = job["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "ditk-ray" and "ditk-ray/sweep" not in labels
    assert "projectPath" not in job["spec"]
    found = kube.admin.get(f"api/v1/namespaces/{namespace}/configmaps/first")
    assert found["data"] == {"config.py": config.read_text()}
    assert found["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


def test_without_a_config_map_the_config_is_mounted(run, stand_in, tmp_path):
    config = tmp_path / "config.py"
    config.write_text("print(6 * 7)")
    job = dijob("bare", task("none", "python /etc/ditk-ray/config.py"))

    run("create", "-f", write(tmp_path, job), "--config", str(config), "--name", "other")

    assert run("wait", "other").out == "dijob/other succeeded\n"
    assert run("logs", "other").out == "42\n"


def test_a_job_needs_no_config_and_keeps_its_backoff(run, kube, namespace, tmp_path):
    job = dijob("plain", task("none", "true"))
    job["spec"]["backoffLimit"] = 2
    made = run("create", "-f", write(tmp_path, job), "--format", "json")
    assert json.loads(made.out)["spec"]["backoffLimit"] == 2
    assert names(kube, namespace, "configmaps") == []


def test_a_name_that_is_taken_is_said(run, tmp_path):
    file = write_job(tmp_path, "twice", "true")
    assert run("create", "-f", file).code == 0
    again = run("create", "-f", file)
    assert again.code == 1
    assert "another DIJob 'twice' exists" in again.err


@pytest.mark.parametrize(
    ("documents", "arguments", "said"),
    [
        (with_config("job", **{"config.py": ""}), [], "pass --config CONFIG.py"),
        (with_config("job", **{"config.py": "1"}), ["--config", __file__], "holds something"),
        ([dijob("job", task("none", "true"))], ["--name", "A_b"], "is 'A_b'"),
        ([dijob("job", task("none", "true"))], ["--name", "a" * 60], "which has 69 characters"),
        ([dijob("job", task("none", "true"))], ["--config", "nowhere.py"], "cannot be read"),
        ([dijob("job", task("none", "true"), namespace="theirs")], ["--namespace", "a"], "theirs"),
        ([dijob("job")], [], "holds no task"),
        ([dijob("job", task("learner", ":"), task("learner", ":"))], [], "second task of type"),
    ],
)
def test_what_would_not_run_is_refused_before_anything_is_made(
    run, kube, namespace, tmp_path, documents, arguments, said
):
    refused = run("create", "-f", write(tmp_path, *documents), *arguments)
    assert refused.code == 2
    assert said in refused.err
    assert names(kube, namespace) == []


# get and describe


def test_jobs_are_shown_in_kubectls_columns(run, stand_in, submit):
    submit(dijob("ends", task("none", "true")))
    submit(dijob("runs", task("none", "sleep 100"), task("collector", "sleep 100", 2)))
    stand_in.wait_for_phase("ends", "Succeeded")
    stand_in.wait_for_phase("runs", "Running")

    headings, ended, running = run("get").rows

    assert headings == ["NAME", "PHASE", "READY", "REPLICAS", "RESTARTS", "RESCHEDULES", "AGE"]
    assert ended[:2] == ["ends", "Succeeded"] and ended[3:6] == ["1", "0", "0"]
    assert running[:6] == ["runs", "Running", "3", "3", "0", "0"]
    assert [row[:6] for row in run("get", "runs").rows] == [headings[:6], running[:6]]


def test_a_new_job_has_no_phase(run, submit):
    submit(dijob("new", task("none", "true")))
    assert run("get").rows[1][:3] == ["new", "-", "0"]


def test_jobs_of_a_sweep_have_two_columns_more_and_are_found_by_its_name(run, submit):
    labels = {**SWEEP, "ditk-ray/trial": "trial_00003"}
    submit(dijob("of-mine", task("none", "true"), labels=labels))
    submit(dijob("alone", task("none", "true")))

    every, mine = run("get"), run("get", "--sweep", "mine")

    assert every.rows[0][-2:] == ["SWEEP", "TRIAL"]
    assert [row[0] for row in mine.rows] == ["NAME", "of-mine"]
    assert mine.rows[1][-2:] == ["mine-0a1b2c", "trial_00003"]
    assert run("get", "--sweep", "mine-0a1b2c").rows[1][0] == "of-mine"
    wrong = run("get", "--sweep", "mien")
    assert wrong.code == 2 and "did you mean 'mine'" in wrong.err


def test_a_name_that_several_sweeps_have_is_asked_about(run, submit):
    for key in ("mine-0a1b2c", "mine-ffffff"):
        submit(dijob(key, task("none", "true"), labels={"ditk-ray/sweep": key}))
    asked = run("get", "--sweep", "mine")
    assert asked.code == 2 and "name one: mine-0a1b2c, mine-ffffff" in asked.err


def test_json_and_yaml_are_what_the_api_server_says(run, submit):
    made = submit(dijob("data", task("none", "true")))
    one = json.loads(run("get", "data", "--format", "json").out)
    assert (one["kind"], one["spec"]) == ("DIJob", made["spec"])
    assert "managedFields" not in one["metadata"]
    several = yaml.safe_load(run("get", "--format", "yaml").out)
    assert (several["kind"], several["items"]) == ("List", [one])


def test_no_jobs_are_no_error(run, namespace):
    said = run("get")
    assert (said.code, said.out, said.err) == (0, "", f"no DIJobs in namespace '{namespace}'\n")
    assert json.loads(run("get", "--format", "json").out)["items"] == []


def test_a_description_has_phases_tasks_pods_and_events(run, stand_in, submit):
    stand_in.fail_to_pull("pulls*")
    submit(dijob("pulls", task("none", "true")))
    wait_until(
        lambda: "BackOff" in {event["reason"] for event in stand_in.events("pulls-serial-0")},
        10,
        "the kubelet to say why",
    )

    text = run("describe", "pulls").out

    assert "ImagePull" in text.partition("Why:")[2].partition("\n")[0]
    for section in ("Conditions:", "Tasks:", "Pods:", "Events:"):
        assert section in text
    assert "pulls-serial-0" in text.partition("Pods:")[2].partition("Events:")[0]
    described = json.loads(run("describe", "pulls", "--format", "json").out)
    assert described["phase"] == "Starting"
    assert [each["phase"] for each in described["conditions"]] == ["Pending", "Starting"]
    assert described["tasks"][0]["pods"] == {"Pending": 1}
    assert described["pods"][0]["node"].startswith("stand-in")
    ages = [each["age"] for each in described["events"]]
    assert ages == sorted(ages, reverse=True)
    assert {"SuccessfulCreate", "Failed"} <= {each["reason"] for each in described["events"]}


def test_a_description_of_a_failed_job_says_what_it_died_of(run, stand_in, submit):
    submit(dijob("dies", task("none", "sleep 100")))
    stand_in.wait_for_phase("dies", "Running")
    stand_in.oom_kill("dies-serial-0")
    stand_in.wait_for_phase("dies", "Failed")
    described = json.loads(run("describe", "dies", "--format", "json").out)
    assert "used more memory than its limit" in described["why"]
    assert "used more memory than its limit" in described["pods"][0]["why"]


def test_jobs_that_the_operator_could_not_run_can_be_looked_at_and_mended(run, submit, stand_in):
    job = dijob("odd", {"type": "none", "name": "bare", "template": {"spec": {"containers": []}}})
    job["spec"]["preemptible"] = True
    submit(job)
    assert run("get").rows[1][0] == "odd"
    assert "odd" in run("describe", "odd").out
    assert run("logs", "odd").code == 1
    assert run("patch", "odd", "-p", "metadata: {labels: {broken: very}}").code == 0
    assert run("patch", "odd", "-p", "spec: {priority: urgent}").code == 2
    assert run("delete", "odd").code == 0


@pytest.mark.parametrize("verb", ["get", "describe", "logs", "delete", "wait"])
def test_a_job_that_is_not_there_is_said_in_a_line(run, verb):
    missing = run(verb, "nowhere")
    assert (missing.code, missing.out) == (1, "")
    assert "nowhere" in missing.err and "Traceback" not in missing.err


# logs


def test_logs_of_several_pods_are_told_apart(run, stand_in, submit):
    submit(dijob("two", task("none", "echo a; echo b"), task("learner", "echo $DI_RANK")))
    stand_in.wait_for_phase("two", "Succeeded")
    expected = "[learner-0] 1\n[serial-0] a\n[serial-0] b\n"
    assert run("logs", "two").out == expected
    assert run("logs", "two", "--task", "serial", "--tail", "1").out == "b\n"
    wrong = run("logs", "two", "--task", "leaner")
    assert wrong.code == 2 and "did you mean 'learner'" in wrong.err


def test_following_begins_before_the_job_does_and_ends_with_it(run, kube, stand_in, submit):
    stand_in.never_schedule("grows")
    command = "for i in 1 2 3; do echo $i; sleep 0.2; done"
    submit(dijob("grows", task("none", command), task("learner", command)))
    wait_until(lambda: stand_in.events("grows-serial-0"), 10, "the scheduler to say why")
    following = [*COMMAND, "logs", "grows", "--follow"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(following, text=True, **pipes) as process:
        assert process.stderr is not None
        assert "is not scheduled" in process.stderr.readline()
        stand_in.behave()
        out, _ = process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == 0
    for pod in ("serial-0", "learner-0"):
        lines = [line for line in out.splitlines() if line.startswith(f"[{pod}]")]
        assert lines == [f"[{pod}] {number}" for number in (1, 2, 3)]


def test_following_an_ended_job_prints_its_last_lines(run, stand_in, submit):
    submit(dijob("over", task("none", "seq 5")))
    stand_in.wait_for_phase("over", "Succeeded")
    assert run("logs", "over", "--follow", "--tail", "2").out == "4\n5\n"


def test_a_log_that_is_out_of_reach_does_not_keep_the_others(run, stand_in, submit):
    submit(dijob("half", task("none", "echo a; sleep 100")))
    stand_in.wait_for_phase("half", "Running")
    wait_until(lambda: run("logs", "half").out == "a\n", 10, "the line")
    stand_in.lose_node()
    lost = run("logs", "half")
    assert lost.code == 2 and "half-serial-0" in lost.err


def test_logs_that_went_with_their_pods_are_said_to_be_gone(run, stand_in, submit):
    job = dijob("cleaned", task("none", "true"))
    job["spec"]["cleanPodPolicy"] = "All"
    submit(job)
    stand_in.wait_for_phase("cleaned", "Succeeded")
    wait_until(lambda: not stand_in.pods("cleaned"), 10, "the pods to go")
    said = run("logs", "cleaned")
    assert said.code == 1 and "cleanPodPolicy is All" in said.err


# patch and scale


def test_a_patch_is_merged_and_says_whether_it_changed_anything(run, submit):
    submit(dijob("patched", task("none", "true")))
    patch = '{"spec": {"cleanPodPolicy": "All"}}'
    assert run("patch", "patched", "-p", patch).out == "dijob/patched patched\n"
    again = run("patch", "patched", "-p", "spec: {cleanPodPolicy: All}")
    assert again.out == "dijob/patched patched (no change)\n"
    assert (
        yaml.safe_load(run("get", "patched", "--format", "yaml").out)["spec"]["cleanPodPolicy"]
        == "All"
    )


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("{", "neither JSON nor YAML"),
        ("[]", "has to be a mapping"),
        ("spec: {preemptible: true}", "crashes DI-orchestrator's operator"),
        ("spec: {cleanPodPolizy: All}", "did you mean 'cleanPodPolicy'"),
        ("spec: {tasks: []}", "holds no task"),
    ],
)
def test_a_patch_that_would_break_the_job_is_refused(run, submit, patch, said):
    submit(dijob("kept", task("none", "true")))
    refused = run("patch", "kept", "-p", patch)
    assert refused.code == 2 and said in refused.err


def test_a_task_is_scaled_and_the_others_stay(run, submit, stand_in):
    submit(dijob("scaled", task("none", "sleep 100"), task("collector", "sleep 100")))
    stand_in.wait_for_phase("scaled", "Running")
    done = run("scale", "scaled", "--task", "collector", "--replicas", "3")
    assert (done.out, done.err) == ("dijob/scaled scaled\n", "")
    wait_until(lambda: len(stand_in.pods("scaled")) == 4, 10, "the new pods")
    assert [each["replicas"] for each in stand_in.job("scaled")["spec"]["tasks"]] == [1, 3]
    wrong = run("scale", "scaled", "--task", "colector", "--replicas", "3")
    assert wrong.code == 2 and "did you mean 'collector'" in wrong.err


def test_scaling_a_job_that_has_ended_says_so(run, submit, stand_in):
    submit(dijob("ended", task("none", "true")))
    stand_in.wait_for_phase("ended", "Succeeded")
    assert "has ended (Succeeded)" in run("scale", "ended", "--task=serial", "--replicas=2").err


# delete


def test_a_deleted_job_takes_everything_with_it(run, kube, namespace, stand_in, tmp_path):
    config = tmp_path / "config.py"
    config.write_text("import time; time.sleep(100)")
    file = write(tmp_path, *with_config("gone", **{"config.py": ""}))
    run("create", "-f", file, "--config", str(config))
    assert run("wait", "gone", "--for", "running").out == "dijob/gone running\n"

    assert run("delete", "gone").out == "dijob/gone deleted\n"

    assert run("wait", "gone", "--for", "deleted").out == "dijob/gone deleted\n"
    wait_until(lambda: not names(kube, namespace, "configmaps"), 10, "the ConfigMap to go")
    wait_until(lambda: not stand_in.pods("gone"), 10, "the pods to go")


def test_several_jobs_are_deleted_only_after_a_yes(run, kube, namespace, submit, monkeypatch):
    for name in ("a", "b"):
        submit(dijob(name, task("none", "true"), labels=SWEEP))
    refused = run("delete", "--sweep", "mine")
    assert refused.code == 2 and "nothing was deleted" in refused.err
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    declined = run("delete", "a", "b")
    assert declined.code == 1 and [row[0] for row in declined.rows] == ["NAME", "a", "b"]
    assert names(kube, namespace) == ["a", "b"]
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run("delete", "--sweep", "mine").out.endswith("dijob/a deleted\ndijob/b deleted\n")
    assert names(kube, namespace) == []


def test_what_is_missing_does_not_keep_the_others(run, kube, namespace, submit):
    submit(dijob("there", task("none", "true")))
    said = run("delete", "nowhere", "there", "--yes")
    assert (said.code, said.out) == (1, "dijob/there deleted\n")
    assert '"nowhere" not found' in said.err


def test_a_job_that_was_replaced_meanwhile_is_left_alone(run, kube, namespace, submit, monkeypatch):
    def replace(*arguments: Any) -> bool:
        kube.admin.delete(f"{DIJOBS}/namespaces/{namespace}/dijobs/a")
        submit(dijob("a", task("none", "true")))
        return True

    for name in ("a", "b"):
        submit(dijob(name, task("none", "true")))
    monkeypatch.setattr("ditk_ray.cli.output.agrees", replace)
    said = run("delete", "a", "b")
    assert said.code == 1 and said.out.endswith("\ndijob/b deleted\n")
    assert said.err == "error: dijob/a was deleted or replaced meanwhile\n"
    assert names(kube, namespace) == ["a"]


def test_jobs_that_have_ended_are_deleted_but_for_those_of_living_sweeps(
    run, kube, namespace, submit, stand_in, capsys
):
    from ditk_ray.config.options import KubeSettings
    from ditk_ray.dijob.liveness import Heartbeat
    from ditk_ray.kube.connection import connect

    Heartbeat(connect(KubeSettings()).config_maps, "mine-0a1b2c").beat()
    submit(dijob("of-mine", task("none", "true"), labels=SWEEP))
    submit(dijob("good", task("none", "true")))
    submit(dijob("bad", task("none", "exit 1")))
    submit(dijob("runs", task("none", "sleep 100")))
    for name, phase in (("of-mine", "Succeeded"), ("good", "Succeeded"), ("bad", "Failed")):
        stand_in.wait_for_phase(name, phase)
    assert run("delete", "--all-finished", "--yes").out == "dijob/bad deleted\ndijob/good deleted\n"
    assert names(kube, namespace) == ["of-mine", "runs"]
    assert run("delete", "--all-finished").err.endswith("has ended\n")


def test_it_has_to_be_said_what_to_delete(run):
    for arguments in ([], ["a", "--sweep", "b"]):
        assert run("delete", *arguments).code == 2


# wait


def test_waiting_tells_the_phases(run, submit, stand_in):
    submit(dijob("short", task("none", "sleep 5")))
    done = run("wait", "short")
    assert (done.code, done.out) == (0, "dijob/short succeeded\n")
    assert done.err.split()[-2:] == ["Running", "Succeeded"]


def test_waiting_for_a_job_that_fails_says_why(run, submit, stand_in):
    submit(dijob("fails", task("none", "exit 3")))
    failed = run("wait", "fails")
    assert (failed.code, failed.out) == (1, "")
    assert "dijob/fails failed: pod fails-serial-0 ended with exit code 3" in failed.err
    assert run("wait", "fails", "--for", "finished").out == "dijob/fails failed\n"
    assert run("wait", "fails", "--for", "running").code == 1


def test_waiting_in_vain_says_what_keeps_the_job(run, submit, stand_in):
    stand_in.never_schedule("hangs")
    submit(dijob("hangs", task("none", "true")))
    stand_in.wait_for_phase("hangs", "Starting")
    wait_until(
        lambda: "Insufficient cpu" in json.dumps([pod["status"] for pod in stand_in.pods("hangs")]),
        30,
        "the pod to be refused by the scheduler",
    )
    late = run("wait", "hangs", "--for", "running", "--timeout", "2s")
    assert late.code == 1
    assert "dijob/hangs is Starting after 2 seconds: pod hangs-serial-0 is not" in late.err
    assert late.err.count("Insufficient cpu") == 2


def test_waiting_for_a_job_that_nobody_looks_at_says_so(run, submit):
    submit(dijob("ignored", task("none", "true")))
    assert "operator of DI-orchestrator running?" in run("wait", "ignored", "--timeout=0").err


def test_waiting_for_a_job_that_is_deleted_meanwhile_ends(run, kube, namespace, submit, stand_in):
    submit(dijob("taken", task("none", "sleep 100")))
    stand_in.wait_for_phase("taken", "Running")
    waiting = [*COMMAND, "wait", "taken"]
    with subprocess.Popen(waiting, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "Running\n"
        kube.admin.delete(f"{DIJOBS}/namespaces/{namespace}/dijobs/taken")
        assert process.stderr.read() == "error: dijob/taken deleted\n"
        assert process.wait(20 * PATIENCE) == 1


# the cluster


def test_a_cluster_that_is_not_there_is_said_in_a_screen(run, monkeypatch, tmp_path):
    monkeypatch.setattr("ditk_ray.kube.connection.PATIENCE", 0.2)
    broken = tmp_path / "config"
    broken.write_text("clusters: [")
    wrong = run("get", "--kubeconfig", str(broken))
    assert wrong.code == 2 and len(wrong.err.splitlines()) < 10
    assert run("get", "--context", "nope").code == 2


class Terminal:
    """A standard input at which somebody types."""

    def __init__(self, typed: str) -> None:
        self._typed = typed

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._typed
