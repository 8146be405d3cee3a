"""The page of one run, without a browser."""

from __future__ import annotations

import re
from html import unescape
from typing import TypedDict

import pytest

import holdfast as hf
from holdfast.http.api import live, steps
from holdfast.http.pages.run.scale import Scale
from holdfast.lifecycle import Status, allows
from holdfast.records import Scope
from tests.http.kit import CANARY, READ, Kit
from tests.pages.kit import Visit, forms_of


class Order(TypedDict, total=False):
    """Params with a schema."""

    id: int
    eur: float
    note: str


# The words of the buttons, by operation.
BUTTONS = {
    "cancel": "Cancel the run", "pause": "Pause the run", "resume": "Resume the run", "retry": ">Retry<",
    "rewind": "Rewind to the beginning", "delete": "Delete the run",
}  # fmt: skip
RUNS = ("done", "broken", "waits", "gate", "plan", "pending", "resumed")  # `resumed` is paused


def shown(visit, name, **query):
    path = f"/runs/{visit.kit.mine[name]}"
    return visit.text(path, params=query)


def test_the_first_line_says_why_the_run_does_not_move(furnished_visit):
    for name in RUNS:
        page = shown(furnished_visit, name)
        why = furnished_visit.kit.ask("GET", f"/runs/{furnished_visit.kit.mine[name]}/explain").json()["text"]
        assert why in unescape(page), name
        assert page.index('class="explain"') < page.index("<h2")


def test_buttons_are_those_of_the_table_of_moves(furnished_visit):
    moves = {"retry": "retry_run"}
    for name in RUNS:
        page = shown(furnished_visit, name)
        status = Status(
            furnished_visit.kit.ask("GET", f"/runs/{furnished_visit.kit.mine[name]}").json()["status"]
        )
        found = {one for one, words in BUTTONS.items() if words in page}
        allowed = {one for one in BUTTONS if allows(moves.get(one, one), status)}
        assert found <= allowed, name
        unused = {Status.PAUSED: {"pause"}, Status.LEASED: {"resume"}}.get(status, set())
        assert found == allowed - unused, name


def test_a_key_that_only_reads_sees_no_form_and_no_values(keyed_visit):
    visit = keyed_visit
    visit.kit.furnish()
    visit.sign_in(Scope.RUNS_READ)
    for name in RUNS:
        page = shown(visit, name)
        assert CANARY not in page
        assert "/do/" not in page
        assert 'title="this needs the scope payloads.read"' in page
    assert visit.get(f"/runs/{visit.kit.mine['done']}/rerun").status_code == 403
    assert CANARY not in visit.text(f"/runs/{visit.kit.mine['waits']}/trail")
    trail = re.findall(r'<td class="break">(.*?)</td>', visit.last.text)
    assert "hidden" in trail  # the log line
    assert not any("None" in one or one.endswith(":") for one in trail)


def test_a_run_of_another_tenant_is_not_there(keyed_visit):
    keyed_visit.kit.furnish()
    keyed_visit.sign_in(*READ)
    assert keyed_visit.get(f"/runs/{keyed_visit.kit.others['done']}").status_code == 404
    assert keyed_visit.get("/runs/no-id").status_code in {404, 422}


def test_values_errors_logs_and_the_user_frame_are_shown(furnished_visit):
    page = unescape(shown(furnished_visit, "waits"))
    assert f"{CANARY} receipt 42" in page
    assert f"{CANARY} charged note={CANARY}" in page
    assert "1 of 2" in page
    failed = unescape(shown(furnished_visit, "broken"))
    assert re.search(r"<code>[^<]*kit.py:\d+ in declined</code>", failed)
    assert "whole traceback" in failed
    step = unescape(shown(furnished_visit, "waits", step="charge"))
    assert 'id="step"' in step
    assert f"holdfast rewind {furnished_visit.kit.mine['waits']} charge" in step
    assert "There is no step nothing" in shown(furnished_visit, "waits", step="nothing")


def test_a_plan_shows_what_is_to_come(furnished_visit):
    page = shown(furnished_visit, "plan")
    assert re.search(r'<li class="current"><a[^>]*>GATE</a>', page)
    assert re.search(r'SHIP</a> <span class="status">to come</span>', page)


def test_parent_and_children_are_a_tree(furnished_visit):
    kit = furnished_visit.kit
    parent, child = shown(furnished_visit, "parent"), shown(furnished_visit, "child")
    assert "1 child:" in parent
    assert f"/ui/runs/{kit.mine['child']}" in parent
    assert f"/ui/runs/{kit.mine['parent']}" in child


def test_moves_are_made_by_forms(visit):
    kit = visit.kit.furnish()
    mine = kit.mine

    def do(name, operation, said, status, **fields):
        page = shown(visit, name)
        assert f"/ui/do/{operation}" in page, (name, operation)
        answer = visit.do(operation, path_run=mine[name], back=f"/ui/runs/{mine[name]}", said=said, **fields)
        if "sure" in answer.text:
            answer = visit.do(
                operation, path_run=mine[name], back=f"/ui/runs/{mine[name]}", said=said, sure="yes", **fields
            )
        assert visit.said == said
        assert kit.ask("GET", f"/runs/{mine[name]}").json()["status"] == status

    do("retried", "retry", "retried", "pending")
    do("rewound", "rewind", "rewound", "pending", **{"null.step": "yes"}, confirm="Really?")
    do("paused", "pause", "paused", "paused")
    do("paused", "resume", "resumed", "pending", body_budget="3.5")
    assert kit.ask("GET", f"/runs/{mine['paused']}").json()["budget"] == 3.5
    do("cancelled", "cancel", "cancelled", "cancelled", confirm="Really?")
    do("gate", "approve", "gate manager is approved", "pending", body_step="manager", body_comment="fine")
    do(
        "waits",
        "emit",
        "the event paid:42 is sent to 1 run",
        "pending",
        body_topic="paid:42",
        body_run=mine["waits"],
        body_payload='{"n": 1}',
    )


def test_delete_asks_first_and_restore_brings_it_back(visit):
    mine = visit.kit.furnish().mine
    shown(visit, "deleted")
    question = visit.do("delete", path_run=mine["deleted"], confirm="Delete this run?", back="/ui/runs")
    assert "Delete this run?" in question.text
    assert visit.kit.ask("GET", f"/runs/{mine['deleted']}").status_code == 200
    visit.do("delete", path_run=mine["deleted"], confirm="Delete this run?", sure="yes", back="/ui/runs")
    gone = visit.text(f"/runs/{mine['deleted']}")
    assert "It was deleted" in gone
    visit.do("restore", path_run=mine["deleted"], back=f"/ui/runs/{mine['deleted']}")
    assert "It was deleted" not in visit.text(f"/runs/{mine['deleted']}")


def test_a_rerun_takes_edited_params_from_fields_or_as_json(visit):
    app = visit.kit.app

    @app.workflow("shop.typed.v1")
    async def typed(ctx, order: Order):
        return None

    run = visit.kit.run(app.start, typed, {"id": 12345678901234567890, "eur": 1.5, "note": "n", "other": [1]})
    visit.kit.run(_published, app)
    page = visit.text(f"/runs/{run.id}/rerun")
    assert 'name="form:integer:/id"' in page
    assert 'value="12345678901234567890"' in page
    fields = {"form:integer:/id": "7", "form:string:/note": "", "form:number:/eur": "2.5"}
    visit.send("rerun", **fields)
    assert visit.said == "A new run is started."
    newest = visit.kit.ask("GET", "/runs?values=true").json()["items"][0]
    assert visit.last.url.path == f"/ui/runs/{newest['id']}"
    assert newest["params"] == {"id": 7, "eur": 2.5, "other": [1]}
    assert newest["origin"] == str(run.id)
    visit.text(f"/runs/{run.id}/rerun?as=json")
    visit.send("rerun", body_params="{no json")
    assert "this is not JSON" in visit.said
    assert forms_of(visit.last.text, "rerun")[0]["body.params"] == "{no json"
    visit.text(f"/runs/{run.id}/rerun")
    visit.send("rerun", **fields | {"form:integer:/id": "x", "form:string:/note": "typed"})
    assert (visit.last.status_code, visit.said) == (422, "params.id: this is no whole number")
    (again,) = forms_of(visit.last.text, "rerun")
    assert (again["form:integer:/id"], again["form:string:/note"]) == ("x", "typed")
    visit.send("rerun", **{"form:integer:/id": "8"})  # the page that was shown again works as the first
    newest = visit.kit.ask("GET", "/runs?values=true").json()["items"][0]
    assert newest["params"] == {"id": 8, "eur": 2.5, "note": "typed", "other": [1]}


def test_a_run_is_started_from_fields_or_as_json(visit):
    app = visit.kit.app

    @app.workflow("shop.typed.v1")
    async def typed(ctx, order: Order):
        return None

    visit.kit.run(_published, app)
    visit.text("/workflows/shop.typed.v1")
    visit.send("start", **{"form:integer:/id": "7", "form:number:/eur": "x"})
    assert (visit.last.status_code, visit.said) == (422, "params.eur: this is no number")
    visit.send("start", **{"form:number:/eur": "2.5"})
    assert visit.said == "the run is started"
    (newest,) = visit.kit.ask("GET", "/runs?values=true").json()["items"]
    assert newest["params"] == {"id": 7, "eur": 2.5}
    visit.text("/workflows/shop.typed.v1?as=json")
    visit.send("start", body_params='{"id": 8}')
    newest, _ = visit.kit.ask("GET", "/runs?values=true").json()["items"]
    assert newest["params"] == {"id": 8}


def test_a_refused_form_is_shown_again_as_it_was_sent(visit):
    app, kit = visit.kit.app, visit.kit.furnish()
    run = kit.mine["gate"]
    page = shown(visit, "gate")
    (form,) = forms_of(page, "approve")
    answer = visit.send("approve", body_comment="looks <good>", body_digest="f" * 64)
    assert answer.status_code == 409
    assert "digest" in visit.said
    assert forms_of(answer.text, "approve")[0] == form | {"body.comment": "looks <good>"}
    assert f'data-live="/ui/runs/{run}"' in answer.text  # its live parts are those of the page
    assert answer.text.count("data-typed") == 1
    inbox = visit.text("/approvals")
    number = next(n for n, one in enumerate(forms_of(inbox, "approve")) if one["path.run"] == run)
    visit.send("approve", number, body_comment="mine", body_digest="f" * 64)
    comments = [one["body.comment"] for one in forms_of(visit.last.text, "approve")]
    assert [n for n, one in enumerate(comments) if one == "mine"] == [number]
    kit.run(app.schedule, "odd", "shop.quick.v1", every=3600)
    for path in ("/schedules", "/schedules/odd"):
        visit.text(path)
        kit.run(app.unschedule, "odd")
        visit.send("fire_schedule", -1, path_name="odd")
        assert "there is no schedule" in visit.said
        assert "%7B" not in str(visit.last.url)
        assert "{id}" not in str(visit.last.url)
        kit.run(app.schedule, "odd", "shop.quick.v1", every=3600)
    visit.text("/workflows/shop.quick.v1")
    visit.send("start", body_params='{"text": "typed')
    assert visit.said.startswith("params: this is not JSON")
    assert forms_of(visit.last.text, "start")[0]["body.params"] == '{"text": "typed'
    visit.send("start", body_params="3")
    assert visit.last.url.path.startswith("/ui/runs/")
    visit.text("/runs/bulk?verb=pause")
    visit.send("bulk", body_rate="99999999")
    assert visit.last.status_code == 422
    assert forms_of(visit.last.text, "bulk")[0]["body.rate"] == "99999999"


async def _published(app):
    async with app.worker(poll=0.01):
        pass


@pytest.fixture
def long_visit():
    """A run of 120 steps, with retries."""
    app = hf.App("memory://")

    @app.workflow("shop.long.v1")
    async def long(ctx, steps: int):
        tried = []

        def flaky():
            tried.append(1)
            if len(tried) < 3:
                raise ValueError("not yet")

        for number in range(steps):
            await ctx.step(f"step {number}", lambda: "x" * 300)
        await ctx.step("flaky", flaky, retry=hf.Backoff.fixed(0.01, attempts=5))

    with Kit(app, open=True) as kit:
        run = kit.run(app.start, long, 119)
        kit.work(run.id)
        visit = Visit(kit)
        visit.run = f"/runs/{run.id}"
        yield visit


def test_the_newest_steps_come_first_in_pages_and_can_be_filtered(long_visit):
    page = long_visit.text(long_visit.run)
    assert "50 of 120 steps" in page
    names = re.findall(r'#step">(step \d+|flaky)</a></td>', page)
    assert names == ["flaky", *(f"step {number}" for number in range(118, 69, -1))]
    older = unescape(re.search(r'href="([^"]*)" rel="next">Older', page)[1])
    assert ">step 69</a></td>" in long_visit.client.get(older).text
    found = long_visit.text(long_visit.run, params={"name": "STEP 11"})
    assert "Older" not in found
    assert len(re.findall(r'#step">step 11\d?</a></td>', found)) == 10


def test_each_try_is_a_bar_of_the_timeline(long_visit):
    page = long_visit.text(long_visit.run, params={"name": "flaky"})
    assert page.count("t-bar t-failed") == 2
    assert "try 1 failed after" in page
    assert page.count("t-bar t-done") == 1


def test_newest_of_steps_and_trail_over_http(long_visit, monkeypatch):
    ask = long_visit.kit.ask
    found = ask("GET", f"{long_visit.run}/steps?newest=true&limit=3").json()
    assert [one["step"] for one in found["items"]] == ["flaky", "step 118", "step 117"]
    assert found["total"] == 120
    before = ask("GET", f"{long_visit.run}/steps?newest=true&limit=1&before={found['next']}").json()
    assert before["items"][0]["step"] == "step 116"
    assert ask("GET", f"{long_visit.run}/steps?name=flaky").status_code == 422
    every = ask("GET", f"{long_visit.run}/events?limit=500").json()["items"]
    last = ask("GET", f"{long_visit.run}/events?newest=true&limit=5").json()["items"]
    assert last == every[-5:]
    monkeypatch.setattr(live, "PAGE_MAX", 10)  # now it is a long trail, whose end is looked for
    assert ask("GET", f"{long_visit.run}/events?newest=true&limit=5").json()["items"] == last
    monkeypatch.setattr(live, "WINDOWS", (0.000001, 0.00001))
    assert ask("GET", f"{long_visit.run}/events?newest=true&limit=5").json()["items"] == last


def test_a_long_run_is_read_from_its_end_in_parts(long_visit, monkeypatch):
    monkeypatch.setattr(steps, "PARTS", (1_000, 2_000))
    page = long_visit.text(long_visit.run)
    assert "50 steps of many" in page
    found, before = [], ""
    while True:
        part = long_visit.kit.ask("GET", f"{long_visit.run}/steps?newest=true&limit=50{before}").json()
        assert "total" not in part
        found += [one["step"] for one in part["items"]]
        if part["next"] is None:
            break
        before = f"&before={part['next']}"
    assert found == ["flaky", *(f"step {number}" for number in range(118, -1, -1))]
    link = unescape(re.search(r'href="/ui([^"]*step=step\+70[^"]*)#step"', page)[1])
    assert re.search(r"[?&]at=\d+", link)
    for at in ("", "&at=9", "&at=x", "&at=99999999999"):
        assert 'aria-label="Step step 3"' in long_visit.text(f"{long_visit.run}?step=step+3{at}")


def test_idle_gaps_are_folded():
    scale = Scale(0.0, 7200.0, [(0.0, 10.0), (3610.0, 3620.0), (3621.0, 3625.0)])
    assert [round(fold.seconds) for fold in scale.folds] == [3600, 3575]
    places = [scale.percent(at) for at in (0, 10, 3610, 3620, 3621, 3625, 7200)]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == 100
    assert places[1] - places[0] == pytest.approx(places[3] - places[2])
    assert places[2] - places[1] == pytest.approx(6)
    assert Scale(0.0, 100.0, [(0.0, 60.0)]).folds == [(40.0, 94.0, 100.0)]
    assert Scale(0.0, 100.0, []).folds == []
    assert Scale(5.0, 5.0, [(5.0, 5.0)]).percent(5.0) == 0


def test_a_step_is_found_among_many_with_a_like_name(visit):
    app, kit = visit.kit.app, visit.kit

    @app.workflow("shop.many.v1")
    async def many(ctx):
        await ctx.step("s", lambda: "the first one")
        for number in range(3):
            await ctx.step(f"s{number}", lambda: None)

    run = kit.run(app.start, many).id
    kit.work(run)
    text = visit.text(f"/runs/{run}?step=s")
    assert "the first one" in text
    assert "There is no step" in visit.text(f"/runs/{run}?step=nothing")
    assert "There is no step" in visit.text(f"/runs/{run}?step={'x' * 700}")


def test_a_leased_run_is_said_to_be_running(furnished_visit):
    text = furnished_visit.text("/runs?status=leased&status=failed")
    assert 'value="status=running status=failed"' in text
    assert "holdfast ls --status running --status failed" in text
    trail = f"/runs/{furnished_visit.kit.mine['waits']}/trail"
    for path in ("/runs?status=leased", trail, "/runs/bulk?status=leased&verb=cancel", "/"):
        assert "leased" not in re.sub(r"<[^>]+>", "", furnished_visit.text(path)), path
