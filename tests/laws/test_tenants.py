"""`app.of(tenant)`: things of another tenant are answered exactly like missing ones, on every store.

The table has a row for each public verb of the scoped app. Each row runs twice: once beside another tenant
that has one thing of each kind, with the ids and names of these things; and once on an empty store, with
unknown ids and names. Answers, errors and calls of the store must be the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from pathlib import Path

import pytest

import holdfast as hf
from holdfast import ANY, App, OutboxFilter, RunFilter, UsageError
from holdfast.engine.app.sync import SyncTenantApp
from holdfast.engine.app.tenants import TenantApp
from holdfast.stores.memory import MemoryStore
from tests.laws.two_tenants import ORDER, CallRecorder, app_of, furnished, nothing_like, two_stores

ROOT = Path(__file__).resolve().parent.parent.parent
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
KEY = bytes(range(32))


@pytest.fixture(params=["memory", "sealed", "sqlite", "postgres", "redis"])
def apps(request, tmp_path):
    """Return two apps on new stores, the first one with a codec if asked."""
    codec = {"codec": hf.Encrypt({"k1": KEY})} if request.param == "sealed" else {}
    return [app_of(store, **codec) for store in two_stores(request.param, request, tmp_path)]


# -- the table -------------------------------------------------------------------------------------


def each_run(verb, *args, **kwargs):
    """Call the verb for every run, in every status."""

    def calls(app, it):
        return [lambda run=run: getattr(app, verb)(run, *args, **kwargs) for run in it.runs.values()]

    return calls


def types_of(rows):
    return [row.type for row in rows]


async def told(call, tell):
    return tell(await call)


async def first_of(entries):
    return await anext(entries)


async def briefly(entries):
    """Wait a moment for the first entry: there may be none."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(first_of(entries), 0.01)


def tenants_of(rows):
    return [row.tenant for row in rows]


def told_of_search(found):
    return tenants_of(found.runs), found.after, found.looked_at


def of_schedule(one):
    return one.tenant, one.name, one.paused, one.fired


TABLE = {
    "get": each_run("get"),
    "known": each_run("known"),
    "present": each_run("present"),
    "children": lambda app, it: [
        lambda: told(app.children(list(it.runs.values())), len),
        *(lambda run=run: app.children([run]) for run in it.runs.values()),
    ],
    "steps": each_run("steps"),
    "explain": each_run("explain"),
    "result": each_run("result", timeout=60),
    "ended": each_run("ended", timeout=60),
    "final": each_run("final", timeout=60),
    "trail": lambda app, it: [
        lambda: told(app.trail(), types_of),
        lambda: told(app.trail(types=["created"]), types_of),
        *(lambda run=run: told(app.trail(run), types_of) for run in it.runs.values()),
    ],
    "follow": lambda app, it: [lambda run=run: first_of(app.follow(run)) for run in it.runs.values()],
    "list": lambda app, it: [
        lambda: told(app.list(), tenants_of),
        lambda: told(app.list(RunFilter(deleted=True)), tenants_of),
        lambda: told(app.list(RunFilter(key="key of pending")), tenants_of),
        lambda: told(app.list(RunFilter(labels={"team": None})), tenants_of),
        lambda: told(app.list(RunFilter(error="%")), tenants_of),
        lambda: told(app.list(RunFilter(roots=True)), tenants_of),
        *(lambda run=run: app.list(RunFilter(parent=run)) for run in it.runs.values()),
        *(lambda run=run: told(app.list(after=run), len) for run in it.runs.values()),
    ],
    "search": lambda app, it: [
        lambda: told(app.search("key of"), told_of_search),
        lambda: told(app.search("e", RunFilter(deleted=True)), told_of_search),
        lambda: told(app.search("e", RunFilter(labels={"team": None})), told_of_search),
        *(lambda run=run: told(app.search("e", after=run), told_of_search) for run in it.runs.values()),
    ],
    "counts": lambda app, _: [lambda: told(app.counts(), lambda one: (one.by_type, one.totals, one.more))],
    "rates": lambda app, _: [
        lambda: told(app.rates(), lambda rows: [(row.type, row.what) for row in rows]),
        lambda: app.rates(limit=0),
    ],
    "scale": lambda app, _: [lambda: told(app.scale(), lambda one: (one.items, one.more))],
    "approvals": lambda app, it: [
        lambda: app.approvals(),
        lambda: app.approvals(after=(it.runs["wait"], "a")),
    ],
    "outbox": lambda app, it: [
        lambda: app.outbox(),
        lambda: app.outbox(OutboxFilter(id=it.message)),
        *(lambda run=run: app.outbox(OutboxFilter(run=run)) for run in it.runs.values()),
    ],
    "resend": lambda app, it: [lambda: app.resend(it.message)],
    "schedules": lambda app, it: [lambda: app.schedules(), lambda: app.schedules(name=it.schedule)],
    "pause_schedule": lambda app, it: [lambda: app.pause_schedule(it.schedule)],
    "resume_schedule": lambda app, it: [lambda: app.resume_schedule(it.schedule)],
    "fire_schedule": lambda app, it: [lambda: app.fire_schedule(it.schedule)],
    "unschedule": lambda app, it: [lambda: app.unschedule(it.schedule)],
    "schedule": lambda app, it: [
        lambda: told(app.schedule(it.schedule, ORDER, every=7200), of_schedule),
        lambda: told(app.pause_schedule(it.schedule), of_schedule),
        lambda: app.unschedule(it.schedule),
    ],
    "emit": lambda app, it: [
        lambda: app.emit("go"),
        lambda: app.emit("other", id="e1"),
        *(lambda run=run: app.emit("go", run=run) for run in it.runs.values()),
    ],
    "bulk": lambda app, it: [
        lambda: told(app.bulk.preview(RunFilter()), lambda seen: (seen.shown, seen.sample)),
        *(lambda run=run: app.bulk.preview(RunFilter(parent=run)) for run in it.runs.values()),
        lambda: told(app.bulk.cancel(RunFilter(), key="key of pending"), lambda handle: handle.created),
    ],
    "cancel": each_run("cancel"),
    "pause": each_run("pause"),
    "resume": each_run("resume"),
    "rewind": each_run("rewind", "GATE"),
    "retry": each_run("retry"),
    "rerun": each_run("rerun"),
    "set_priority": each_run("set_priority", 5),
    "append_step": each_run("append_step", "NEW"),
    "delete": each_run("delete"),
    "restore": each_run("restore"),
    "approve": lambda app, it: [*each_run("approve")(app, it), *each_run("approve", "GATE")(app, it)],
    "reject": lambda app, it: [*each_run("reject")(app, it), *each_run("reject", "GATE")(app, it)],
    "keys": lambda app, it: [lambda: app.keys(), lambda: app.keys(after=it.key), lambda: app.keys(limit=1)],
    "audit": lambda app, it: [
        lambda: app.audit(),
        lambda: app.audit(keys=[it.key]),
        lambda: app.audit(actions=["create_key"], after=10),
    ],
    "rotate_key": lambda app, it: [lambda: app.rotate_key(it.key)],
    "revoke_key": lambda app, it: [lambda: app.revoke_key(it.key)],
    "create_key": lambda app, _: [
        lambda: told(app.create_key("ci", scopes=["work"]), lambda made: (made.key.name, made.key.tenant)),
        lambda: told(app.create_key("ci", scopes=["operator"]), len),
        lambda: told(app.audit(), lambda rows: [(row.action, row.tenant) for row in rows]),
    ],
    "start": lambda app, it: [
        lambda: told(app.start(ORDER, 8, key="key of pending"), lambda handle: handle.created),
        *(lambda run=run: app.start(ORDER, 8, parent=run) for run in it.runs.values()),
        *(lambda run=run: app.start(ORDER, 8, id=run) for run in it.runs.values()),
    ],
    "start_many": lambda app, it: [
        lambda: app.start_many([(ORDER, 8, {"parent": run}) for run in it.runs.values()])
    ],
}  # fmt: skip


def verbs_of(scoped):
    return {name for name in vars(scoped) if not name.startswith("_")} | {
        name for base in scoped.__mro__[1:-1] for name in vars(base) if not name.startswith("_")
    }


def without_ids(said, it):
    known = [*map(str, it.runs.values()), it.message, it.key]
    for one in known:
        said = said.replace(one, "<id>")
    return ID.sub("<id>", said)


async def outcome(app, call, it):
    """Return the result of a call without ids, and the verbs of the store that it called."""
    heard = app.store if isinstance(app.store, CallRecorder) else app.store.inner
    heard.calls.clear()
    try:
        said = repr(await call())
    except hf.HoldfastError as error:
        said = f"{type(error).__name__}: {error}"
    return without_ids(said, it), tuple(heard.calls)


async def walked(app, tenant, it):
    """Run all rows of the table: verbs that read, verbs that write, verbs that create."""
    of = app.of(tenant)
    return {
        verb: [await outcome(app, call, it) for call in row(of, it)] for verb, row in TABLE.items()
    }  # fmt: skip


async def snapshot(app, things):
    """Return everything of a tenant, as an operator sees it."""
    seen = [
        await app.list(RunFilter(tenant="acme", deleted=True)),
        await app.outbox(OutboxFilter(tenant="acme")),
    ]
    seen += [await app.schedules("acme"), await app.approvals("acme"), await app.trail(tenant="acme")]
    seen += [await app.keys("acme"), await app.audit("acme"), await app.store.find_key(things.key)]
    for name, run in things.runs.items():
        if name != "deleted":
            seen += [await app.steps(run), await app.trail(run)]
    return repr(seen)


@pytest.mark.spec("TEN-5")
def test_things_of_another_tenant_are_answered_like_missing_ones(apps):
    """The error, its words and the calls of the store are the same; and nothing changes."""

    async def play():
        full, bare = apps
        try:
            things = await furnished(full, "acme")
            await bare.publish()
            await full.publish()
            before = await snapshot(full, things)
            theirs = await walked(full, "beta", things)
            missing = await walked(bare, "beta", nothing_like(things))
            assert await snapshot(full, things) == before
            await assert_seen(full.of("acme"), things)
        finally:
            await full.close()
            await bare.close()
        return theirs, missing

    theirs, missing = asyncio.run(play())
    for verb in TABLE:
        assert theirs[verb] == missing[verb], verb


async def assert_seen(acme, things):
    """Check that the tenant itself sees all its things: with wrong ids the table would pass too."""
    assert len(await acme.list(RunFilter(deleted=True))) == len(things.runs)
    for name, run in things.runs.items():
        assert (await acme.get(run) is None) == (name == "deleted")
    assert [len(await acme.approvals()), len(await acme.outbox()), len(await acme.schedules())] == [2, 1, 1]
    assert (await acme.resend(things.message)).id == things.message
    assert [one.id for one in await acme.keys()] == [one.target for one in await acme.audit()] == [things.key]
    assert (await acme.rotate_key(things.key)).key.id == (await acme.revoke_key(things.key)).id == things.key


def test_every_verb_of_the_scoped_app_has_a_row():
    """A new verb must say in the table how it treats things of other tenants; blocking verbs too."""
    assert verbs_of(TenantApp) == set(TABLE)
    assert verbs_of(SyncTenantApp) == set(TABLE)


# -- naming another tenant -------------------------------------------------------------------------

NAMING = {
    "emit": lambda app, tenant: app.emit("go", tenant=tenant),
    "schedule": lambda app, tenant: app.schedule("s", ORDER, every=60, tenant=tenant),
    "schedules": lambda app, tenant: app.schedules(tenant),
    "unschedule": lambda app, tenant: app.unschedule("s", tenant),
    "pause_schedule": lambda app, tenant: app.pause_schedule("s", tenant),
    "resume_schedule": lambda app, tenant: app.resume_schedule("s", tenant),
    "fire_schedule": lambda app, tenant: app.fire_schedule("s", tenant),
    "approvals": lambda app, tenant: app.approvals(tenant),
    "create_key": lambda app, tenant: app.create_key("ci", scopes=["work"], tenant=tenant),
    "keys": lambda app, tenant: app.keys(tenant),
    "audit": lambda app, tenant: app.audit(tenant),
    "trail": lambda app, tenant: app.trail(tenant=tenant),
    "follow": lambda app, tenant: briefly(app.follow(tenant=tenant)),
    "list": lambda app, tenant: app.list(RunFilter(tenant=tenant)),
    "outbox": lambda app, tenant: app.outbox(OutboxFilter(tenant=tenant)),
    "start": lambda app, tenant: app.start(ORDER, tenant=tenant),
    "start_many": lambda app, tenant: raised(app.start_many([(ORDER, 1, {"tenant": tenant})])),
}


async def raised(answers):
    (answer,) = await answers
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.mark.spec("TEN-5")
@pytest.mark.parametrize("verb", NAMING)
@pytest.mark.parametrize("other", ["acme", "default", ANY])
def test_a_scoped_app_names_no_other_tenant(verb, other):
    """A scoped app may name its own tenant; any other name is refused before the store is asked."""
    app = app_of(MemoryStore())
    beta = app.of("beta")
    shown = re.escape(repr(other))
    with pytest.raises(UsageError, match=f"bound to tenant 'beta': it cannot name {shown}"):
        asyncio.run(NAMING[verb](beta, other))
    with contextlib.suppress(hf.UnknownSchedule):
        asyncio.run(NAMING[verb](beta, "beta"))


@pytest.mark.spec("TEN-5")
@pytest.mark.parametrize("verb", NAMING)
@pytest.mark.parametrize("bound", [True, False])
def test_none_is_no_tenant(verb, bound):
    """None may be a lost name: it means neither the app's own tenant nor all tenants."""
    app = app_of(MemoryStore())
    with pytest.raises(UsageError, match="tenant is None: name a tenant, or give ANY for all tenants"):
        asyncio.run(NAMING[verb](app.of("beta") if bound else app, None))


def test_every_verb_that_takes_a_tenant_is_tried():
    """The verbs are found by signature; `start` and the filters take theirs as options."""
    verbs = {name: getattr(TenantApp, name) for name in TABLE if name != "bulk"}  # its filters are options
    takes = {name for name, verb in verbs.items() if "tenant" in inspect.signature(verb).parameters}
    assert takes <= set(NAMING)


@pytest.mark.spec("TEN-5")
@pytest.mark.parametrize("bad", ["", "a\x1fb", "x" * 600, None, ANY, 7])
def test_an_app_is_bound_to_one_name(bad):
    with pytest.raises(UsageError):
        app_of(MemoryStore()).of(bad)


def test_blocking_verbs_are_scoped_too():
    """The sync API is scoped like the async one; a handle stays in its tenant."""
    app = app_of(MemoryStore())
    with app.sync as sync:
        acme, beta = sync.of("acme"), sync.of("beta")
        run = acme.start(ORDER)
        assert (run.get().tenant, beta.get(run.id)) == ("acme", None)
        with pytest.raises(hf.UnknownRun):
            beta.cancel(run.id)
        assert [len(acme.list()), len(beta.list()), len(sync.list())] == [1, 0, 0]
        assert len(sync.list(RunFilter(tenant=ANY))) == 1
        assert beta.start_many([(ORDER, 1, {"parent": run.id})])[0].run_id == run.id


def test_a_scoped_app_follows_its_app_to_another_store():
    """A test that replaces the store of an app replaces it for every scoped app too."""
    app = app_of(MemoryStore())
    acme, app.store = app.of("acme"), CallRecorder(MemoryStore())
    asyncio.run(acme.start(ORDER))
    assert "start" in app.store.calls


# -- verbs of operators ----------------------------------------------------------------------------

OPERATORS = {
    "purge", "recount", "doctor", "stats", "workers", "unserved", "backlog", "now", "rotate_signing_key",
    "export", "import_", "move", "preview_move", "undo_move",
    "confirm_export", "release_import", "undo_export",
    "limit", "unlimit", "limits", "pause_key", "resume_key",
    "register", "unregister", "definitions", "registry", "webhook", "webhooks", "remove_webhook",
    "publish", "worker", "work", "run", "close",
}  # fmt: skip
DEFINES = {"workflow", "plan", "on", "sink", "at", "of", "sync"}


@pytest.mark.spec("TEN-5")
def test_every_verb_of_an_app_is_a_callers_or_an_operators():
    """Every verb is scoped, or is listed as an operator's verb in the guide."""
    public = {
        name for name, member in inspect.getmembers(App)
        if not name.startswith("_") and (callable(member) or name in {"sync", "bulk"})
    }  # fmt: skip
    assert public == set(TABLE) | OPERATORS | DEFINES
    guide = (ROOT / "docs" / "guide" / "tenants.md").read_text("utf-8")
    assert [name for name in sorted(OPERATORS) if f"`{name}`" not in guide] == []
