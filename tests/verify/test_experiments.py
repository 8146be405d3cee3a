"""The experiments themselves: faults fire, switched-in bugs are caught, and the ledger loses nothing."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.lifecycle import Status
from holdfast.machine.rows import RunRow
from holdfast.testing.crashes import Crash, StoreCall, modes_of
from holdfast.testing.virtual import play
from tests.laws.effort import longer
from verify import sabotage
from verify.__main__ import COMMANDS, main
from verify.checks.invariants import INVARIANTS
from verify.checks.report import Check, Report, conclude
from verify.crashpoints.crashpoints import SCENARIOS, crashpoints, stores
from verify.crashpoints.simulation import ScenarioPlay
from verify.environment.environment import pid_of
from verify.environment.ledger import Entry, Ledger, ledger, read
from verify.worker_crashes.exactly import exactly


def played(store, crash, scenario="journey"):
    return play(lambda: ScenarioPlay(SCENARIOS[scenario], stores()[store], crash).play())


@pytest.mark.slow
@pytest.mark.spec("LEASE-4", "LEASE-14", "MOVE-2")
@pytest.mark.parametrize("store", ["sqlite", *longer("memory")])
@pytest.mark.parametrize("mode", modes_of(StoreCall(1, "commit", 1), briefly=False))
def test_the_first_commit_may_fail_in_any_way(store, mode):
    """Whatever the fault, the outcome is that of the undisturbed play."""
    calm = played(store, Crash())
    first = next(call.number for call in calm.crash.calls if call.verb == "commit")
    disturbed = played(store, Crash(first, mode))
    assert disturbed.crash.fired.verb == "commit"
    assert disturbed.outcome == calm.outcome
    assert {name: list(invariant(disturbed.evidence)) for name, invariant in INVARIANTS.items()} == {
        name: [] for name in INVARIANTS
    }


@pytest.mark.slow
@pytest.mark.spec("FLOW-7", "FLOW-18", "PLAN-5", "APPR-2", "OUT-1", "MOVE-2")
@pytest.mark.parametrize("mode", modes_of(StoreCall(1, "commit", 1), briefly=False))
@pytest.mark.parametrize(
    "struck", ["relayed 1", "child 'chore'", *longer("decide 2", "deliver 1", "advance of step 'PACK'")]
)
def test_relations_between_runs_survive_every_fault(struck, mode):
    """A decision, a child's end, a message, a start of children and a plan's step each happen once."""
    calm = played("sqlite", Crash(), "company")
    at = next(call.number for call in calm.crash.calls if struck in str(call))
    disturbed = played("sqlite", Crash(at, mode), "company")
    assert disturbed.crash.fired.number == at
    assert disturbed.arrived
    assert disturbed.outcome == calm.outcome
    assert [name for name, invariant in INVARIANTS.items() if list(invariant(disturbed.evidence))] == []


@pytest.mark.parametrize(
    "verb", ["start", "claim", "commit", "renew", "tick", "emit", "deliver", "due", "publish"]
)
def test_the_journey_calls_every_verb(verb):
    assert verb in {call.verb for call in played("memory", Crash()).crash.calls}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_company_makes_decisions_deliveries_messages_children_and_chains(store):
    """The scenario has calls for all relations between runs."""
    call = played(store, Crash(), "company").crash.calls
    assert {"decide", "deliver", "relay", "relayed"} <= {one.verb for one in call}
    said = " ".join(one.carried for one in call if one.verb == "commit")
    moves = ["advance of step 'PACK'", "park of step 'SHIP'", "retry of step 'CLOSE'", "advance of the run"]
    waits = [
        "child 'chore', child 'doomed', sleep 'nap'",
        "child 'chain'",
        "child 'errand'",
        "approval 'boss'",
    ]
    assert [one for one in (*moves, *waits) if one not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "breached"),
    [
        (sabotage.BLIND_RESEND, {"I7", "TRAIL-1"}),
        *longer(
            (sabotage.NO_FENCE, {"I5", "I6", "I7", "I8", "TRAIL-1"}),
            (sabotage.SPLIT_START, {"I10", "outcome"}),
            (sabotage.FORGETFUL, {"I2", "outcome"}),
            (sabotage.OPTIMIST, {"OUT-1"}),
        ),
    ],
)
def test_a_bug_that_is_switched_in_is_caught(bug, breached):
    """An experiment that passes with a bug would prove nothing. `./hf verify --short` has all of them."""
    for report in crashpoints(sabotage=bug):
        assert {check.name.partition(" ")[0] for check in report.red} == breached


def test_the_sabotage_of_the_fence_takes_the_fence_away(monkeypatch):
    from holdfast.machine import commit

    run = RunRow(id=None, tenant="", run_at=0, status=Status.LEASED, fence=7, lease_until=9)
    assert not commit.holds(run, 6, 5)
    monkeypatch.setattr(commit, "holds", commit.holds)
    sabotage.drop_fence()
    assert (commit.holds(run, 6, 5), commit.holds(run, 6, 10)) == (True, False)


def test_a_sabotage_that_finds_no_guard_to_remove_raises(monkeypatch):
    from holdfast.machine import commit

    monkeypatch.setattr(commit, "holds", lambda _run, _now: True)
    with pytest.raises(RuntimeError, match="mend this sabotage"):
        sabotage.drop_fence()


@pytest.mark.slow
@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_a_write_of_a_transaction_is_there_with_its_step_after_kills():
    """Every snapshot of the file has one write for each step, with real processes, SIGKILL and SIGSTOP."""
    report = asyncio.run(exactly(runs=6, steps=6, every=0.3, kills=6))
    assert [check for check in report.checks if not check.ok] == []


@pytest.mark.slow
def test_an_acknowledged_entry_is_in_the_file_of_the_ledger(tmp_path):
    """An answer means that the entry is written, from an event loop and from threads."""
    entries = [Entry(kind="effect", run="r", step=f"s{n}", amount=n) for n in range(20)]

    async def tell(socket):
        await asyncio.gather(*[Ledger(socket).write(entry) for entry in entries])

    with ledger(tmp_path) as (socket, file):
        asyncio.run(tell(socket))
        assert sorted(entry.amount for entry in read(file)) == list(range(20))
        Ledger(socket).write_blocking(Entry(kind="seen", run="r"))
        assert read(file)[-1].kind == "seen"
        assert read(file)[-1].at >= read(file)[0].at > 0


def test_a_torn_last_line_was_never_acknowledged(tmp_path):
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(b'{"kind":"effect","run":"r"}\n{"kind":"eff')
    assert [entry.kind for entry in read(file)] == ["effect"]


def test_the_last_line_counts_and_a_breach_is_exit_1(capsys, tmp_path):
    good = Report("one", [Check("I1", 0, invariant=True), Check("progress", 0)])
    bad = Report("two", [Check("I5", 3, ("run 7",), invariant=True)])
    assert conclude([good], None) == 0
    assert conclude([good, bad], tmp_path / "out.json") == 1
    assert capsys.readouterr().out.splitlines() == ["2 passed, 0 failed", "2 passed, 1 failed"]
    assert '"breaches": 3' in (tmp_path / "out.json").read_text()


def test_too_little_progress_fails_but_is_no_breach_of_an_invariant():
    """A twin must be caught by its bug, not by an experiment in which nothing happened."""
    report = Report("one")
    report.expect("takeovers were seen", holds=False)
    assert not report.checks[0].ok
    assert report.red == []


def test_without_arguments_it_lists_its_commands(capsys):
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in COMMANDS)


def test_a_worker_id_has_its_process_id():
    assert pid_of("verify:host:4711:abc") == 4711
    assert pid_of("") == 0
