"""follow and follow_all: the news of many runs, and of all of them, for readers that ask again and again."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest

from holdfast.contract import FOLLOWED_MAX
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, Followed, TrailWrite

from .chains import chain, go_on, purge_all
from .driver import done, noise

END = 2**63 - 1  # after every row


def follow(driver, *pairs, tenant=ANY, **fields):
    return driver.run(driver.store.follow(pairs, tenant, **fields))


def follow_all(driver, tenant=ANY, **fields):
    return driver.run(driver.store.follow_all(tenant, **fields))


def last_of(driver, run):
    return driver.trail(run)[-1].seq


def logged(driver, claim, *sizes):
    """Add rows of these sizes to the trail of a held run."""
    rows = tuple(TrailWrite("log", f'{{"message":{noise(size)}}}') for size in sizes)
    driver.checkpoint(claim, done(f"step-{last_of(driver, claim.id)}"), trail=rows)


@pytest.mark.spec("TRAIL-3")
def test_a_follower_gets_the_rows_after_its_own_in_order(driver):
    """The rows are those of `trail`; a run without later rows is not in the answer."""
    quiet, busy = driver.start(), driver.start()
    before = last_of(driver, busy)
    claims = {claim.id: claim for claim in driver.claim()}
    driver.checkpoint(claims[busy])
    (news,) = follow(driver, (quiet, last_of(driver, quiet)), (busy, before))
    whole = driver.trail(busy)
    assert [entry.type for entry in whole] == ["created", "leased", "step_succeeded"]
    assert news == Followed(
        run=busy, tenant="default", status=Status.LEASED, present=busy, entries=tuple(whole[1:])
    )
    assert follow(driver, (busy, 0))[0].entries == tuple(whole)
    assert follow(driver, (quiet, last_of(driver, quiet)), (busy, last_of(driver, busy))) == []
    assert follow(driver) == []


@pytest.mark.spec("TRAIL-3")
def test_the_answer_has_the_order_of_the_question(driver):
    """The same run may be asked for twice, for two followers."""
    first, second, third = (driver.start() for _ in range(3))
    asked = [(third, 0), (first, 0), (third, last_of(driver, third) - 1), (first, END), (second, 0)]
    assert [news.run for news in follow(driver, *asked)] == [third, first, third, second]
    assert all(len(news.entries) == 1 for news in follow(driver, *asked))


@pytest.mark.spec("TRAIL-3")
@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_run_that_has_ended_is_always_in_the_answer(driver, end):
    """So a follower that has seen all rows still learns of the end."""
    claim = driver.held()
    assert follow(driver, (claim.id, END)) == []
    getattr(driver, end)(claim.id if end == "cancel" else claim)
    status = driver.status(claim.id)
    expected = Followed(run=claim.id, tenant="default", status=status, present=claim.id)
    assert follow(driver, (claim.id, END)) == [expected]
    assert follow(driver, (claim.id, last_of(driver, claim.id))) == [expected]


@pytest.mark.spec("TRAIL-3")
def test_a_run_that_is_open_again_is_followed_on(driver):
    """A rewound run, and one that is retried, has further rows and no end."""
    claim = driver.held()
    driver.checkpoint(claim)
    driver.complete(claim)
    seen = last_of(driver, claim.id)
    driver.rewind(claim.id, "first", by="ann")
    (news,) = follow(driver, (claim.id, seen))
    assert ([entry.type for entry in news.entries], news.status) == (["rewound"], Status.PENDING)
    seen = last_of(driver, claim.id)
    assert follow(driver, (claim.id, seen)) == []
    driver.fail(driver.take(claim.id))
    driver.retry_run(claim.id, by="ann")
    (news,) = follow(driver, (claim.id, seen))
    assert ([entry.type for entry in news.entries], news.status) == (
        ["leased", "failed", "retried"],
        Status.PENDING,
    )


@pytest.mark.spec("TRAIL-3")
def test_a_run_that_continued_names_the_present_run_of_its_chain(driver):
    """Each run of a chain is followed as it is stored."""
    (first, second), claim = chain(driver)
    (news,) = follow(driver, (first, END), (second, END))
    assert (news.run, news.status, news.present) == (first, Status.SUCCEEDED, second)
    third = go_on(driver, claim)
    found = {news.run: news.present for news in follow(driver, (first, END), (second, END), (third, END))}
    assert found == {first: third, second: third}
    driver.complete(driver.take(third))
    assert [news.present for news in follow(driver, (third, END))] == [third]


@pytest.mark.spec("TRAIL-3", "DEL-1")
def test_a_deleted_run_is_gone_until_it_is_restored(driver):
    """An unknown run, a deleted one and that of another tenant look the same."""
    run, theirs, unknown = driver.start(), driver.start(tenant="acme"), UUID(int=7)
    seen = last_of(driver, run)
    driver.delete(run, by="ann")
    asked = (run, seen), (unknown, 0), (theirs, 0)
    gone = [Followed(run=run, gone=True), Followed(run=unknown, gone=True), Followed(run=theirs, gone=True)]
    assert follow(driver, *asked, tenant="default") == gone
    *hidden, shown = follow(driver, *asked)
    assert (hidden, shown.run, shown.tenant) == (gone[:2], theirs, "acme")
    driver.restore(run)
    (news,) = follow(driver, (run, seen))
    assert (news.gone, [entry.type for entry in news.entries]) == (False, ["deleted", "restored"])


@pytest.mark.spec("TRAIL-3", "TTL-1")
def test_a_purged_run_is_gone(driver):
    """Also a run in the middle of a chain."""
    (first, second), claim = chain(driver, ttl_seconds=1.0)
    driver.complete(claim)
    assert [news.gone for news in follow(driver, (first, 0), (second, 0))] == [False, False]
    driver.clock.turn(10**9)
    purge_all(driver)
    assert [news.gone for news in follow(driver, (first, 0), (second, 0))] == [True, True]


@pytest.mark.spec("TRAIL-3")
def test_the_rows_of_an_answer_are_limited_in_number(driver):
    """Rows are given in the order of the runs; a run with rows that are left over says so."""
    first, second, third = runs = [driver.start() for _ in range(3)]
    for claim in driver.claim():
        driver.checkpoint(claim)
    found = follow(driver, *((run, 0) for run in runs), limit=4)
    shape = [(news.run, len(news.entries), news.more) for news in found]
    assert shape == [(first, 3, False), (second, 1, True), (third, 0, True)]
    assert [len(news.entries) for news in follow(driver, (first, 0), limit=3)] == [3]
    assert not follow(driver, (first, 0), limit=3)[0].more
    for limit in (0, -1):
        assert [(news.entries, news.more) for news in follow(driver, (first, 0), limit=limit)] == [((), True)]


@pytest.mark.spec("TRAIL-3", "READ-1")
def test_the_rows_of_an_answer_are_limited_in_bytes(driver):
    """At least one row is given; asked again and again, every row is given once."""
    claims = [driver.held(worker=f"w{n}") for n in range(2)]
    for claim in claims:
        logged(driver, claim, 4000, 4000, 20_000, 10)
    seen, found = {claim.id: 0 for claim in claims}, {claim.id: [] for claim in claims}
    for _ in range(50):
        page = follow(driver, *seen.items(), bytes=10_000)
        sizes = [len(entry.data_json) for news in page for entry in news.entries]
        assert sum(sizes) <= 10_000 or len(sizes) == 1
        for news in page:
            found[news.run] += news.entries
            seen[news.run] = max((entry.seq for entry in news.entries), default=seen[news.run])
        if not any(news.more for news in page):
            break
    assert found == {run: driver.trail(run) for run in found}


@pytest.mark.spec("TRAIL-3")
def test_many_runs_are_followed_in_one_call_but_not_any_number(driver):
    runs = [driver.start() for _ in range(30)]
    assert [news.run for news in follow(driver, *((run, 0) for run in runs))] == runs
    many = [(run, END) for run in runs] * 40
    assert follow(driver, *many[:FOLLOWED_MAX]) == []
    with pytest.raises(UsageError, match="runs: at most 1,000 in one call, not 1,001"):
        follow(driver, *many[: FOLLOWED_MAX + 1])


@pytest.mark.spec("START-10")
def test_a_pair_that_is_no_run_and_no_number_is_refused(driver):
    for wrong in (("x", 0), (None, 0), (UUID(int=1), -1), (UUID(int=1), True), (UUID(int=1), 2**63)):
        with pytest.raises(UsageError):
            follow(driver, (UUID(int=1), 0), wrong)


@pytest.mark.spec("TRAIL-3")
def test_the_trail_of_all_runs_is_followed_from_a_number_or_from_now(driver):
    """The number of an answer is the place where the next one begins."""
    run = driver.start()
    page = follow_all(driver, after=0)
    assert (list(page.entries), page.more) == (driver.trail(), False)
    now = follow_all(driver)
    assert (now.entries, now.seq, now.more) == ((), page.seq, False)
    assert now.seq == driver.trail()[-1].seq
    driver.cancel(run)
    page = follow_all(driver, after=now.seq)
    assert [(entry.run, entry.type) for entry in page.entries] == [(run, "cancelled")]
    assert follow_all(driver, after=page.seq) == follow_all(driver)
    assert follow_all(driver, after=page.seq + 100).seq == page.seq + 100


@pytest.mark.spec("TRAIL-3")
def test_the_trail_of_all_runs_is_filtered_by_tenant_and_type(driver):
    """The place moves on although no row matches."""
    ours, theirs = driver.start(), driver.start(tenant="acme")
    driver.cancel(theirs)
    end = driver.trail()[-1].seq
    acme = follow_all(driver, "acme", after=0)
    assert [(entry.run, entry.type) for entry in acme.entries] == [(theirs, "created"), (theirs, "cancelled")]
    created = follow_all(driver, types=("created",), after=0)
    assert [entry.run for entry in created.entries] == [ours, theirs]
    nothing = follow_all(driver, "default", types=("cancelled",), after=0)
    assert nothing.entries == ()
    assert {page.seq for page in (acme, created, nothing)} == {end}
    driver.delete(theirs)
    assert follow_all(driver, "acme", after=0).entries == ()
    assert [entry.type for entry in follow_all(driver, after=end).entries] == ["deleted"]


@pytest.mark.spec("TRAIL-3", "READ-1")
def test_a_page_of_all_runs_is_limited_in_rows_bytes_and_work(driver):
    """Asked again from where the page before ended, every row that matches comes once."""
    claim = driver.held()
    logged(driver, claim, 4000, 4000, 20_000, 10, 10)
    for _ in range(10):
        driver.start(tenant="acme")
    logged(driver, claim, 10)
    for limit, size, scan in ((2, 10**6, 1000), (1000, 10_000, 1000), (1000, 10**6, 3), (1, 5000, 1)):
        found, after, calls, more = [], 0, 0, True
        while more:
            with patch("holdfast.bounds.SCAN_ROWS", scan):
                page = follow_all(driver, "default", after=after, limit=limit, bytes=size)
            assert page.seq > after
            assert len(page.entries) <= min(limit, scan)
            found += page.entries
            after, more, calls = page.seq, page.more, calls + 1
        assert found == driver.trail(claim.id)
        assert calls > 2
    page = follow_all(driver, after=0, limit=0)
    assert (page.entries, page.seq, page.more) == ((), 0, True)
