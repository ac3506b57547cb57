"""How the best score came about, trial by trial."""

from __future__ import annotations

from itertools import accumulate

from ditk_ray.report.charts.chart import ACCENT, Chart, figure, scatter, selected
from ditk_ray.report.charts.drawn import HOVER, dots, drawn_trials
from ditk_ray.report.data import SweepData
from ditk_ray.report.values import show

MIN_TRIALS = 2


def history(sweep: SweepData) -> Chart | None:
    """Draw each trial's score and the best one so far; None with fewer than two."""
    scored = sweep.scored
    if len(scored) < MIN_TRIALS:
        return None
    better = max if sweep.record.mode == "max" else min
    scores = [trial.score or 0.0 for trial in scored]
    best = list(accumulate(scores, better))
    drawn = drawn_trials(sweep)
    traces = [
        scatter(
            [(trial.index, 1) for trial in drawn],
            x=[trial.index + 1 for trial in drawn],
            y=[trial.score for trial in drawn],
            mode="markers",
            marker=dots(len(drawn)),
            hovertemplate=HOVER,
        ),
        scatter(
            x=[trial.index + 1 for trial in scored],
            y=best,
            mode="lines",
            line={"color": ACCENT, "width": 2.5, "shape": "hv"},
        ),
        selected("markers"),
    ]
    last = next(place for place, score in enumerate(best) if score == best[-1])
    caption = (
        f"Each trial's {sweep.record.metric}, in the order they were made, and the best so far "
        f"(line). The last improvement, to {show(best[-1])}, came with "
        f"{scored[last].id}, number {scored[last].index + 1} of {len(sweep.trials)}."
    )
    return Chart(
        "history",
        "Best score so far",
        caption,
        figure(traces, "trial", sweep.record.metric),
    )
