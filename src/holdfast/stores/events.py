"""Events as rows that hold their payload, and the texts for waits that take one: for memory and Redis."""

from __future__ import annotations

import msgspec

from holdfast.bounds import text_bytes
from holdfast.records import Instant, Json


class TakenEvent(msgspec.Struct, kw_only=True):
    """An event with its payload. Its texts are made once for all waits: a large one is not copied."""

    id: str
    topic: str
    payload: Json
    at: Instant
    _output: Json | None = None
    _wake: Json | None = None

    @property
    def size(self) -> int:
        return text_bytes(self.payload)

    @property
    def output(self) -> Json:
        """The output of a wait that takes the event."""
        if self._output is None:
            payload = msgspec.Raw(self.payload.encode())
            output = {"id": self.id, "topic": self.topic, "at": self.at, "payload": payload}
            self._output = msgspec.json.encode(output).decode()
        return self._output

    @property
    def wake(self) -> Json:
        """The `wake` of a plan's task that takes the event."""
        if self._wake is None:
            self._wake = '{"reason":"event","event":' + self.output + "}"
        return self._wake
