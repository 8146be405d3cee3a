"""Experiments on Postgres: plays repeat themselves there, and what is switched in is really switched in."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.stores.postgres import PostgresStore
from holdfast.testing.crashes import Crash, Made, modes_of
from holdfast.testing.virtual import play
from verify import places, sabotage
from verify.crashpoints import ACTS, PARTS, crashpoints, playing, stores
from verify.exactly import exactly
from verify.invariants import INVARIANTS
from verify.kill9 import kill9
from verify.stage import Halfway, Stage

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(postgres_server):
    with places.lent(postgres_server):
        yield postgres_server


@pytest.fixture(scope="module")
def fresh_store(server):
    with playing("postgres") as make:
        yield make


@pytest.fixture(scope="module")
def calm(fresh_store):
    return {act: played(fresh_store, Crash(), act) for act in ACTS}


def played(make, crash, act="journey"):
    return play(lambda: Stage(ACTS[act], make, crash).play())


def breaches(one):
    return [name for name, invariant in INVARIANTS.items() if list(invariant(one.evidence))]


@pytest.mark.parametrize("act", ACTS)
def test_a_play_on_postgres_goes_the_same_way_each_time(fresh_store, calm, act):
    """Call by call: only then is the n-th call of a second play the one that was meant."""
    again = played(fresh_store, Crash(), act)
    assert [str(made) for made in again.crash.made] == [str(made) for made in calm[act].crash.made]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("other", stores())
def test_the_same_comes_out_on_every_store(calm, act, other):
    """Runs, steps, results, decisions and messages: a store may be slower, and nothing else."""
    assert played(stores()[other], Crash(), act).outcome == calm[act].outcome


@pytest.mark.spec("LEASE-4", "LEASE-14", "MOVE-2")
@pytest.mark.parametrize("mode", modes_of(Made(1, "commit", 1), briefly=False))
def test_the_first_commit_to_postgres_may_fail_in_any_way(fresh_store, calm, mode):
    """Dead before or after, or without an answer: what comes out is what comes out undisturbed."""
    first = next(made.number for made in calm["journey"].crash.made if made.verb == "commit")
    disturbed = played(fresh_store, Crash(first, mode))
    assert disturbed.crash.fired.verb == "commit"
    assert disturbed.outcome == calm["journey"].outcome
    assert breaches(disturbed) == []


@pytest.mark.spec("EVENT-3", "MOVE-2")
def test_an_event_is_recorded_and_its_sender_dies_before_it_is_delivered(fresh_store, calm):
    """A verb that asks the server twice may end between: what it began is ended by others."""
    whole = Halfway()
    played(fresh_store, whole)
    assert PARTS & set(whole.trips) >= {"emit_at_once", "lapse", "deliver"}
    struck = Halfway(whole.trips.index("emit_at_once") + 1)
    disturbed = played(fresh_store, struck)
    assert struck.fired.verb == "emit_at_once"
    assert struck.trips[: len(whole.trips)] != whole.trips
    assert disturbed.arrived
    assert disturbed.outcome == calm["journey"].outcome
    assert breaches(disturbed) == []


def test_a_bug_that_is_switched_in_is_caught_on_postgres(server):
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


def test_a_sabotage_of_functions_that_no_longer_bites_says_so(admin):
    sabotage.unfence(admin)
    with pytest.raises(RuntimeError, match="mend this sabotage"):
        sabotage.unfence(admin)


@pytest.mark.spec("LEASE-4", "MOVE-2")
def test_workers_on_postgres_are_killed_and_every_run_ends_well(server):
    """Real processes: no recorded step is done again, whoever dies of it."""
    report = asyncio.run(kill9(runs=12, kills=4, seed=1, store="postgres"))
    # Whether a takeover fell into so short a time is chance.
    assert [check for check in report.checks if not check.ok and check.name != "takeovers were seen"] == []


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_what_a_transaction_wrote_to_postgres_is_there_with_its_step(server):
    """SIGKILL, SIGSTOP and commits without an answer: in every snapshot there is one write for each step."""
    report = asyncio.run(exactly(runs=6, steps=6, every=0.3, kills=6, store="postgres"))
    # Whether an answer was lost in so short a time is chance.
    assert [check for check in report.checks if not check.ok and "lost" not in check.name] == []
