"""Sessions of the pages: begun, used, idle, expired, ended, purged."""

from __future__ import annotations

from hashlib import sha256

import pytest

from holdfast.contract import SEEN_SECONDS, SESSIONS_PER_KEY
from holdfast.errors import Conflict, UsageError
from holdfast.records import SECOND, NewPageSession, moment

KEY, OTHER_KEY = "k00000000001", "k00000000002"
HOUR = 3600


def hashed(text):
    return sha256(str(text).encode()).hexdigest()


def new(name="one", key=KEY, **fields):
    standard = {"secret_hash": hashed("secret"), "idle_seconds": HOUR, "keep_seconds": 10 * HOUR}
    return NewPageSession(id_hash=hashed(name), key_id=key, **{**standard, **fields})


def create(driver, name="one", **fields):
    return driver.run(driver.store.create_session(new(name, **fields)))


def use(driver, name="one"):
    return driver.run(driver.store.use_session(hashed(name)))


@pytest.mark.spec("TEN-1")
def test_a_session_is_found_by_the_hash_of_its_id(driver):
    session = create(driver)
    now = driver.clock.now
    assert (session.id_hash, session.key_id, session.secret_hash) == (hashed("one"), KEY, hashed("secret"))
    assert (session.created_at, session.seen_at) == (moment(now), moment(now))
    assert session.ends_at == moment(now + HOUR * SECOND)
    assert session.expires_at == moment(now + 10 * HOUR * SECOND)
    assert use(driver) == session
    assert use(driver, "two") is None


def test_the_same_call_again_makes_no_second_session(driver):
    session = create(driver)
    driver.clock.turn(5)
    assert create(driver) == session
    with pytest.raises(Conflict, match="another session"):
        create(driver, key=OTHER_KEY)
    with pytest.raises(Conflict, match="another session"):
        create(driver, secret_hash=hashed("other"))


def test_a_session_that_is_not_used_ends(driver):
    create(driver)
    driver.clock.turn(HOUR - 1)
    seen = use(driver)
    assert seen.seen_at == moment(driver.clock.now)
    assert seen.ends_at == moment(driver.clock.now + HOUR * SECOND)
    driver.clock.turn(HOUR)
    assert use(driver) is None


def test_a_use_is_written_once_a_minute(driver):
    session = create(driver)
    driver.clock.turn(SEEN_SECONDS - 1)
    assert use(driver) == session
    driver.clock.turn(1)
    assert use(driver).seen_at == moment(driver.clock.now)


def test_a_session_that_is_used_all_the_time_ends_too(driver):
    session = create(driver, keep_seconds=2 * HOUR)
    for _ in range(3):
        driver.clock.turn(HOUR / 2)
        assert use(driver).ends_at <= session.expires_at
    driver.clock.turn(HOUR / 2)
    assert use(driver) is None


def test_an_ended_session_is_gone(driver):
    create(driver)
    create(driver, "two")
    driver.run(driver.store.end_session(hashed("one")))
    driver.run(driver.store.end_session(hashed("none")))
    assert use(driver) is None
    assert use(driver, "two") is not None


def test_more_sessions_of_a_key_push_out_the_oldest(driver):
    create(driver, "theirs", key=OTHER_KEY)
    for number in range(SESSIONS_PER_KEY + 2):
        driver.clock.turn(0.001)
        create(driver, number)
    assert [use(driver, one) is None for one in (0, 1, 2, SESSIONS_PER_KEY + 1)] == [True, True, False, False]
    assert use(driver, "theirs") is not None


def test_a_purge_removes_ended_sessions(driver):
    create(driver)
    create(driver, "two", idle_seconds=2 * HOUR)
    assert driver.purge().sessions == 0
    driver.clock.turn(HOUR)
    assert (driver.purge().sessions, driver.purge().total) == (1, 0)
    assert use(driver, "two") is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"id_hash": "abc"}, {"secret_hash": "A" * 64}, {"key_id": "x"}, {"idle_seconds": 0},
        {"keep_seconds": 1e12}, {"idle_seconds": "1"},
    ],
)  # fmt: skip
def test_odd_sessions_are_refused(driver, fields):
    given = {"id_hash": hashed("one"), "key_id": KEY, "secret_hash": hashed("s"), "idle_seconds": 1.0}
    with pytest.raises(UsageError):
        driver.run(driver.store.create_session(NewPageSession(**{**given, "keep_seconds": 1.0, **fields})))
