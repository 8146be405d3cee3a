"""Budgets: the cost at which a run pauses, and the new budget that lets it go on.

A budget belongs to one run. Or it covers the children of a run too, and theirs: then the run at the top has
an account, and every commit of a covered run adds its cost to the account, in the same commit. A covered run
is paused by its holder, before a step, when nothing is left.
"""

from __future__ import annotations

from uuid import UUID

from holdfast.contract import BUDGET
from holdfast.errors import IllegalMove
from holdfast.lifecycle import Move, Status
from holdfast.records import COST_UNIT, Definition, NewRun
from holdfast.records.moves import Release
from holdfast.records.units import amount

from .rows import Owes, RunRow
from .view import Account, Beginning, Data, R, View


def opened(view: View[R], new: NewRun, known: Definition | None, begins: Beginning) -> Beginning:
    """start: return the beginning of a run with its account: that of its parent, or a new one of its own.

    A run has its own account when it has a budget that covers its children, and no run above covers it. The
    next run of a chain is in the account of its first run, or in none.
    """
    if begins.chain is not None:
        return begins
    parent = None if new.parent is None else view.run(new.parent)
    if parent is not None and parent.account is not None:
        return begins._replace(account=parent.account)
    covers = new.covers_children or (known is not None and known.covers_children)
    return begins._replace(account=new.id) if covers and begins.budget is not None else begins


def charge(view: View[R], run: RunRow, cost: int) -> None:
    """commit: add a cost to the account of the run, if it has one."""
    account = view.account(run.account) if cost and run.account is not None else None
    if account is not None and run.account is not None:
        view.keep_account(run.account, account._replace(spent=account.spent + cost))


def left(view: View[R], run: RunRow) -> int | None:
    """Return what is left of the budget that the run shares. None: it shares none."""
    account = None if run.account is None else view.account(run.account)
    return None if account is None else account.budget - account.spent


def renew(view: View[R], run: R, by: str, budget: int | None) -> None:
    """resume: set the new budget, which must be above what is spent. Trail: budget_set [by budget].

    A paused run that its budget has stopped is refused without a new one (IllegalMove): it would have to
    pause again before its next step. That is a run whose cost has reached its budget, or that was paused by
    BUDGET because its next step may cost more than is left. A run that another run's budget covers is
    refused while nothing is left of that.

    A new budget of the run at the top is also that of its account. The run then owes the resume of the runs
    that were paused for it.
    """
    account = None if run.account is None else view.account(run.account)
    top = is_top(run)
    if account is not None and not top and run.status is Status.PAUSED and account.spent >= account.budget:
        raise IllegalMove(run.id, Move.RESUME, run.status, covered(run, account))
    spent, limit = (account.spent, account.budget) if account and top else (run.cost, run.budget)
    if budget is None:
        if (
            run.status is Status.PAUSED
            and limit is not None
            and (spent >= limit or run.pause_asked_by == BUDGET)
        ):
            raise IllegalMove(run.id, Move.RESUME, run.status, needs_more(spent, limit))
        return
    if budget <= spent:
        raise IllegalMove(run.id, Move.RESUME, run.status, too_low(spent, budget))
    if run.budget != budget:
        run.budget = budget
        view.note(run, "budget_set", by=by, budget=budget / COST_UNIT)
    if account is not None and top and run.account is not None:
        view.keep_account(run.account, account._replace(budget=budget))
        run.owes |= Owes.RESUME


def is_top(run: RunRow) -> bool:
    """Return True when the account of the run is its own."""
    return run.account is not None and run.account == run.chain_id


def pauser(run: RunRow) -> str:
    """Return who pauses a run for the account that it is in."""
    return BUDGET if is_top(run) or run.account is None else of_account(run.account)


def of_account(id: UUID) -> str:
    """Return who pauses the runs that the budget of this run covers."""
    return f"{BUDGET} of {id}"


def shortage(view: View[R], run: RunRow, move: Release) -> tuple[str | None, Data]:
    """Return who pauses the run before a step that may cost more than is left, and the reason for the trail.

    None: the step can begin, as far as the budgets of the run tell now.
    """
    if move.before is None:
        return None, {}
    needs, account = max(1, move.cost_max), None if run.account is None else view.account(run.account)
    if run.budget is not None and run.cost + needs > run.budget:
        return BUDGET, _reason(move, run.cost, run.budget)
    if account is not None and account.spent + needs > account.budget:
        return pauser(run), _reason(move, account.spent, account.budget)
    return None, {}


def _reason(move: Release, spent: int, budget: int) -> Data:
    numbers = {"cost_max": move.cost_max, "cost": spent, "budget": budget}
    return {"step": move.before, **{name: units / COST_UNIT for name, units in numbers.items()}}


def needs_more(spent: int, budget: int) -> str:
    """Return the message for a resume without a new budget."""
    said = f"it has spent {amount(spent)} of its budget of {amount(budget)}"
    return f"{said}: resume it with a higher budget (budget=, --budget)"


def too_low(spent: int, budget: int) -> str:
    """Return the message for a budget that is spent already."""
    return f"it has spent {amount(spent)}: a budget of {amount(budget)} is too low"


def covered(run: RunRow, account: Account) -> str:
    """Return the message for a run that the budget of another run has stopped."""
    said = f"run {run.account}, whose budget covers it, has spent {amount(account.spent)} of"
    return f"{said} {amount(account.budget)}: resume that run with a higher budget"
