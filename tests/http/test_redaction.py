"""A key without `payloads.read` sees no value of a user, in any byte of any answer."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from holdfast.http.operation import all_operations
from holdfast.http.redaction import redacted
from holdfast.records import Scope
from holdfast.shown.shapes import TrailEntryData
from tests.http.kit import CANARY, READ, Kit, store_of
from tests.http.rows import NAMED, ROWS, Row

OPERATIONS = all_operations()
BLIND = tuple(one for one in Scope if one not in {Scope.PAYLOADS_READ, Scope.APPROVALS_DECIDE})


KINDS = ("done", "broken", "waits", "gate", "plan", "child")  # of runs; the others are like them


def asked(kit, name, row, key, things=None, **headers):
    method, path, options = row.sent(OPERATIONS[name], things or kit.mine)
    options["headers"] |= headers
    if options.get("json") is not None and CANARY in str(options["json"]):
        options["json"] = {}
    return kit.ask(method, path, key, **options)


@pytest.mark.spec("TEN-1")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "postgres", "redis"])
def test_no_answer_has_a_value(kind, request, tmp_path):
    with Kit(store=store_of(kind, request, tmp_path)) as kit:
        kit.furnish()
        if kind == "postgres":
            tell(request.getfixturevalue("postgres_database").dsn, kit.mine["waits"])
        key, sees = kit.key(*BLIND), kit.key(*Scope)
        seen = shown = 0
        more = [("list", Row(query={"values": "true", "children": "true"}))]
        for name, row in [*more, *((name, row) for (name, _), row in NAMED.items()), *ROWS.items()]:
            for run in KINDS if "run" in row.path and OPERATIONS[name].method == "GET" else [None]:
                there = kit.mine if run is None else _only(kit.mine, run)
                if OPERATIONS[name].method == "GET":
                    shown += CANARY in asked(kit, name, row, sees, there).text
                response = asked(kit, name, row, key, there)
                seen += 1
                assert CANARY not in response.text, (name, run, response.text)
                assert CANARY not in str(response.headers)
        assert seen > 90
        assert shown > 15, "the canaries are not where they should be"


def _only(things, run):
    """The same things, but every run is one."""
    return type(things)(
        dict.fromkeys(things.runs, things.runs[run]), things.message, things.key, things.schedule
    )


def tell(dsn, run):
    """Write a row of the trail by user SQL."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into workflow.workflow_event (workflow_id, event_type, data) values (%s, 'note', %s)",
            (run, f'{{"step": "{CANARY}", "kind": "{CANARY}", "by": "{CANARY}"}}'),
        )


@pytest.mark.spec("TEN-1", "HTTP-2")
def test_a_stream_has_no_value(furnished_kit):
    kit = furnished_kit
    for scopes, sees in ((BLIND, False), ((*BLIND, Scope.PAYLOADS_READ), True)):
        headers = {"accept": "text/event-stream", "authorization": f"Bearer {kit.key(*scopes)}"}
        with kit.client.stream("GET", f"/runs/{kit.mine['broken']}/events", headers=headers) as response:
            text = "".join(response.iter_text())
        assert "event: end" in text
        assert (CANARY in text) is sees


@pytest.mark.spec("TEN-1")
def test_a_redacted_record_says_so(furnished_kit):
    kit, key = furnished_kit, furnished_kit.key(*BLIND)
    run = kit.ask("GET", f"/runs/{kit.mine['broken']}", key).json()
    assert run["redacted"] is True
    assert (run["params"], run["result"], run["last_error"]) == (None, None, None)
    assert run["error"]["kind"] == "fatal"
    assert run["error"]["message"] == run["error"]["traceback"] == ""
    assert "redacted" not in kit.ask("GET", f"/runs/{kit.mine['broken']}", kit.key(*READ)).json()


@pytest.mark.spec("TEN-1")
@pytest.mark.parametrize("query", [{"error": "a%"}, {"contains": "a"}])
def test_filters_by_values_need_the_scope(furnished_kit, query):
    kit, key = furnished_kit, furnished_kit.key(*BLIND)
    for path in ("/runs", "/runs/count"):
        response = kit.ask("GET", path, key, params=query)
        if path == "/runs" or "error" in query:
            assert (response.status_code, response.json()["code"]) == (403, "scope-missing")
    if "error" in query:
        for path, more in (("/bulk", {"verb": "pause"}), ("/bulk/preview", {})):
            body = {"where": query, **more}
            assert kit.ask("POST", path, key, json=body).json()["code"] == "scope-missing"


@pytest.mark.spec("TEN-1")
def test_one_who_decides_sees_the_question_and_nothing_else(furnished_kit):
    kit, key = furnished_kit, furnished_kit.key(Scope.APPROVALS_DECIDE)
    assert CANARY in kit.ask("GET", "/approvals", key).text
    assert kit.ask("GET", f"/runs/{kit.mine['gate']}", key).status_code == 403
    reader = kit.key(Scope.RUNS_READ)
    assert CANARY not in kit.ask("GET", "/approvals", reader).text


@pytest.mark.spec("TEN-1")
def test_a_bulk_operation_shows_its_numbers_and_not_its_filter():
    with Kit() as kit:
        for number in range(3):
            kit.run(kit.app.start, "shop.quick.v1", key=f"{CANARY} {number}", delay=60)
        key = kit.key(Scope.RUNS_READ, Scope.RUNS_WRITE)
        where = {"statuses": ["pending"], "type": "shop.quick.v1"}
        body = {"verb": "rewind", "where": where, "step": CANARY}
        run = kit.ask("POST", "/bulk", key, json=body).json()["id"]
        shown = kit.ask("GET", f"/runs/{run}", key).json()
        assert (shown["params"], shown["result"]) == ({"verb": "rewind"}, None)
        kit.work(run)
        shown = kit.ask("GET", f"/runs/{run}", key).json()
        assert shown["redacted"] is True
        assert shown["progress"]["done"] == 3
        assert shown["result"] == {"done": 0, "refused": {"other reasons": 3}, "left_out": {}}
        (listed,) = kit.ask("GET", "/bulk", key).json()["items"]
        assert listed["progress"] == shown["progress"]
        for path in (f"/runs/{run}", "/bulk", "/runs?type=holdfast.bulk.v1&values=true"):
            assert CANARY not in kit.ask("GET", path, key).text, path
        assert CANARY in kit.ask("GET", f"/runs/{run}", kit.key(*READ)).text


@pytest.mark.spec("TEN-2")
def test_a_field_of_the_trail_with_a_known_name_is_shown_only_if_a_store_could_have_written_it():
    data = {"step": "a", "steps": ["a", "b"], "cost": 3, "by": {"x": CANARY}, "next": [[CANARY]], "x": CANARY}
    entry = TrailEntryData(
        seq=1,
        run=UUID(int=1),
        type="leased",
        at=datetime.now(UTC),
        data=msgspec.Raw(msgspec.json.encode(data)),
    )
    assert msgspec.json.decode(redacted(entry).data) == {"step": "a", "steps": ["a", "b"], "cost": 3}
