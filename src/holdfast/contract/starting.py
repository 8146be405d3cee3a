"""Starting of runs, and publication of their workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.records import Definition, NewRun, Started


class Starting(Protocol):
    """Starting: each intent becomes one run."""

    async def start(self, runs: Sequence[NewRun], connection: Any = None) -> list[Started | HoldfastError]:
        """Record intents, in one commit for all. Answers come in order. An error is the answer of its own
        item (`KeyReused`, `DuplicateRun`, `UnknownRun`, `TooManyRuns`, `UsageError`), and the others are
        started. One of several that meets another open transaction may be answered `Unavailable`; a single
        one waits.

        Same tenant and key: the existing run's id with created=False when the digest is the same (also for
        two items of one call), else KeyReused. The key is checked before the id. In a chain that is the first
        run. A run that `follows` another: UsageError, see `machine.chains.handed_on`.
        `machine.starting.start_one` says what a new run begins with, including a plan's rows. Trail: created.

        A parent that is unknown, deleted or another tenant's: UnknownRun(parent); key and id are checked
        first. What happens to the parent later does not change the child, except for cancels.
        open_runs_max: TooManyRuns, if the API key `api_key` has so many open runs, deleted ones too. This
        holds however many callers start runs at once. It is checked after key, parent and id: a start that
        took the last place and is sent again, because its answer was lost, is a DuplicateRun.

        `connection`: the caller's own, on this store's database, in an open transaction. The runs are part of
        it: rolled back, they never existed; nobody can claim them before it commits. It is used on the
        calling thread. UsageError when this store does not know the kind of connection, when it is on another
        database, or when it has no open transaction (a driver that begins one by itself is fine).
        """

    async def publish(self, definitions: Sequence[Definition]) -> None:
        """Make workflows known by type. The same definition again writes nothing; a changed one replaces it.
        But a plan with other steps than those published under its type, or another kind under that type, is a
        Conflict, and none of the definitions is written: the version must be raised. Another schema of params
        or result is no conflict: the last publisher's counts.
        """
