"""How much each parameter mattered."""

from __future__ import annotations

from collections.abc import Mapping

from ditk_ray.report.charts.chart import ACCENT, QUIET, Chart, axis, figure
from ditk_ray.report.importance import SURE_TRIALS, Importances
from ditk_ray.report.values import count, for_plotly

_ROW = 30
_EDGES = 70


def importance_chart(found: Importances, labels: Mapping[str, str]) -> Chart | None:
    """Draw a bar for each parameter; None if nothing could be said."""
    if not found.shares:
        return None
    from plotly.graph_objects import Bar

    names = list(found.shares)
    bars = Bar(
        x=[found.shares[name] for name in names],
        y=list(range(len(names))),
        orientation="h",
        marker={"color": [ACCENT, *[QUIET] * (len(names) - 1)]},
        text=[f"{found.shares[name]:.0%}" for name in names],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="skip",
    )
    ticks = [for_plotly(labels.get(name, name)) for name in names]
    return Chart(
        "importances",
        "Parameter importances",
        caption(found, labels),
        figure(
            [bars],
            "share of what the scores differ by",
            "",
            dragmode=False,
            margin={"l": 8, "r": 44, "t": 4, "b": 8},
            xaxis=axis("", tickformat=".0%", rangemode="tozero", fixedrange=True, visible=False),
            yaxis=axis(
                "",
                tickvals=list(range(len(names))),
                ticktext=ticks,
                autorange="reversed",
                showgrid=False,
                fixedrange=True,
                ticks="",
            ),
        ),
        height=_EDGES + _ROW * len(names),
    )


def caption(found: Importances, labels: Mapping[str, str]) -> str:
    """Say what matters most, how that was found, and what was left out."""
    if not found.shares:
        return found.reason
    first, share = next(iter(found.shares.items()))
    text = (
        f"{labels.get(first, first)} mattered most ({share:.0%}), by Optuna's {found.method} over "
        f"{count(found.trials, 'finished trial')}. The shares add up to 100%."
    )
    if found.trials < SURE_TRIALS:
        text += " So few trials give a hint, no more."
    if found.left_out:
        names = ", ".join(labels.get(name, name) for name in found.left_out)
        text += f" Left out, since not every trial has it: {names}."
    return text
