"""Which seeds of a trial compute now, when not all of them may."""

from __future__ import annotations

from collections.abc import Mapping

LEAD = 3
"""By how many evaluations a seed may be ahead of the slowest.

A report needs an evaluation of each: to be further ahead gains nothing, and is lost if
the trial is stopped early or goes on from a checkpoint, which they share.
"""


def choose_turns(evaluations: Mapping[int, int], slots: int) -> set[int]:
    """Return the seeds that compute, of those that have not ended, with their evaluations.

    They are the `slots` that are furthest behind; of equals, those named first.
    """
    if not evaluations:
        return set()
    behind = sorted(evaluations, key=lambda seed: evaluations[seed])
    slowest = evaluations[behind[0]]
    return {seed for seed in behind[:slots] if evaluations[seed] - slowest < LEAD}
