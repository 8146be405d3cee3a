"""Pages about workflows, schedules, limits, workers, outbox, events, keys and the audit log."""

from __future__ import annotations

import asyncio
import random
import re
from html import unescape
from uuid import UUID

import pytest

import holdfast as hf
from holdfast.http.pages.current import Visitor
from holdfast.http.pages.page import PAGES as PAGES_TABLE
from holdfast.http.pages.pagecall import PageCall, Place
from holdfast.http.pages.settings import PageSettings
from holdfast.http.pages.views import reading, workflows
from holdfast.http.pages.views.workflows import spread
from holdfast.records import ANY, Scope
from holdfast.records.shown import outline
from tests.http.kit import Kit, shop
from tests.pages.kit import Visit

PAGES = [
    "/approvals",
    "/workflows",
    "/schedules",
    "/limits",
    "/workers",
    "/outbox",
    "/events",
    "/keys",
    "/audit",
]


def words(html):
    """Return a page's text, without tags."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


@pytest.mark.parametrize("path", PAGES)
def test_an_empty_page_says_what_to_type_next(visit, path):
    text = visit.text(path)
    assert 'class="empty"' in text
    assert "holdfast " in words(text.partition('class="empty"')[2])


@pytest.mark.parametrize(
    ("seconds", "p50", "p99"), [([5], 5, 5), ([1, 2], 1, 2), (list(range(1, 101)), 50, 99), ([9, 1, 5], 5, 9)]
)
def test_percentiles_are_the_nearest_ranks(seconds, p50, p99):
    assert spread(seconds) == (len(seconds), p50, p99)


def test_nothing_has_no_percentiles():
    assert spread([]) is None


def test_workflows_show_open_runs_failures_and_missing_workers(furnished_visit):
    text = words(furnished_visit.text("/workflows"))
    assert re.search(r"shop\.plan\.v1 plan, 2 steps 1 0", text)
    assert re.search(r"shop\.broken\.v1 code 0 0 .* 3 3", text)
    assert "no worker" in text
    one = words(furnished_visit.text("/workflows/shop.broken.v1"))
    assert "No worker for shop.broken.v1" in one
    assert "Durations are of the last 3 runs, 3 of which have ended" in one
    plan = words(furnished_visit.text("/workflows/shop.plan.v1"))
    assert "1 GATE approval" in plan
    assert "2 SHIP task" in plan


def test_durations_in_a_large_store_are_of_a_part_of_its_runs(visit, monkeypatch):
    monkeypatch.setattr(workflows, "PASSED", 3)
    for number in range(4):
        visit.kit.run(visit.kit.app.start, "shop.quick.v1", number)
    text = words(visit.text("/workflows/shop.quick.v1"))
    assert re.search(r"Durations are of the last 1 run, started since 20\d\d-", text)


@pytest.mark.parametrize("number", [0, 1, 7, 40])
@pytest.mark.parametrize("most", [3, 20, 100])
def test_runs_that_are_listed_at_once_are_the_newest_ones(visit, monkeypatch, number, most):
    """Whatever the distances are between the ids of the runs, none is left out, and none comes twice."""
    kit, chance = visit.kit, random.Random(number * most)
    for n in range(number):
        kit.run(kit.app.start, "shop.quick.v1", n, id=UUID(int=2**100 + int(2**90 * chance.random() ** 8)))
        kit.run(kit.app.start, "shop.report.v1")
    monkeypatch.setattr(reading, "OUTLINES_MAX", 4)
    kit.run(_check_outlines, kit.api, most)


async def _check_outlines(api, most):
    await api.open()
    visitor = Visitor(actor=api.access.open_actor, session="", csrf="")
    call = PageCall(api, PageSettings(), PAGES_TABLE["/workflows"], Place("", "/", {}, []), visitor, "id")
    where = hf.RunFilter(type="shop.quick.v1")
    found = await reading.outlines_at_once(call, where, most, 50)
    every = await api.client.list(where, 1000)
    assert found == [outline(run) for run in every][:most]


def test_durations_that_are_not_read_in_time_are_left_out(visit, monkeypatch):
    monkeypatch.setattr(reading, "LIST_SECONDS", 0.02)
    visit.kit.run(visit.kit.app.start, "shop.quick.v1", 1)
    outlines = visit.kit.app.store.outlines

    async def slow(where, *page):
        if where.type is not None:
            await asyncio.sleep(60)
        return await outlines(where, *page)

    monkeypatch.setattr(visit.kit.app.store, "outlines", slow)
    assert "Durations are of the last 0 runs." in words(visit.text("/workflows/shop.quick.v1"))


def test_a_type_that_nobody_knows_has_no_page(visit):
    assert visit.get("/workflows/shop.none.v1").status_code == 422


def test_a_type_is_switched_off_and_on(visit):
    visit.kit.run(visit.kit.app.start, "shop.report.v1")
    visit.text("/workflows/shop.report.v1")
    visit.do("register", path_type="shop.report.v1", body_enabled="false", confirm="Sure?")
    assert "Sure?" in visit.last.text  # it asks first
    visit.do(
        "register", path_type="shop.report.v1", body_enabled="false", back="/ui/workflows/shop.report.v1"
    )
    assert "This type is switched off" in visit.last.text
    visit.do("register", path_type="shop.report.v1", body_enabled="true", back="/ui/workflows/shop.report.v1")
    (entry,) = visit.kit.run(visit.kit.app.registry)
    assert entry.is_enabled


def test_a_run_is_started_with_params(visit):
    visit.kit.run(visit.kit.app.start, "shop.quick.v1", 1)
    visit.text("/workflows/shop.quick.v1")
    visit.do(
        "start", body_type="shop.quick.v1", body_params='{"n": 12345678901234567890}', back="/ui/workflows"
    )
    newest, *_ = visit.kit.run(visit.kit.app.list, hf.RunFilter())
    assert newest.params == {"n": 12345678901234567890}


def test_a_schedule_is_shown_in_words_with_its_next_times(visit):
    visit.kit.run(visit.kit.app.schedule, "nightly/1", "shop.quick.v1", {"a": 1}, cron="30 3 * * 1-5",
                  zone="Europe/Berlin")  # fmt: skip
    assert "at 03:30, Monday to Friday" in visit.text("/schedules")
    text = visit.text("/schedules/nightly%2F1")
    assert len(re.findall(r"03:30:00 Europe/Berlin", text)) == 5
    visit.do("pause_schedule", path_name="nightly/1", back="/ui/schedules")
    assert "s-paused" in visit.last.text
    visit.do("resume_schedule", path_name="nightly/1", back="/ui/schedules")
    visit.do("fire_schedule", path_name="nightly/1", back="/ui/schedules/nightly%2F1")
    assert words(visit.last.text).count("pending") == 1  # its history
    visit.do("unschedule", path_name="nightly/1", back="/ui/schedules")
    assert "There are no schedules yet" in visit.last.text


def test_limits_are_set_changed_paused_and_removed(visit):
    kit = visit.kit
    for key in ("api.a", "api.a", "api.b"):
        kit.run(kit.app.start, "shop.quick.v1", limit_key=key)
    visit.text("/limits")
    visit.do(
        "limit", path_scope="key", path_name="api.%", body_concurrency="2", body_rate="", back="/ui/limits"
    )
    assert "key api.% 2 - - api.a: 0 api.b: 0 api.a: 2 api.b: 1" in words(visit.last.text)
    visit.do("limit", path_scope="key", path_name="api.%", body_rate="5", body_period="60", back="/ui/limits")
    assert "5 in 60 s" in visit.last.text
    visit.do("pause_key", path_key="api.%", body_seconds="60", back="/ui/limits")
    assert "s-paused" in visit.last.text
    visit.do("resume_key", path_key="api.%", back="/ui/limits")
    assert "s-paused" not in visit.last.text
    visit.do("unlimit", path_scope="key", path_name="api.%", back="/ui/limits")
    assert "There are no limits yet" in visit.last.text


def test_limits_are_shown_in_pages(visit):
    for number in range(60):
        visit.kit.run(visit.kit.app.limit, key=f"customer-{number:02}", concurrency=1)
    visit.kit.run(visit.kit.app.limit, tenant="acme", concurrency=1)
    first = visit.text("/limits")
    after = unescape(re.search(r'href="/ui(/limits[^"]*)" rel="next"', first)[1])
    second = visit.text(after)
    names = [re.findall(r"<b>(customer-\d\d|acme)</b>", text) for text in (first, second)]
    assert [len(one) for one in names] == [50, 11]
    assert sorted({*names[0], *names[1]}) == ["acme", *(f"customer-{n:02}" for n in range(60))]
    assert 'rel="next"' not in second


def test_workers_name_types_that_nobody_executes(visit):
    visit.kit.run(visit.kit.app.start, "shop.report.v1")
    assert "No worker for shop.report.v1: 1 due run." in words(visit.text("/workers"))


def test_workers_show_what_they_execute(visit):
    kit, app = visit.kit, visit.kit.app

    @app.workflow("shop.slow.v1")
    async def slow(ctx):
        await asyncio.sleep(60)

    run = kit.run(app.start, "shop.slow.v1").id
    worker = app.worker(poll=0.01)
    kit.run(worker.__aenter__)
    try:
        kit.run(_until_leased, app, run)
        text = words(visit.text("/workers"))
        assert f"1 of 100 {str(run)[-8:]} shop.slow.v1" in text
    finally:
        kit.run(app.cancel, run)
        kit.run(worker.__aexit__, None, None, None)


def test_a_dead_letter_is_sent_again():
    app = shop()

    @app.sink("mail")
    async def mail(delivery):
        raise hf.Fatal("no such box")

    with Kit(app, open=True) as kit:
        visit = Visit(kit)
        kit.run(_until_dead, app)
        text = words(visit.text("/outbox"))
        assert re.search(r"mail dead 1 .* no such box Send again", text)
        (message,) = kit.run(app.outbox)
        visit.send("resend")
        assert visit.said == f"message {message.id} is pending again"
        assert "Nobody can deliver to mail" in words(visit.last.text)  # the worker has gone


async def _until_leased(app, run):
    while (await app.known(run)).status != "leased":  # noqa: ASYNC110 - a worker is at it
        await asyncio.sleep(0.01)


async def _until_dead(app):
    await app.start("shop.quick.v1")
    async with app.worker(poll=0.01):
        while not (found := await app.outbox()) or found[0].status != "dead":  # noqa: ASYNC110 - a worker is at it
            await asyncio.sleep(0.01)


def test_an_event_is_sent_to_who_waits_for_its_topic(visit):
    kit = visit.kit
    runs = [kit.run(kit.app.start, "shop.order.v1", {"id": n}).id for n in (1, 2)]
    kit.work(*runs)
    assert "paid:1" in visit.text("/events")
    text = visit.text("/events?topic=paid:2")
    assert ">paid:1<" not in text
    assert str(runs[1]) in text
    visit.do("emit", body_topic="paid:2", body_payload='{"sum": 5}', body_id="e1", back="/ui/events")
    assert visit.said == "the event paid:2 is sent to 1 run"
    visit.do("emit", body_topic="paid:2", body_payload='{"sum": 5}', body_id="e1", back="/ui/events")
    assert visit.said == "this event was sent before: nothing changed"
    visit.do("emit", body_topic="paid:2", body_payload="{", back="/ui/events")
    assert "not JSON" in visit.said


def test_the_secret_of_a_key_is_shown_once(keyed_visit):
    keyed_visit.sign_in(Scope.ADMIN, Scope.RUNS_READ)
    text = keyed_visit.text("/keys")
    assert 'value="runs.write"' not in text  # a key cannot give a scope that it lacks
    keyed_visit.do("create_key", body_name="robot", body_scopes="runs.read", back="/ui/keys")
    secret = re.search(r"<code>(hf_[^<]+)</code>", keyed_visit.last.text)[1]
    assert keyed_visit.kit.ask("GET", "/runs", secret).status_code == 200
    assert keyed_visit.last.headers["cache-control"] == "no-store"
    text = keyed_visit.text("/keys")
    assert secret not in text
    id_ = secret.split("_")[1]
    keyed_visit.do("rotate_key", path_key=id_, body_overlap="0", back="/ui/keys")
    newer = re.search(r"<code>(hf_[^<]+)</code>", keyed_visit.last.text)[1]
    assert newer != secret
    keyed_visit.text("/keys")
    keyed_visit.do("revoke_key", path_key=id_, back="/ui/keys")
    assert "revoked now" in words(keyed_visit.last.text)
    assert re.search(r"revoke_key .* done", words(keyed_visit.text("/audit?action=revoke_key")))


def test_the_audit_log_names_the_run_of_an_act_on_a_page(keyed_visit):
    keyed_visit.sign_in(Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.ADMIN)
    run = keyed_visit.kit.run(keyed_visit.kit.app.start, "shop.quick.v1", delay=60).id
    keyed_visit.get(f"/runs/{run}")
    for name, text in (("cancel", run), ("retry", run), ("cancel", "no id" * 1_000)):
        keyed_visit.do(name, path_run=text, back="/ui/runs")
        keyed_visit.get("/runs")
    rows = keyed_visit.kit.run(keyed_visit.kit.app.store.audit, ANY, 3)
    assert [(one.action, one.target[:36], one.code) for one in rows] == [
        ("cancel", ("no id" * 10)[:36], "bad-value"),
        ("retry", str(run), "illegal-move"),
        ("cancel", str(run), ""),
    ]


def test_a_list_goes_on_at_its_next_page(keyed_visit):
    keyed_visit.sign_in(Scope.ADMIN)
    for _ in range(60):
        keyed_visit.kit.key(Scope.RUNS_READ)
    first = keyed_visit.text("/keys")
    after = unescape(re.search(r'href="/ui(/keys\?cursor=[^"]+)" rel="next"', first)[1])
    ids = [set(re.findall(r'class="id">([a-z0-9]{12})<', text)) for text in (first, keyed_visit.text(after))]
    assert [len(one) for one in ids] == [50, 11]
    assert not ids[0] & ids[1]
