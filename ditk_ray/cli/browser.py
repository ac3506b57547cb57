"""Opening a page in the user's browser."""

from __future__ import annotations

import webbrowser

from ditk_ray.cli.output import note


def open_page(address: str) -> None:
    """Open a page, or say that there is no browser to open it with."""
    try:
        is_open = webbrowser.open(address)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        note(f"no browser was found; open {address} yourself")
