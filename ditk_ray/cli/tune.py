"""`ditk-ray tune`: run a sweep, show what it would do, or list what there is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ditk_ray.cli.flags import Command, Format, Parser, format_option
from ditk_ray.cli.output import note, print_items, print_table, print_value, short_path
from ditk_ray.cli.views import build_display, print_sweep
from ditk_ray.config.job_cfg import JobCfg
from ditk_ray.config.job_files import find_job, list_jobs, load_job
from ditk_ray.config.options import SEE, SweepOptions, option, options_of, require_sweep_name
from ditk_ray.config.terms import show_description, show_objectives
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.kube.yaml_text import yaml_documents
from ditk_ray.ray_cluster.session import quiet_ray
from ditk_ray.record.sweep_folder import SeenSweep
from ditk_ray.tracking.recording import chosen_uri

if TYPE_CHECKING:  # they import Ray
    from ditk_ray.sweep.prepare import PreparedSweep
    from ditk_ray.sweep.run import SweepOutcome

_WHAT = "what to run"
_WHERE = "where to run it"


def _job_options() -> Any:
    """Return a class with the options of a `JobCfg`, each of which is None unless it is given."""
    made = []
    for one in fields(JobCfg):
        if one.metadata:
            known = JobCfg.__pydantic_fields__[one.name]  # type: ignore[attr-defined]
            text = f"{known.description} ".replace("\n", " ").partition(". ")[0]
            shown = option(**{**one.metadata, "help": text[0].lower() + text[1:]})
            made.append((one.name, known.annotation, shown))
    return make_dataclass("JobOptions", made, frozen=True, kw_only=True)


_JobOptions: Any = _job_options()


@dataclass(frozen=True, kw_only=True)
class JobChanges(_JobOptions):
    """What is changed in a JobCfg: its options, single values and settings."""

    set: tuple[str, ...] = option(
        "set a value of the config in all trials (+PATH=VALUE adds a new key; repeatable)",
        (),
        metavar="PATH=VALUE",
    )
    searcher_opt: tuple[str, ...] = option("a setting of the searcher", (), metavar="NAME=VALUE")
    scheduler_opt: tuple[str, ...] = option("a setting of the scheduler", (), metavar="NAME=VALUE")

    def as_attributes(self) -> dict[str, Any]:
        """Return the attributes that are given; raises `BadConfigError`."""
        given = {key: value for key, value in vars(self).items() if value is not None}
        for key in ("set", "searcher_opt", "scheduler_opt"):
            given[key] = dict(_assignment(f"--{key}", text) for text in given[key])
        return given


class Tune(Command):
    """Run a sweep of a JobCfg.

      ditk-ray tune --list
      ditk-ray tune --cfg_class CartpoleDQNJobCfg
      ditk-ray tune --cfg_class CartpoleDQNJobCfg --plan
      ditk-ray tune --cfg_file my_job.py --num_samples 20 --set policy.learn.batch_size=128

    Flags may be written with dashes, too: --num-samples 20.
    Exit code: 0 if the sweep finished with at least one successful trial, 1 if it
    did not, 2 if the input is wrong (then nothing was started), 130 after Ctrl-C.
    """

    cfg_class: str | None = option("the JobCfg class", group=_WHAT, metavar="NAME")
    cfg_file: Path | None = option(
        "its file (default: found in job_cfgs/)", group=_WHAT, metavar="FILE"
    )
    list: bool = option("list the JobCfg classes and exit", False, group=_WHAT)
    list_searchers: bool = option("list the searchers and exit", False, group=_WHAT)
    list_schedulers: bool = option("list the schedulers and exit", False, group=_WHAT)
    plan: bool = option("show what would run, and start nothing", False, group=_WHAT)
    sweep: SweepOptions = options_of(SweepOptions, group=_WHERE)
    resume_existing: bool = option(
        "resume the sweep --name if it exists; succeed if it already finished: for what is "
        "started again after a crash (RayJob, systemd, batch queues)",
        False,
        group=_WHERE,
    )
    changes: JobChanges = options_of(JobChanges, group="what to change in the JobCfg")
    format: Format = format_option("format of the final output", group=SEE)

    @property
    def is_listing(self) -> bool:
        return self.list or self.list_searchers or self.list_schedulers

    def run(self) -> int:
        if self.is_listing:
            return _list(self)
        # Before Ray is imported: a typo answers at once.
        entry = find_job(self.cfg_class, self.cfg_file)
        quiet_ray()
        if self.resume_existing and not self.plan:
            from ditk_ray.cli.resume import resume_existing  # imports this module

            code = resume_existing(self, entry)
            if code is not None:
                return code
        note("importing DI-engine and Ray (some seconds)")
        with ForkClient() as warm:
            return _tune(self, warm)


def _list(given: Tune) -> int:
    if given.list:
        show = short_path if given.format == "table" else str
        jobs = [{**vars(job), "file": show(job.file)} for job in list_jobs(given.cfg_file)]
        print_items(jobs, ["name", "summary", "file"], given.format)
        return 0
    quiet_ray()
    if given.list_searchers:
        from ditk_ray.search.searchers import SEARCHERS  # imports Ray

        rows = [
            {"searcher": one.name, "installed": "yes" if one.is_installed else "no"}
            | {"otherwise": one.install, "what for": one.summary}
            for one in SEARCHERS.values()
        ]
        print_items(rows, list(rows[0]), given.format)
    if given.list_schedulers:
        from ditk_ray.search.schedulers import SCHEDULERS  # imports Ray

        rows = [{"scheduler": one.name, "what for": one.summary} for one in SCHEDULERS.values()]
        print_items(rows, list(rows[0]), given.format)
    return 0


def _tune(given: Tune, warm: ForkClient) -> int:
    job = load_job(given.cfg_class, given.cfg_file, given.changes.as_attributes())
    from ditk_ray.sweep.prepare import prepared_sweep  # imports Ray, which takes seconds

    options = replace(
        given.sweep,
        run_mode=given.sweep.chosen_mode(),
        mlflow_uri=chosen_uri(given.sweep.mlflow_uri),
        command=tuple(sys.argv),
    )
    with prepared_sweep(job, options, warm) as sweep:
        if sweep.search.note:
            note(sweep.search.note)
        if given.plan:
            return _print_plan(sweep, given.format)
        outcome = show_sweep(sweep)
    return finish(outcome, given.format)


def show_sweep(sweep: PreparedSweep) -> SweepOutcome:
    from ditk_ray.sweep.run import run_sweep  # imports Ray

    display, reporter = build_display(sweep)
    return run_sweep(sweep, display, reporter, note)


def finish(outcome: SweepOutcome, form: str) -> int:
    if form == "json":
        print_value(outcome.record.as_dict())
    else:
        print_sweep(SeenSweep(outcome.folder, outcome.record, is_alive=False))
    if outcome.record.status == "interrupted":
        return 130
    return 0 if outcome.succeeded else 1


def _print_plan(sweep: PreparedSweep, form: str) -> int:
    from ditk_ray.sweep.prepare import describe_job, first_tasks  # imports Ray

    job, described = sweep.job, describe_job(sweep)
    plan = {
        "name": sweep.name,
        "job": job.name,
        **{key: described[key] for key in ("entry", "metric", "mode", "objectives", "backend")},
        "trials": sweep.trial_count,
        "seeds_per_trial": len(job.seeds),
        "at_once": sweep.concurrency,
        "resources_per_trial": str(sweep.resources),
        "nodes": [str(node) for node in sweep.nodes],
        "fits": True,
        "searcher": described["searcher"]["name"],
        "scheduler": described["scheduler"]["name"],
        "folder": str(sweep.folder),
        "space": {name: show_description(one) for name, one in described["space"].items()},
    }
    manifests = sweep.executor.preview(first_tasks(sweep))
    if manifests:
        namespace = manifests[0][0]["metadata"]["namespace"]
        plan |= {"namespace": namespace, "first_jobs": manifests}
    if form == "json":
        print_value(plan)
        return 0
    print(f"{job.name}: {plan['entry']}, {show_objectives(job.objectives)}")
    waves = -(-sweep.trial_count // sweep.concurrency)
    rounds = f"{sweep.trial_count} trials, {sweep.concurrency} at once (in {waves} rounds), "
    print(rounds + sweep.executor.place(sweep.resources, len(job.seeds)))
    print(f"searcher {plan['searcher']}, scheduler {plan['scheduler']}")
    for node in sweep.nodes if sweep.executor.actor is None else ():
        print(f"  {node}: holds {node.holds(sweep.resources)} at once")
    print_table([["PARAMETER", "DRAWN FROM"], *map(list, plan["space"].items())])
    for made in manifests:
        print(f"---\n{yaml_documents(made)}", end="")
    print(f"results would go to {sweep.folder}; nothing was started")
    return 0


def _assignment(flag: str, text: str) -> tuple[str, Any]:
    """Read `a.b=VALUE`; the value is Python or JSON, else a string."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip("+. "):
        kind = "PATH" if flag == "--set" else "NAME"
        raise BadConfigError(Problem(f"{flag} {text}", f"has to be {kind}=VALUE"))
    words = {"true": True, "false": False, "null": None, "none": None}
    if value.lower() in words:
        return path.strip(), words[value.lower()]
    try:
        return path.strip(), ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return path.strip(), value


def read_sweep(words: Sequence[str]) -> Tune:
    """Read the words after `ditk-ray tune`, here or elsewhere; raises `BadConfigError`."""
    parser = _WordsParser(prog="ditk-ray tune", add_help=False)  # help would end this program
    Tune.fill(parser)
    return Tune.read(parser.parse_args(words))


class _WordsParser(Parser):
    def error(self, message: str) -> NoReturn:
        hint = "see `ditk-ray tune --help`"
        raise BadConfigError(Problem("the words after --", message, hint))


def check_sweep(words: Sequence[str]) -> None:
    """Raise BadConfigError if `ditk-ray` would not take these words, which begin with tune.

    What it says before it looks for the JobCfg class is said here; the classes themselves may
    be in an image alone. Words of another command are left to who wants those of a sweep.
    """
    if not words or words[0] != "tune":
        return
    given = read_sweep(words[1:])
    if given.sweep.name is not None:
        require_sweep_name(given.sweep.name)
    if given.cfg_class is None and given.cfg_file is None and not given.is_listing:
        raise BadConfigError(Problem("--cfg_class", "is needed to say which job"))
