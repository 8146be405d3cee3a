"""Pages of lists: bounded in bytes, and complete without repeats."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from msgspec.structs import replace

from holdfast.bounds import sent_bytes, text_bytes
from holdfast.errors import TooLarge, UnknownRun, UsageError
from holdfast.records import ANY, RunFilter, TrailWrite

from .driver import ask, done, noise
from .outbox import answered, message, outbox, relay, sent_by, webhook
from .schedules import made

BUDGET = 20_000
LARGE = '"' + '\\"' * 2_000 + '"'  # 4 kB, and twice as much inside another JSON text: two fit in
SMALL = '"small"'
VALUES = [SMALL, *[LARGE] * 5, SMALL, SMALL]


def pages(fetch, value, cursor):
    """Read every page, each after the last row of the one before, with a small budget of bytes."""
    found, after = [], ()
    with patch("holdfast.bounds.BATCH_BYTES", BUDGET):
        while page := fetch(*after):
            assert len(page) == 1 or sum(sent_bytes(value(one)) for one in page) <= BUDGET
            found.append(list(page))
            after = (cursor(page[-1]),)
    return found


def check(found, value):
    """Check that the pages have all values in order, and did not end too early."""
    assert [value(one) for page in found for one in page] == VALUES
    assert 3 <= len(found) <= 5


@pytest.mark.spec("READ-1")
def test_a_list_of_runs_is_bounded_in_bytes(driver):
    """Params and results count."""
    for value in reversed(VALUES):
        driver.start(params=value)

    def listed(after=None):
        return driver.run(driver.store.list(RunFilter(), 100, after))

    check(pages(listed, lambda run: run.params_json, lambda run: run.id), lambda run: run.params_json)
    for claim in driver.claim():
        driver.complete(claim, result=LARGE)
    assert max(len(page) for page in pages(listed, lambda run: run.result_json, lambda run: run.id)) <= 2
    assert [len(driver.run(driver.store.list(RunFilter(), limit))) for limit in (0, 1)] == [0, 1]


@pytest.mark.spec("READ-1")
def test_lists_leave_out_values_that_are_not_asked_for(driver):
    """Only params and results are left out, and their size ends no page."""
    for value in VALUES:
        driver.start(params=value)
    for claim in driver.claim():
        driver.complete(claim, result=LARGE)
    whole = driver.run(driver.store.list(RunFilter()))
    with patch("holdfast.bounds.BATCH_BYTES", BUDGET):
        found = driver.run(driver.store.list(RunFilter(values=False)))
    assert [run.result_json for run in whole] == [LARGE] * len(VALUES)
    assert found == [replace(run, params_json="null", result_json=None) for run in whole]


@pytest.mark.spec("READ-1")
def test_a_value_that_is_larger_than_a_page_is_shown_alone(driver):
    """No value is left out for its size."""
    huge = '"' + "x" * 2 * BUDGET + '"'
    runs = [driver.start(params=value) for value in (SMALL, huge, SMALL)]

    def listed(after=None):
        return driver.run(driver.store.list(RunFilter(), 100, after))

    found = pages(listed, lambda run: run.params_json, lambda run: run.id)
    assert [[run.id for run in page] for page in found] == [[runs[2]], [runs[1]], [runs[0]]]


@pytest.mark.spec("READ-1")
def test_the_trail_is_bounded_in_bytes(driver):
    """This holds for the trail of one run and of all runs."""
    claim = driver.held()
    rows = tuple(TrailWrite("log", f'{{"message":{value}}}') for value in VALUES)
    driver.checkpoint(claim, done("a"), trail=rows)

    def message_of(entry):
        return entry.data_json.removeprefix('{"message":').removesuffix("}")

    for run in (claim.id, None):

        def listed(after=0, run=run):
            return driver.run(driver.store.trail(run, ANY, types=("log",), after=after))

        check(pages(listed, lambda entry: entry.data_json, lambda entry: entry.seq), message_of)


@pytest.mark.spec("READ-1")
def test_the_outbox_is_listed_within_a_bound_in_bytes(driver):
    """Payloads count."""
    sent_by(driver, *(message(f"m{n}", payload=value) for n, value in enumerate(VALUES)))

    def listed(after=0):
        return outbox(driver, after=after)

    check(pages(listed, lambda one: one.payload_json, lambda one: one.seq), lambda one: one.payload_json)


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("tenant", ["default", ANY])
def test_open_gates_are_listed_within_a_bound_in_bytes(driver, tenant):
    """The data of the question counts."""
    claim = driver.held()
    driver.park(claim, *(ask(f"g{n}", ask=f'{{"ask":{value}}}') for n, value in enumerate(VALUES)))

    def listed(after=None):
        return driver.run(driver.store.approvals(tenant, 100, after))

    def asked(gate):
        return gate.ask_json.removeprefix('{"ask":').removesuffix("}")

    check(pages(listed, lambda gate: gate.ask_json, lambda gate: (gate.run, gate.step)), asked)


@pytest.mark.spec("READ-1")
def test_schedules_are_listed_within_a_bound_in_bytes(driver):
    """This holds for all schedules and for due ones."""
    for n, value in enumerate(VALUES):
        made(driver, name=f"s{n}", params=value, next_at=driver.clock.now)

    def listed(after=None):
        return driver.run(driver.store.schedules("default", None, 100, after))

    def due(after=None):
        return driver.run(driver.store.due_schedules(100, after))

    def params(one):
        return one.params_json

    check(pages(listed, params, lambda one: (one.tenant, one.name)), params)
    check(pages(due, params, lambda one: one.id), params)


@pytest.mark.spec("OUT-1")
def test_a_relay_takes_no_more_bytes_than_it_asks_for(driver):
    """Messages come in order, the first one whatever its size; the others stay due."""
    driver.run(driver.store.put_webhook(webhook("shop")))
    sinks = ["mail", "shop"]
    values = [noise(4_000) if value is LARGE else value for value in VALUES]
    sent_by(driver, *(message(f"m{n}", sinks[n % 2], payload=value) for n, value in enumerate(values)))
    taken = []
    while parcels := relay(driver, bytes=9_000):
        assert sum(text_bytes(one.payload) for one in parcels) <= 9_000
        taken.append([one.id for one in parcels])
        assert all(one.attempt == 1 for one in parcels)
    assert sorted(one for batch in taken for one in batch) == [f"m{n}" for n in range(8)]
    assert [len(batch) for batch in taken] == [3, 2, 3]
    driver.clock.turn(120)
    (parcel,) = relay(driver, bytes=1)
    assert parcel.id == "m0"
    assert answered(driver, parcel)


@pytest.mark.spec("READ-1")
def test_all_steps_of_a_run_are_shown_however_large_they_are(driver):
    """They are read in several parts, in order."""
    claim = driver.held()
    driver.checkpoint(claim, *(done(f"s{n}", output=value) for n, value in enumerate(VALUES)))
    with patch("holdfast.bounds.BATCH_BYTES", BUDGET):
        steps = driver.steps(claim.id)
    assert [(step.key, step.output) for step in steps] == [(f"s{n}", one) for n, one in enumerate(VALUES)]
    assert [step.seq for step in steps] == sorted({step.seq for step in steps})


@pytest.mark.spec("READ-1")
def test_steps_are_shown_without_values_that_are_larger_than_asked_for(driver):
    """Each step is shown, and is marked where a value is left out."""
    claim = driver.held()
    small, large = noise(1_000), noise(200_000)
    asks = f'{{"ask":{large}}}'
    writes = [done("small", output=small), done("large", output=large), ask("gate", ask=asks)]
    driver.checkpoint(claim, *writes)
    whole = driver.steps(claim.id)
    assert [step.left_out for step in whole] == [False, False, False]
    with patch("holdfast.bounds.BATCH_BYTES", BUDGET):
        found = driver.steps(claim.id, largest=100_000)
    assert found[0] == whole[0]
    assert found[1:] == [
        replace(whole[1], output=None, left_out=True),
        replace(whole[2], ask=None, left_out=True),
    ]
    with pytest.raises(UsageError, match="largest"):
        driver.steps(claim.id, largest=-1)


@pytest.mark.spec("READ-1")
def test_steps_come_page_by_page_after_a_seq(driver):
    """One page holds at least one step, and only an empty page is the end."""
    claim = driver.held()
    driver.checkpoint(claim, *[done(f"s{n}", output=noise(200_000)) for n in range(4)])
    whole, after, found = driver.steps(claim.id), -1, []
    with patch("holdfast.bounds.BATCH_BYTES", BUDGET):
        while page := driver.steps(claim.id, after=after):
            assert len(page) < len(whole)
            found, after = [*found, *page], page[-1].seq
    assert found == whole
    with pytest.raises(UsageError, match="after"):
        driver.steps(claim.id, after=-2)


@pytest.mark.spec("READ-1")
def test_steps_come_page_by_page_from_the_end(driver):
    """The newest comes first, and `bytes` bounds a page that has at least one step."""
    claim = driver.held()
    driver.checkpoint(claim, *[done(f"s{n}", output=noise(2_000)) for n in range(4)])
    whole, before, found, sizes = driver.steps(claim.id), 2**31 - 1, [], []
    while page := driver.steps(claim.id, before=before, bytes=5_000):
        found, before = [*found, *page], page[-1].seq
        sizes.append(len(page))
    assert found == whole[::-1]
    assert len(sizes) in {2, 3}
    assert [len(driver.steps(claim.id, before=whole[n].seq, bytes=0)) for n in range(4)] == [0, 1, 1, 1]
    assert [len(driver.steps(claim.id, after=-1, bytes=size)) for size in (0, 5_000)] == [1, sizes[0]]
    small = driver.steps(claim.id, before=whole[3].seq, largest=100)
    assert [(step.key, step.left_out) for step in small] == [(f"s{n}", True) for n in (2, 1, 0)]
    for odd in ({"before": -2}, {"before": 1, "bytes": "x"}):
        with pytest.raises(UsageError, match=[*odd][-1]):
            driver.steps(claim.id, **odd)
    with pytest.raises(UnknownRun):
        driver.steps(claim.id, tenant="other", before=5)


@pytest.mark.spec("READ-1")
def test_a_page_of_steps_is_bounded_in_bytes(driver):
    """Outputs count as they are shown, also where they are stored compressed."""
    claim = driver.held()
    outputs = [SMALL, *['"' + "x" * 8_000 + '"'] * 5, SMALL]
    driver.checkpoint(claim, *(done(f"s{n}", output=value) for n, value in enumerate(outputs)))

    def listed(after=-1):
        return driver.steps(claim.id, after=after)

    found = pages(listed, lambda step: step.output, lambda step: step.seq)
    assert [step.output for page in found for step in page] == outputs
    assert len(found) in {3, 4}


@pytest.mark.spec("READ-1", "PLAN-3")
def test_a_page_of_a_plan_shows_only_its_current_step_as_live(driver):
    """A step behind the current one is pending on every page."""
    claim = driver.begun("FIRST", "SECOND", "THIRD")
    assert [step.status for step in driver.steps(claim.id, after=-1)] == ["running", "pending", "pending"]
    assert [step.status for step in driver.steps(claim.id, after=0)] == ["pending", "pending"]
    assert [step.status for step in driver.steps(claim.id, before=9)] == ["pending", "pending", "running"]
    assert [step.status for step in driver.steps(claim.id, before=9, bytes=0)] == ["pending"]
    driver.advance(claim, "FIRST")
    assert [step.status for step in driver.steps(claim.id, after=0)] == ["ready", "pending"]
    assert [step.status for step in driver.steps(claim.id, before=2)] == ["ready", "succeeded"]


@pytest.mark.spec("READ-1", "PLAN-3")
def test_the_current_step_of_a_plan_is_shown_live_on_whatever_page_it_is(driver):
    """Its status comes from the run, also after many large outputs."""
    claim = driver.begun(*(f"s{n}" for n in range(6)))
    for n in range(4):
        driver.advance(claim, done(f"s{n}", output=LARGE), in_place=True)
    with patch("holdfast.bounds.BATCH_BYTES", BUDGET):
        steps = driver.steps(claim.id)
    assert [str(step.status) for step in steps] == [*["succeeded"] * 4, "running", "pending"]
    assert [step.key for step in steps] == [f"s{n}" for n in range(6)]


@pytest.mark.spec("START-9")
def test_an_item_that_is_too_large_is_refused_at_once(driver):
    """The words are the same on every store, and the run stays as it is."""
    claim = driver.held()
    with patch("holdfast.bounds.ITEM_BYTES", BUDGET), pytest.raises(TooLarge, match="the limit is 20,000"):
        driver.checkpoint(claim, *(done(f"s{n}", output=noise(4_000)) for n in range(6)))
    assert not driver.steps(claim.id)
