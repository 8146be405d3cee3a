"""API keys and the audit log, through the app."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast import ANY, Scope, api_keys
from holdfast.engine.app.client import StartedBy
from holdfast.engine.app.tenants import bound_client
from holdfast.errors import Conflict, UnknownApiKey, UsageError
from holdfast.records import moment
from tests.engine.app.test_arguments import refused_async

LATER = datetime(2999, 1, 1, tzinfo=UTC)
NAIVE = LATER.replace(tzinfo=None)


@pytest.fixture
def app():
    return hf.App("memory://")


async def is_let_in(app, text):
    id_, secret = api_keys.parse(text)
    key = await app.store.find_key(id_)
    return api_keys.matches_hash(key, api_keys.secret_hash(secret), moment(await app.store.now()))


@pytest.mark.spec("TEN-1")
async def test_a_new_key_lets_in_who_has_its_secret(app):
    made = await app.create_key(
        "ci", scopes=["runs.read", Scope.WORK, "work"], patterns=["shop.%"], expires_at=LATER, rate=5,
        open_runs_max=7, by="eve",
    )  # fmt: skip
    key = made.key
    assert (key.name, key.tenant, key.created_by, key.expires_at) == ("ci", "default", "eve", LATER)
    assert (key.scopes, key.patterns) == ((Scope.RUNS_READ, Scope.WORK), ("shop.%",))
    assert (key.rate, key.open_runs_max) == (5.0, 7)
    assert made.secret.startswith(f"hf_{key.id}_")
    assert await is_let_in(app, made.secret)
    assert not await is_let_in(app, made.secret[:-1] + ("a" if made.secret[-1] != "a" else "b"))
    assert await app.keys() == [key]


@pytest.mark.spec("TEN-1")
async def test_a_rotated_key_has_two_secrets_and_a_revoked_one_none(app):
    first = await app.create_key("ci", scopes=["work"])
    second = await app.rotate_key(first.key.id, by="eve")
    assert second.key.old_secret_until - second.key.rotated_at == timedelta(hours=24)
    assert [await is_let_in(app, one.secret) for one in (first, second)] == [True, True]
    third = await app.rotate_key(first.key.id, overlap=0)
    assert [await is_let_in(app, one.secret) for one in (first, second, third)] == [False, False, True]
    assert (await app.revoke_key(first.key.id, by="eve")).revoked_by == "eve"
    assert not await is_let_in(app, third.secret)
    with pytest.raises(Conflict):
        await app.rotate_key(first.key.id)
    with pytest.raises(UnknownApiKey):
        await app.revoke_key("k99999999999")


@pytest.mark.spec("TEN-1")
async def test_every_change_is_in_the_audit_log(app):
    made = await app.create_key("ci", scopes=["work"], tenant="acme", by="eve")
    await app.rotate_key(made.key.id, by="adam")
    await app.revoke_key(made.key.id, by="adam")
    await app.revoke_key(made.key.id, by="adam")
    rows = [(row.action, row.key_name, row.target, row.tenant) for row in await app.audit()]
    id_ = made.key.id
    assert rows == [
        ("revoke_key", "adam", id_, "acme"), ("rotate_key", "adam", id_, "acme"),
        ("create_key", "eve", id_, "acme"),
    ]  # fmt: skip
    assert await app.audit("default") == []
    assert [row.action for row in await app.audit("acme", actions=["create_key"])] == ["create_key"]
    last = (await app.audit(limit=2))[-1].seq
    assert await app.audit(since=LATER) == []
    assert len(await app.audit(after=last)) == 1
    assert await app.audit(until=datetime(2000, 1, 1, tzinfo=UTC)) == []


@pytest.mark.spec("TEN-1")
async def test_an_act_of_the_http_api_is_noted_with_its_key_and_request(app):
    """One act has one row, in its own commit, with the id of the key that was used."""
    client = bound_client(app, "acme", StartedBy("ci", "k00000000001", None, "r7"))
    made = await client.create_key("new", scopes=["work"], by="ci")
    (row,) = await app.audit()
    assert (row.tenant, row.key_id, row.key_name, row.request) == ("acme", "k00000000001", "ci", "r7")
    assert (row.action, row.target) == ("create_key", made.key.id)


@pytest.mark.spec("TEN-1", "TEN-5")
async def test_an_app_of_one_tenant_makes_no_operator(app):
    """It gives neither a new operator key nor a new secret for one; it can end one of its own tenant."""
    made = await app.create_key("root", scopes=["operator"], tenant="acme")
    acme = app.of("acme")
    assert "scope operator is for all tenants" in await refused_async(
        acme.create_key, "x", scopes=["work", "operator"]
    )
    assert "has scope operator" in await refused_async(acme.rotate_key, made.key.id)
    with pytest.raises(UnknownApiKey):
        await app.of("beta").rotate_key(made.key.id)
    assert await is_let_in(app, made.secret)
    assert (await app.rotate_key(made.key.id)).key.rotated_at is not None
    await acme.revoke_key(made.key.id)
    assert not await is_let_in(app, made.secret)


BAD_KEYS = [
    *({"name": bad} for bad in ("", "x" * 256, 7, None)),
    *({"scopes": bad} for bad in ([], "work", ["all"], [None], None, 7)),
    *({"patterns": bad} for bad in ("shop.%", ["%x"], [""], ["a.b"] * 101)),
    *({"expires_at": bad} for bad in (60, "2030-01-01", NAIVE, LATER.replace(year=2001))),
    *({"rate": bad} for bad in (0, -1, 10_001, math.nan, True, "5")),
    *({"open_runs_max": bad} for bad in (0, 10_001, 1.5, True, "5")),
    {"by": "a\0b"}, {"tenant": ""}, {"tenant": ANY}, {"tenant": None}, {"tenant": "holdfast.x"},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_KEYS, ids=lambda bad: str(bad)[:60])
async def test_a_bad_key_is_refused_in_one_line(app, bad):
    await refused_async(app.create_key, **{"name": "ci", "scopes": ["work"], **bad})
    assert await app.keys(ANY) == []


async def test_bad_arguments_of_the_other_verbs_are_refused(app):
    for call, given, options in (
        (app.keys, (None,), {}), (app.keys, (), {"limit": -1}), (app.keys, (), {"after": 7}),
        (app.rotate_key, ("x",), {}), (app.rotate_key, (7,), {}),
        (app.rotate_key, ("k00000000001",), {"overlap": -1}),
        (app.rotate_key, ("k00000000001",), {"overlap": math.inf}), (app.revoke_key, (None,), {}),
        (app.revoke_key, ("k00000000001",), {"by": 7}), (app.audit, (None,), {}),
        (app.audit, (), {"actions": "start"}), (app.audit, (), {"keys": [7]}), (app.audit, (), {"since": 7}),
        (app.audit, (), {"after": -1}), (app.audit, (), {"until": NAIVE}),
    ):  # fmt: skip
        await refused_async(call, *given, **options)


@pytest.mark.spec("TEN-1")
async def test_a_secret_is_in_no_message_and_no_log(app, caplog):
    """Not in the repr of the answer, and not when somebody gives the whole text where an id is wanted."""
    with caplog.at_level(logging.DEBUG):
        made = await app.create_key("ci", scopes=["work"])
        secret = api_keys.parse(made.secret)[1]
        said = await refused_async(app.revoke_key, made.secret)
        with pytest.raises(Conflict) as taken:
            await app.create_key("ci", scopes=["work"])
    assert secret not in repr(made) + said + str(taken.value) + caplog.text
    assert made.key.secret_hash == ""


def test_blocking_verbs_of_keys():
    app = hf.App("memory://")
    with app.sync as sync:
        made = sync.of("acme").create_key("ci", scopes=["work"])
        assert [len(sync.keys()), len(sync.keys(ANY)), len(sync.of("acme").keys())] == [0, 1, 1]
        sync.rotate_key(made.key.id)
        sync.revoke_key(made.key.id)
        assert len(sync.of("acme").audit()) == len(sync.audit()) == 3


@pytest.mark.spec("TEN-3")
async def test_a_start_above_the_limit_of_a_key_raises(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    client = bound_client(app, "acme", StartedBy("ci", "k00000000001", 1))
    first = await client.start(order)
    with pytest.raises(hf.TooManyRuns) as refused:
        await client.start(order)
    assert (refused.value.key_id, refused.value.limit) == ("k00000000001", 1)
    answers = await asyncio.gather(*(client.start(order) for _ in range(5)), return_exceptions=True)
    assert {type(one) for one in answers} == {hf.TooManyRuns}
    await app.cancel(first.id)
    assert (await client.start(order)).created
    assert isinstance(refused.value, UsageError) is False
