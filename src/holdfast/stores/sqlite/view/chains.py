"""Chains: their present run, the budget that they share, and the watermark up to which they have taken the
events of a topic.

Events are taken oldest first, and events that earlier runs of a chain have taken are never free again. So a
wait starts to look after the watermark, and a long chain costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.machine.durations import micros
from holdfast.machine.view import Account

from .machine_rows import SQL, RunRow, run_row
from .saving import Saving

MANY = 16  # taken events that a wait may have to skip before a watermark is worth while
TOPICS_MAX = 100  # topics of one run that get a watermark: those with the most taken events


class Chained(Saving):
    """The part of the machine's view that is about chains, and about budgets and limits that runs share."""

    def go_on_as(self, run: RunRow, first: RunRow, next: UUID) -> None:
        self.db.run(SQL["go_on_as"], (str(next), first.text))
        first.present = next
        self._write_receipts()
        self._pass_topics(run)

    def links(self, first: RunRow, limit: int, *, deleted: bool) -> Sequence[RunRow]:
        self._write_runs()
        found = self.db.all(SQL["deleted_links" if deleted else "links"], (first.text, limit))
        return [run for row in found if (run := self._keep(run_row(row))) is not None]

    def account(self, id: UUID) -> Account | None:
        row = self.db.one(SQL["account"], (str(id),))
        return None if row is None else Account(*row)

    def keep_account(self, id: UUID, account: Account) -> None:
        self.db.run(SQL["keep_account"], (str(id), *account))

    def open_runs(self, api_key: str, most: int) -> int:
        row = self.db.one(SQL["open_runs"], (api_key, most))
        return 0 if row is None else int(row[0])

    def stopped_members(self, id: UUID, by: str, limit: int) -> Sequence[RunRow]:
        self._write_runs()
        found = self.db.all(SQL["stopped_members"], (str(id), by, limit))
        return [run for row in found if (run := self._keep(run_row(row))) is not None]

    def _passed(self, run: RunRow, topic: str | None) -> int:
        """Return the watermark: the chain has taken all events of the topic up to this number that it
        could take."""
        row = None if run.chain_text is None else self.db.one(SQL["passed"], (run.chain_text, topic))
        return 0 if row is None else int(row[0])

    def _pass_topics(self, run: RunRow) -> None:
        """Store the watermarks of the topics whose events the run has taken. The run goes on as another
        run."""
        chain, taken = run.chain_text or run.text, "topics_taken"
        if run.chain_text is not None:
            taken = "topics_taken_by_link"
            self.db.run(SQL["let_go"], (micros(EVENT_KEEP_SECONDS), chain, run.text))
        for (topic,) in self.db.all(SQL[taken], (run.text, TOPICS_MAX)):
            where = {"chain": chain, "tenant": run.tenant, "topic": topic, "mark": run.watermark}
            where["passed"] = self._passed(run, topic)
            (left,) = self.db.one(SQL["first_left"], where) or (0,)
            if self.db.one(SQL["taken_between"], {**where, "left": left, "many": MANY}) is not None:
                self.db.run(SQL["pass"], (chain, topic, left - 1))
