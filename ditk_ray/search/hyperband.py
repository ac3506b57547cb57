"""HyperBand, and BOHB's form of it, in units of the grace period.

Tune makes brackets of the number of time units until the end: with environment steps for
units, these would be dozens of brackets, most of them for trials of a few steps. Counted in
grace periods they are as many as there are decisions to make.
"""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import HyperBandForBOHB, HyperBandScheduler, TrialScheduler

UNITS = "ditk_ray_budget_units"
"""The key under which the scheduler, and only it, sees a report's time."""


class _InUnits(HyperBandScheduler):
    """Counts a report's time in units before HyperBand looks at it."""

    def __init__(self, counted: str, unit: float, **settings: Any) -> None:
        super().__init__(time_attr=UNITS, **settings)
        self._counted = counted
        self._unit = unit

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide on a trial; one that does not tell its time goes on."""
        if self._counted not in result:
            return str(TrialScheduler.CONTINUE)
        # Tune hands the scheduler a copy of its own, which the searcher sees next: BOHB's
        # part of HyperBand leaves its message to BOHB's searcher in it.
        result[UNITS] = result[self._counted] / self._unit
        return str(super().on_trial_result(tune_controller, trial, result))


class HyperBand(_InUnits):
    """Tune's HyperBand on another time axis."""


class HyperBandWithBohb(_InUnits, HyperBandForBOHB):
    """Tune's HyperBand for BOHB on another time axis."""
