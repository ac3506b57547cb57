"""The table of trials: what stands in its rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ditk_ray.config.quantities import show_seconds
from ditk_ray.report.axes import short_names
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import MISSING, is_number, show, show_count


@dataclass(frozen=True)
class Column:
    """A column; `title` is its full name where `label` is short."""

    label: str
    title: str
    is_number: bool


@dataclass(frozen=True)
class Cell:
    """A value as it is shown, and as it is sorted and told in full; None is a missing one."""

    text: str
    value: Any

    @property
    def full(self) -> str:
        """The value without loss, where the text has one."""
        if self.value is None or self.text == str(self.value):
            return ""
        return str(self.value)


@dataclass(frozen=True)
class Row:
    """A trial; its name and its state stand before the cells."""

    trial: TrialData
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """All trials, the best first and those without a score last."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    first_rows: int = 200
    """How many a reader sees at first: a browser takes its time to lay out thousands."""


_Field = tuple[Column, Callable[[TrialData], Cell]]


def build_table(sweep: SweepData) -> Table:
    """Put the table together."""
    fields = [*_outcome_fields(sweep), *_place_fields(sweep), *_parameter_fields(sweep)]
    ranked = sweep.ranked
    rest = [trial for trial in sweep.trials if trial.score is None]
    rows = [Row(trial, [cell(trial) for _, cell in fields]) for trial in (*ranked, *rest)]
    return Table([column for column, _ in fields], rows)


def build_pareto_table(sweep: SweepData) -> Table | None:
    """Put the table of the Pareto set together; None if there is only one objective."""
    if not sweep.record.more_objectives:
        return None
    objectives = enumerate(sweep.record.objectives)
    fields = [_objective_field(place, item.metric) for place, item in objectives]
    fields += _parameter_fields(sweep)
    rows = [Row(trial, [cell(trial) for _, cell in fields]) for trial in sweep.pareto]
    return Table([column for column, _ in fields], rows)


def _objective_field(place: int, metric: str) -> _Field:
    column = Column(metric, "", True)
    return column, lambda trial: _cell(trial.objectives[place] if trial.objectives else None)


def _outcome_fields(sweep: SweepData) -> list[_Field]:
    return [
        (Column(f"best {sweep.record.metric}", "", True), lambda trial: _cell(trial.score)),
        (Column("at step", "environment steps at the best", True), lambda t: _steps(t.best_step)),
        (Column("steps", "environment steps in all", True), lambda trial: _steps(trial.last_step)),
        (Column("time", "", True), _time),
    ]


def _place_fields(sweep: SweepData) -> list[_Field]:
    """Return where and how often a trial ran and what ended it, if that tells trials apart."""
    fields: list[_Field] = []
    if any(trial.record.attempt for trial in sweep.trials):
        column = Column("attempts", "", True)
        fields.append((column, lambda trial: _cell(trial.record.attempt + 1)))
    if any(trial.record.why for trial in sweep.trials):
        fields.append((Column("ended by", "", False), lambda trial: _cell(trial.record.why)))
    if len({trial.record.node for trial in sweep.trials if trial.record.node}) > 1:
        fields.append((Column("node", "", False), lambda trial: _cell(trial.record.node)))
    return fields


def _parameter_fields(sweep: SweepData) -> list[_Field]:
    names = list(dict.fromkeys(name for trial in sweep.trials for name in trial.record.params))
    labels = short_names(names)

    def field(name: str) -> _Field:
        values = [t.record.params[name] for t in sweep.trials if name in t.record.params]
        column = Column(labels[name], name, all(is_number(value) for value in values))
        return column, lambda trial: _parameter(trial, name)

    return [field(name) for name in names]


def _parameter(trial: TrialData, name: str) -> Cell:
    if name not in trial.record.params:
        return Cell(MISSING, None)
    value = trial.record.params[name]
    return Cell(show(value), value if is_number(value) else str(value))


def _cell(value: Any) -> Cell:
    return Cell(MISSING, None) if value is None else Cell(show(value), value)


def _steps(value: float | None) -> Cell:
    return Cell(MISSING, None) if value is None else Cell(show_count(value), value)


def _time(trial: TrialData) -> Cell:
    if not trial.seconds:
        return Cell(MISSING, None)
    return Cell(show_seconds(trial.seconds), f"{trial.seconds:.1f} s")
