"""The page: everything about a sweep in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import shlex
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.config.terms import show_description
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.record.sweep_folder import BEST_CONFIG_FILE, REPORT_FILE
from ditk_ray.report import charts, sections
from ditk_ray.report.data import (
    SweepData,
    TrialData,
    for_plotly,
    gather,
    script_json,
    short_names,
    show,
    show_count,
)
from ditk_ray.report.importance import caption, importance_chart, importances
from ditk_ray.report.parameter_charts import parallel, parameter_charts
from ditk_ray.trial.reports import CONFIG_FILE
from ditk_ray.util.files import write_whole
from ditk_ray.util.units import show_bytes, show_seconds

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
    found = importances(sweep)
    labels = short_names(axis.name for axis in sweep.axes)
    named = {
        "objectives": charts.objectives_chart(sweep),
        "curves": charts.learning_curves(sweep),
        "history": charts.history(sweep),
        "importances": importance_chart(found, labels),
        "parallel": parallel(sweep),
    }
    each = parameter_charts(sweep)
    drawn = [chart for chart in (*named.values(), *each) if chart is not None]
    scripts = [_plotly(), _script()]
    return _template().render(
        sweep=sweep,
        best=sweep.best,
        command=sweep.best and _command(sweep, sweep.best),
        sections=sections,
        charts=named,
        parameters=each,
        importance_text=caption(found, labels),
        notes=charts.notes_on_points(sweep),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=(_HERE / "static" / "report.css").read_text("utf-8"),
        scripts=scripts,
        script_sources=" ".join(_hash(text) for text in scripts),
        data=script_json(_data(sweep, drawn)),
    )


def _data(sweep: SweepData, drawn: list[charts.Chart]) -> dict[str, Any]:
    trials = []
    for trial in sweep.trials:
        score = "" if trial.score is None else f": {show(trial.score)}"
        trials.append({"id": trial.id, "hover": for_plotly(f"{trial.id}{score}")})
    return {
        "trials": trials,
        "changes": {t.index: _changes(t) for t in sweep.trials if t.record.changes},
        "charts": {c.id: {"figure": c.figure, "height": c.height} for c in drawn},
    }


def _changes(trial: TrialData) -> list[str]:
    return [
        f"from step {change.get('env_step', 0)}: "
        + ", ".join(f"{name} = {show(value)}" for name, value in change.get("params", {}).items())
        for change in trial.record.changes
    ]


def _command(sweep: SweepData, best: TrialData) -> str | None:
    files = (sweep.folder / BEST_CONFIG_FILE, Path(best.record.dir) / CONFIG_FILE)
    commands = (f"python {shlex.quote(str(file))}" for file in files if file.is_file())
    return next(commands, None)


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs  # heavy

    # A browser counts line ends as one character each, whatever they are, before it hashes.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("</script", "<\\/script")


@cache
def _script() -> str:
    return "\n".join((_HERE / "static" / name).read_text("utf-8") for name in _SCRIPTS)


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # heavy

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "show": show,
        "count": show_count,
        "bytes": show_bytes,
        "duration": show_seconds,
        "repr": repr,
        "command_line": shlex.join,
        "description": show_description,
    }
    return environment.get_template("report.html.j2")
