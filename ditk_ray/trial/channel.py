"""The messages between a trial's process and whoever started it.

They are JSON, not pickles: a trial runs the user's code, and what it says is
data to be read, never code to be run.
"""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

Message = dict[str, Any]

STOP = b"stop"
"""What the owner sends to have a process and all below it ended."""

PAUSE = b"pause"
"""What the owner sends to have them stand still, until `CONTINUE`."""

CONTINUE = b"continue"


class Channel:
    """The process's side of the connection to its owner."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; the owner reads them in order."""
        self._connection.send_bytes(json.dumps({"kind": kind, **fields}).encode())


def decode(data: bytes) -> Message:
    """Return the message that `Channel.send` made."""
    message: Message = json.loads(data)
    return message
