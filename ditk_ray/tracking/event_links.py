"""A folder of links to the trials' event files, with the names that TensorBoard shows."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ditk_ray.tracking.trial_files import attempts, event_folders


class EventLinks:
    """Keeps a folder of links current: `trial_00000`, or `trial_00000/seed_0` with several seeds.

    Of a trial's attempts the newest that has event files is linked, or each of them as
    `trial_00000/attempt_0`. The links' folder belongs to this object alone.
    """

    def __init__(self, links: Path, sweep: Path, all_attempts: bool = False) -> None:
        self._links = links
        self._sweep = sweep
        self._all_attempts = all_attempts
        self._made: dict[str, Path] = {}

    def refresh(self) -> int:
        """Link what is new, drop what is gone, and return how many links there are."""
        wanted = {}
        for trial in sorted(self._sweep.glob("trial_*")):
            for place, target in self._wanted_of(trial).items():
                wanted["/".join(filter(None, [trial.name, place]))] = target
        for name, target in list(self._made.items()):
            if wanted.get(name) != target:
                self._remove(name)
        for name, target in wanted.items():
            if name not in self._made:
                self._make(name, target)
        return len(self._made)

    def _wanted_of(self, trial: Path) -> dict[str, Path]:
        if self._all_attempts:
            return {
                "/".join(filter(None, [folder.name, place])): target
                for folder in attempts(trial).values()
                for place, target in event_folders(folder).items()
            }
        for folder in reversed(attempts(trial).values()):
            if found := event_folders(folder):
                return found
        return {}

    def _make(self, name: str, target: Path) -> None:
        link = self._links / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target.resolve(), target_is_directory=True)
        self._made[name] = target

    def _remove(self, name: str) -> None:
        (self._links / name).unlink(missing_ok=True)
        del self._made[name]
        # The folder of a trial whose link takes its place must not be in the way.
        with contextlib.suppress(OSError):
            for parent in list((self._links / name).relative_to(self._links).parents)[:-1]:
                (self._links / parent).rmdir()
