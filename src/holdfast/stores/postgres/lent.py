"""A session in the hands of user code: what it may not do there, and how it comes back as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.errors import UsageError

from .address import Address
from .links import FRESH_PLANS, Link

# The store inside whose transaction this code runs: in another thread too, if its context was taken along.
INSIDE: ContextVar[tuple[str, str] | None] = ContextVar("holdfast_inside_postgres", default=None)

_ENDING = re.compile(
    r"\s*(commit|end|abort|begin|start\s+transaction|prepare\s+transaction"
    r"|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b",
    re.IGNORECASE,
)
# What a function has left on the session would meet the next one. Roles are not among `all`.
_AS_NEW = (
    "select pg_advisory_unlock_all(); close all; unlisten *; reset session authorization; reset role; "
    "reset all; discard temp"
)
_PLANS_SECONDS = 60.0  # planning all functions anew takes longer than a transaction
_LASTING = (
    "set_type_codec", "set_builtin_type_codec", "reset_type_codec", "add_listener", "add_log_listener",
    "add_query_logger", "add_termination_listener", "reload_schema_state",
)  # fmt: skip


def inside(address: Address) -> tuple[str, str]:
    return address.dsn, address.schema


def refuse_inside(address: Address) -> None:
    """No call on a session of our own from inside a transaction: it would not be a part of it."""
    if INSIDE.get() == inside(address):
        raise UsageError(
            f"{address.shown}: the engine is called from inside the function of a transaction, and would not "
            "be a part of it: start and emit take connection=, anything else belongs in the workflow's body"
        )


def wrong(what: str) -> UsageError:
    return UsageError(
        f"the function of a transaction {what}: it may read and write tables of its own, and use savepoints; "
        "begin and commit are the engine's"
    )


class LentLink(Link):
    """While it is `lent`, what would end its transaction is refused; so is going on without one."""

    __slots__ = ("changed", "lent", "planned_anew_at")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lent = False
        self.changed = False  # for good: it is of no use to anybody else
        self.planned_anew_at = self._loop.time()

    def tidy(self) -> str:
        now = self._loop.time()
        if now - self.planned_anew_at < _PLANS_SECONDS:
            return _AS_NEW
        self.planned_anew_at = now
        return f"{_AS_NEW}; {FRESH_PLANS}"

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        self._refuse_ending(query)
        return await super().execute(query, *args, timeout=timeout)

    async def _execute(self, query: str, *args: Any, **options: Any) -> Any:
        self._refuse_ending(query)
        return await super()._execute(query, *args, **options)

    def _refuse_ending(self, query: str) -> None:
        if self.lent and (found := _ENDING.match(query)):
            raise wrong(f"calls {found[1].lower()}")

    def _check_open(self) -> None:
        super()._check_open()
        if self.lent and not self.is_in_transaction():
            raise wrong("goes on after its transaction has ended")

    async def close(self, *, timeout: float | None = None) -> None:
        if self.lent:
            raise wrong("closes its connection")
        await super().close(timeout=timeout)

    def terminate(self) -> None:
        if self.lent:
            raise wrong("closes its connection")
        super().terminate()


def _noted(name: str) -> Any:
    def called(self: LentLink, *args: Any, **options: Any) -> Any:
        self.changed = self.changed or self.lent
        return getattr(super(LentLink, self), name)(*args, **options)

    return called


for _name in _LASTING:
    setattr(LentLink, _name, _noted(_name))


@contextmanager
def in_hands(given: Any) -> Iterator[None]:
    """User code has it; if it is one of ours, that is."""
    if LentLink not in type(given).__mro__:  # isinstance() calls every connection of the driver's one
        yield
        return
    given.lent = True
    try:
        yield
    finally:
        given.lent = False
