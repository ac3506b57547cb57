"""What is in a replay buffer, to be pushed into another one.

Data is moved rather than a buffer's inner state: a trial may go on with a buffer of
another size, and each kind of buffer finds its own place for what it is given.
"""

from __future__ import annotations

from typing import Any

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper

Item = tuple[Any, dict[str, Any]]
"""A transition and what the buffer knows of it."""

_KEPT = ("priority",)


def buffer_items(buffer: Any) -> list[Item]:
    """Return what a buffer of DI-engine's holds, oldest first."""
    if isinstance(buffer, DequeBufferWrapper):
        return [(each.data, _known(each.meta)) for each in buffer.buffer.storage]
    state = buffer.state_dict()
    data, tail = state["data"], state["tail"]
    return [(item, {}) for item in [*data[tail:], *data[:tail]] if item is not None]


def fill_buffer(buffer: Any, items: list[Item]) -> None:
    """Push what another buffer held; of more than it takes, the newest stays."""
    if isinstance(buffer, DequeBufferWrapper):
        for data, known in items:
            buffer.buffer.push(data, meta=dict(known))
        return
    newest = items[-buffer.replay_buffer_size :]
    buffer.push([data for data, _ in newest], 0)


def _known(meta: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (meta or {}).items() if key in _KEPT}
