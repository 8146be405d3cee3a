"""The list of runs: filters as fields and as a line, keyset pages, bulk operations."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.engine.bulk import workflow
from holdfast.http.pages.run_query import asked, bulk_where, read_line, written_line
from holdfast.http.pages.views import runs as views
from holdfast.http.problems import Refusal
from holdfast.records import Scope
from tests.pages.kit import forms_of

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def listed(text):
    """The ids of the runs on a page, in their order."""
    return re.findall(r'id="row-([0-9a-f-]{36})"', text)


@pytest.mark.spec("READ-2")
def test_all_filters_can_be_typed_and_written_again():
    line = (
        "status=failed status=waiting label=customer=42 label=vip 'error=ValueError at pay: no card%' "
        "type=shop.% waiting-on=event key=k1 parent=01890000-0000-7000-8000-000000000001 "
        "'contains=two words' created-since=2h created-until=2026-02-01 roots deleted"
    )
    fields = read_line(line)
    assert fields["status"] == ["failed", "waiting"]
    assert fields["error"] == ["ValueError at pay: no card%"]
    assert (fields["roots"], fields["deleted"]) == (True, True)
    assert read_line(written_line(fields)) == fields
    query = asked(fields, NOW)
    assert query["created_since"] == "2026-01-31T10:00:00+00:00"
    assert query["created_until"] == "2026-02-01T00:00:00+00:00"
    assert read_line("failed since=1d") == {"status": ["failed"], "created_since": "1d"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("colour=red", "is no filter"), ("hello", "is no filter"), ("type=", "has no value"),
        ("type=a type=b", "given twice"), ("label='x", "quote"), ("x" * 3000, "characters"),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_refused(line, said):
    with pytest.raises(Refusal, match=said):
        read_line(line)


def test_a_filter_of_a_bulk_operation_has_the_fields_of_the_api():
    fields = read_line("status=waiting-approval label=a=1 label=b type=x.% created-since=1h")
    assert bulk_where(fields, NOW) == {
        "statuses": ["waiting"], "waiting_on": "approval", "labels": {"a": "1", "b": None}, "type": "x.%",
        "created_since": "2026-01-31T11:00:00+00:00",
    }  # fmt: skip
    with pytest.raises(Refusal, match="contains"):
        bulk_where(read_line("contains=x"), NOW)


@pytest.mark.spec("READ-2")
def test_fields_and_line_list_the_same_runs(furnished_visit):
    by_fields = listed(furnished_visit.text("/runs?status=failed&type=shop.%25"))
    by_line = listed(furnished_visit.text("/runs?q=status%3Dfailed+type%3Dshop.%25"))
    assert len(by_fields) == 3
    assert by_fields == by_line
    assert 'value="status=failed type=shop.%"' in furnished_visit.last.text
    assert listed(furnished_visit.text("/runs?label=kind%3Dpaused")) == [furnished_visit.kit.mine["paused"]]
    assert "holdfast ls --label kind=paused" in furnished_visit.last.text


def test_a_search_for_a_text_is_not_repeated_each_second(furnished_visit):
    assert "data-live" in furnished_visit.text("/runs?status=failed")
    for query in ("contains=c4n4ry", "q=contains%3Dc4n4ry"):
        text = furnished_visit.text(f"/runs?{query}")
        assert listed(text)
        assert "data-live" not in text
        stream = furnished_visit.get(f"/runs?{query}", headers={"accept": "text/event-stream"})
        assert stream.status_code == 422


def test_a_wrong_filter_is_one_line_and_no_list(furnished_visit):
    text = furnished_visit.text("/runs?q=colour%3Dred")
    assert furnished_visit.said.startswith("'colour=red' is no filter")
    assert listed(text) == []


def test_pages_follow_each_other_by_the_last_id(visit):
    runs = [str(visit.kit.run(visit.kit.app.start, "shop.quick.v1", delay=60).id) for _ in range(60)]
    first = visit.text("/runs?type=shop.%25")
    older = unescape(re.search(r'href="/ui(/runs[^"]*)" rel="next"', first)[1])
    second = visit.text(older)
    assert listed(first) + listed(second) == runs[::-1]
    assert 'rel="next"' not in second


@pytest.mark.spec("TEN-2")
def test_errors_and_texts_are_hidden_without_payloads(keyed_visit):
    keyed_visit.kit.furnish()
    keyed_visit.sign_in(Scope.RUNS_READ)
    for path in ("/runs", "/", "/bulk"):
        assert "c4n4ry" not in keyed_visit.text(path)
    assert 'name="contains"' not in keyed_visit.text("/runs")
    assert 'action="/ui/runs/bulk"' not in keyed_visit.last.text
    keyed_visit.text("/runs?error=Fatal%25")
    assert "payloads.read" in keyed_visit.said


@pytest.mark.spec("READ-3")
def test_a_bulk_operation_is_previewed_begun_watched_and_stopped(visit):
    for _ in range(3):
        visit.kit.run(visit.kit.app.start, "shop.quick.v1", delay=60)
    text = visit.text("/runs/bulk?q=type%3Dshop.quick.v1&verb=cancel")
    assert "<b>3</b>\nruns match" in text or "<b>3</b> runs match" in text
    data = {**forms_of(text, "bulk")[0], "body.rate": "50"}
    visit.last = visit.client.post("/ui/do/bulk", data=data)
    path = visit.last.url.path.removeprefix("/ui")
    assert re.fullmatch("/bulk/[0-9a-f-]{36}", path)
    again = visit.client.post("/ui/do/bulk", data=data)
    assert again.url.path == visit.last.url.path  # the same form begins no second one
    visit.last = again
    run = path.rpartition("/")[2]
    visit.do("pause", path_run=run, back=f"/ui{path}")
    assert "paused" in visit.last.text
    visit.do("resume", path_run=run, back=f"/ui{path}")
    visit.kit.work(run)
    text = visit.text(path)
    assert "<b>3</b> done" in text
    assert len(listed(visit.text("/runs?status=cancelled"))) == 3
    assert listed(visit.text("/bulk")) == [run]


def test_who_may_begin_a_bulk_operation_may_watch_it(keyed_visit):
    kit = keyed_visit.kit
    for number in range(3):
        kit.run(kit.app.start, "shop.quick.v1", key=f"c4n4ry {number}", delay=60)
    keyed_visit.sign_in(Scope.RUNS_READ, Scope.RUNS_WRITE)
    keyed_visit.text("/runs/bulk?q=type%3Dshop.quick.v1+key%3D%22c4n4ry+1%22&verb=cancel")
    keyed_visit.send("bulk")
    path = keyed_visit.last.url.path.removeprefix("/ui")
    assert "<dd>cancel</dd>" in keyed_visit.last.text
    kit.work(path.rpartition("/")[2])
    text = keyed_visit.text(path)
    assert "<b>1</b> done" in text
    assert "1 of 1<br>" in text
    assert "c4n4ry" not in text
    operations = keyed_visit.text("/bulk")
    assert "<td>cancel</td>" in operations
    assert "1 of 1: 1 done" in operations


def test_only_a_bulk_operation_has_its_page(furnished_visit):
    for name in ("done", "waits", "pending", "broken"):
        response = furnished_visit.get(f"/bulk/{furnished_visit.kit.mine[name]}")
        assert (response.status_code, furnished_visit.said) == (404, "this run is no bulk operation")


def test_a_bulk_operation_with_odd_values_has_a_page(visit):
    """User SQL can write a run of any type with any values."""
    store = visit.kit.app.store
    run = str(visit.kit.run(visit.kit.app.bulk.cancel, hf.RunFilter(statuses=("leased",)), by="me").id)
    assert '<span class="j-string">&#34;running&#34;</span>' in visit.text(f"/bulk/{run}")
    visit.kit.work(run)
    get = store.get
    for params, result in (("[1]", '{"done": "x"}'), ('{"verb": 3}', "[]"), ("null", '{"refused": 3}')):

        async def odd(*args, params=params, result=result, **options):
            found = await get(*args, **options)
            return replace(found, params_json=params, result_json=result, progress_json='{"done": "x"}')

        store.get = odd
        assert "<h1>" in visit.text(f"/bulk/{run}")


def test_a_preview_counts_a_few_first_and_more_when_asked(visit, monkeypatch):
    monkeypatch.setattr(views, "COUNTED", 2)
    monkeypatch.setattr(workflow, "OUTLINES_MAX", 2)
    for _ in range(5):
        visit.kit.run(visit.kit.app.start, "shop.quick.v1", delay=60)
    text = visit.text("/runs/bulk?verb=cancel")
    assert "<b>2+</b>" in text
    more = unescape(re.search(r'href="/ui(/runs/bulk[^"]*count=all[^"]*)"', text)[1])
    assert "<b>5</b>" in visit.text(more)
