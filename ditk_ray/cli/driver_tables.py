"""Printing which searchers and schedulers there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from ditk_ray.cli.output import console
from ditk_ray.config.jsonable import json_text
from ditk_ray.search.schedulers import SCHEDULERS
from ditk_ray.search.searchers import NOT_OFFERED, SEARCHERS


def print_searchers(form: str) -> None:
    """Print the searchers, with what each is for and whether it can be used here."""
    rows = [
        {
            "searcher": item.name,
            "what for": item.summary,
            "installed": "yes" if item.is_installed else "no",
            "otherwise": item.install,
        }
        for item in SEARCHERS.values()
    ]
    for name, reason in NOT_OFFERED.items():
        rows.append({"searcher": name, "what for": f"not offered: {reason}", "installed": "no"})
    _print(rows, form)


def print_schedulers(form: str) -> None:
    """Print the schedulers, with what each is for."""
    _print([{"scheduler": one.name, "what for": one.summary} for one in SCHEDULERS.values()], form)


def _print(rows: Sequence[Mapping[str, str]], form: str) -> None:
    if form == "json":
        print(json_text(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for heading in rows[0]:
        table.add_column(heading, no_wrap=heading != "what for")
    for row in rows:
        table.add_row(*(row.get(heading, "") for heading in rows[0]))
    console().print(table, markup=False)
