"""Forms that are sent twice, as by a double click without script: what they make is made once."""

from __future__ import annotations

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from holdfast.errors import Unavailable
from holdfast.http.pages import once
from holdfast.http.pages.once import MAKING
from holdfast.records import Scope
from tests.pages.kit import forms_of

ADMIN = (Scope.ADMIN, Scope.RUNS_READ)
BEFORE = "This form was sent before: this is what it started."


def started(visit):
    """Return the runs of users, newest first."""
    return [one for one in visit.kit.run(visit.kit.app.list) if one.type == "shop.quick.v1"]


def sent(visit, operation, fields):
    """Send a form as it is; return the response."""
    visit.last = visit.client.post(f"/ui/do/{operation}", data=fields)
    return visit.last


def form(visit, path, operation):
    """Load a page; return the fields of its form."""
    return forms_of(visit.text(path), operation)[0]


def start_page(visit):
    """Let the type be known; return the path of its page."""
    visit.kit.run(visit.kit.app.publish)
    return "/workflows/shop.quick.v1"


def test_a_start_that_is_sent_twice_starts_one_run(visit):
    fields = form(visit, start_page(visit), "start")
    first = sent(visit, "start", fields).url
    assert visit.said == "the run is started"
    assert sent(visit, "start", fields).url == first
    assert visit.said == BEFORE
    assert len(started(visit)) == 1


def test_other_params_or_a_page_that_is_loaded_again_start_another_run(visit):
    path = start_page(visit)
    fields = form(visit, path, "start")
    for given in (fields, {**fields, "body.params": "2"}, form(visit, path, "start")):
        sent(visit, "start", given)
        assert visit.said == "the run is started"
    assert len(started(visit)) == 3


def test_a_rerun_that_is_sent_twice_starts_one_run(visit):
    run = visit.kit.run(visit.kit.app.start, "shop.quick.v1", delay=60).id
    fields = form(visit, f"/runs/{run}/rerun", "rerun")
    assert sent(visit, "rerun", fields).url == sent(visit, "rerun", fields).url
    assert len(started(visit)) == 2


def test_an_event_that_is_sent_twice_counts_once(visit):
    fields = {**form(visit, "/events", "emit"), "body.topic": "late"}
    sent(visit, "emit", fields)
    assert visit.said == "the event late is sent; no run waited for it yet"
    sent(visit, "emit", fields)
    assert visit.said == "this event was sent before: nothing changed"
    sent(visit, "emit", {**fields, "body.id": "mine"})  # an id that somebody has typed is used
    sent(visit, "emit", {**fields, "body.id": "mine", "body.payload": "2"})
    assert visit.said == "this event was sent before: nothing changed"


def test_an_event_of_a_run_page_counts_once_for_each_wait(visit):
    """The form is in a live part: it is the same whenever it is rendered, and as long as the run waits."""
    run = visit.kit.run(visit.kit.app.start, "shop.order.v1", {"id": 1}).id
    visit.kit.work(run)
    first, again = (form(visit, f"/runs/{run}", "emit") for _ in range(2))
    assert first["once"] == again["once"]
    sent(visit, "emit", first)
    assert visit.said == "the event paid:1 is sent to 1 run"
    sent(visit, "emit", again)
    assert visit.said == "this event was sent before: nothing changed"


@pytest.mark.slow
def test_a_schedule_that_is_fired_by_a_double_click_starts_one_run(visit):
    visit.kit.run(visit.kit.app.schedule, "nightly", "shop.quick.v1", every=3600)
    for path in ("/schedules/nightly", "/schedules"):
        before = len(started(visit))
        fields = form(visit, path, "fire_schedule")
        with ThreadPoolExecutor(2) as pool:
            click = partial(visit.client.post, "/ui/do/fire_schedule", data=fields)
            answers = [pool.submit(click), pool.submit(click)]
            assert len({str(one.result().url) for one in answers}) == 1
        assert len(started(visit)) == before + 1


def test_the_secret_of_a_key_is_not_lost_by_a_double_click(keyed_visit):
    keyed_visit.sign_in(*ADMIN)
    fields = {**form(keyed_visit, "/keys", "create_key"), "body.name": "robot", "body.scopes": "runs.read"}
    first, second = (secret_in(sent(keyed_visit, "create_key", fields).text) for _ in range(2))
    assert first == second
    assert keyed_visit.kit.ask("GET", "/runs", first).status_code == 200


def test_a_key_that_is_rotated_twice_by_a_double_click_keeps_its_old_secret(keyed_visit):
    """One secret before the last stays valid: that must be the one in use."""
    keyed_visit.sign_in(*ADMIN)
    fields = {**form(keyed_visit, "/keys", "create_key"), "body.name": "robot", "body.scopes": "runs.read"}
    used = secret_in(sent(keyed_visit, "create_key", fields).text)
    (fields,) = (
        one
        for one in forms_of(keyed_visit.text("/keys"), "rotate_key")
        if one["path.key"] == used.split("_")[1]
    )
    sent(keyed_visit, "rotate_key", fields)
    sure = {**forms_of(keyed_visit.last.text, "rotate_key")[0], "sure": "yes"}
    first, second = (secret_in(sent(keyed_visit, "rotate_key", sure).text) for _ in range(2))
    assert first == second != used
    assert keyed_visit.kit.ask("GET", "/runs", used).status_code == 200


def test_a_confirmation_that_is_sent_twice_counts_once(visit):
    kit = visit.kit
    run = kit.run(kit.app.start, "shop.broken.v1").id
    kit.work(run)
    visit.text(f"/runs/{run}")
    visit.send("rewind")
    sure = {**forms_of(visit.last.text, "rewind")[0], "sure": "yes"}
    for _ in range(2):
        sent(visit, "rewind", sure)
        assert visit.said == "The run begins again."
    entries = [one for one in kit.run(kit.app.trail, run) if one.type == "rewound"]
    assert len(entries) == 1


def test_a_form_that_was_refused_is_sent_again_as_the_same_form(visit, monkeypatch):
    """After an outage nobody knows whether the run was started: a second try must not start another."""
    fields, store = form(visit, start_page(visit), "start"), visit.kit.app.store
    start = type(store).start

    async def lost(self, *args, **options):
        await start(self, *args, **options)
        raise Unavailable("the answer was lost")

    monkeypatch.setattr(type(store), "start", lost)
    sent(visit, "start", fields)
    monkeypatch.undo()
    assert visit.last.status_code == 503
    (again,) = forms_of(visit.last.text, "start")
    sent(visit, "start", again)
    assert visit.said == BEFORE
    assert len(started(visit)) == 1


def test_a_refused_operation_is_not_remembered(visit):
    visit.kit.run(visit.kit.app.schedule, "nightly", "shop.quick.v1", every=3600)
    fields = form(visit, "/schedules/nightly", "fire_schedule")
    visit.kit.run(visit.kit.app.unschedule, "nightly")
    sent(visit, "fire_schedule", fields)
    assert "nightly" in visit.said
    visit.kit.run(visit.kit.app.schedule, "nightly", "shop.quick.v1", every=3600)
    sent(visit, "fire_schedule", fields)
    assert visit.said == "a run of nightly is started"


def test_few_forms_are_remembered(visit, monkeypatch):
    monkeypatch.setattr(once, "REMEMBERED", 2)
    for name in "abc":
        visit.kit.run(visit.kit.app.schedule, name, "shop.quick.v1", every=3600)
    forms = forms_of(visit.text("/schedules"), "fire_schedule")
    for fields in (*forms, forms[2], forms[0]):
        sent(visit, "fire_schedule", fields)
    assert len(started(visit)) == 4  # the first form was forgotten, the third was not


def remembered(visit):
    """Confirm a cancel; return the answers that the server still remembers."""
    run = visit.kit.run(visit.kit.app.start, "shop.order.v1", {"id": 1, "card": "4111 1111"}, delay=60).id
    visit.text(f"/runs/{run}")
    visit.send("cancel")
    sent(visit, "cancel", {**forms_of(visit.last.text, "cancel")[0], "sure": "yes"})
    assert visit.kit.run(visit.kit.app.get, run).status == "cancelled"
    every = [one for one in gc.get_objects() if isinstance(one, once.Once)]  # of other tests, too
    answers = [task.result() for one in every for task, _ in one._asked.values() if task.done()]
    return [one for one in answers if getattr(one, "id", None) == run]


def test_values_of_users_are_not_remembered(visit):
    """A thousand answers of 4 MiB would fill the memory."""
    (answer,) = remembered(visit)
    assert answer.redacted
    assert "4111 1111" not in str(answer)


def test_answers_are_forgotten_in_time_though_no_form_comes(visit, monkeypatch):
    monkeypatch.setattr(once, "REMEMBER_SECONDS", -1.0)
    assert remembered(visit) == []


def test_each_form_that_makes_something_has_a_token(furnished_visit):
    """Forms in live parts have none that is made anew each time: it would be sent every second."""
    found = set()
    for path in ("/events", "/schedules", "/workflows/shop.quick.v1", "/runs/bulk?verb=cancel",
                 f"/runs/{furnished_visit.kit.mine['done']}/rerun"):  # fmt: skip
        text = furnished_visit.text(path)
        made = [one for one in MAKING if forms_of(text, one)]
        assert all(fields["once"] for one in made for fields in forms_of(text, one)), path
        found |= {*made}
    assert found == MAKING - {"create_key", "rotate_key", "resend"}


def secret_in(text):
    """Return the secret that a page shows."""
    return re.search(r"<code>(hf_[^<]+)</code>", text)[1]
