"""A server of the HTTP API inside the test, and keys for it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from uuid import UUID, uuid4

from starlette.testclient import TestClient

import holdfast as hf
from holdfast import api_keys
from holdfast.http import asgi
from holdfast.records import ANY, NewApiKey, Scope

ALL = tuple(one for one in Scope if one is not Scope.OPERATOR)
READ = (Scope.RUNS_READ, Scope.PAYLOADS_READ)
MINE, OTHERS = "default", "other"
CANARY = "c4n4ry"  # in every value of a user
DONE = {"done": "succeeded", "broken": "failed", "retried": "failed", "rewound": "failed"}
WAITING = ("waits", "gate", "gate two", "plan")
LATER = ("pending", "cancelled", "paused", "resumed", "priority", "deleted", "restored", "parent")
_numbers = count(1)


def store_of(kind, request, folder):
    """Return a new store of one kind: memory, sqlite, postgres or redis."""
    if kind == "postgres":
        from holdfast.stores.postgres import PostgresStore

        return PostgresStore(request.getfixturevalue("postgres_database").url)
    if kind == "redis":
        from holdfast.stores.redis import RedisStore

        return RedisStore(request.getfixturevalue("redis_url"))
    if kind == "sqlite":
        from holdfast.stores.sqlite import SqliteStore

        return SqliteStore(str(folder / "holdfast.db"))
    from holdfast.stores.memory import MemoryStore

    return MemoryStore()


def shop(store="memory://"):
    """An app with a few workflows of every kind. Each value in them contains the canary."""
    app = hf.App(store)

    @app.workflow("shop.order.v1")
    async def order(ctx, order: dict):
        receipt = await ctx.step("charge", lambda: f"{CANARY} receipt {order['id']}")
        ctx.log(f"{CANARY} charged", note=CANARY)
        ctx.progress(1, 2, CANARY)
        await ctx.await_event(f"paid:{order['id']}")
        return receipt

    @app.workflow("shop.quick.v1")
    async def quick(ctx, value=None):
        ctx.send("mail", {"to": CANARY})
        await ctx.step("think", lambda: CANARY)
        return value

    @app.workflow("shop.report.v1")
    async def report(ctx):
        return CANARY

    @app.workflow("shop.gated.v1")
    async def gated(ctx, amount: int = 1):
        decision = await ctx.approval("manager", ask=f"Pay {CANARY}?", data={"amount": CANARY})
        return decision.approved

    @app.workflow("shop.broken.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def broken(ctx):
        def declined():
            raise hf.Fatal(f"the card {CANARY} was declined", CANARY)

        await ctx.step("pay", declined)

    app.plan("shop.plan.v1", [hf.Approval("GATE", ask="Ship?"), hf.Task("SHIP")])
    return app


@dataclass(frozen=True)
class Things:
    """The ids and names of a tenant's things, or of things that do not exist."""

    runs: dict[str, UUID]
    message: str
    key: str
    schedule: str
    cursor: str = "AAAA"

    def __getitem__(self, name):
        return str(self.runs[name])


async def furnished(app, tenant):
    """Create one thing of each kind for a tenant."""
    of, runs = app.of(tenant), {}
    async with app.worker(poll=0.01):
        given = {"done": ("quick", {"text": CANARY}), "broken": ("broken", None), "retried": ("broken", None),
                 "rewound": ("broken", None), "waits": ("order", {"id": 42, "text": CANARY}),
                 "gate": ("gated", 1), "gate two": ("gated", 2),
                 "plan": ("plan", {"text": CANARY})}  # fmt: skip
        for name, (type_, params) in given.items():
            runs[name] = (await of.start(f"shop.{type_}.v1", params, key=f"key of {name}")).id
        for name in given:
            wanted = DONE.get(name, "waiting")
            while (await of.known(runs[name])).status != wanted:  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)
    for name in LATER:
        options = {"key": f"key of {name}", "delay": 3600, "labels": {"kind": name}}
        runs[name] = (await of.start("shop.quick.v1", {"text": CANARY}, **options)).id
    await of.pause(runs["resumed"])
    await of.delete(runs["restored"])
    runs["child"] = (await of.start("shop.quick.v1", CANARY, parent=runs["parent"], delay=3600)).id
    await of.schedule(f"nightly {tenant}", "shop.quick.v1", {"text": CANARY}, every=3600)
    await of.emit("nobody waits", {"text": CANARY}, id="e1")
    message = (await of.outbox())[0]
    # The other tenant's key has a scope that no tenant can give: the answer must not tell.
    more = () if tenant == MINE else (Scope.OPERATOR,)
    key, _ = await new_key(app.store, tenant, (Scope.RUNS_READ, *more))
    return Things(runs, message.id, key.id, f"nightly {tenant}")


def nothing_like(things):
    """Things that do not exist, with ids and names of the same length."""
    none = {name: uuid4() for name in things.runs}
    message = f"{uuid4()}{'0' * len(things.message)}"[: len(things.message)]
    return Things(none, message, "0" * 12, "x" * len(things.schedule), things.cursor)


async def new_key(store, tenant, scopes, name=None, **options):
    """Store an API key; return it and its text."""
    secret = secrets.token_hex(16)
    new = NewApiKey(
        id=secrets.token_hex(6),
        tenant=tenant,
        name=name or f"key {next(_numbers)}",
        scopes=tuple(scopes),
        secret_hash=api_keys.secret_hash(secret),
        **options,
    )
    key = await store.create_key(new)
    return key, f"hf_{key.id}_{secret}"


class Kit:
    """The API of an app, called without a network."""

    def __init__(self, app=None, *, store=None, host="localhost", **options):
        self.app = app or shop(store or "memory://")
        self.client = TestClient(asgi(self.app, **options), base_url=f"http://{host}")
        self.api = self.client.app.api
        self.mine = self.others = None

    def __enter__(self):
        self.client.__enter__()
        self.run(self.app.store.open)
        return self

    def __exit__(self, *error):
        self.run(self.app.close)
        self.client.__exit__(*error)

    def run(self, verb, *args, **kwargs):
        """Call an async function on the loop of the server."""
        return self.client.portal.call(partial(verb, *args, **kwargs))

    def furnish(self):
        """Give two tenants one thing of each kind."""
        self.mine = self.run(furnished, self.app, MINE)
        self.others = self.run(furnished, self.app, OTHERS)
        return self

    def key(self, *scopes, tenant=MINE, **options):
        """Create an API key and return its text."""
        return self.run(new_key, self.app.store, tenant, scopes or ALL, **options)[1]

    def expired_key(self, *scopes):
        """Create a key that has expired by now."""
        return self.key(*scopes, expires_at=_microseconds(datetime.now(UTC) - timedelta(seconds=1)))

    def revoked_key(self, *scopes):
        """Create a key and revoke it."""
        text = self.key(*scopes)
        self.run(self.app.store.revoke_key, text.split("_")[1], ANY)
        return text

    def ask(self, method, path, key=None, **options):
        """Send a request; return the response."""
        headers = options.pop("headers", None) or {}
        if key is not None:
            headers = {"authorization": f"Bearer {key}".encode(), **headers}
        return self.client.request(method, path, headers=headers, **options)

    def work(self, *runs):
        """Execute runs until they have ended or wait."""
        self.run(_worked, self.app, runs)


def _microseconds(at):
    return int(at.timestamp() * 1_000_000)


async def _worked(app, runs):
    async with app.worker(poll=0.01):
        for run in runs:
            while (await app.known(run)).status in {"pending", "leased"}:  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)
