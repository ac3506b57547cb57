from __future__ import annotations

from ditk_ray.trial.reports import REPORT, MetricsFile, read_reports


def numbers(folder) -> list[tuple[int, int]]:
    return [(row[REPORT], row["attempt"]) for row in read_reports(folder / "metrics.jsonl")]


def write(folder, attempt: int, *reports: int) -> None:
    file = MetricsFile(folder)
    for number in reports:
        file.append({REPORT: number, "attempt": attempt})


def test_what_lies_behind_the_checkpoint_that_was_gone_on_from_is_left_out(tmp_path):
    write(tmp_path, 0, 1, 2, 3, 4)
    write(tmp_path, 1, 3)
    assert numbers(tmp_path) == [(1, 0), (2, 0), (3, 1)]


def test_a_line_that_was_cut_short_costs_only_itself(tmp_path):
    write(tmp_path, 0, 1, 2)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"ditk_ray_rep')
    write(tmp_path, 1, 3)
    assert numbers(tmp_path) == [(1, 0), (2, 0), (3, 1)]


def test_a_trial_without_reports_has_none(tmp_path):
    assert read_reports(tmp_path / "metrics.jsonl") == []
