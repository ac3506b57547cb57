from __future__ import annotations

from ditk_ray.report.data import gather
from ditk_ray.report.table import build_table
from ditk_ray.report.values import MISSING
from ditk_ray.tracking.record import TrialState
from tests.report.simulated import Simulation


def test_the_best_come_first_and_those_without_a_score_last(tmp_path):
    sweep = Simulation(tmp_path, "min")
    sweep.add([], state=TrialState.PENDING)
    sweep.add([3.0])
    sweep.add([2.0])
    table = build_table(gather(sweep.write()))
    assert [row.trial.id for row in table.rows] == ["trial_00002", "trial_00001", "trial_00000"]


def test_values_are_short_in_the_table_and_full_behind_it(simulation):
    simulation.add([1.0], {"a.rate": 0.123456789, "a.only": "x"})
    simulation.add([2.0], {"a.rate": 0.5})
    table = build_table(gather(simulation.write()))
    rate, only = table.columns[-2:]
    assert (rate.label, rate.title, rate.is_number) == ("rate", "a.rate", True)
    assert not only.is_number
    first, second = (row.cells for row in reversed(table.rows))
    assert (first[-2].text, first[-2].full) == ("0.1235", "0.123456789")
    assert (second[-1].text, second[-1].value) == (MISSING, None)


def test_nodes_and_attempts_are_shown_where_they_differ(simulation):
    simulation.add([1.0], node="one")
    simulation.add([1.0], node=None)
    labels = [column.label for column in build_table(gather(simulation.write())).columns]
    assert not {"node", "attempts"} & set(labels)
    simulation.add([1.0], node="two", attempt=1)
    table = build_table(gather(simulation.write()))
    labels = [column.label for column in table.columns]
    assert {"node", "attempts"} <= set(labels)
    newest = next(row for row in table.rows if row.trial.id == "trial_00002")
    assert newest.cells[labels.index("attempts")].text == "2"
