"""The spending of one held run: what it has cost, what its running steps have reserved, what is left.

All of it is in memory. A crash forgets reservations, which is right: the step is run again. The store
decides: a holder that finds too little left gives the run back, and the store pauses it if it finds the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.escaping import safe_logger
from holdfast.records import Answer, Claim, StepWrite, Verdict
from holdfast.records.units import amount

log = safe_logger("holdfast.run")


class Spending:
    """The budgets of a held run, its own and the one that covers it, and what they have paid for so far."""

    __slots__ = (
        "_budget",
        "_left",
        "_open",
        "_refused",
        "_run",
        "_segment_left",
        "_spent",
        "_waiting",
        "reserved",
        "shares",
    )

    def __init__(self, claim: Claim) -> None:
        self._run, self._budget, self._spent = claim.id, claim.budget, claim.cost
        self._left = claim.left  # of the budget that covers the run, as the newest answer says
        self.shares = claim.left is not None
        self._refused = ""  # why the newest step may not begin; empty: it may
        self._open: dict[str, int] = {}  # by step: costs that no answer includes yet
        self.reserved = 0
        self._waiting: list[asyncio.Future[None]] = []  # steps that wait until a reservation ends
        # For a segment: the rest of the budget. A budget that was reached before has had its pause.
        reached = claim.budget is None or claim.cost >= claim.budget
        self._segment_left = None if reached else (claim.budget or 0) - claim.cost

    @classmethod
    def of(cls, claim: Claim) -> Spending | None:
        """Return the spending of a run that has a budget, or that one covers; None: costs limit nothing."""
        return None if claim.budget is None and claim.left is None else cls(claim)

    def allows(self, cost_max: int) -> bool:
        """Return True when a step may begin: what it may cost is left, beside all that is reserved."""
        needs = self.reserved + cost_max
        self._refused = ""
        if cost_max and self._budget is not None and self._spent + needs > self._budget:
            self._refused = f"budget {amount(self._budget)} may be exceeded ({amount(self._spent)} spent)"
        elif self._left is not None:
            left = self._left - sum(self._open.values())
            if left < max(self.reserved + 1, needs):
                self._refused = "the budget that covers it " + (
                    "may be exceeded" if left > 0 else "is reached"
                )
        return not self._refused

    @property
    def pause_words(self) -> str:
        """`budget 2.00 reached`, when a budget explains that the run is paused; else empty."""
        if self._budget is not None and self._spent >= self._budget:
            return f"budget {amount(self._budget)} reached"
        return self._refused

    def settle(self, key: str, cost_max: int, cost: int) -> None:
        """End a reservation: the step has cost so much, which the next commit of the step records."""
        self.reserved -= cost_max
        self._spent += cost
        self._open[key] = self._open.get(key, 0) + cost
        self.warn(key, cost_max, cost)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def warn(self, key: str, cost_max: int, cost: int) -> None:
        """Log a step that has cost more than it might. The cost counts all the same."""
        if 0 < cost_max < cost:
            most, real = amount(cost_max), amount(cost)
            log.warning(
                "run %s: step %r has cost %s, more than its cost_max of %s", self._run, key, real, most
            )

    async def settled(self) -> None:
        """Wait until another step ends its reservation."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def stays(self, cost: int) -> bool:
        """Return True when a step of a segment can wait for its commit: no budget is reached by its cost."""
        if self._segment_left is not None:
            self._segment_left -= cost
        return not self.shares and (self._segment_left is None or self._segment_left > 0)

    def answered(self, verdict: Verdict, sent: Iterable[StepWrite]) -> None:
        """Take the answer to an item: its costs are recorded."""
        for write in sent:
            if self._open.pop(write.key, None) is None:
                self._spent += write.cost
                if self._segment_left is not None and write.cost:
                    self._segment_left -= write.cost
        if verdict.answer is Answer.APPLIED and verdict.left is not None:
            self._left = verdict.left
