"""Experiments on Postgres: plays repeat themselves exactly, and switched-in bugs are caught."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.stores.postgres import PostgresStore
from holdfast.testing.crashes import Crash, StoreCall, modes_of
from holdfast.testing.virtual import play
from tests.laws.effort import only_long
from verify import sabotage
from verify.checks.invariants import INVARIANTS
from verify.crashpoints.crashpoints import PARTS, SCENARIOS, crashpoints, playing, stores
from verify.crashpoints.simulation import CrashHalfway, ScenarioPlay
from verify.environment import stores as places
from verify.worker_crashes.exactly import exactly
from verify.worker_crashes.kill9 import kill9

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(postgres_server):
    with places.use_server(postgres_server):
        yield postgres_server


@pytest.fixture(scope="module")
def fresh_store(server):
    with playing("postgres") as make:
        yield make


@pytest.fixture(scope="module")
def calm(fresh_store):
    return {scenario: played(fresh_store, Crash(), scenario) for scenario in SCENARIOS}


def played(make, crash, scenario="journey"):
    return play(lambda: ScenarioPlay(SCENARIOS[scenario], make, crash).play())


def breaches(one):
    return [name for name, invariant in INVARIANTS.items() if list(invariant(one.evidence))]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_play_on_postgres_makes_the_same_calls_each_time(fresh_store, calm, scenario):
    """Only then is the n-th call of a second play the call that was meant."""
    again = played(fresh_store, Crash(), scenario)
    assert [str(call) for call in again.crash.calls] == [str(call) for call in calm[scenario].crash.calls]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("other", stores())
def test_the_outcome_is_the_same_on_every_store(calm, scenario, other):
    """Runs, steps, results, decisions and messages are equal; only the speed may differ."""
    assert played(stores()[other], Crash(), scenario).outcome == calm[scenario].outcome


@pytest.mark.spec("LEASE-4", "LEASE-14", "MOVE-2")
@pytest.mark.parametrize("mode", modes_of(StoreCall(1, "commit", 1), briefly=False))
def test_the_first_commit_to_postgres_may_fail_in_any_way(fresh_store, calm, mode):
    """Whatever the fault, the outcome is that of the undisturbed play."""
    first = next(call.number for call in calm["journey"].crash.calls if call.verb == "commit")
    disturbed = played(fresh_store, Crash(first, mode))
    assert disturbed.crash.fired.verb == "commit"
    assert disturbed.outcome == calm["journey"].outcome
    assert breaches(disturbed) == []


@pytest.mark.spec("EVENT-3", "MOVE-2")
def test_an_event_is_recorded_and_its_sender_dies_before_it_is_delivered(fresh_store, calm):
    """A verb that makes two queries may end between them: other processes finish its work."""
    whole = CrashHalfway()
    played(fresh_store, whole)
    assert PARTS & set(whole.trips) >= {"emit_at_once", "lapse", "deliver"}
    struck = CrashHalfway(whole.trips.index("emit_at_once") + 1)
    disturbed = played(fresh_store, struck)
    assert struck.fired.verb == "emit_at_once"
    assert struck.trips[: len(whole.trips)] != whole.trips
    assert disturbed.arrived
    assert disturbed.outcome == calm["journey"].outcome
    assert breaches(disturbed) == []


@only_long
def test_a_bug_that_is_switched_in_is_caught_on_postgres(server):
    """With real processes `./hf verify --short` has it too."""
    (report,) = crashpoints(("postgres",), sabotage.NO_FENCE)
    assert "I5" in {check.name.partition(" ")[0] for check in report.red}


@pytest.fixture
def admin(server, postgres_database):
    asyncio.run(_made(postgres_database.url))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        yield connection


async def _made(url):
    store = PostgresStore(url)
    await store.open()
    await store.close()


def test_the_sabotage_of_the_fence_takes_it_out_of_every_guard(admin):
    sabotage.unfence(admin)
    for name, guard, _ in sabotage.UNFENCED:
        ((text,),) = admin.execute(f"select prosrc from pg_proc where proname = '{name}'").fetchall()
        assert guard not in text


def test_a_sabotage_of_functions_without_a_guard_to_remove_raises(admin):
    sabotage.unfence(admin)
    with pytest.raises(RuntimeError, match="mend this sabotage"):
        sabotage.unfence(admin)


@pytest.mark.spec("LEASE-4", "MOVE-2")
@only_long  # `./hf verify --short` has it
def test_workers_on_postgres_are_killed_and_every_run_ends_well(server):
    """No recorded step is done again, with real processes."""
    report = asyncio.run(kill9(runs=12, kills=4, seed=1, store="postgres"))
    # Whether a takeover fell into so short a time is chance.
    assert [check for check in report.checks if not check.ok and check.name != "takeovers were seen"] == []


@only_long
@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_a_write_of_a_transaction_on_postgres_is_there_with_its_step(server):
    """Every snapshot has one write for each step, after SIGKILL, SIGSTOP and lost answers of commits.

    `./hf verify --short` has it too.
    """
    report = asyncio.run(exactly(runs=6, steps=6, every=0.3, kills=6, store="postgres"))
    # Whether an answer was lost in so short a time is chance.
    assert [check for check in report.checks if not check.ok and "lost" not in check.name] == []
