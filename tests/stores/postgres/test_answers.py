"""Sizes of answers: no JSON text from the server is larger than a page, however many records there are."""

from __future__ import annotations

import pytest

from holdfast.records import RunFilter
from holdfast.testing.contract.driver import done

BUDGET = 50_000
LARGE = '"' + '\\"' * 5_000 + '"'


@pytest.fixture
def answers(driver, monkeypatch):
    """The size of each answer, by verb."""
    monkeypatch.setattr("holdfast.bounds.BATCH_BYTES", BUDGET)
    sizes, call = {}, driver.store._call

    async def measured(verb, *args):
        answer = await call(verb, *args)
        sizes.setdefault(verb, []).append(len(str(answer)))
        return answer

    monkeypatch.setattr(driver.store, "_call", measured)
    return sizes


@pytest.mark.spec("READ-1")
def test_no_answer_of_a_reader_is_larger_than_a_page(driver, answers):
    claim = driver.held()
    for n in range(12):
        driver.start(type="shop.other.v1", params=LARGE)
        driver.checkpoint(claim, done(f"s{n}", output=LARGE))
    assert len(driver.steps(claim.id)) == 12
    after, listed = None, 0
    while page := driver.run(driver.store.list(RunFilter(), 500, after)):
        after, listed = page[-1].id, listed + len(page)
    assert listed == 13
    for verb in ("steps_page", "list_page"):
        assert len(answers[verb]) >= 6
        assert max(answers[verb]) <= BUDGET + 1000
