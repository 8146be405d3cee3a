"""The matrix of authorisation: every operation, with every kind of bad key, each scope alone, and the ids of
another tenant in every field that can name something.
"""

from __future__ import annotations

import re
from typing import Annotated, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import pytest

from holdfast.http.operation import all_operations
from holdfast.records import RunFilter, Scope
from tests.http.kit import ALL, MINE, OTHERS, nothing_like
from tests.http.rows import NAMED, ROWS, Row
from tests.laws.two_tenants import CallRecorder

OPERATIONS = all_operations()
KEYED = [name for name, one in OPERATIONS.items() if one.scopes]
NAMES = {"cursor", "tenant"}
# Names in paths of things that belong to the whole store; only operators reach them.
OF_THE_STORE = {"type", "scope", "name", "key"}
WRONG = {
    "none": None,
    "empty": "",
    "malformed": "hf_",
    "no id": "hf__" + "0" * 32,
    "other words": "Basic me",
    "unknown": f"hf_{'0' * 12}_{'0' * 32}",
    "odd characters": "hf_\u00e9\u00e9_\u00ff",
    "long": f"hf_{'a' * 5000}_{'0' * 32}",
}


def ask(kit, operation, row, things, key, **more):
    method, path, options = row.sent(operation, things)
    options["params"] = {**options["params"], **more}
    return kit.ask(method, path, key, **options)


def shape(response):
    """Everything that a client can see of an answer, except what differs between any two equal answers."""
    headers = {
        name: value for name, value in response.headers.items() if name not in {"x-request-id", "date"}
    }
    return (
        response.status_code,
        headers,
        response.content.replace(response.headers["x-request-id"].encode(), b""),
    )


# Ids that are a place in an order: they need not be those of a run, and only their number counts.
PLACES = {("list", "query.after"), ("count", "query.after"), ("approvals", "query.after_run")}


@pytest.mark.spec("TEN-3")
def test_every_operation_has_a_row():
    assert set(ROWS) == set(OPERATIONS)


@pytest.mark.spec("TEN-2")
def test_every_field_that_names_a_thing_has_a_row():
    wanted = {
        (name, path)
        for name, operation in OPERATIONS.items()
        for where in ("query", "body")
        if where in operation.takes
        for path in ids_of(getattr(operation.takes[where], "shape", operation.takes[where]), where)
    }
    filters = {("list", "query.key"), ("audit", "query.key")}
    assert {*NAMED} == (wanted - PLACES) | filters


@pytest.mark.spec("TEN-2")
def test_the_id_of_a_foreign_run_is_only_a_place_in_a_list(furnished_kit):
    kit, key = furnished_kit, furnished_kit.key(*ALL)
    for foreign in kit.others.runs.values():
        nobodys = UUID(int=UUID(str(foreign)).int + 1)
        for path, name in (("/runs", "after"), ("/approvals", "after_run")):
            asked = {"after_step": "a"} if path == "/approvals" else {}
            one, other = (
                kit.ask("GET", path, key, params={name: str(id_), **asked}).json()["items"]
                for id_ in (foreign, nobodys)
            )
            assert one == other


def ids_of(struct, prefix):
    """The paths of fields that hold an id, in a record and in the records inside it."""
    for name, hint in get_type_hints(struct).items():
        found = list(leaves(hint))
        for leaf in found:
            if isinstance(leaf, type) and issubclass(leaf, msgspec.Struct):
                yield from ids_of(leaf, f"{prefix}.{name}")
        if UUID in found:
            yield f"{prefix}.{name}"


def leaves(hint):
    if get_origin(hint) is Annotated or get_args(hint):
        for one in get_args(hint):
            yield from leaves(one)
    else:
        yield hint


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_bad_key_is_refused(name, furnished_kit, bad_keys):
    operation, seen = OPERATIONS[name], set()
    for key in bad_keys.values():
        response = ask(furnished_kit, operation, ROWS[name], furnished_kit.mine, key)
        if not operation.scopes:
            assert response.status_code == 200
            continue
        assert response.status_code == 401, (name, key, response.text)
        assert response.headers["www-authenticate"] == 'Bearer realm="holdfast"'
        assert response.json()["code"] == "unauthenticated"
        seen.add(str(shape(response)))
    assert len(seen) <= 1, "the answer tells why the key is bad"


@pytest.fixture(scope="module")
def bad_keys(furnished_kit):
    good = furnished_kit.key(*Scope)
    return {
        **WRONG,
        "revoked": furnished_kit.revoked_key(*Scope),
        "expired": furnished_kit.expired_key(*Scope),
        "other secret": f"{good[:-32]}{'0' * 32}",
        "secret cut off": good[:-1],
        "secret twice": f"{good}_{good}",
    }


@pytest.fixture(scope="module")
def single_keys(furnished_kit):
    return {scope: furnished_kit.key(scope) for scope in Scope}


@pytest.mark.spec("TEN-1", "TEN-3")
@pytest.mark.parametrize("name", KEYED)
def test_a_scope_alone_reaches_only_its_operations(name, furnished_kit, single_keys):
    operation, missing = OPERATIONS[name], nothing_like(furnished_kit.mine)
    for scope, key in single_keys.items():
        if scope in operation.scopes and operation.method != "GET" and name not in NO_CHANGE:
            continue  # test_operations shows that it works
        response = ask(furnished_kit, operation, ROWS[name], missing, key)
        code = None if operation.text and response.is_success else response.json().get("code")
        if scope in operation.scopes:
            assert code != "scope-missing", (name, scope, response.text)
            assert response.status_code in {200, 404}, (name, scope, response.text)
        else:
            assert (response.status_code, code) == (403, "scope-missing"), (name, scope, response.text)
            assert " or ".join(operation.scopes) in response.json()["detail"]


# They find nothing, so that nothing changes.
NO_CHANGE = frozenset(
    name for name, one in OPERATIONS.items() if {"run", "message"} & set(re.findall(r"{(\w+)}", one.path))
)


@pytest.mark.spec("TEN-2")
@pytest.mark.parametrize("name", [name for name in KEYED if "query" in OPERATIONS[name].takes])
def test_only_an_operator_may_name_another_tenant(name, furnished_kit):
    operation = OPERATIONS[name]
    assert "tenant" in operation.takes["query"].__struct_fields__
    key = furnished_kit.key(*ALL)
    for things in (furnished_kit.mine, furnished_kit.others, nothing_like(furnished_kit.mine)):
        answers = [ask(furnished_kit, operation, ROWS[name], things, key, tenant=tenant)
                   for tenant in (OTHERS, "no one", "*", "%", "default ")]  # fmt: skip
        assert {one.status_code for one in answers} == {403}
        assert len({str(shape(one)) for one in answers}) == 1
    bad = [ask(furnished_kit, operation, ROWS[name], furnished_kit.mine, key, tenant=tenant)
           for tenant in ("\0", "\x1f", "x" * 5000)]  # fmt: skip
    assert {one.status_code for one in bad} <= {403, 422}


@pytest.mark.spec("TEN-2")
@pytest.mark.slow
def test_a_foreign_thing_is_answered_as_a_missing_one(any_kit):
    kit, key = any_kit, any_kit.key(*ALL)
    kit.app.store = kit.api.store = store = CallRecorder(kit.app.store)
    before = everything(kit, OTHERS)
    rows = [*((name, ROWS[name]) for name in KEYED), *((name, row) for (name, _), row in NAMED.items())]
    for name, row in rows:
        operation = OPERATIONS[name]
        if "'{" not in str(row):
            continue  # it names nothing that belongs to a tenant
        missing, seen = nothing_like(kit.others), []
        for things in (kit.others, missing):
            store.calls.clear()
            response = ask(kit, operation, row, things, key)
            seen.append((*normal(response, things), [one for one in store.calls if one not in UPKEEP]))
        assert seen[0] == seen[1], name
        if row.path:
            assert seen[0][0] == 404 or name in {"unschedule", "schedule"}, (name, seen[0])
    assert everything(kit, OTHERS) == before


UPKEEP = {"open", "find_key", "signing_keys", "use_keys", "keys", "note_audit"}


def normal(response, things):
    status, headers, body = shape(response)
    for id_ in (*map(str, things.runs.values()), things.message, things.key, things.schedule):
        body = body.replace(id_.encode(), b"<id>")
    made = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|20\d\d-[0-9T:.Z-]+")
    return status, headers, made.sub(b"<new>", body)


def everything(kit, tenant):
    """All that a tenant has, as the store shows it."""
    store = kit.app.store
    return (
        kit.run(store.list, RunFilter(tenant=tenant), 1000),
        kit.run(store.list, RunFilter(tenant=tenant, deleted=True), 1000),
        kit.run(store.schedules, tenant),
        kit.run(store.keys, tenant),
        kit.run(store.trail, None, tenant),
        kit.run(store.approvals, tenant),
    )


@pytest.mark.spec("TEN-2")
def test_lists_show_one_tenant_only(furnished_kit):
    kit, key = furnished_kit, furnished_kit.key(*ALL)
    foreign = [*map(str, kit.others.runs.values()), kit.others.message, kit.others.key, kit.others.schedule]
    for name in KEYED:
        operation = OPERATIONS[name]
        if operation.method != "GET":
            continue
        response = ask(kit, operation, ROWS[name], kit.mine, key)
        if name != "audit":  # it shows what the caller has asked for
            assert not [one for one in foreign if one in response.text], name
        assert f'"tenant":"{OTHERS}"' not in response.text, name


@pytest.mark.spec("TEN-2")
@pytest.mark.parametrize("name", [
    name for name in KEYED
    if "cursor" in getattr(OPERATIONS[name].takes.get("query"), "__struct_fields__", ())
])  # fmt: skip
def test_a_cursor_is_valid_for_its_own_list_and_tenant_only(name, furnished_kit):
    kit, operation = furnished_kit, OPERATIONS[name]
    if name == "count":
        return
    keys = {tenant: kit.key(*ALL, tenant=tenant) for tenant in (MINE, OTHERS)}
    page = ask(kit, operation, ROWS[name], kit.mine, keys[MINE], limit=1).json()
    if (cursor := page["next"]) is None:
        assert name in {"list_bulk", "audit"}, "the list is empty, so there is nothing to see"
        return
    assert ask(kit, operation, ROWS[name], kit.mine, keys[MINE], cursor=cursor).status_code == 200
    refused = [ask(kit, operation, ROWS[name], kit.mine, keys[OTHERS], cursor=cursor)]
    refused += [
        ask(kit, OPERATIONS[other], ROWS[other], kit.mine, keys[MINE], cursor=cursor)
        for other in ("list", "approvals", "outbox", "schedules", "keys")
        if other != name
    ]
    for at in range(len(cursor)):
        changed = f"{cursor[:at]}{'A' if cursor[at] != 'A' else 'B'}{cursor[at + 1 :]}"
        refused.append(ask(kit, operation, ROWS[name], kit.mine, keys[MINE], cursor=changed))
    for odd in (f"{cursor}=", f"{cursor}!", f" {cursor}", cursor[:-1], "é", "\0", "A"):
        refused.append(ask(kit, operation, ROWS[name], kit.mine, keys[MINE], cursor=odd))
    assert {one.status_code for one in refused} == {422}
    assert {one.json()["code"] for one in refused} == {"bad-cursor"}
    assert len({str(shape(one)) for one in refused}) == 1


def test_the_rows_are_rows():
    assert all(isinstance(row, Row) for row in (*ROWS.values(), *NAMED.values()))
