from __future__ import annotations

from ditk_ray.config.space import build_space
from ditk_ray.record.record import SweepRecord, SweepStatus
from ditk_ray.sweep.observer import SweepObserver


class Stumbling:
    """A listener that fails at the start, and hears the rest."""

    def __init__(self):
        self.heard = []

    def started(self, record):
        raise RuntimeError("not yet")

    def ended(self, record):
        self.heard.append(record.status)


def test_a_listener_that_fails_harms_nobody_and_is_told_of_the_rest(tmp_path, caplog):
    first, second = Stumbling(), Stumbling()
    record = SweepRecord("s", "eval_value", "max")
    observer = SweepObserver(record, tmp_path, build_space({}), [first, second])

    observer.begin()
    observer.settle(SweepStatus.FINISHED)
    observer.end()

    assert first.heard == second.heard == [SweepStatus.FINISHED]
    assert caplog.text.count("Stumbling fails: RuntimeError: not yet") == 1
