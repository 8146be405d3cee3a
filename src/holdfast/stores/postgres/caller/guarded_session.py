"""Sessions of the store that user code gets: what user code must not do, and how the session is reset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.errors import UsageError
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.sessions.session import FRESH_PLANS, Session

# The store inside whose transaction this code runs; also in another thread that runs in a copy of the
# context.
INSIDE: ContextVar[tuple[str, str] | None] = ContextVar("holdfast_inside_postgres", default=None)

_ENDING = re.compile(
    r"\s*(commit|end|abort|begin|start\s+transaction|prepare\s+transaction"
    r"|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b",
    re.IGNORECASE,
)
# Whatever a function left on the session would affect the next one. `reset all` does not reset roles.
_RESET = (
    "select pg_advisory_unlock_all(); close all; unlisten *; reset session authorization; reset role; "
    "reset all; discard temp"
)
_PLANS_SECONDS = 60.0  # planning all functions again takes longer than a transaction
_LASTING = (
    "set_type_codec", "set_builtin_type_codec", "reset_type_codec", "add_listener", "add_log_listener",
    "add_query_logger", "add_termination_listener", "reload_schema_state",
)  # fmt: skip


def inside(address: Address) -> tuple[str, str]:
    return address.dsn, address.schema


def refuse_inside(address: Address) -> None:
    """Refuse a call on another session of the store from inside a transaction: it would not be part of the
    transaction.
    """
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


class GuardedSession(Session):
    """A session that refuses to end its transaction while user code has it, and refuses statements after the
    transaction ended.
    """

    __slots__ = ("changed", "in_use", "planned_anew_at")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.in_use = False
        self.changed = False  # permanently changed: nobody else can use it
        self.planned_anew_at = self._loop.time()

    def tidy(self) -> str:
        now = self._loop.time()
        if now - self.planned_anew_at < _PLANS_SECONDS:
            return _RESET
        self.planned_anew_at = now
        return f"{_RESET}; {FRESH_PLANS}"

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        self._refuse_ending(query)
        return await super().execute(query, *args, timeout=timeout)

    async def _execute(self, query: str, *args: Any, **options: Any) -> Any:
        self._refuse_ending(query)
        return await super()._execute(query, *args, **options)

    def _refuse_ending(self, query: str) -> None:
        if self.in_use and (found := _ENDING.match(query)):
            raise wrong(f"calls {found[1].lower()}")

    def _check_open(self) -> None:
        super()._check_open()
        if self.in_use and not self.is_in_transaction():
            raise wrong("goes on after its transaction has ended")

    async def close(self, *, timeout: float | None = None) -> None:
        if self.in_use:
            raise wrong("closes its connection")
        await super().close(timeout=timeout)

    def terminate(self) -> None:
        if self.in_use:
            raise wrong("closes its connection")
        super().terminate()


def _noted(name: str) -> Any:
    def called(self: GuardedSession, *args: Any, **options: Any) -> Any:
        self.changed = self.changed or self.in_use
        return getattr(super(GuardedSession, self), name)(*args, **options)

    return called


for _name in _LASTING:
    setattr(GuardedSession, _name, _noted(_name))


@contextmanager
def in_user_code(given: Any) -> Iterator[None]:
    """Mark the session as used by user code, if it is a session of the store."""
    if GuardedSession not in type(given).__mro__:  # isinstance() is true for every connection of the driver
        yield
        return
    given.in_use = True
    try:
        yield
    finally:
        given.in_use = False
