"""The invariants: an undisturbed play breaks none, and each forged breach is found by its invariant."""

from __future__ import annotations

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from holdfast.lifecycle import Status
from holdfast.records import Miscount
from holdfast.testing.crashes import Crash
from holdfast.testing.virtual import play
from verify.checks.evidence import Evidence
from verify.checks.invariants import INVARIANTS, OVERTAKEN
from verify.crashpoints.crashpoints import SCENARIOS, stores
from verify.crashpoints.journey import JOURNEY
from verify.crashpoints.simulation import ScenarioPlay
from verify.environment.ledger import Entry


@pytest.fixture(scope="module")
def calm():
    return play(lambda: ScenarioPlay(SCENARIOS["journey"], stores()["memory"], Crash()).play()).evidence


@pytest.fixture
def evidence(calm):
    """Return a copy that a test may change."""
    return changed(
        calm,
        runs=dict(calm.runs),
        steps={run: list(steps) for run, steps in calm.steps.items()},
        trail={run: list(rows) for run, rows in calm.trail.items()},
        entries=list(calm.entries),
    )


def red(evidence: Evidence) -> set[str]:
    checks = {**INVARIANTS, **OVERTAKEN}
    return {name.partition(" ")[0] for name, invariant in checks.items() if list(invariant(evidence))}


def journey(evidence):
    return next(run for run in evidence.runs.values() if run.type == JOURNEY)


def place(evidence, run, key):
    return next(n for n, step in enumerate(evidence.steps[run.id]) if step.key == key)


def row(evidence, run, type_, **data):
    return next(
        n
        for n, row in enumerate(evidence.trail[run.id])
        if row.type == type_ and data.items() <= row.data.items()
    )


def test_an_undisturbed_play_breaks_nothing(evidence):
    assert red(evidence) == set()


def test_an_acknowledged_run_that_is_gone_is_found(evidence):
    run = journey(evidence)
    del evidence.runs[run.id], evidence.steps[run.id]
    assert red(evidence) == {"I1", "I8"}


@pytest.mark.parametrize("status", [Status.LEASED, Status.WAITING])
def test_a_run_that_nothing_will_move_is_found(evidence, status):
    run = journey(evidence)
    evidence.runs[run.id] = replace(run, status=status, result_json=None)
    assert "I2" in red(evidence)


def test_a_step_without_its_checkpoint_is_found(evidence):
    run = journey(evidence)
    del evidence.steps[run.id][place(evidence, run, "left")]
    assert {"I3", "I8"} <= red(evidence)


def test_a_step_that_is_twice_in_the_trail_is_found(evidence):
    run = journey(evidence)
    at = row(evidence, run, "step_succeeded", step="left")
    evidence.trail[run.id].insert(at, evidence.trail[run.id][at])
    assert red(evidence) == {"I3"}


def test_a_record_without_an_effect_is_found(evidence):
    evidence.entries = [one for one in evidence.entries if (one.kind, one.step) != ("effect", "pack")]
    assert red(evidence) == {"I4", "I7"}


def test_a_checkpoint_of_an_older_fence_is_found(evidence):
    run = journey(evidence)
    at = place(evidence, run, "ship")
    step = evidence.steps[run.id][at]
    evidence.steps[run.id][at] = replace(step, fence=step.fence - 1)
    assert "I5" in red(evidence)


def test_an_end_by_a_worker_without_the_lease_is_found(evidence):
    run = journey(evidence)
    at = row(evidence, run, "succeeded")
    expired = replace(evidence.trail[run.id][0], type="lease_expired", data_json='{"worker": "w"}')
    evidence.trail[run.id].insert(at, expired)
    assert red(evidence) == {"I5", "E19"}


def test_an_effect_after_its_checkpoint_is_found(evidence):
    effect = next(one for one in evidence.entries if (one.kind, one.step) == ("effect", "pack"))
    evidence.entries.append(effect.__copy__())
    assert red(evidence) == {"I6"}


def test_an_effect_of_a_later_holder_is_found_without_any_clock(evidence):
    """Real processes have no common order of events: there only the fence shows the breach."""
    evidence.entries = [one for one in evidence.entries if one.kind != "recorded"]
    run = str(journey(evidence).id)
    evidence.entries.append(Entry(kind="effect", run=run, step="pack", fence=99, amount=1))
    assert red(evidence) == {"I6"}


def test_a_late_effect_of_a_zombie_is_allowed(evidence):
    """A step runs at least once: a worker that lost its lease during a step cannot know it."""
    evidence.entries = [one for one in evidence.entries if one.kind != "recorded"]
    run = str(journey(evidence).id)
    evidence.entries.append(Entry(kind="effect", run=run, step="ship", fence=1, amount=5, at=2**60))
    assert red(evidence) == set()


def test_a_cost_counted_twice_is_found(evidence):
    run = journey(evidence)
    evidence.runs[run.id] = replace(run, cost_units=run.cost_units + 1)
    assert red(evidence) == {"I7"}


def test_two_values_of_one_step_are_found(evidence):
    run = str(journey(evidence).id)
    evidence.entries.append(Entry(kind="seen", run=run, step="pack", nonce="another"))
    assert red(evidence) == {"I8"}


def test_a_timer_that_fired_early_is_found(evidence):
    run = journey(evidence)
    at = place(evidence, run, "nap")
    step = evidence.steps[run.id][at]
    evidence.steps[run.id][at] = replace(step, finished_at=step.due_at - 1)
    assert red(evidence) == {"I9"}


@pytest.mark.parametrize("doubled", [True, False])
def test_a_log_row_doubled_or_missing_is_found(evidence, doubled):
    run = journey(evidence)
    at = row(evidence, run, "log", message="the early letter came")
    evidence.trail[run.id][at : at + 1] = [evidence.trail[run.id][at]] * 2 if doubled else []
    assert red(evidence) == {"TRAIL-1"}


def test_a_count_that_differs_from_the_runs_is_found(evidence):
    evidence.miscounts = [Miscount(tenant="default", type=JOURNEY, status="succeeded", kept=2, real=1)]
    assert red(evidence) == {"READ-4"}
