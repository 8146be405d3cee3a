"""Plain writes of holders: the script takes an item only if the run is as its holder has left it."""

from __future__ import annotations

import pytest

from holdfast.errors import Unavailable
from holdfast.records import TrailWrite
from holdfast.stores.redis.plain import Holdings
from holdfast.testing.contract.driver import LEASE, done
from servers.redis_store import server


@pytest.fixture
def scripts(driver):
    """The names of the scripts that the store has run."""
    names, run_all = [], driver.store._connections.run_all

    async def noted(name, calls):
        names.extend(name for _ in calls)
        return await run_all(name, calls)

    driver.store._connections.run_all = noted
    return names


def field(driver, run, name):
    with server().client() as client:
        return client.hget(driver.store._names.run(run), name)


@pytest.mark.spec("STORE-3")
def test_steps_and_the_end_of_a_run_are_one_script_each(driver, scripts):
    claim = driver.held()
    driver.checkpoint(claim, done("a"), started_at=driver.clock())
    driver.checkpoint(claim, done("b"), done("c"))
    driver.complete(claim, done("d"))
    assert scripts == ["start", "claim", "hold", "hold", "hold"]
    assert driver.shape(claim.id) == [(key, "succeeded") for key in "abcd"]
    assert [step.seq for step in driver.steps(claim.id)] == [1, 2, 3, 4]


@pytest.mark.spec("STORE-3")
def test_after_a_pause_that_was_withdrawn_writes_are_plain_again(driver, scripts):
    claim = driver.held()
    driver.pause(claim.id)
    driver.resume(claim.id)
    del scripts[:]
    for key in "abc":
        assert driver.checkpoint(claim, done(key)).answer == "applied"
    assert scripts == ["hold", "hold", "hold"]


@pytest.mark.spec("STORE-3", "LEASE-4")
def test_a_write_that_the_machine_has_decided_does_not_end_the_plain_ones(driver, scripts):
    claim = driver.held()
    driver.checkpoint(claim, done("a"), progress="1")
    driver.checkpoint(claim, done("b"))
    driver.complete(claim)
    assert scripts[2:] == ["save", "hold", "hold"]


@pytest.mark.spec("STORE-3")
def test_the_number_of_a_log_row_is_known_to_the_next_claim(driver, scripts):
    claim = driver.held()
    driver.checkpoint(claim, done("a"), trail=(TrailWrite(type="log", data='{"log_no":3}'),))
    assert scripts[-1] == "hold"
    assert field(driver, claim.id, "writes").endswith(" 1")  # claims look at `logs`
    driver.clock.turn(LEASE + 1)
    driver.tick()
    assert driver.take(claim.id).logs == 3


@pytest.mark.spec("STORE-3", "LEASE-14")
def test_a_plain_write_without_an_answer_is_done_once(driver, scripts):
    """The store does not know whether it was applied: the machine looks, when it is sent again."""
    claim, run_all = driver.held(), driver.store._connections.run_all

    async def unanswered(name, calls):
        await run_all(name, calls)
        raise Unavailable("the answer was lost")

    item = driver.item(claim, "checkpoint", done("a"))
    driver.store._connections.run_all = unanswered
    with pytest.raises(Unavailable):
        driver.send(item)
    driver.store._connections.run_all = run_all
    (verdict,) = driver.send(item)
    assert verdict.answer == "applied"
    assert driver.shape(claim.id) == [("a", "succeeded")]
    assert driver.told(claim.id).count("step_succeeded") == 1


@pytest.mark.spec("STORE-3")
def test_a_write_after_one_that_the_server_has_lost_is_not_plain(driver, scripts):
    """The stored text is an older one then, and its holder would go on without a step."""
    claim = driver.held()
    before = field(driver, claim.id, "writes")
    driver.checkpoint(claim, done("a"))
    names = driver.store._names
    with server().client() as client:
        client.hset(names.run(claim.id), "writes", before)
        client.hset(names.numbers, "epoch", claim.fence)
        client.hdel(names.steps(claim.id), "a")
    assert driver.checkpoint(claim, done("b")).answer == "lost"
    assert (
        driver.complete(claim).answer == "lost"
    )  # the machine has read the run, and did not make it plain again


@pytest.mark.spec("STORE-3", "LEASE-4")
def test_a_fence_that_is_over_is_not_plain(driver, scripts):
    claim = driver.held()
    driver.clock.turn(LEASE + 1)
    driver.tick()
    other = driver.take(claim.id, worker="w2")
    assert driver.checkpoint(claim, done("a")).answer == "lost"
    assert driver.checkpoint(other, done("b")).answer == "applied"
    assert driver.shape(claim.id) == [("b", "succeeded")]


@pytest.mark.spec("STORE-3")
def test_a_worker_remembers_a_bounded_number_of_runs(driver, scripts, monkeypatch):
    """The writes of forgotten ones are decided by the machine, once."""
    monkeypatch.setattr(Holdings, "MOST", 2)
    claims = [driver.held() for _ in range(3)]
    del scripts[:]
    for claim in claims[::-1]:
        assert driver.checkpoint(claim, done("a")).answer == "applied"
    assert scripts == ["hold", "hold", "save"]
    assert len(driver.store._holdings._known) == 2
