"""The RayJob of a sweep that goes on by itself after its cluster was lost."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ditk_ray.cluster.kuberay.launch_options import LaunchOptions, RunOptions
from ditk_ray.cluster.kuberay.ray_cluster_manifest import cluster_spec, put_into_queue
from ditk_ray.cluster.kuberay.request_values import MOST
from ditk_ray.cluster.kuberay.shipped_manifests import named, read_manifests
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.yaml_text import yaml_text

RESUMES = "--resume_existing"
_OWN_PLACE = ("--run_mode", "--ray_address", "--storage_path")
_LOOKING = ("--list", "--list_searchers", "--list_schedulers", "--plan")
_REMOTE = ("https://", "s3://", "gs://")


def ray_job(options: LaunchOptions, run: RunOptions) -> Manifest:
    """Return the RayJob as it is sent."""
    job = named(read_manifests("ray_job.yaml")["RayJob"], options.name, options)
    put_into_queue(job, options.queue)
    spec = job["spec"]
    spec["entrypoint"] = shlex.join(["ditk-ray", *run.command])
    spec["backoffLimit"] = run.retries
    if run.deadline is not None:
        spec["activeDeadlineSeconds"] = run.deadline
    if run.working_dir is not None:
        spec["runtimeEnvYAML"] = yaml_text({"working_dir": run.working_dir})
    spec["rayClusterSpec"] = cluster_spec(options)
    return job


def check_run(
    words: Sequence[str], name: str, retries: int, deadline: float | None, working_dir: str | None
) -> RunOptions:
    """Return a job that was asked for; raises BadConfigError with all that is wrong.

    Its words are those of a sweep, which `tune` can read. It is named as the job if it has no
    name of its own, and goes on if it is there already.
    """
    flags = {_flag(word) for word in words if word.startswith("--")}
    problems = [Problem(flag, _ELSEWHERE) for flag in _OWN_PLACE if flag in flags]
    problems += [Problem(flag, _STARTS_NOTHING) for flag in _LOOKING if flag in flags]
    if not words or words[0] != "tune":
        problems.append(Problem("the words after --", "have to begin with tune", _HINT))
    if working_dir is not None and not working_dir.startswith(_REMOTE):
        what = f"is no address of a zip file ({', '.join(_REMOTE)})"
        problems.append(Problem(f"--working_dir {working_dir}", what))
    if deadline is not None and not 1 <= deadline <= MOST:
        problems.append(Problem("--deadline", f"has to be from one second to {MOST}"))
    if problems:
        raise BadConfigError(problems)
    named_by = [] if "--name" in flags else ["--name", name]
    resumed = [] if RESUMES in flags else [RESUMES]
    limit = None if deadline is None else int(deadline)
    return RunOptions((*words, *named_by, *resumed), retries, limit, working_dir)


def _flag(word: str) -> str:
    """Return a flag as it is written with underscores, without its value."""
    return "--" + word[2:].partition("=")[0].replace("-", "_")


_ELSEWHERE = "is not for a sweep in a cluster of its own, whose results are on its claim"
_STARTS_NOTHING = "only shows something, and starts no sweep: run it on this machine"
_HINT = "such as: ditk-ray cluster run ... -- tune --cfg_class CartpoleDQNJobCfg"
