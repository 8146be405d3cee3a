"""Races of API keys: the open runs of a key, names of keys, the first signing key."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from time import monotonic, sleep

import pytest
from psycopg import errors

from holdfast.records import NewRun, Started
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.keys import ID, OTHER_ID, create, find, new, use

LIMIT = "1752132457"


def runs(driver, count=1, most=1, **fields):
    counted = {"api_key": ID, "open_runs_max": most} if most else {}
    return [NewRun(id=driver.id(), type=TYPE, **{**counted, **fields}) for _ in range(count)]


def created(answers):
    return [answer.get("created", answer.get("error")) for answer in answers]


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("ends", ["commit", "roll_back"])
def test_a_start_waits_for_an_open_one_of_its_key(driver, sessions, ends):
    """It counts what the other one has committed, and nothing that was rolled back."""
    one, two = sessions
    one.begin()
    assert created(one.call("start", runs(driver))) == [True]
    waiting = two.waits("start", runs(driver))
    getattr(one, ends)()
    assert created(waiting.result()) == ["too_many_runs" if ends == "commit" else True]


@pytest.mark.spec("TEN-3")
def test_other_starts_wait_for_no_key(driver, sessions):
    """Those of another key, those without a limit, and those without a key."""
    one, two = sessions
    one.begin()
    one.call("start", runs(driver))
    for others in (
        runs(driver, api_key=OTHER_ID), runs(driver, open_runs_max=None), runs(driver, most=None),
        runs(driver, 3, most=None),
    ):  # fmt: skip
        two.run("set lock_timeout = '1ms'")
        assert created(two.call("start", others)) == [True] * len(others)
    held = two.run(f"select count(*) from pg_locks where locktype = 'advisory' and classid = {LIMIT}")
    assert held == [(1,)]
    one.roll_back()


@pytest.mark.spec("TEN-3")
def test_of_several_starts_one_that_waits_too_long_is_busy(driver, sessions):
    """The others are started; the caller sends it alone."""
    one, two = sessions
    one.begin()
    one.call("start", runs(driver))
    mixed = [*runs(driver), *runs(driver, 2, most=None)]
    assert created(two.call("start_together", mixed)) == ["busy", True, True]
    one.commit()
    assert created(two.call("start_together", mixed[:1])) == ["too_many_runs"]


@pytest.mark.spec("TEN-3")
def test_a_call_of_one_key_waits_for_the_others_of_that_key(driver, sessions):
    """Longer than a call of several callers, because it delays nobody else."""
    one, two = sessions
    one.begin()
    one.call("start", runs(driver, most=30))
    waiting = two.waits("start_together", runs(driver, 30, most=30))
    sleep(0.3)
    one.commit()
    assert created(waiting.result()) == [True] * 29 + ["too_many_runs"]


@pytest.mark.spec("TEN-3")
def test_all_runs_of_a_key_that_stays_locked_are_busy_at_once(driver, sessions):
    """The others of the call do not wait for each of them."""
    one, two = sessions
    one.begin()
    one.call("start", runs(driver))
    mixed = [*runs(driver, 200), *runs(driver, 3, most=None), *runs(driver, 2, most=2, api_key=OTHER_ID)]
    begun = monotonic()
    answers = created(two.call("start_together", mixed))
    assert monotonic() - begun < 2
    assert answers == ["busy"] * 200 + [True] * 5
    one.roll_back()


@pytest.mark.spec("TEN-3", "START-5")
def test_runs_under_a_limit_are_started_together_while_there_is_room(driver, sessions):
    """With too little room each has its turn, in order."""
    one, _ = sessions
    one.run("set track_functions = 'all'")

    def apart(*items):
        one.begin()
        answers = created(one.call("start", [*items]))
        calls = one.run("select calls from pg_stat_xact_user_functions where funcname = 'start_run'")
        one.commit()
        return answers, sum(count for (count,) in calls)

    assert apart(*runs(driver, 50, most=60), *runs(driver, most=None)) == ([True] * 51, 0)
    assert apart(*runs(driver, 10, most=60), *runs(driver, most=None, api_key=OTHER_ID)) == ([True] * 11, 0)
    assert apart(*runs(driver, 2, most=61)) == ([True, "too_many_runs"], 2)


@pytest.mark.spec("TEN-3")
def test_callers_of_one_key_at_once_are_all_served(driver):
    """Nobody has to ask again for ever."""

    async def at_once():
        calls = [runs(driver, 100, most=10_000) for _ in range(4)]
        return await asyncio.gather(*map(driver.store.start, calls))

    for _ in range(3):
        answers = [answer for answers in driver.run(at_once()) for answer in answers]
        assert all(isinstance(answer, Started) for answer in answers)


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("wrong", [{"api_key": None}, {"most": 10_001}], ids=str)
@pytest.mark.parametrize("more", [0, 1])
def test_sql_that_gives_a_wrong_limit_is_refused(driver, sessions, wrong, more):
    """The checks of the store are not on its way."""
    one, _ = sessions
    with pytest.raises(errors.DatabaseError, match="api_key is the id of an API key, and open_runs_max"):
        one.call("start", [*runs(driver, **wrong), *runs(driver, more)])


@pytest.mark.spec("TEN-3")
def test_an_old_snapshot_cannot_count(driver, sessions):
    """At a higher isolation level nobody sees what was committed meanwhile."""
    one, _ = sessions
    one.run("begin isolation level repeatable read")
    with pytest.raises(errors.DatabaseError, match="make it read committed"):
        one.call("start", runs(driver))
    one.roll_back()
    one.run("begin isolation level repeatable read")
    assert created(one.call("start", runs(driver, most=None))) == [True]
    one.roll_back()


@pytest.mark.spec("TEN-1")
def test_of_two_keys_with_one_name_the_second_is_refused(driver, sessions):
    one, two = sessions
    one.begin()
    one.call("create_key", new(), None)
    waiting = two.waits("create_key", new(OTHER_ID), None)
    one.commit()
    with pytest.raises(errors.DatabaseError, match="has the name 'ci'"):
        waiting.result()
    assert find(driver, OTHER_ID) is None


@pytest.mark.spec("TEN-6")
def test_the_first_signing_key_is_waited_for(driver, sessions):
    one, two = sessions
    mine, yours = (b64encode(bytes([n]) * 32).decode() for n in (1, 2))
    one.begin()
    (made,) = one.call("signing_keys", mine)
    waiting = two.waits("signing_keys", yours)
    one.commit()
    assert waiting.result() == [made]


@pytest.mark.spec("TEN-1")
def test_a_key_that_is_locked_is_not_marked_as_used(driver, sessions):
    """A use of the same minute: nobody waits for it."""
    create(driver)
    one, _ = sessions
    one.begin()
    one.run(f"select 1 from workflow_api_key where id = '{ID}' for update")
    use(driver, ID)
    one.roll_back()
    assert find(driver).last_used_at is None
    use(driver, ID)
    assert find(driver).last_used_at is not None


@pytest.mark.spec("TEN-1", "TEN-3")
def test_a_key_is_found_and_its_runs_are_counted_by_an_index(driver, sessions):
    """However many keys and runs there are."""
    one, _ = sessions
    one.run(
        "insert into workflow_api_key (id, tenant, name, scopes, secret_hash) "
        "select lpad(n::text, 12, '0'), 'acme', 'n' || n, '{work}', '' from generate_series(1, 20000) as n"
    )
    one.run(
        "insert into workflow_run (id, type, max_attempts, rev, api_key, status, finished_at) "
        "select gen_random_uuid(), 'a.b.v1', 3, 1, 'k0000000000' || n % 9, 'succeeded', now() "
        "from generate_series(1, 20000) as n"
    )
    one.run("analyze workflow_api_key; analyze workflow_run")
    one.call("find_key", "000000000007")
    assert one.pages("find_key", "000000000007") < 10
    one.call("count_open_runs", f"{{{ID}}}")
    assert one.pages("count_open_runs", f"{{{ID}}}") < 40
    one.run("truncate workflow_api_key")


@pytest.mark.spec("TEN-1", "READ-1")
def test_a_call_of_audit_reads_a_bounded_part_of_the_log(driver, sessions):
    """Whatever it looks for: a key that is rare, an action that is nowhere, a time long ago."""
    one, _ = sessions
    one.run(
        "insert into workflow_audit (at, tenant, key_id, action) select now() - n * interval '1 minute', "
        "'acme', case when n % 9000 = 0 then 'rare' else 'often' end, 'start' "
        "from generate_series(60000, 1, -1) as n"
    )
    one.run("analyze workflow_audit")
    long_ago = int(one.run("select extract(epoch from now() - interval '30 days') * 1000000")[0][0])
    for asked, pages in (
        ({"keys": ["rare"]}, 100), ({"keys": ["rare", "often", "none"], "actions": ["none"]}, 600),
        ({"actions": ["none"]}, 600), ({"tenant": "acme", "actions": ["none"]}, 600),
        ({"since": long_ago, "until": long_ago + 60_000_000}, 600),
    ):  # fmt: skip
        assert min(one.pages("audit", asked, 100) for _ in range(3)) < pages, asked
    assert len(one.call("audit", {"keys": ["rare"]}, 100)["entries"]) == 6
    assert len(one.call("audit", {"since": long_ago, "until": long_ago + 60_000_000}, 9)["entries"]) == 1
    one.run("truncate workflow_audit")  # other tests look at the dead rows of this database
