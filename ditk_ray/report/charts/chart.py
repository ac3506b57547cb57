"""What all charts share: their parts, their colours, and whose a point is.

Colours are names of the page's own (`var(--accent)`), so that they follow its theme. The
page's script puts them in, and the names of the trials into the hover texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ditk_ray.report.values import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

ACCENT = "var(--accent)"
INK = "var(--ink)"
MUTED = "var(--muted)"
QUIET = "var(--quiet)"
GRID = "var(--grid)"
PAPER = "var(--paper)"

Owners = list[tuple[int, int]]
"""Whose the points of a trace are: a trial's index and the number of its points, in order."""


@dataclass(frozen=True)
class Group:
    """Traces that a reader can switch off together; `mark` is the style of their sign."""

    label: str
    mark: str
    traces: Sequence[int]


@dataclass(frozen=True)
class Chart:
    """A figure and the words around it. `title` is a text, `caption` too: no markup."""

    id: str
    title: str
    caption: str
    figure: Figure
    height: int = 300
    groups: Sequence[Group] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return what the page's script draws."""
        return {
            "figure": self.figure.to_plotly_json(),
            "height": self.height,
        }


def figure(traces: Iterable[Scatter], x_title: str, y_title: str, **layout: Any) -> Figure:
    """Return a figure in the report's plain look; titles are texts, not markup."""
    from plotly.graph_objects import Figure

    return Figure(
        list(traces),
        {
            "template": {},
            "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": MUTED, "size": 12},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": QUIET, "activecolor": ACCENT},
            "showlegend": False,
            "hovermode": "closest",
            "hoverlabel": {
                "bgcolor": PAPER,
                "bordercolor": QUIET,
                "font": {"color": INK, "size": 13},
                "align": "left",
            },
            "xaxis": axis(x_title),
            "yaxis": axis(y_title),
        },
    ).update_layout(layout)


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """Return an axis in the report's plain look."""
    named = {"title": {"text": for_plotly(title), "standoff": 8}} if title else {}
    return {
        **named,
        "automargin": True,
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        **settings,
    }


def scatter(owners: Owners | None = None, **settings: Any) -> Scatter:
    """Return a trace; the page's script looks up in its `owners` whose a point is."""
    from plotly.graph_objects import Scatter

    if owners is None:
        return Scatter(hoverinfo="skip", **settings)
    return Scatter(meta={"owners": owners}, **settings)


def selected(mode: str) -> Scatter:
    """Return the trace that the page's script fills with the points of the selected trial."""
    from plotly.graph_objects import Scatter

    return Scatter(
        x=[],
        y=[],
        mode=mode,
        meta={"selected": True},
        hoverinfo="skip",
        line={"color": INK, "width": 2.5},
        marker={"color": PAPER, "size": 11, "line": {"color": INK, "width": 2.5}},
    )
