"""What anyone may ask of runs: start them, tell them things, stop them, look at them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    Seconds,
    check_attempts,
    check_by,
    check_datetime,
    check_duration,
    check_id,
    check_kept,
    check_key,
    check_limit,
    check_list,
    check_name,
    check_priority,
    check_sought,
    check_step_name,
    check_text,
    check_topic,
    check_whole,
    plain_text,
)
from holdfast.bounds import slices
from holdfast.clipped import clipped
from holdfast.codec import MARK, plain
from holdfast.contract import Store
from holdfast.errors import HoldfastError, ResultTimeout, RunCancelled, RunFailed, UnknownRun, UsageError
from holdfast.lifecycle import FINAL, Status
from holdfast.records import (
    ANY,
    BEGINNING,
    OWN,
    Beginning,
    Emitted,
    NewEvent,
    NewRun,
    OwnTenant,
    Run,
    RunFilter,
    Started,
    Step,
    Tenant,
    TrailEntry,
)
from holdfast.records.sizes import start_bytes
from holdfast.sealing.envelope import reason
from holdfast.world import World

from .deciding import Gates
from .definitions import Defined, newest
from .explain import Explanation
from .explaining import explained
from .gathering import STARTS_MAX, Gathered
from .handle import Handle
from .keeper import Bell
from .limiting import Limiting
from .operating import Operating
from .outbox import Outgoing
from .plans.plan import Plan
from .scheduling import Scheduling
from .starting import check_options, check_start, new_run
from .whose import one_tenant, tenant_of


class Client(Gates, Outgoing, Scheduling, Limiting, Operating):
    """The verbs on runs, over any store. `App` is one, with workflows of its own."""

    tenant: Tenant = ANY  # whose runs it sees

    def __init__(self, store: Store, world: World) -> None:
        self.store, self.world = store, world
        self.workflows: dict[str, Defined] = {}
        self._published: tuple[Store, set[str]] = store, set()
        self._starts = Gathered(world)

    # -- start ---------------------------------------------------------------------------------

    async def start(self, workflow: Defined | str, params: Any = None, **options: Any) -> Handle[Any]:
        """Record an intent and return its handle once it is durable; no user code runs here.

        Options: key, id, priority, run_at, delay, timeout, max_attempts, ttl, budget, limit_key, parent,
        tenant, labels, connection. The same key again: the run that is there, with created=False.
        A plan of this app is published first, so that all its steps are there from the start.
        `connection`: your own, on the store's database, in a transaction that you commit or roll back; then
        nothing is published.
        """
        connection = options.pop("connection", None)
        answer = (await self.start_many([(workflow, params, options)], connection=connection))[0]
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def start_many(
        self,
        starts: Sequence[tuple[Defined | str, Any] | tuple[Defined | str, Any, dict[str, Any]]],
        *,
        connection: Any = None,
    ) -> list[Handle[Any] | HoldfastError]:
        """Start many in few round trips. What is wrong with one item is the answer of that item; the others
        are started.

        They are recorded in order, in commits of at most 500 runs and 8 MiB: after a crash in between the
        first of them are there. With a key for each, the same call again starts the rest.
        `connection`: one for all, as in `start`; then all are part of your transaction.
        """
        listed = check_list("starts", starts)
        if connection is None:
            await self._opened()
        made = [await self._made(one, look=connection is None) for one in listed]
        plans = [one[1] for one in made if isinstance(one, tuple) and isinstance(one[1], Plan)]
        if plans and connection is None:
            await self._publish(plans)
        good = [one for one in made if isinstance(one, tuple)]
        handles: list[Handle[Any] | HoldfastError] = []
        for slice_ in slices(good, lambda one: start_bytes(one[0]), most=STARTS_MAX):
            said = await self._starts.start(self.store, [new for new, _ in slice_], connection)
            for answer, (_, defined) in zip(said, slice_, strict=True):
                handles.append(
                    Handle(self, answer.id, created=answer.created, workflow=defined)
                    if isinstance(answer, Started)
                    else answer
                )
        answers = iter(handles)
        return [next(answers) if isinstance(one, tuple) else one for one in made]

    async def _made(self, start: Any, *, look: bool) -> tuple[NewRun, Defined | None] | UsageError:
        """The intent of one start, and the workflow if it is known here; or what is wrong with it."""
        try:
            workflow, params, *rest = check_start(start)
            known = await self._workflow(workflow, look=look)
            new = new_run(self.world, known, params, **self._bound(check_options(rest[0] if rest else {})))
        except UsageError as error:
            return error
        return new, known if isinstance(known, Defined) else None

    def _bound(self, options: dict[str, Any]) -> dict[str, Any]:
        """Name the tenant of a start. Ids are shared by all tenants: an app of one tenant chooses none."""
        if self.tenant is not ANY and options.get("id") is not None:
            raise UsageError(f"an app of one tenant takes no id {clipped(options['id'])}: give a key")
        return {**options, "tenant": one_tenant(self.tenant, options.get("tenant", OWN))}

    async def _publish(self, plans: Iterable[Plan]) -> None:
        """Once for each store: a run gets its rows from what is published when it starts."""
        store, known = self._published
        if store is not self.store:
            store, known = self._published = self.store, set()
        if new := {one.type: one.definition() for one in plans if one.type not in known}:
            await store.publish(list(new.values()))
            known.update(new)

    async def _workflow(self, workflow: Defined | str, *, look: bool) -> Defined | str:
        if isinstance(workflow, Defined):
            return workflow
        if not isinstance(workflow, str):
            raise UsageError(
                f"{clipped(workflow)} is no workflow: give the decorated function, or its type as text"
            )
        type_: str = plain_text(workflow)
        if type_ not in self.workflows:
            if not look and not _is_full(type_):
                raise UsageError(
                    f"{clipped(type_)}: beside a connection of yours say which version, as in shop.order.v1"
                )
            published = {} if _is_full(type_) else {one.type for one in await self.store.definitions()}
            type_ = newest(type_, {*published, *self.workflows})
        return self.workflows.get(type_, type_)

    async def fire_schedule(self, name: str, tenant: str | OwnTenant = OWN) -> Handle[Any]:
        """Start a run of a schedule at once, outside its rhythm, whatever is open."""
        new = await self._fire(name, tenant)
        return Handle(self, new.id, created=True, workflow=self.workflows.get(new.type))

    # -- tell ----------------------------------------------------------------------------------

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
        """Send an event to every run of the tenant that waits for it, or to one. Durable when it returns.

        `connection`: as in `start`. The event is delivered after you commit, to how many cannot be told here.
        """
        if connection is None:
            await self._opened()
        event = NewEvent(
            topic=check_topic(topic),
            payload=plain.encode(payload, f"payload of event {topic!r}"),
            id=check_name("event id", id) if id is not None else str(self.world.uuid7()),
            run=None if run is None else check_id(run),
            tenant=one_tenant(self.tenant, tenant),
            keep_seconds=None if keep is None else check_kept("keep", keep, "events"),
        )
        return await self.store.emit(event, *(() if connection is None else (connection,)))

    async def cancel(self, run: UUID | str, by: str = "", *, children: bool = True) -> Run:
        """Cancel an open run, and with it its open children, unless they are to go on; again: unchanged."""
        await self._opened()
        return await self.store.cancel(check_id(run), self.tenant, check_by(by), children=children)

    async def pause(self, run: UUID | str, by: str = "") -> Run:
        """Pause an open run; a leased one at its next step boundary."""
        await self._opened()
        return await self.store.pause(check_id(run), self.tenant, check_by(by))

    async def resume(self, run: UUID | str, by: str = "") -> Run:
        """Let a paused run go on, or withdraw a pause that is asked for."""
        await self._opened()
        return await self.store.resume(check_id(run), self.tenant, check_by(by))

    async def rewind(
        self, run: UUID | str, step: str | Beginning, by: str = "", *, children: bool = True
    ) -> Run:
        """Forget a step and all later ones; the run goes on from there. BEGINNING: it begins anew.

        Open children of forgotten steps are cancelled, unless they are to go on; others are started anew.
        """
        await self._opened()
        run, by = check_id(run), check_by(by)
        to = None if step is BEGINNING else check_key(step)
        return await self.store.rewind(run, to, self.tenant, by, children=children)

    async def retry(self, run: UUID | str, by: str = "") -> Run:
        """Let a failed run go on at the step that failed, with fresh attempts."""
        await self._opened()
        return await self.store.retry_run(check_id(run), self.tenant, check_by(by))

    async def set_priority(self, run: UUID | str, priority: int, by: str = "") -> Run:
        """Give an open run another priority, 0 to 999, lower first: it counts from its next claim on."""
        await self._opened()
        run, priority, by = check_id(run), check_priority(priority), check_by(by)
        return await self.store.set_priority(run, priority, self.tenant, by)

    async def append_step(self, run: UUID | str, name: str, max_attempts: int | None = None) -> Step:
        """Add a task behind the last step of an open plan run: `@plan.task(name)` is its handler."""
        await self._opened()
        name = check_step_name(name)
        what = f"append_step {name!r}: max_attempts"
        attempts = None if max_attempts is None else check_attempts(what, max_attempts)
        return await self.store.append_step(check_id(run), name, self.tenant, attempts)

    async def delete(self, run: UUID | str, by: str = "") -> Run:
        """Hide a run, with its chain, and execute it no more; `restore` brings it back until it is purged."""
        await self._opened()
        return await self.store.delete(check_id(run), self.tenant, check_by(by))

    async def restore(self, run: UUID | str, by: str = "") -> Run:
        """Show a deleted run again; an open one goes on."""
        await self._opened()
        return await self.store.restore(check_id(run), self.tenant, check_by(by))

    # -- look ----------------------------------------------------------------------------------

    async def get(self, run: UUID | str) -> Run | None:
        """The run, or None when it is unknown."""
        await self._opened()
        return await self.store.get(check_id(run), self.tenant)

    async def known(self, run: UUID | str) -> Run:
        """The run, or UnknownRun."""
        found = await self.get(run)
        if found is None:
            raise UnknownRun(run)
        return found

    async def present(self, run: UUID | str) -> Run:
        """The run that the chain of this one has come to: itself, if it never went on as another."""
        found = await self.known(run)
        while found.present != found.id:
            before, found = found, await self.get(found.present) or await self.known(run)
            if found.present == before.present != found.id:  # the chain is being deleted
                raise UnknownRun(run)
        return found

    async def list(
        self, where: RunFilter | None = None, limit: int = 100, after: UUID | None = None
    ) -> Sequence[Run]:
        """Runs, newest first; `after` is the last id of the page before.

        A page holds fewer than `limit` where values are large (8 MiB a page): only an empty one is the end.
        """
        if where is not None and not isinstance(where, RunFilter):
            raise UsageError(
                f"list({clipped(where)}): give a filter, as in RunFilter(statuses=(Status.FAILED,))"
            )
        where = where or RunFilter()
        type_, key = check_sought(type=where.type, key=where.key)
        tenant = tenant_of(self.tenant, where.tenant)
        where = msgspec.structs.replace(where, type=type_, tenant=tenant, key=key)
        if where.parent is not None:
            check_id(where.parent)
        rows = check_limit(limit)
        await self._opened()
        return await self.store.list(where, rows, None if after is None else check_id(after))

    async def steps(self, run: UUID | str, *, largest: int | None = None) -> Sequence[Step]:
        """All steps, as their outcomes became known; without values of more than `largest` bytes."""
        await self._opened()
        return await self.store.steps(check_id(run), self.tenant, largest=largest)

    async def trail(
        self,
        run: UUID | str | None = None,
        after: int = 0,
        limit: int = 1000,
        *,
        types: Sequence[str] = (),
        tenant: Tenant | OwnTenant = OWN,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Sequence[TrailEntry]:
        """Trail rows of one run or of all, oldest first, from a seq on; by type, tenant and time.

        In pages, as `list`: `after` is the last seq of the page before, and only an empty page is the end.
        """
        types = [check_text("type", one) for one in check_list("types", types)]
        whose = tenant_of(self.tenant, tenant, ANY)
        after, limit = check_whole("after", after, 0, BIG_MAX), check_limit(limit)
        between = (
            None if since is None else check_datetime("since", since),
            None if until is None else check_datetime("until", until),
        )
        await self._opened()
        chosen = None if run is None else check_id(run)
        return await self.store.trail(chosen, whose, types, after, limit, between)

    async def explain(self, run: UUID | str) -> Explanation:
        """Why a run is not moving, in words and in data; of a chain its present run."""
        await self._opened()
        return await explained(self.store, check_id(run), self.tenant)

    async def result(self, run: UUID | str, timeout: Seconds | None = None) -> Any:
        """What the run returned, or the last one of its chain, waiting for its end; RunFailed, RunCancelled,
        ResultTimeout."""
        return (await self.ended(run, timeout)).result

    async def ended(self, run: UUID | str, timeout: Seconds | None = None) -> Run:
        """The run once it has succeeded; raises how else it ended."""
        found = await self.final(run, timeout)
        run = run if found.id == check_id(run) else found.id
        if found.status is Status.FAILED:
            raise RunFailed(run, found.error)
        if found.status is Status.CANCELLED:
            raise RunCancelled(f"run {run} was cancelled")
        if found.result_json is not None and found.result_json.startswith(MARK):
            raise reason(found.result_json, f"the result of run {run}")
        return found

    async def final(self, run: UUID | str, timeout: Seconds | None = None) -> Run:
        """The run once it has ended, however, of a chain the last one; ResultTimeout: it has not in time."""
        limit = None if timeout is None else check_duration("timeout", timeout)
        await self._opened()
        bell = Bell()
        unlisten = self.store.listen(bell.ring)
        try:
            async with asyncio.timeout(limit):
                while (found := await self.present(run)).status not in FINAL:
                    await bell.wait(None)
        except TimeoutError:
            raise ResultTimeout(
                f"run {run} has not ended within {limit or 0:g} s; nothing is lost, and "
                f"`holdfast explain {run}` says what it waits for"
            ) from None
        finally:
            unlisten()
        return found

    async def _opened(self) -> None:
        await self.store.open()


def _is_full(name: str) -> bool:
    return name.rpartition(".v")[2].isdigit()


def as_json(value: Any) -> str:
    """A record as JSON text, for machines."""
    return msgspec.json.encode(value).decode()
