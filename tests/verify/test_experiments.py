"""The experiments themselves: faults fire, switched-in bugs are caught, the ledger keeps its word."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.lifecycle import Status
from holdfast.machine.rows import RunRow
from holdfast.testing.crashes import Crash, Made, modes_of
from holdfast.testing.virtual import play
from verify import sabotage
from verify.__main__ import COMMANDS, main
from verify.crashpoints import ACTS, crashpoints, stores
from verify.exactly import exactly
from verify.invariants import INVARIANTS
from verify.ledger import Entry, Ledger, ledger, read
from verify.report import Check, Report, conclude
from verify.scene import pid_of
from verify.stage import Stage


def played(store, crash, act="journey"):
    return play(lambda: Stage(ACTS[act], stores()[store], crash).play())


@pytest.mark.slow
@pytest.mark.spec("LEASE-4", "LEASE-14", "MOVE-2")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("mode", modes_of(Made(1, "commit", 1), briefly=False))
def test_the_first_commit_may_fail_in_any_way(store, mode):
    """Dead before or after, or without an answer: what comes out is what comes out undisturbed."""
    calm = played(store, Crash())
    first = next(made.number for made in calm.crash.made if made.verb == "commit")
    disturbed = played(store, Crash(first, mode))
    assert disturbed.crash.fired.verb == "commit"
    assert disturbed.outcome == calm.outcome
    assert {name: list(invariant(disturbed.evidence)) for name, invariant in INVARIANTS.items()} == {
        name: [] for name in INVARIANTS
    }


@pytest.mark.slow
@pytest.mark.spec("FLOW-7", "FLOW-18", "PLAN-5", "APPR-2", "OUT-1", "MOVE-2")
@pytest.mark.parametrize("mode", modes_of(Made(1, "commit", 1), briefly=False))
@pytest.mark.parametrize(
    "struck", ["decide 2", "deliver 1", "relayed 1", "child 'chore'", "advance of step 'PACK'"]
)
def test_what_is_between_runs_and_others_may_fail_in_any_way(struck, mode):
    """A decision, the news of a child, a message, a start of children, a plan's step: each is there once."""
    calm = played("sqlite", Crash(), "company")
    at = next(made.number for made in calm.crash.made if struck in str(made))
    disturbed = played("sqlite", Crash(at, mode), "company")
    assert disturbed.crash.fired.number == at
    assert disturbed.arrived
    assert disturbed.outcome == calm.outcome
    assert [name for name, invariant in INVARIANTS.items() if list(invariant(disturbed.evidence))] == []


@pytest.mark.parametrize(
    "verb", ["start", "claim", "commit", "renew", "tick", "emit", "deliver", "due", "publish"]
)
def test_the_journey_comes_by_every_verb(verb):
    assert verb in {made.verb for made in played("memory", Crash()).crash.made}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_company_comes_by_what_is_between_runs_and_others(store):
    """A decision, a delivery of news, messages; moves of plans, children, and what goes on as another run."""
    made = played(store, Crash(), "company").crash.made
    assert {"decide", "deliver", "relay", "relayed"} <= {one.verb for one in made}
    said = " ".join(one.carried for one in made if one.verb == "commit")
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
        (sabotage.NO_FENCE, {"I5", "I6", "I7", "I8", "TRAIL-1"}),
        (sabotage.SPLIT_START, {"I10", "outcome"}),
        (sabotage.FORGETFUL, {"I2", "outcome"}),
        (sabotage.OPTIMIST, {"OUT-1"}),
    ],
)
def test_a_bug_that_is_switched_in_is_caught(bug, breached):
    """An experiment that stays green whatever is broken would prove nothing."""
    for report in crashpoints(sabotage=bug):
        assert {check.name.partition(" ")[0] for check in report.red} == breached


def test_the_sabotage_of_the_fence_takes_the_fence_away(monkeypatch):
    from holdfast.machine import commit

    run = RunRow(id=None, tenant="", run_at=0, status=Status.LEASED, fence=7, lease_until=9)
    assert not commit.holds(run, 6, 5)
    monkeypatch.setattr(commit, "holds", commit.holds)
    sabotage.drop_fence()
    assert (commit.holds(run, 6, 5), commit.holds(run, 6, 10)) == (True, False)


def test_a_sabotage_that_no_longer_bites_says_so(monkeypatch):
    from holdfast.machine import commit

    monkeypatch.setattr(commit, "holds", lambda _run, _now: True)
    with pytest.raises(RuntimeError, match="mend this sabotage"):
        sabotage.drop_fence()


@pytest.mark.slow
@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_what_a_transaction_wrote_is_there_with_its_step_whoever_is_killed():
    """Real processes, SIGKILL and SIGSTOP: in every snapshot of the file there is one write for each step."""
    report = asyncio.run(exactly(runs=6, steps=6, every=0.3, kills=6))
    assert [check for check in report.checks if not check.ok] == []


@pytest.mark.slow
def test_what_the_ledger_has_acknowledged_is_in_its_file(tmp_path):
    """Answered means written: from an event loop and from a thread, alone and many at once."""
    entries = [Entry(kind="effect", run="r", step=f"s{n}", amount=n) for n in range(20)]

    async def tell(socket):
        await asyncio.gather(*[Ledger(socket).tell(entry) for entry in entries])

    with ledger(tmp_path) as (socket, file):
        asyncio.run(tell(socket))
        assert sorted(entry.amount for entry in read(file)) == list(range(20))
        Ledger(socket).tell_now(Entry(kind="seen", run="r"))
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
    """A twin must be caught by what it breaks, not by an experiment that did not take place."""
    report = Report("one")
    report.expect("takeovers were seen", holds=False)
    assert not report.checks[0].ok
    assert report.red == []


def test_alone_it_lists_its_commands(capsys):
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in COMMANDS)


def test_a_worker_id_tells_its_process():
    assert pid_of("verify:host:4711:abc") == 4711
    assert pid_of("") == 0
