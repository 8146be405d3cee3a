"""The verbs that start runs and send events.

Every start, rerun, event and bulk operation has a key, so that it can be sent again when its answer is lost.
A start without a key gets one that is made here, and that becomes the key of the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Unpack, overload
from uuid import UUID

import msgspec
from msgspec import Raw

from holdfast.arguments import (
    Seconds,
    check_id,
    check_kept,
    check_list,
    check_name,
    check_topic,
    exact_text,
    is_type,
)
from holdfast.bounds import slices
from holdfast.clipped import clipped
from holdfast.codec import untyped
from holdfast.engine.app.handle import Handle
from holdfast.engine.app.new_run import check_options, check_start, new_run
from holdfast.engine.definitions import Defined
from holdfast.engine.options import StartOptions
from holdfast.engine.typed import A, Given, T
from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.records import COST_UNIT, OWN, Emitted, NewRun, OwnTenant, Tenant, moment
from holdfast.records.sizes import start_bytes
from holdfast.records.units import SAME
from holdfast.shown.shapes import StartedData
from holdfast.world import World

from .base import Base, Pairs, set_fields
from .handles import ClientHandle
from .refusals import Asked, Problem

if TYPE_CHECKING:
    from .client import Client

STARTS_MAX = 500  # starts in one request
ENVELOPE_BYTES = 1_000  # of one start beside its values, at most about


class StartAnswer(msgspec.Struct, frozen=True):
    """The answer to one start of many."""

    run: StartedData | None = None
    problem: Problem | None = None


class StartAnswers(msgspec.Struct, frozen=True):
    """The answers to many starts."""

    items: tuple[StartAnswer, ...]


class EmittedData(msgspec.Struct, frozen=True):
    """The answer to an event."""

    woken: int | None
    duplicate: bool


class Start(msgspec.Struct, frozen=True):
    """One start: its body, and its tenant as a query."""

    body: dict[str, Any]
    whose: tuple[tuple[str, str], ...]
    size: int
    workflow: Defined | None


class StartVerbs(Base):
    """The verbs that start runs; a part of `Client`."""

    @overload
    async def start(
        self, workflow: Defined[None, T], params: None = None, **options: Unpack[StartOptions]
    ) -> Handle[T]: ...

    @overload
    async def start(
        self, workflow: Defined[A, T], params: Given[A], **options: Unpack[StartOptions]
    ) -> Handle[T]: ...

    @overload
    async def start(
        self, workflow: str, params: Any = None, **options: Unpack[StartOptions]
    ) -> Handle[Any]: ...

    async def start(
        self, workflow: Defined | str, params: Any = None, **options: Unpack[StartOptions]
    ) -> Handle[Any]:
        """Start a run and return its handle once it is durable, as `App.start` does.

        workflow: its type, or the decorated function, whose types the params and the result then have. A
        start without `key` gets one: so it can be sent again when its answer is lost. `id` and `connection`
        are not possible over HTTP.
        """
        _refuse_connection(options.pop("connection", None))
        one = self._made((workflow, params, options))
        key = one.body["key"]
        made = await self._ask("start", StartedData, query=one.whose, body=one.body, key=key)
        return self._handle(made, one)

    @overload
    async def start_many(
        self,
        starts: Sequence[tuple[Defined[A, T], A] | tuple[Defined[A, T], A, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[Handle[T] | HoldfastError]: ...

    @overload
    async def start_many(
        self,
        starts: Sequence[tuple[Defined | str, Any] | tuple[Defined | str, Any, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[Handle[Any] | HoldfastError]: ...

    async def start_many(
        self,
        starts: Sequence[tuple[Defined | str, Any] | tuple[Defined | str, Any, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[Handle[Any] | HoldfastError]:
        """Start many runs in few requests of at most 500, as `App.start_many` does. A bad item's answer is
        its error; the other items are started. When a request fails, its error is raised, and the runs of
        earlier ones are started: when each item has a key, a second call starts the rest.
        """
        _refuse_connection(connection)
        made: list[Start | UsageError] = []
        for one in check_list("starts", starts):
            try:
                made.append(self._made(one))
            except UsageError as error:
                made.append(error)
        good = [one for one in made if isinstance(one, Start)]
        answers: list[Handle[Any] | HoldfastError] = []
        for whose, same in groupby(good, lambda one: one.whose):
            for part in slices(list(same), lambda one: one.size, most=STARTS_MAX):
                answers += await self._many(part, list(whose))
        each = iter(answers)
        return [next(each) if isinstance(one, Start) else one for one in made]

    async def _many(self, part: Sequence[Start], whose: Pairs) -> list[Handle[Any] | HoldfastError]:
        body = {"starts": [one.body for one in part]}
        found = await self._ask("start_many", StartAnswers, query=whose, body=body)
        if len(found.items) != len(part):
            raise StoreError(
                f"{self._transport.url} has answered {len(found.items)} of {len(part)} starts: nobody knows "
                "which runs are started"
            )
        answers: list[Handle[Any] | HoldfastError] = []
        for answer, one in zip(found.items, part, strict=True):
            if answer.run is not None:
                answers.append(self._handle(answer.run, one))
            else:
                problem = answer.problem or Problem(code="internal", detail="it was not answered")
                asked = Asked(operation="start", key=one.body["key"])
                answers.append(self._transport.refusal(problem, asked))
        return answers

    def _made(self, start: Any) -> Start:
        """Check one start as an app does, and return its request."""
        workflow, params, *rest = check_start(start)
        options = dict(check_options(rest[0] if rest else {}))
        if options.get("id") is not None:
            raise UsageError(f"a client takes no id= ({clipped(options['id'])}): give key=")
        tenant = options.pop("tenant", OWN)
        named, known = self._named(workflow)
        new = new_run(self.world, known or (named if is_type(named) else f"{named}.v1"), params, **options)
        return Start(
            body=start_body(new, named, made_key(self.world) if new.key is None else new.key),
            whose=tuple(self._one(tenant)),
            size=start_bytes(new) + ENVELOPE_BYTES,
            workflow=known,
        )

    def _named(self, workflow: Any) -> tuple[str, Defined | None]:
        """Return the type of a workflow, and the workflow itself if it is here."""
        if isinstance(workflow, Defined):
            return workflow.type, workflow
        if not isinstance(workflow, str):
            raise UsageError(
                f"{clipped(workflow)} is not a workflow: give the decorated function, or its type as text"
            )
        named: str = exact_text(workflow)
        return named, None

    def _handle(self, made: StartedData, one: Start) -> Handle[Any]:
        named = dict(one.whose).get("tenant")
        client: Any = self if named is None or named == self.tenant else self.of(named)
        return ClientHandle(client, made.id, made.type, created=made.created, workflow=one.workflow)

    if TYPE_CHECKING:

        def of(self, tenant: Tenant) -> Client: ...

    async def rerun(self, run: UUID | str, params: Any = SAME, *, key: str | None = None) -> Handle[Any]:
        """Start a new run that repeats another, ended or open, as `App.rerun` does."""
        id_ = check_id(run)
        key = made_key(self.world) if key is None else check_name("key", key)
        body: dict[str, Any] = {"key": key}
        if params is not SAME:
            body["params"] = raw(params, f"params of run {id_}")
        path = {"run": id_}
        made = await self._ask("rerun", StartedData, path=path, query=self._of_run(), body=body, key=key)
        client: Any = self
        return ClientHandle(client, made.id, made.type, created=made.created)

    async def emit(
        self,
        topic: str,
        payload: Any = None,
        id: str | None = None,
        run: UUID | str | None = None,
        tenant: str | OwnTenant = OWN,
        keep: Seconds | None = None,
        *,
        connection: Any = None,
    ) -> Emitted:
        """Send an event to every run of the tenant that waits for it, or to one run, as `App.emit` does."""
        _refuse_connection(connection)
        body = set_fields(
            topic=check_topic(topic),
            payload=raw(payload, f"payload of event {topic!r}"),
            id=check_name("event id", id) if id is not None else str(self.world.uuid7()),
            run=None if run is None else check_id(run),
            keep=None if keep is None else finite("keep", check_kept("keep", keep, "events")),
        )
        found = await self._ask("emit", EmittedData, query=self._one(tenant), body=body)
        return Emitted(found.woken, found.duplicate)


def raw(value: Any, what: str) -> Raw:
    """Return a value as JSON, encoded and checked as an app does it."""
    return Raw(untyped.encode(value, what).encode())


def made_key(world: World) -> str:
    """Return a key for a call without one."""
    return f"client:{world.uuid7()}"


def start_body(new: NewRun, type_: str, key: str) -> dict[str, Any]:
    """Return the request for a new run, under a key."""
    return set_fields(
        type=type_,
        params=Raw(new.params.encode()),
        key=key,
        priority=new.priority,
        run_at=None if new.run_at is None else moment(new.run_at),
        delay=new.delay_seconds,
        timeout=new.timeout_seconds,
        max_attempts=new.max_attempts,
        ttl=None if new.ttl_seconds is None else finite("ttl", new.ttl_seconds),
        budget=None if new.budget is None else cost(new.budget),
        limit_key=new.limit_key,
        parent=new.parent,
        labels=None if new.labels is None else Raw(new.labels.encode()),
    )


def cost(units: int) -> float:
    """Return a budget as the API has it."""
    return units / COST_UNIT


def finite(what: str, seconds: float) -> float:
    """Return a time that JSON can hold."""
    if math.isinf(seconds):
        raise UsageError(f"{what} is for ever: over HTTP give at most 1,000 years")
    return seconds


def _refuse_connection(connection: Any) -> None:
    if connection is not None:
        raise UsageError("connection= needs the store itself: a client of the HTTP API has no transaction")
