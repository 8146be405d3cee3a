"""Related runs, for the machine's view: the other runs of a chain, children, and runs that share a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain as joined
from uuid import UUID

from holdfast.lifecycle import FINAL, Status
from holdfast.machine.rows import UNREAD, StepRow
from holdfast.machine.view import Account, End

from .held import HeldRun, ids
from .names import Names
from .rows import RunRow
from .snapshot import Snapshot

PAGE = 100  # members of an index that are read at once


class Families:
    """The part of the view that finds related runs. Runs that it passes by are only looked at."""

    snapshot: Snapshot
    names: Names
    _runs: dict[UUID, HeldRun | None]
    _accounts: dict[UUID, Account]

    def run(self, id: UUID) -> RunRow | None:
        raise NotImplementedError

    def peek(self, id: UUID) -> RunRow | None:
        raise NotImplementedError

    def prefetch(self, runs: Iterable[UUID]) -> None:
        raise NotImplementedError

    def step(self, run: RunRow, key: str) -> StepRow | None:
        raise NotImplementedError

    def links(self, first: RunRow, limit: int, *, deleted: bool) -> Sequence[RunRow]:
        key, found, size = self.names("chain", str(first.id)), list[RunRow](), min(limit, PAGE)
        # The scores tell them apart: a chain may have very many runs that are done.
        low, high = ("(0", "+inf") if deleted else (0, 0)
        at, is_last = 0, False
        while len(found) < limit and not is_last:
            page = self.snapshot.read("ZRANGEBYSCORE", key, low, high, "LIMIT", at, size)
            self.prefetch(ids(page))
            runs = (run for id in ids(page) if (run := self.run(id)) is not None)
            found += (run for run in runs if (run.deleted_at is not None) == deleted)
            at, is_last = at + size, len(page) < size
        return found[:limit]

    def _decided(self, peeked: Iterable[RunRow]) -> list[RunRow]:
        """Return runs that were looked at as rows to decide by."""
        return [run for one in peeked if (run := self.run(one.id)) is not None]

    def has_open_children(self, run: RunRow) -> bool:
        return bool(self.children_to_cancel(run, 1, orphans=False))

    def children_to_cancel(self, run: RunRow, limit: int, *, orphans: bool) -> Sequence[RunRow]:
        found: list[RunRow] = []
        fresh = [held.row for held in self._runs.values() if held and held.is_new]
        for child in joined(self._members(self.names("children:open", str(run.id))), fresh):
            is_mine = (child.parent, child.tenant) == (run.id, run.tenant) and child.status not in FINAL
            if is_mine and (not orphans or self._is_orphan(run, child)):
                found.append(child)
                if len(found) == limit:
                    break
        return self._decided(found)

    def _is_orphan(self, parent: RunRow, child: RunRow) -> bool:
        if child.parent_step is None:
            return False
        step = self.step(parent, child.parent_step)
        return step is None or step.child != child.id

    def _members(self, key: str) -> Iterator[RunRow]:
        """Yield the runs of an index, by id, only to look at them."""
        after = "-"
        while True:
            page = self.snapshot.read("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, PAGE)
            self.prefetch(ids(page))
            for id in ids(page):
                if (run := self.peek(id)) is not None:
                    yield run
            if len(page) < PAGE:
                return
            after = f"({page[-1]}"

    def account(self, id: UUID) -> Account | None:
        if id not in self._accounts:
            name = self.names("account", str(id))
            budget, spent = self.snapshot.all([("HGET", name, "budget"), ("HGET", name, "spent")])
            self.snapshot.guard(("HGET", name, "budget"), budget)
            self.snapshot.guard(("HGET", name, "spent"), spent)
            if budget is None:
                return None
            self._accounts[id] = Account(int(budget), int(spent))
        return self._accounts[id]

    def keep_account(self, id: UUID, account: Account) -> None:
        self._accounts[id] = account
        name = self.names("account", str(id))
        self.snapshot.do("HSET", name, "budget", account.budget, "spent", account.spent)

    def stopped_members(self, id: UUID, by: str, limit: int) -> Sequence[RunRow]:
        found: list[RunRow] = []
        for run in self._members(self.names("stopped", str(id))):
            is_stopped = run.status is Status.PAUSED and run.pause_asked_by == by
            if is_stopped and run.account == id and run.deleted_at is None:
                found.append(run)
                if len(found) == limit:
                    break
        return self._decided(found)

    def end_of(self, child: UUID) -> End | None:
        run = self.run(child)
        if run is None:
            return None
        result = run.result
        if result is UNREAD:
            result = self.snapshot.read("HGET", self.names.run(child), "result")
        return End(run.status, result, run.error)
