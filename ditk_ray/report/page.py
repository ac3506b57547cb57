"""The page: everything about a sweep in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import shlex
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.config.quantities import show_seconds
from ditk_ray.config.whole_file import write_whole
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.report.axes import short_names
from ditk_ray.report.charts.chart import Chart
from ditk_ray.report.charts.drawn import notes_on_points
from ditk_ray.report.charts.history import history
from ditk_ray.report.charts.importances import caption, importance_chart
from ditk_ray.report.charts.learning_curves import learning_curves
from ditk_ray.report.charts.objectives import objectives_chart
from ditk_ray.report.charts.parallel import parallel
from ditk_ray.report.charts.parameters import parameter_charts
from ditk_ray.report.data import SweepData, TrialData, gather
from ditk_ray.report.details import job_rows, space_rows
from ditk_ray.report.facts import facts, usage_rows
from ditk_ray.report.failures import failures, retried_rows
from ditk_ray.report.headline import headline
from ditk_ray.report.importance import importances
from ditk_ray.report.provenance import provenance_rows
from ditk_ray.report.table import build_pareto_table, build_table
from ditk_ray.report.usage import measure
from ditk_ray.report.values import for_plotly, script_json, show
from ditk_ray.tracking.artifacts import BEST_CONFIG_FILE, REPORT_FILE
from ditk_ray.trial.files import CONFIG_FILE

if TYPE_CHECKING:
    from jinja2 import Template

_HERE = Path(__file__).parent
_SCRIPTS = ("colours.js", "selection.js", "charts.js", "table.js", "start.js")


def write_report(folder: Path, target: Path | None = None) -> Path:
    """Write the report on the sweep in `folder`, there or to `target`, in one step.

    The sweep may still be running. Raises `BadConfigError` if the folder holds no sweep, or
    if the file cannot be written.
    """
    target = target or folder / REPORT_FILE
    page = render_page(gather(folder.resolve()))
    try:
        write_whole(target, page)
    except OSError as error:
        raise BadConfigError(Problem(str(target), f"cannot be written: {error}")) from error
    return target


def render_page(sweep: SweepData) -> str:
    """Return the page's text."""
    found = importances(sweep)
    labels = short_names(axis.name for axis in sweep.axes)
    usage = measure(sweep)
    charts = {
        "objectives": objectives_chart(sweep),
        "curves": learning_curves(sweep),
        "history": history(sweep),
        "importances": importance_chart(found, labels),
        "parallel": parallel(sweep),
    }
    each = parameter_charts(sweep)
    drawn = [chart for chart in (*charts.values(), *each) if chart is not None]
    scripts = [_plotly(), _script()]
    return _template().render(
        sweep=sweep,
        headline=headline(sweep),
        facts=facts(sweep, usage),
        best=sweep.best and _best(sweep, sweep.best),
        charts=charts,
        parameters=each,
        importance_text=caption(found, labels),
        notes=notes_on_points(sweep),
        table=build_table(sweep),
        pareto=build_pareto_table(sweep),
        failures=failures(sweep),
        retried_rows=retried_rows(sweep),
        usage=usage,
        usage_rows=usage_rows(sweep, usage),
        job=job_rows(sweep),
        space=space_rows(sweep),
        provenance=provenance_rows(sweep.folder),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=(_HERE / "static" / "report.css").read_text("utf-8"),
        scripts=scripts,
        script_sources=" ".join(_hash(text) for text in scripts),
        data=script_json(_data(sweep, drawn)),
    )


def _data(sweep: SweepData, charts: list[Chart]) -> dict[str, Any]:
    """Return what the page's script needs: the trials by index, and the charts."""
    return {
        "trials": [{"id": trial.id, "hover": _hover_text(trial)} for trial in sweep.trials],
        "changes": {trial.index: changes for trial in sweep.trials if (changes := _changes(trial))},
        "charts": {chart.id: chart.as_dict() for chart in charts},
    }


def _hover_text(trial: TrialData) -> str:
    score = "" if trial.score is None else f": {show(trial.score)}"
    return for_plotly(f"{trial.id}{score}")


def _changes(trial: TrialData) -> list[str]:
    return [
        f"from step {change.get('env_step', 0)}: "
        + ", ".join(f"{name} = {show(value)}" for name, value in change.get("params", {}).items())
        for change in trial.record.changes
    ]


def _best(sweep: SweepData, trial: TrialData) -> dict[str, Any]:
    """Return the best trial's parameters and the command that runs it again."""
    files = (sweep.folder / BEST_CONFIG_FILE, Path(trial.record.dir) / CONFIG_FILE)
    config = next((file for file in files if file.is_file()), None)
    return {
        "trial": trial,
        "params": {name: show(value) for name, value in trial.record.params.items()},
        "command": config and f"python {shlex.quote(str(config))}",
    }


def _hash(script: str) -> str:
    """Return what the page's policy lets run: these scripts, and no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    # A browser counts line ends as one character each, whatever they are, before it hashes.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("</script", "<\\/script")


@cache
def _script() -> str:
    return "\n".join((_HERE / "static" / name).read_text("utf-8") for name in _SCRIPTS)


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = show_seconds
    return environment.get_template("report.html.j2")
