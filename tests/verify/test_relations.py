"""The invariants of relations: an undisturbed play breaks none, and each forged breach is found."""

from __future__ import annotations

from dataclasses import replace as changed
from uuid import UUID

import pytest
from msgspec.structs import replace

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import MessageStatus
from holdfast.testing.crashes import Crash
from holdfast.testing.virtual import play
from verify.checks.invariants import INVARIANTS
from verify.crashpoints.company import CHAIN, CHORE, ORDER, PARENT
from verify.crashpoints.crashpoints import SCENARIOS, stores
from verify.crashpoints.outcome import differing, named, outcome
from verify.crashpoints.simulation import ScenarioPlay
from verify.environment.ledger import Entry


@pytest.fixture(scope="module")
def calm():
    return play(lambda: ScenarioPlay(SCENARIOS["company"], stores()["memory"], Crash()).play()).evidence


@pytest.fixture
def evidence(calm):
    """Return a copy that a test may change."""
    return changed(
        calm,
        runs=dict(calm.runs),
        steps={run: list(steps) for run, steps in calm.steps.items()},
        trail={run: list(rows) for run, rows in calm.trail.items()},
        outbox=list(calm.outbox),
        entries=list(calm.entries),
    )


def red(evidence):
    return {name for name, invariant in INVARIANTS.items() if list(invariant(evidence))}


def of(evidence, type_):
    return next(run for run in evidence.runs.values() if run.type == type_)


def step(evidence, run, key, **fields):
    """Change a step."""
    at = next(n for n, one in enumerate(evidence.steps[run.id]) if one.key == key)
    evidence.steps[run.id][at] = replace(evidence.steps[run.id][at], **fields)
    return evidence.steps[run.id][at]


def rows(evidence, run, type_, key):
    """Return the positions of trail rows of this type and step."""
    told = enumerate(evidence.trail[run.id])
    return [n for n, row in told if row.type == type_ and row.data.get("step") == key]


I10, I11 = "I10 step with other than one child", "I11 news of a child before its end"
I12, I13 = "I12 gate with other than one decision", "I13 waited, and called as if not"
LOST, INVENTED = "OUT-1 message lost", "OUT-1 message invented"


def test_an_undisturbed_play_breaks_nothing(evidence):
    assert red(evidence) == set()


def test_an_undisturbed_play_sends_every_message_of_the_company(evidence):
    """A message that is lost in every play makes no difference between two plays."""
    of_order = {"packed", "refused once", "asked", "the carrier comes", "the label", "closed"}
    of_parent = {"to the family", "on their way", "all are back", "well done", "home"}
    sent = sorted(one.payload for one in evidence.outbox)
    assert sent == sorted({*of_order, *of_parent, "ran", "link 1", "link 2"})


def test_runs_are_named_by_key_or_parent_step(evidence):
    family = {"parent", "parent/chore", "parent/doomed", "parent/chain", "parent/chain+", "parent/errand"}
    assert set(named(evidence).values()) == {"order", *family}


def test_a_child_that_was_started_twice_is_found(evidence):
    twin = replace(of(evidence, CHORE), id=UUID(int=7))
    evidence.runs[twin.id] = twin
    evidence.steps[twin.id] = evidence.steps[of(evidence, CHORE).id]
    evidence.trail[twin.id] = evidence.trail[of(evidence, CHORE).id]
    assert I10 in red(evidence)


def test_a_child_that_no_row_names_is_found(evidence):
    parent = of(evidence, PARENT)
    evidence.steps[parent.id] = [one for one in evidence.steps[parent.id] if one.key != "errand"]
    assert I10 in red(evidence)


def test_a_row_whose_child_is_not_there_is_found(evidence):
    chore = of(evidence, CHORE)
    del evidence.runs[chore.id], evidence.steps[chore.id], evidence.trail[chore.id]
    assert I10 in red(evidence)


def test_a_run_that_went_on_as_two_is_found(evidence):
    second = next(run for run in evidence.runs.values() if run.type == CHAIN and run.labels)
    twin = replace(second, id=UUID(int=7))
    evidence.runs[twin.id], evidence.steps[twin.id] = twin, evidence.steps[second.id]
    evidence.trail[twin.id] = evidence.trail[second.id]
    assert I10 in red(evidence)


def test_a_child_reported_before_its_end_is_found(evidence):
    parent, chore = of(evidence, PARENT), of(evidence, CHORE)
    (at,) = rows(evidence, parent, "woken", "chore")
    early = evidence.trail[chore.id][0].seq
    evidence.trail[parent.id][at] = replace(evidence.trail[parent.id][at], seq=early)
    assert red(evidence) == {I11}


def test_a_child_reported_with_another_end_is_found(evidence):
    step(evidence, of(evidence, PARENT), "chore", output='{"status": "cancelled"}')
    assert red(evidence) == {I11}


def test_a_parent_that_waits_for_an_ended_child_is_found(evidence):
    parent = of(evidence, PARENT)
    waits = step(evidence, parent, "chain", status=StepStatus.WAITING, output=None)
    evidence.runs[parent.id] = replace(parent, status=Status.WAITING, waiting_on=(waits,))
    assert "I2 run without a way on" in red(evidence)


@pytest.mark.parametrize("kind", [StepKind.APPROVAL, StepKind.CHILD])
def test_a_run_that_waits_for_a_person_or_an_open_child_is_fine(evidence, kind):
    parent, chore = of(evidence, PARENT), of(evidence, CHORE)
    waits = next(one for one in evidence.steps[parent.id] if one.kind is kind)
    evidence.runs[parent.id] = replace(parent, status=Status.WAITING, waiting_on=(waits,))
    evidence.runs[chore.id] = replace(chore, status=Status.PENDING)
    assert "I2 run without a way on" not in red(evidence)


def test_a_gate_that_was_decided_twice_is_found(evidence):
    order = of(evidence, ORDER)
    (at,) = rows(evidence, order, "approved", "MANAGER")
    evidence.trail[order.id].insert(at, evidence.trail[order.id][at])
    assert red(evidence) == {I12}


def test_a_gate_that_was_settled_without_a_decision_is_found(evidence):
    parent = of(evidence, PARENT)
    (at,) = rows(evidence, parent, "approved", "boss")
    del evidence.trail[parent.id][at]
    assert red(evidence) == {I12}


def test_a_decision_that_nobody_made_is_found(evidence):
    evidence.entries = [one for one in evidence.entries if (one.kind, one.step) != ("decided", "boss")]
    assert red(evidence) == {I12}


@pytest.mark.parametrize("type_", ["approval_opened", "child_started"])
def test_a_gate_or_a_child_by_a_worker_without_the_lease_is_found(evidence, type_):
    parent = of(evidence, PARENT)
    at = next(n for n, row in enumerate(evidence.trail[parent.id]) if row.type == type_)
    expired = replace(evidence.trail[parent.id][0], type="lease_expired", data_json='{"worker": "w"}')
    evidence.trail[parent.id].insert(at, expired)
    assert "I5 written under an older fence" in red(evidence)


def test_a_task_that_is_not_told_of_its_wait_is_found(evidence):
    order = str(of(evidence, ORDER).id)
    evidence.entries.append(Entry(kind="called", run=order, step="SHIP", fence=99))
    assert red(evidence) == {I13}


def test_a_task_of_a_plan_that_was_done_again_is_found(evidence):
    order = str(of(evidence, ORDER).id)
    evidence.entries.append(Entry(kind="effect", run=order, step="SHIP", fence=99, amount=2))
    assert red(evidence) == {"I6 recorded step done again"}


def test_a_wait_of_a_task_that_has_cost_nothing_is_found(evidence):
    order = of(evidence, ORDER)
    evidence.runs[order.id] = replace(order, cost_units=order.cost_units - 2_000_000)
    assert red(evidence) == {"I7 sums differ"}


@pytest.mark.parametrize("status", [MessageStatus.PENDING, MessageStatus.DEAD])
def test_a_message_that_is_not_sent_is_found(evidence, status):
    evidence.outbox[3] = replace(evidence.outbox[3], status=status)
    assert red(evidence) == {LOST}


def test_a_message_marked_as_sent_that_never_came_is_found(evidence):
    id_ = evidence.outbox[0].id
    evidence.entries = [one for one in evidence.entries if one.nonce != id_]
    assert red(evidence) == {LOST}


def test_a_message_that_no_run_has_sent_is_found(evidence):
    evidence.entries.append(Entry(kind="delivered", run="r", nonce="msg_other"))
    assert red(evidence) == {INVENTED}


def test_messages_of_a_key_in_the_wrong_order_are_found(evidence):
    line = [n for n, one in enumerate(evidence.entries) if (one.kind, one.step) == ("delivered", "order")]
    first, second = line[:2]
    evidence.entries[first], evidence.entries[second] = evidence.entries[second], evidence.entries[first]
    assert red(evidence) == {"OUT-1 message out of order"}


def test_a_message_that_came_twice_is_allowed(evidence):
    """A message is sent at least once: a relay may die before it can report the delivery."""
    again = [one for one in evidence.entries if one.kind == "delivered"]
    evidence.entries += again
    assert red(evidence) == set()


def test_differences_of_outcomes_are_named(evidence, calm):
    """Outputs, decisions and messages are parts of the outcome."""
    step(evidence, of(evidence, PARENT), "boss", output='{"approved": false}')
    evidence.outbox.pop()
    told = differing(outcome(calm), outcome(evidence))
    assert "'approved': True" in told
    assert "'approved': False" in told
    assert "'closed'" in told.partition("here")[0]
    assert "'closed'" not in told.partition("here")[2]


def test_the_outcome_counts_a_run_that_is_there_twice(evidence, calm):
    chore = of(evidence, CHORE)
    twin = replace(chore, id=UUID(int=7))
    evidence.runs[twin.id], evidence.steps[twin.id] = twin, evidence.steps[chore.id]
    assert "calm []" in differing(outcome(calm), outcome(evidence))
