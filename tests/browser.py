"""A real browser, driven without a screen."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextlib.contextmanager
def started_chromium() -> Iterator[Any]:
    """Start the system's Chromium; without one, skip, unless that is forbidden."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        reason = "there is no chromium on the PATH"
        if os.environ.get("DITK_RAY_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()
