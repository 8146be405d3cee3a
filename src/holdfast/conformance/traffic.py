"""The requests of the worker, as the proxy saw them, with the answers that it sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

SHOWN_MAX = 300  # characters of a body in a line for people

REGISTER = "/workers/register"
CLAIM, LOAD = "/leases/claim", "/leases/load"
HEARTBEAT, BATCH, STATES = "/leases/heartbeat", "/leases/batch", "/leases/states"


class Exchange(msgspec.Struct, kw_only=True, eq=False):
    """One request and its answer. Times are seconds of the event loop.

    fault: what the proxy did to it. reached: the worker got the answer that is shown here.
    """

    number: int
    path: str
    headers: dict[str, str]
    body: Any
    at: float
    fault: str = ""
    status: int = 0
    answer: Any = None
    answered_at: float | None = None
    reached: bool = False

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of a batch."""
        return _objects(self.body, "items") if self.path == BATCH else []

    @property
    def leases(self) -> list[dict[str, Any]]:
        """The entries of a heartbeat, or of a question for states."""
        return _objects(self.body, "leases") if self.path in {HEARTBEAT, STATES} else []

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The answers to the items of a batch, in their order."""
        return _objects(self.answer, "items") if self.path == BATCH and self.status == 200 else []

    @property
    def granted(self) -> list[dict[str, Any]]:
        """The leases that a claim was given."""
        return _objects(self.answer, "leases") if self.path == CLAIM and self.status == 200 else []

    @property
    def news(self) -> list[dict[str, Any]]:
        """The states of leases that a heartbeat, or a question for states, was told."""
        is_news = self.path in {HEARTBEAT, STATES} and self.status == 200
        return _objects(self.answer, "leases") if is_news else []


class Write(NamedTuple):
    """One item of a batch, and its answer; None: there was none, or not for this item."""

    exchange: Exchange
    item: dict[str, Any]
    answer: dict[str, Any] | None

    @property
    def op(self) -> str:
        """The operation."""
        return str(self.item.get("op"))

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the item."""
        return _objects(self.item, "steps")

    @property
    def problem(self) -> str:
        """The code of the problem that the answer names, or nothing."""
        problem = (self.answer or {}).get("problem") or {}
        return str(problem.get("code", ""))


class Traffic:
    """All exchanges of one case, in the order of their requests."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def of(self, path: str) -> list[Exchange]:
        """Return the exchanges at a path."""
        return [one for one in self.exchanges if one.path == path]

    def writes(self, run: str, op: str | None = None) -> list[Write]:
        """Return the items of a run, perhaps only those of one operation, in the order of their requests."""
        return [one for one in self.all_writes() if one.item.get("run") == run and op in {None, one.op}]

    def all_writes(self) -> Iterator[Write]:
        """Go through the items of all batches."""
        for exchange in self.of(BATCH):
            answers = exchange.answers
            for number, item in enumerate(exchange.items):
                yield Write(exchange, item, answers[number] if number < len(answers) else None)

    def beats(self, run: str) -> list[Exchange]:
        """Return the heartbeats that name a run."""
        return [one for one in self.of(HEARTBEAT) if any(lease.get("run") == run for lease in one.leases)]

    def told(self, run: str, state: str) -> float | None:
        """Return the time at which the worker was told for the first time that a lease has this state."""
        for exchange in self.exchanges:
            has_said = any(one.get("run") == run and one.get("state") == state for one in exchange.news)
            if has_said and exchange.reached:
                return exchange.answered_at
        return None

    def lines(self, begin: float) -> Iterator[str]:
        """Describe each exchange on one line."""
        for one in self.exchanges:
            fault = f" [{one.fault}]" if one.fault else ""
            yield (
                f"{one.at - begin:8.3f} s  {one.path} {shown(one.body)}{fault} → "
                f"{one.status or 'no answer'} {shown(one.answer)}"
            )


def shown(value: Any) -> str:
    """Return a value as short JSON, for a line that people read."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _objects(value: Any, name: str) -> list[dict[str, Any]]:
    """Return the objects in a list of an object; whatever is something else is left out."""
    found = value.get(name) if isinstance(value, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
