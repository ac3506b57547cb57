"""Who may run: trials that a person holds, and trials that give way to more important ones.

Tune pauses a trial only after an evaluation, which is when it has a checkpoint. A trial
that is displaced waits here for a place, before any new trial and in the order of priority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class Places:
    """Holds, priorities and the trials that wait for a place; all by name."""

    def __init__(self, priorities: dict[str, int] | None = None) -> None:
        self._held: set[str] = set()
        self._waiting: list[str] = []
        self._priorities = dict(priorities or {})

    def hold(self, trial: str) -> None:
        """Have a trial paused until it is released."""
        self._held.add(trial)

    def release(self, trial: str) -> None:
        """Let a trial go on when there is a place; it comes before new ones."""
        self._held.discard(trial)

    def forget(self, trial: str) -> None:
        """Drop a trial that is over."""
        self._held.discard(trial)
        self.took_place(trial)

    def is_held(self, trial: str) -> bool:
        """Say whether a person has paused it."""
        return trial in self._held

    def is_set_aside(self, trial: str) -> bool:
        """Say whether it is not for the scheduler to choose: held, or waiting here."""
        return trial in self._held or trial in self._waiting

    @property
    def is_open_to_all(self) -> bool:
        """Whether no trial is set aside."""
        return not self._held and not self._waiting

    def set_priority(self, trial: str, priority: int) -> None:
        """Rank a trial; those without a rank have zero."""
        self._priorities[trial] = priority

    def priority(self, trial: str) -> int:
        """Return a trial's rank: higher ones go first."""
        return self._priorities.get(trial, 0)

    def wait(self, trial: str) -> None:
        """Note that a trial is paused, and not by its scheduler."""
        if trial not in self._waiting:
            self._waiting.append(trial)

    def took_place(self, trial: str) -> None:
        """Note that a trial runs again."""
        if trial in self._waiting:
            self._waiting.remove(trial)

    def next_waiting(self, paused: Collection[str]) -> str | None:
        """Return who is next of those that wait and are really paused by now."""
        ready = [trial for trial in self._waiting if trial in paused and trial not in self._held]
        return max(ready, key=self.priority, default=None)

    def must_give_way(self, trial: str, running: Iterable[str], paused: Collection[str]) -> bool:
        """Say whether a running trial has to be paused now.

        It has to if it is held, or if its place is needed: more trials of a higher priority
        wait than there are running ones that rank lower, or are giving way already.
        """
        if trial in self._held:
            return True
        own = self.priority(trial)
        ready = [one for one in self._waiting if one in paused and one not in self._held]
        better = sum(self.priority(one) > own for one in ready)
        others = [one for one in running if one != trial]
        sooner = sum(self.priority(one) < own or self.is_set_aside(one) for one in others)
        return better > sooner
