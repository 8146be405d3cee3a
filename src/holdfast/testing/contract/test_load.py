"""A claim's answer is bounded in bytes; larger runs are read in pages, under the fence."""

from __future__ import annotations

import pytest

from holdfast.bounds import MIB, NEWS_BYTES, ROW_BYTES
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import ANY, Chore, Lease

from .driver import LEASE, ask, done, listen, noise, sleep


def text(size, fill="x"):
    return f'"{fill * (size - 2)}"'


def lease(claim, **fields):
    return Lease(**{"run": claim.id, "tenant": claim.tenant, "fence": claim.fence, **fields})


def load(driver, claim, *args, **fields):
    return driver.run(driver.store.load(lease(claim, **fields), *args))


def read(driver, claim, size):
    """Read all pages of a run: params, labels, steps by key, and the number of pages."""
    page = load(driver, claim, -1, size)
    params, labels, pages = page.params, page.labels_json, 1
    steps = {step.key: step for step in page.steps}
    while page.more:
        assert page.steps, "a page that brings nothing leads nowhere"
        page = load(driver, claim, page.steps[-1].seq, size)
        steps |= {step.key: step for step in page.steps}
        pages += 1
    return params, labels, steps, pages


def brought(claim):
    values = (value for step in claim.steps for value in (step.output, step.error_json))
    return len(claim.params) + sum(len(value or "") for value in values)


@pytest.mark.spec("LEASE-19")
def test_a_claim_brings_no_more_bytes_than_were_asked_for(driver):
    """All runs come in order; values that do not fit are left to `load`."""
    runs = [driver.start(params=text(5_000)) for _ in range(5)]
    claims = driver.claim(bytes=12_000)
    assert [claim.id for claim in claims] == runs
    assert [claim.unread for claim in claims] == [False, False, True, True, True]
    assert sum(brought(claim) for claim in claims if not claim.unread) <= 12_000
    assert all(claim.params == "null" and not claim.steps for claim in claims if claim.unread)
    for claim in claims[2:]:
        assert read(driver, claim, 100)[0] == text(5_000)


@pytest.mark.spec("LEASE-19")
def test_a_claim_may_bring_no_values_at_all(driver):
    """A worker whose claims fail can lease runs without reading their values."""
    run = driver.start(params="1", labels='{"a":"b"}')
    claim = driver.take(run, bytes=0)
    assert claim.unread
    assert claim.attempt == 1
    assert read(driver, claim, 1)[:2] == ("1", '{"a":"b"}')


@pytest.mark.spec("LEASE-1", "LEASE-19")
def test_the_steps_of_a_large_run_come_in_pages(driver):
    """Pages have every step once, in the order of seq, and each page keeps its bound."""
    claim = driver.held()
    outputs = {f"s{n}": text(2_000 + n) for n in range(20)}
    driver.checkpoint(claim, *(done(key, output) for key, output in outputs.items()))
    driver.release(claim)
    again = driver.take(bytes=10_000)
    assert again.unread
    page = load(driver, again, -1, 10_000)
    assert 1 < len(page.steps) < 6
    assert page.more
    _, _, steps, pages = read(driver, again, 10_000)
    assert {key: step.output for key, step in steps.items()} == outputs
    assert [step.seq for step in steps.values()] == sorted(step.seq for step in steps.values())
    assert pages >= 4


@pytest.mark.spec("LEASE-19")
def test_a_page_brings_at_least_one_step(driver):
    """A value that is larger than a page comes alone: otherwise no later step could be read."""
    claim = driver.held()
    driver.checkpoint(claim, done("small"), done("large", text(50_000)), done("last"))
    _, _, steps, pages = read(driver, claim, 10)
    assert list(steps) == ["small", "large", "last"]
    assert pages == 3


@pytest.mark.spec("LEASE-19")
def test_a_run_of_a_plan_is_read_in_pages_too(driver):
    """The first row of a plan has seq 0."""
    run = driver.plan("A", "B", "C", params=text(9_000))
    claim = driver.take(run, bytes=100)
    assert claim.unread
    assert claim.kind == "plan"
    params, _, steps, _ = read(driver, claim, 10)
    assert params == text(9_000)
    assert list(steps) == ["A", "B", "C"]


@pytest.mark.spec("LEASE-19", "START-9")
@pytest.mark.parametrize("fill", ['\\"', "\\u0001"])
def test_many_runs_at_the_limit_of_a_value_are_claimed_at_once(driver, fill):
    """This holds for every encoding: a value that is escaped again may be twice as long."""
    value = f'"{fill * (3 * MIB // len(fill))}"'
    runs = [driver.start(params=value) for _ in range(6)]
    claims = driver.claim(limit=100)
    assert [claim.id for claim in claims] == runs
    assert sum(brought(claim) for claim in claims if not claim.unread) <= 8 * MIB
    unread = [claim for claim in claims if claim.unread]
    assert len(unread) >= 3
    assert load(driver, unread[0]).params == value


@pytest.mark.spec("LEASE-4", "LEASE-19")
def test_pages_are_read_under_the_fence(driver):
    """Another holder, an older fence or an expired lease read nothing."""
    claim = driver.held(params="1")
    assert load(driver, claim).answer == "applied"
    assert load(driver, claim, fence=claim.fence - 1).answer == "lost"
    driver.clock.turn(LEASE)
    assert load(driver, claim).answer == "applied"
    driver.clock.turn(0.001)
    lost = load(driver, claim)
    assert (lost.answer, lost.params, lost.steps) == ("lost", None, ())
    other = driver.held(params="2")
    driver.run(driver.store.cancel(other.id, ANY))
    assert load(driver, other).answer == "cancelled"
    assert load(driver, other, run=driver.id()).answer == "lost"


@pytest.mark.spec("LEASE-19", "FLOW-9")
def test_large_events_are_announced_and_read_by_pages(driver):
    """Answers of commits and renewals leave out their values; a page has them, in order."""
    claim = driver.held()
    driver.checkpoint(claim, listen("one", "a"), listen("two", "b"), known=0)
    driver.emit("a", noise(2 * NEWS_BYTES))
    driver.emit("b", noise(2 * NEWS_BYTES))
    verdict = driver.checkpoint(claim, done("three"), known=2)
    assert (verdict.more, verdict.settled, verdict.seq) == (True, (), 5)
    page = load(driver, claim, 2, 20 * NEWS_BYTES)
    assert [(step.key, step.seq) for step in page.steps] == [("one", 3), ("two", 4), ("three", 5)]
    assert [step.status for step in page.steps] == [StepStatus.SUCCEEDED] * 3


@pytest.mark.spec("LEASE-19", "MOVE-8")
def test_a_park_that_finds_a_large_event_stays_leased(driver):
    """The outcome counts, whether or not the answer can carry it."""
    claim = driver.held()
    driver.checkpoint(claim, listen("one", "a"), known=0)
    driver.emit("a", noise(3 * NEWS_BYTES))
    verdict = driver.park(claim, listen("two", "b"), known=1)
    assert (verdict.answer, verdict.status, verdict.more) == ("applied", Status.LEASED, True)
    small = driver.held()
    driver.checkpoint(small, listen("one", "c"), known=0)
    driver.emit("c", text(100))
    verdict = driver.park(small, listen("two", "d"), known=1)
    assert [step.key for step in verdict.settled] == ["one"]
    assert not verdict.more


@pytest.mark.spec("LEASE-8", "LEASE-19")
def test_a_renewal_announces_large_events(driver):
    """A large event of one run does not make the renewal of all runs large."""
    claim = driver.held()
    driver.checkpoint(claim, listen("one", "a"), known=0)
    driver.emit("a", noise(3 * NEWS_BYTES))
    renewal = driver.store.renew("w1", [lease(claim, known=1)], LEASE)
    (held,) = renewal.held
    assert (held.answer, held.more, held.settled) == ("applied", True, ())


@pytest.mark.spec("LEASE-8", "LEASE-19")
def test_the_question_of_a_gate_counts_as_large_news(driver):
    """Decisions are small but their questions are not: a renewal announces them, and a page has them."""
    claim = driver.held()
    driver.checkpoint(claim, ask("gate", ask='{"ask":"ok?","data":' + noise(3 * NEWS_BYTES) + "}"), known=0)
    driver.approve(claim.id, "gate")
    (held,) = driver.store.renew("w1", [lease(claim, known=1)], LEASE).held
    assert (held.answer, held.more, held.settled) == ("applied", True, ())
    verdict = driver.checkpoint(claim, done("next"), known=1)
    assert (verdict.answer, verdict.more, verdict.settled) == ("applied", True, ())
    assert [step.key for step in load(driver, claim, 1, 20 * NEWS_BYTES).steps] == ["gate", "next"]


@pytest.mark.spec("LEASE-8", "LEASE-19")
@pytest.mark.parametrize(
    ("key", "count"), [("", NEWS_BYTES // ROW_BYTES + 1), ("k" * 200, NEWS_BYTES // 400 + 1)]
)
def test_many_small_outcomes_are_large_news(driver, key, count):
    """Rows and their keys count in bytes, as in a claim."""
    claim = driver.held()
    driver.checkpoint(claim, *(sleep(f"{n}{key}", 1.0) for n in range(count)), known=0)
    driver.clock.turn(2)
    while driver.tick(only=Chore.LAPSE).more:
        pass
    (held,) = driver.store.renew("w1", [lease(claim, known=count)], LEASE).held
    assert (held.answer, held.more, held.settled) == ("applied", True, ())
