"""A real browser for the tests that look at reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.report.page import write_report
from tests.processes import PATIENCE
from tests.report.simulated import Simulation, simulate

# Elements of a drawing have a text, but no inner one.
TEXT = "all => all.map(each => (each.innerText ?? each.textContent).trim())"
FRAMES = """() => new Promise(resolve => {
  let left = 3;
  const next = () => --left ? requestAnimationFrame(next) : setTimeout(resolve);
  requestAnimationFrame(next);
})"""
LINES = """paths => paths.flatMap(path => path.getAttribute("d").match(/M/g) ?? []).length"""


@dataclass
class Opened:
    """A report in a browser, with everything that it asked for or complained about."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """Return what a person reads there."""
        return self.texts(selector)[0]

    def texts(self, selector: str) -> list[str]:
        """Return what a person reads in each of these places."""
        return [str(text) for text in self.page.locator(selector).evaluate_all(TEXT)]

    def look_at(self, selector: str) -> Any:
        """Scroll to a place, wait until its charts are drawn, and return it."""
        place = self.page.locator(selector).first
        place.scroll_into_view_if_needed()
        self.settle()
        return place

    def settle(self) -> None:
        """Wait until the charts near the reader are drawn."""
        self.page.evaluate(FRAMES)  # the observer of what is near tells it after a frame
        self.page.wait_for_selector("body[data-charts=drawn]")

    def table(self) -> list[str]:
        """Return the names of the trials that the table shows, from its top."""
        return self.texts("#trials tbody tr:visible th")

    def lines(self, chart: str) -> int:
        """Return how many separate lines are drawn in a chart."""
        paths = self.page.locator(f"#{chart} .scatterlayer path.js-line")
        return int(paths.evaluate_all(LINES))

    def check(self) -> None:
        """Hold that the report asked for nothing but itself, and complained of nothing."""
        asked = [url for url in self.requests if not url.startswith("data:")]
        assert asked == [self.page.url.partition("#")[0]]
        assert self.complaints == []

    def colour(self, selector: str, name: str) -> str:
        """Return a colour as it is shown."""
        return str(
            self.page.locator(selector).first.evaluate(
                "(element, name) => getComputedStyle(element)[name]", name
            )
        )


def open_report(chromium: Any, report: Path, **options: Any) -> Opened:
    """Open a report in a window of its own."""
    size = {"width": options.pop("width", 1200), "height": options.pop("height", 900)}
    seen = Opened(chromium.new_context(viewport=size, **options).new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("console", lambda message: seen.complaints.append(message.text))
    seen.page.set_default_timeout(30_000 * PATIENCE)
    seen.page.goto(report.as_uri())
    seen.settle()
    return seen


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Opened]]:
    """Open reports as a person would; each may ask for nothing and complain of nothing."""
    windows: list[Opened] = []

    def look(report: Path, **options: Any) -> Opened:
        windows.append(open_report(chromium, report, **options))
        return windows[-1]

    yield look
    for seen in windows:
        seen.check()
        seen.page.context.close()


@pytest.fixture(scope="module")
def shared(chromium: Any, report: Path) -> Iterator[Opened]:
    """The report on the sweep of 31 trials, for tests that only sort it, or leave it as it was."""
    seen = open_report(chromium, report)
    yield seen
    seen.check()
    seen.page.context.close()


@pytest.fixture(scope="session")
def sweep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated sweep of 31 trials, of which one failed, with its report."""
    sweep = simulate(tmp_path_factory.mktemp("sweeps") / "simulated", trials=30, evaluations=30)
    sweep.fail("ValueError: no such luck", "epoch 1\nValueError: no such luck\n")
    folder = sweep.write()
    write_report(folder)
    return folder


@pytest.fixture(scope="session")
def report(sweep_folder: Path) -> Path:
    """The report on it."""
    return sweep_folder / "report.html"


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    """A sweep without trials, to add some to."""
    return Simulation(tmp_path / "sweep")
