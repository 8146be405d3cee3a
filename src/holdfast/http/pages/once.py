"""Forms that make something: each counts once, however often it is sent.

A double click sends a form twice, and a browser without script does not prevent it. So such a form has a
token, `once`, which is new each time the page is loaded. The token, the visitor and the fields give a key: a
second copy of the form has the same key. The store keeps the key with the run or event where the operation
takes one. Of others this process remembers for a minute what they answered, without values of users.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.http.operation import Operation
from holdfast.http.redaction import redacted

from .current import Visitor
from .inside import ask

if TYPE_CHECKING:
    from holdfast.http.server import Api

# Operations that take a key, and the field of the body for it.
KEYED = {"start": "key", "rerun": "key", "bulk": "key", "emit": "id"}
# Operations whose forms have a token. The page that asks for a confirmation has one for all others.
MAKING = frozenset({*KEYED, "fire_schedule", "create_key", "rotate_key", "resend"})
REMEMBER_SECONDS, REMEMBERED = 60.0, 1_000
_APART = frozenset({"csrf", "back", "page", "said", "confirm", "sure", "form"})  # not a part of what is asked

Fields = Sequence[tuple[str, str]]


class Once:
    """Calls the operations of forms. One for each server process."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked: OrderedDict[str, tuple[asyncio.Task[Any], float]] = OrderedDict()

    async def answer(
        self,
        operation: Operation,
        visitor: Visitor,
        fields: Fields,
        read: Mapping[str, dict[str, Any]],
        id_: str,
    ) -> Any:
        """Call an operation with what was read from a form; for a second copy of the form return the answer
        to the first. A refused form counts as not sent.
        """
        name = operation.id
        token = next((value for key, value in fields if key == "once"), "")
        if not token:
            return await ask(self._api, visitor.actor, id_, name, **read)
        key = _key(visitor, name, fields)
        if field := KEYED.get(name):
            read = {**read, "body": {field: key, **read["body"]}}
            return await ask(self._api, visitor.actor, id_, name, **read)
        task = self._known(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._without_values(visitor, id_, name, read))
            self._asked[key] = task, self._api.world.monotonic()
            self._api.world.linger(REMEMBER_SECONDS + 1, lambda: self._forget_old(REMEMBERED + 1))
            task.add_done_callback(lambda done: self._forget_refused(key, done))
        return await asyncio.shield(task)  # the other copies wait for it too

    async def _without_values(
        self, visitor: Visitor, id_: str, name: str, read: Mapping[str, dict[str, Any]]
    ) -> Any:
        """Call an operation. The page needs no values of its answer, and they can be large."""
        return redacted(await ask(self._api, visitor.actor, id_, name, **read))

    def _forget_refused(self, key: str, done: asyncio.Task[Any]) -> None:
        is_refused = done.cancelled() or done.exception() is not None
        if is_refused and key in self._asked and self._asked[key][0] is done:
            del self._asked[key]

    def _known(self, key: str) -> asyncio.Task[Any] | None:
        self._forget_old(REMEMBERED)
        return self._asked[key][0] if key in self._asked else None

    def _forget_old(self, most: int) -> None:
        """Leave only answers of the last minute, and fewer than `most`."""
        now = self._api.world.monotonic()
        while self._asked:
            first = next(iter(self._asked))
            if len(self._asked) < most and now < self._asked[first][1] + REMEMBER_SECONDS:
                break
            del self._asked[first]


def _key(visitor: Visitor, name: str, fields: Fields) -> str:
    """Return the key of a form. Another visitor, or other fields, give another one."""
    asked = [(key, value) for key, value in fields if key not in _APART]
    text = msgspec.json.encode([visitor.session, name, asked])
    return f"page {hashlib.sha256(text).hexdigest()[:32]}"
