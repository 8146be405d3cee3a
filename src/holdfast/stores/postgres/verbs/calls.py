"""Calls of functions: each verb is one function of the same name, one round trip, with records as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import asdict

from holdfast.errors import UsageError
from holdfast.records import Item

T = TypeVar("T")

encoded = msgspec.json.Encoder().encode
BYTES_A_SECOND = 50_000  # what a slow server can take in
NO_TEXT = "a text holds a NUL character or half of a surrogate pair, which no store can keep: leave it out"


def json_text(value: Any) -> str:
    """Return one or several records as an argument of a verb."""
    try:
        return encoded(value).decode()
    except UnicodeEncodeError:
        raise UsageError(NO_TEXT) from None


def items_text(items: Iterable[Item]) -> str:
    """Return items as an argument of a verb."""
    return json_text([item_json(item) for item in items])


def item_json(item: Item) -> dict[str, Any]:
    """Return an item in the form of the functions: the name of its move, and the fields of the move beside
    the others.
    """
    return {"starts": (), **asdict(item), **asdict(item.move), "move": item.move.verb}


def seconds_for(*args: Any) -> float:
    """Return how much longer a call may take for its size. A large call that is given up and sent again would
    never succeed.
    """
    return sum(len(arg) for arg in args if type(arg) is str) / BYTES_A_SECOND


class Calls:
    """The calls that the verbs are made of."""

    if TYPE_CHECKING:

        async def _call(self, verb: str, *args: Any) -> Any:
            """Return the answer of a verb as the driver gives it: JSON as text."""

        async def _call_listener(self, verb: str, *args: Any) -> Any:
            """The same for a read, on the session that listens if nothing was heard of it for a while."""

        def _call_soon(self, verb: str) -> None:
            """Call a verb that need not succeed, in a task of its own. Callers in between share one call."""

        async def _within(self, connection: Any, verb: str, **fields: Any) -> str:
            """Return the answer of a verb inside the caller's own transaction."""

        def _call_blocking(self, limit_seconds: float, verb: str, *args: Any) -> Any:
            """The same, for a thread that has no event loop and must not wait for one."""

    async def _ask(self, answer: msgspec.json.Decoder[T], verb: str, *args: Any) -> T:
        """Return the answer of a verb as records."""
        return answer.decode(await self._call(verb, *args))
