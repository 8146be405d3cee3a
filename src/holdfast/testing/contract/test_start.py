"""start: a call becomes one run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.arguments import LATEST
from holdfast.errors import DuplicateRun, KeyReused, UnknownRun, UsageError
from holdfast.lifecycle import Status
from holdfast.records import Definition, NewRun, PlanStep, Started, moment

from .driver import TYPE, task


def _new(driver, **fields):
    return NewRun(**{"id": driver.id(), "type": TYPE, **fields})


@pytest.mark.spec("START-2")
def test_a_start_needs_no_worker(driver):
    """The run is executed when a worker with its type appears."""
    run = driver.start(params='{"n": 1}')
    driver.clock.turn(86400)
    claim = driver.take(run)
    assert (claim.params, claim.attempt, claim.steps) == ('{"n": 1}', 1, ())


@pytest.mark.spec("START-3", "LEASE-1")
@pytest.mark.parametrize("later", ["run_at", "delay_seconds"])
def test_a_run_for_later_is_claimed_at_its_instant_and_never_before(driver, later):
    """Times are due at equality."""
    at = driver.clock.now + 10_000_000
    run = driver.start(**{later: at if later == "run_at" else 10.0})
    driver.clock.now = at - 1
    assert driver.claim() == []
    driver.clock.now = at
    assert driver.take(run).id == run


@pytest.mark.spec("START-4")
def test_the_same_key_returns_the_existing_run(driver):
    """The id is returned with created=False, and nothing is inserted."""
    run = driver.start(key="order:42", digest="d")
    before = driver.snapshot(run), driver.everything()
    assert driver.start_many([_new(driver, key="order:42", digest="d")]) == [Started(run, created=False)]
    assert (driver.snapshot(run), driver.everything()) == before


@pytest.mark.spec("START-4")
def test_the_same_key_with_another_digest_is_a_conflict(driver):
    """Another type or other params under the key are an error that names the run."""
    run = driver.start(key="order:42", digest="d")
    before = driver.snapshot(run), driver.everything()
    (answer,) = driver.start_many([_new(driver, key="order:42", digest="other")])
    assert isinstance(answer, KeyReused)
    assert (answer.key, answer.run_id) == ("order:42", run)
    assert (driver.snapshot(run), driver.everything()) == before


@pytest.mark.spec("START-4")
def test_a_key_belongs_to_its_tenant_and_null_keys_never_collide(driver):
    """Null keys never collide; another tenant may use the same key."""
    first = driver.start(key="k", digest="d")
    second = driver.start(key="k", digest="other", tenant="acme")
    third, fourth = driver.start(), driver.start()
    assert len({first, second, third, fourth}) == 4
    assert [driver.get(run).key for run in (first, second, third)] == ["k", "k", None]


@pytest.mark.spec("START-4")
def test_the_key_stays_taken_after_the_run_has_ended(driver):
    """The second call returns the ended run."""
    claim = driver.held(key="k", digest="d")
    driver.complete(claim)
    assert driver.start_many([_new(driver, key="k", digest="d")]) == [Started(claim.id, created=False)]


@pytest.mark.spec("START-5", "START-4")
def test_many_starts_are_each_answered_on_their_own(driver):
    """A conflict is the answer for its item; the others are started."""
    old = driver.start(key="old", digest="d")
    new = [
        _new(driver),
        _new(driver, key="old", digest="d"),
        _new(driver, key="old", digest="other"),
        _new(driver, id=old),
        _new(driver, key="twice", digest="d"),
        _new(driver, key="twice", digest="d"),
    ]
    answers = driver.start_many(new)
    assert answers[0] == Started(new[0].id, created=True)
    assert answers[1] == Started(old, created=False)
    assert isinstance(answers[2], KeyReused)
    assert isinstance(answers[3], DuplicateRun)
    assert answers[4] == Started(new[4].id, created=True)
    assert answers[5] == Started(new[4].id, created=False)
    assert driver.stats().by_status[Status.PENDING] == 3


@pytest.mark.spec("START-5")
def test_a_thousand_starts_are_one_call(driver):
    """Each run is durable when the call returns."""
    answers = driver.start_many([_new(driver) for _ in range(1000)])
    assert all(answer.created for answer in answers)
    assert driver.stats().by_status[Status.PENDING] == 1000


@pytest.mark.spec("START-8")
def test_a_duplicate_id_is_refused_and_the_original_intact(driver):
    """A caller may give the id; a known id is refused in every tenant."""
    run = driver.start(params="1")
    before = driver.snapshot(run)
    for tenant in ("default", "acme"):
        (answer,) = driver.start_many([_new(driver, id=run, params="2", tenant=tenant)])
        assert isinstance(answer, DuplicateRun)
        assert answer.run_id == run
    assert driver.snapshot(run) == before


@pytest.mark.spec("START-4", "START-8")
def test_ids_and_keys_of_one_call_are_compared_with_each_other(driver):
    """An id counts once for all tenants, a key once for each tenant, also before the call is committed."""
    first = _new(driver, key="k", digest="d")
    other = _new(driver, key="k", digest="d", tenant="acme")
    again = _new(driver, key="k", digest="other", tenant="acme")
    same_id = _new(driver, id=first.id, tenant="acme")
    answers = driver.start_many([first, other, again, same_id])
    assert answers[:2] == [Started(first.id, created=True), Started(other.id, created=True)]
    assert isinstance(answers[2], KeyReused)
    assert isinstance(answers[3], DuplicateRun)
    assert [entry.type for entry in driver.trail(first.id)] == ["created"]


def test_the_key_is_checked_before_the_id(driver):
    """A repeat with key and id returns the same run."""
    run = driver.start(key="k", digest="d")
    assert driver.start_many([_new(driver, id=run, key="k", digest="d")]) == [Started(run, created=False)]


@pytest.mark.spec("START-5")
def test_a_parent_is_a_run_of_the_same_tenant_that_is_there(driver):
    """Any other parent is an error of its item; the others are started, also under a parent of the same
    call.
    """
    mine, foreign, deleted, unknown = driver.start(), driver.start(tenant="acme"), driver.start(), driver.id()
    driver.delete(deleted)
    first = _new(driver)
    good = [first, _new(driver, parent=first.id), _new(driver, parent=mine)]
    bad = [_new(driver, parent=parent) for parent in (foreign, deleted, unknown)]
    answers = driver.start_many([*bad, *good])
    assert [type(answer) for answer in answers[:3]] == [UnknownRun] * 3
    assert [answer.run_id for answer in answers[:3]] == [foreign, deleted, unknown]
    assert answers[3:] == [Started(one.id, created=True) for one in good]
    assert [driver.get(one.id) for one in bad] == [None] * 3


@pytest.mark.spec("START-4", "START-8")
def test_key_and_id_are_checked_before_the_parent(driver):
    """A repeat returns the same run, though its parent has been deleted meanwhile."""
    parent = driver.start()
    run = driver.start(parent=parent, key="k", digest="d")
    driver.delete(parent)
    again = _new(driver, parent=parent, key="k", digest="d")
    same_id = _new(driver, id=run, parent=parent)
    answers = driver.start_many([again, same_id])
    assert answers[0] == Started(run, created=False)
    assert isinstance(answers[1], DuplicateRun)


@pytest.mark.spec("TRAIL-1", "READ-1")
def test_a_new_run_shows_what_it_was_started_with(driver):
    """It is pending with attempt 0, and all fields of the start can be read."""
    parent = driver.start()
    run = driver.start(
        params='{"a": [], "b": {}}', priority=7, max_attempts=9, timeout_seconds=60.0, ttl_seconds=5.0,
        budget=12, limit_key="shop", parent=parent, labels='{"team": "x"}', key="k",
    )  # fmt: skip
    seen = driver.get(run)
    assert (seen.status, seen.attempt, seen.crashes) == (Status.PENDING, 0, 0)
    assert (seen.params_json, seen.priority, seen.max_attempts) == ('{"a": [], "b": {}}', 7, 9)
    assert (seen.timeout_at, seen.timeout_seconds) == (moment(driver.clock.now + 60_000_000), 60.0)
    assert (seen.budget_units, seen.limit_key, seen.parent) == (12, "shop", parent)
    assert seen.labels == {"team": "x"}
    assert seen.created_at == seen.run_at == moment(driver.clock.now)
    assert (seen.started_at, seen.finished_at, seen.expires_at, seen.cursor) == (None,) * 4
    assert [(entry.type, entry.data) for entry in driver.trail(run)] == [("created", {"type": TYPE})]


def test_missing_fields_of_a_start_come_from_the_definition(driver):
    """max_attempts and timeout are as given, else the definition's, else 3 and none."""
    plain = driver.start()
    driver.run(driver.store.publish([Definition(type=TYPE, max_attempts=5, timeout_seconds=60.0)]))
    published, given = driver.start(), driver.start(max_attempts=1, timeout_seconds=1.0)
    assert [driver.get(run).max_attempts for run in (plain, published, given)] == [3, 5, 1]
    due = [None, moment(driver.clock.now + 60_000_000), moment(driver.clock.now + 1_000_000)]
    assert [driver.get(run).timeout_at for run in (plain, published, given)] == due


@pytest.mark.spec("RETRY-9", "START-3")
@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("plan", [True, False])
def test_a_timeout_counts_from_when_the_run_is_due(driver, published, plan):
    """Otherwise a timeout that is shorter than the delay would end the run before any claim."""
    steps = (task("A"),) if plan else ()
    kind = "plan" if plan else "code"
    lasts = 60.0 if published else None
    driver.run(driver.store.publish([Definition(type=TYPE, kind=kind, steps=steps, timeout_seconds=lasts)]))
    given = {} if published else {"timeout_seconds": 60.0}
    now = driver.clock.now
    late, at, past = (
        driver.start(delay_seconds=100.0, **given),
        driver.start(run_at=now + 7_000_000, **given),
        driver.start(run_at=now - 7_000_000, **given),
    )
    seen = [driver.get(run).timeout_at for run in (late, at, past)]
    assert seen == [moment(now + 160_000_000), moment(now + 67_000_000), moment(now + 60_000_000)]
    driver.clock.turn(100)
    assert driver.tick().timed_out == 2
    assert driver.status(late) is Status.PENDING
    driver.clock.turn(60)
    assert driver.tick().timed_out == 1
    assert driver.get(late).error.kind == "timeout"


@pytest.mark.spec("RETRY-9", "START-10")
def test_a_timeout_ends_with_the_years_that_can_be_told(driver):
    run = driver.start(run_at=LATEST - 1, timeout_seconds=1000.0)
    assert driver.get(run).timeout_at == moment(LATEST)


@pytest.mark.spec("START-11")
def test_schemas_are_kept_with_a_definition_and_the_last_publisher_counts(driver):
    """They are read only when they are asked for; another schema of a plan is no conflict either."""
    code = Definition(type="a.one.v1", params_schema='{"type":"null"}', result_schema='{"type": "string"}')
    steps = (PlanStep(name="A"),)
    plan = Definition(type="b.two.v1", kind="plan", steps=steps, params_schema='{"type":"integer"}')
    driver.run(driver.store.publish([code, plan]))
    assert driver.run(driver.store.definitions(schemas=True)) == [code, plan]
    assert [one.params_schema for one in driver.run(driver.store.definitions())] == [None, None]
    changed = replace(plan, params_schema=None, result_schema="{}")
    driver.run(driver.store.publish([changed]))
    assert driver.run(driver.store.definitions(schemas=True)) == [code, changed]
    with pytest.raises(UsageError):
        driver.run(driver.store.publish([replace(code, params_schema="x" * 16_385)]))
    assert driver.run(driver.store.definitions(schemas=True)) == [code, changed]


def test_definitions_are_listed_by_type_and_a_change_is_taken_over(driver):
    """Publishing the same again changes nothing."""
    one, two = Definition(type="b.two.v1"), Definition(type="a.one.v1", description="x")
    driver.run(driver.store.publish([one, two]))
    driver.run(driver.store.publish([one]))
    assert driver.run(driver.store.definitions()) == [two, one]
    changed = Definition(type="b.two.v1", max_attempts=7)
    driver.run(driver.store.publish([changed]))
    assert driver.run(driver.store.definitions()) == [two, changed]
