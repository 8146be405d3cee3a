"""Budgets in random histories: shared ones, new ones, and runs that are given back before a costly step."""

from __future__ import annotations

from holdfast.lifecycle import Move
from holdfast.records import ANY, RunFilter

EVERY = RunFilter(tenant=ANY, deleted=True)


def started(life, pick):
    """Return the budget of a new run, and the run that it repeats."""
    covers = pick(False, False, True)
    origin = pick(None, None, None, *life.runs[:1])
    return {"budget": pick(None, None, 3, 5), "covers_children": covers, "origin": origin}


def short(pick, move):
    """Return the step before which a holder gives the run back, now and then."""
    return {"before": pick(None, "next"), "cost_max": pick(0, 1, 4)} if move is Move.RELEASE else {}


def renewed(pick, verb):
    """Return the new budget of a resume, now and then."""
    return {"budget": pick(None, None, 2, 6, 9)} if verb == "resume" else {}


def assert_costs_add_up(life):
    """A shared budget has paid exactly for what its runs have cost. A chain carries its cost along."""
    driver = life.pair.drivers[0]
    runs = {run.id: run for run in driver.run(driver.store.list(EVERY))}
    if life.purged or not set(life.runs) <= set(runs):
        return  # the cost of a purged run cannot be read any more
    for account in {run.account for run in runs.values() if run.account_cost_units is not None}:
        members = [run for run in runs.values() if run.account == account and run.present == run.id]
        assert runs[account].account_cost_units == sum(run.cost_units for run in members)
