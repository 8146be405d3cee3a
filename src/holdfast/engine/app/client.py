"""The client: the verbs to start runs, send them events, stop them and read them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack, overload
from uuid import UUID

import msgspec

from holdfast.arguments import (
    Seconds,
    check_attempts,
    check_budget,
    check_by,
    check_id,
    check_kept,
    check_list,
    check_name,
    check_priority,
    check_topic,
    exact_text,
)
from holdfast.bounds import slices
from holdfast.clipped import clipped
from holdfast.codec import Written, untyped
from holdfast.contract import Store
from holdfast.engine.definitions import RESERVED, Defined, bare, has_version, newest
from holdfast.engine.options import StartOptions
from holdfast.engine.plans.plan import Plan
from holdfast.engine.tracing.start_spans import started
from holdfast.engine.typed import A, Given, T
from holdfast.errors import HoldfastError, KeyReused, UsageError
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
    Started,
    Step,
    Tenant,
)
from holdfast.records.sizes import start_bytes
from holdfast.records.units import SAME
from holdfast.step_keys import check_key, check_step_name
from holdfast.world import World

from .approvals import ApprovalVerbs
from .bulk import BulkOperations
from .counts import CountVerbs
from .handle import Handle
from .keys import KeyVerbs
from .limits import LimitVerbs
from .maintenance import MaintenanceVerbs
from .new_run import check_options, check_start, new_run, repeated_run
from .outbox import OutboxVerbs
from .reads import ReadVerbs
from .schedules import ScheduleVerbs
from .start_queue import STARTS_MAX, StartAnswer, StartQueues
from .tenant_scope import one_tenant


class StartedBy(NamedTuple):
    """The caller of verbs: its name, and over HTTP its API key, the key's limit on open runs, and the id and
    the traceparent of the request.
    """

    by: str = ""
    api_key: str | None = None
    open_runs_max: int | None = None
    request: str = ""
    trace: str = ""


class _Made(NamedTuple):
    """A start: the new run, its workflow if it is here, and the name that was given if it has no version."""

    new: NewRun
    workflow: Defined | None
    bare: str


class StoreClient(
    ReadVerbs, CountVerbs, ApprovalVerbs, OutboxVerbs, ScheduleVerbs, LimitVerbs, KeyVerbs, MaintenanceVerbs
):
    """The verbs on runs, over any store. `App` is a client with workflows of its own."""

    tenant: Tenant = ANY  # the tenant whose runs it sees
    started_by: StartedBy | None = None  # recorded with each run that it starts

    def __init__(self, store: Store, world: World) -> None:
        self.store, self.world = store, world
        self.workflows: dict[str, Defined] = {}
        self._published: tuple[Store, set[str]] = store, set()
        self._starts = StartQueues(world)

    @property
    def bulk(self) -> BulkOperations:
        """Verbs on every run that a filter matches: `app.bulk.retry(RunFilter(type="shop.%"))`."""
        return BulkOperations(self)

    # -- start ---------------------------------------------------------------------------------

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
        """Record a run and return its handle once it is durable. No user code runs here.

        A second start with the same `key` returns the first run, with created=False; with a bare name also
        when a newer version was published meanwhile. A plan of this app is published first, so that all its
        steps are recorded at start. `connection`: your own connection to the store's database, in a
        transaction that you commit or roll back; then nothing is published.
        """
        connection = options.pop("connection", None)
        if connection is None:
            await self._opened()
        made = await self._new(workflow, params, check_options(options), look=connection is None)
        if isinstance(made.workflow, Plan) and connection is None:
            await self._publish([made.workflow])
        answer = await self._answered(made, *await self._recorded([made.new], connection))
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

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
        """Start many runs in few round trips. A bad item's answer is its error; the other items are started.

        The runs are recorded in order, in commits of at most 500 runs and 8 MiB: a crash may leave only the
        first of them. When each item has a key, a second call starts the rest.
        `connection`: as in `start`; then all runs are part of your transaction.
        """
        listed = check_list("starts", starts)
        if connection is None:
            await self._opened()
        made = [await self._made(one, look=connection is None) for one in listed]
        plans = [one.workflow for one in made if isinstance(one, _Made) and isinstance(one.workflow, Plan)]
        if plans and connection is None:
            await self._publish(plans)
        good = [one for one in made if isinstance(one, _Made)]
        handles: list[Handle[Any] | HoldfastError] = []
        for slice_ in slices(good, lambda one: start_bytes(one.new), most=STARTS_MAX):
            said = await self._recorded([one.new for one in slice_], connection)
            handles += [await self._answered(one, answer) for one, answer in zip(slice_, said, strict=True)]
        answers = iter(handles)
        return [next(answers) if isinstance(one, _Made) else one for one in made]

    async def _recorded(self, runs: list[NewRun], connection: Any = None) -> list[StartAnswer]:
        """Send new runs to the store, with the trace of the caller. A server makes no spans of its own."""
        if self.started_by is not None:
            return await self._starts.start(self.store, runs, connection)
        return await started(runs, partial(self._starts.start, self.store, connection=connection))

    async def _answered(self, made: _Made, answer: Started | HoldfastError) -> Handle[Any] | HoldfastError:
        """Return the handle of a started run, or the error."""
        new, type_, workflow = made.new, made.new.type, made.workflow
        if isinstance(answer, KeyReused) and made.bare:
            # The same start, sent again, must not be refused because a newer version was published meanwhile.
            found = await self.store.get(answer.run_id, new.tenant)
            if found is not None and (bare(found.type), found.params_json) == (made.bare, new.params):
                type_, workflow = found.type, self.workflows.get(found.type)
                answer = Started(found.id, created=False)
        if not isinstance(answer, Started):
            return answer
        return Handle(self, answer.id, type_, created=answer.created, workflow=workflow)

    async def _made(self, start: Any, *, look: bool) -> _Made | UsageError:
        """Return the new run of one start of many; or the error."""
        try:
            workflow, params, *rest = check_start(start)
            return await self._new(workflow, params, check_options(rest[0] if rest else {}), look=look)
        except UsageError as error:
            return error

    async def _new(self, workflow: Defined | str, params: Any, options: Any, *, look: bool) -> _Made:
        """Return the new run of one start, and its workflow if this app has it."""
        known = await self._workflow(workflow, look=look)
        bound = self._bound(options)
        make = partial(new_run, self.world, known, params, **bound)
        # a large text of a caller over HTTP: nothing else may wait while its type is checked
        large = isinstance(params, Written)
        new = self._stamped(await self.world.thread(make, separate=True) if large else make())
        named = exact_text(workflow) if isinstance(workflow, str) else ""
        without_version = "" if named in self.workflows or not named or has_version(named) else named
        return _Made(new, known if isinstance(known, Defined) else None, without_version)

    def _stamped(self, new: NewRun) -> NewRun:
        """Return the new run with the caller that starts it: it counts under the caller's API key."""
        if (caller := self.started_by) is None:
            return new
        fields = {"by": caller.by, "api_key": caller.api_key, "open_runs_max": caller.open_runs_max}
        return msgspec.structs.replace(new, **fields, trace=caller.trace)

    def _signed(self, new: NewRun) -> NewRun:
        """Return the new run with the name of the caller. Runs of schedules and bulk operations do not count
        under an API key: a schedule starts runs without the key, too, and a full key must be able to cancel.
        """
        return new if self.started_by is None else msgspec.structs.replace(new, by=self.started_by.by)

    def _bound(self, options: dict[str, Any]) -> dict[str, Any]:
        """Add the tenant to the options of a start. An app of one tenant may not choose ids: all tenants
        share them.
        """
        if self.tenant is not ANY and options.get("id") is not None:
            raise UsageError(
                f"an app that is bound to one tenant takes no id= ({clipped(options['id'])}): give key="
            )
        return {**options, "tenant": one_tenant(self.tenant, options.get("tenant", OWN))}

    async def _publish(self, plans: Iterable[Plan]) -> None:
        """Publish a workflow once for each store: a plan's run gets its rows from the published
        definition.
        """
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
                f"{clipped(workflow)} is not a workflow: give the decorated function, or its type as text"
            )
        type_: str = exact_text(workflow)
        if type_ not in self.workflows:
            if not look and not has_version(type_):
                raise UsageError(
                    f"{clipped(type_)}: with connection= give the version too, as in shop.order.v1"
                )
            published = {} if has_version(type_) else {one.type for one in await self.store.definitions()}
            type_ = newest(type_, {*published, *self.workflows})
        return self.workflows.get(type_, type_)

    async def rerun(self, run: UUID | str, params: Any = SAME, *, key: str | None = None) -> Handle[Any]:
        """Start a new run that repeats another, ended or open: with the same type, params, priority, labels,
        limit key, timeout, ttl, budget and tenant, and `origin` set to that run.

        `params`: other params than those of the first run. `key`: a key for the new run; it never takes that
        of the first. A plan has the steps that are published now. UnknownRun for a deleted run.
        """
        found = await self.known(run)
        if found.type.startswith(RESERVED):  # where a chain goes on, its params are half done
            raise UsageError(f"run {found.id} is a bulk operation, which cannot be repeated: start a new one")
        known = self.workflows.get(found.type)
        new = self._stamped(repeated_run(self.world, found, known, params, key))
        if isinstance(known, Plan):
            await self._publish([known])
        (answer,) = await self._recorded([new])
        if isinstance(answer, HoldfastError):
            raise answer
        return Handle(self, answer.id, new.type, created=answer.created, workflow=known)

    async def fire_schedule(self, name: str, tenant: str | OwnTenant = OWN) -> Handle[Any]:
        """Start a run of a schedule now, besides its regular times and whatever its overlap policy says."""
        new = await self._fire(name, tenant)
        return Handle(self, new.id, new.type, created=True, workflow=self.workflows.get(new.type))

    # -- change ----------------------------------------------------------------------------------

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
        """Send an event to every run of the tenant that waits for it, or to one run. Durable when it returns.

        `connection`: as in `start`. The event is delivered after your commit, so the number of runs is
        unknown.
        """
        if connection is None:
            await self._opened()
        event = NewEvent(
            topic=check_topic(topic),
            payload=untyped.encode(payload, f"payload of event {topic!r}"),
            id=check_name("event id", id) if id is not None else str(self.world.uuid7()),
            run=None if run is None else check_id(run),
            tenant=one_tenant(self.tenant, tenant),
            keep_seconds=None if keep is None else check_kept("keep", keep, "events"),
        )
        return await self.store.emit(event, *(() if connection is None else (connection,)))

    async def cancel(self, run: UUID | str, by: str = "", *, children: bool = True) -> Run:
        """Cancel an open run and its open children, unless `children` says otherwise. A second call changes
        nothing.
        """
        await self._opened()
        return await self.store.cancel(check_id(run), self.tenant, check_by(by), children=children)

    async def pause(self, run: UUID | str, by: str = "") -> Run:
        """Pause an open run; a running one pauses at its next step boundary."""
        await self._opened()
        return await self.store.pause(check_id(run), self.tenant, check_by(by))

    async def resume(self, run: UUID | str, by: str = "", *, budget: float | None = None) -> Run:
        """Resume a paused run, or withdraw a pause that has not taken effect yet.

        `budget`: its new budget, above what it has spent; a run that its budget has stopped needs one. With
        it, any open run is taken: one that is not paused gets the budget and goes on as it is.
        """
        await self._opened()
        units = None if budget is None else check_budget("budget", budget)
        return await self.store.resume(check_id(run), self.tenant, check_by(by), budget=units)

    async def rewind(
        self, run: UUID | str, step: str | Beginning, by: str = "", *, children: bool = True
    ) -> Run:
        """Forget a step and all later ones; the run continues from there. BEGINNING: from its start.

        Open children of forgotten steps are cancelled, unless told otherwise; the run starts them anew.
        """
        await self._opened()
        run, by = check_id(run), check_by(by)
        to = None if step is BEGINNING else check_key(step)
        return await self.store.rewind(run, to, self.tenant, by, children=children)

    async def retry(self, run: UUID | str, by: str = "") -> Run:
        """Continue a failed run at the step that failed, with all attempts again."""
        await self._opened()
        return await self.store.retry_run(check_id(run), self.tenant, check_by(by))

    async def set_priority(self, run: UUID | str, priority: int, by: str = "") -> Run:
        """Change the priority of an open run, 0 to 999, lower first. It counts from the next claim."""
        await self._opened()
        run, priority, by = check_id(run), check_priority(priority), check_by(by)
        return await self.store.set_priority(run, priority, self.tenant, by)

    async def append_step(self, run: UUID | str, name: str, max_attempts: int | None = None) -> Step:
        """Add a task after the last step of an open plan run: `@plan.task(name)` is its handler."""
        await self._opened()
        name = check_step_name(name)
        what = f"append_step {name!r}: max_attempts"
        attempts = None if max_attempts is None else check_attempts(what, max_attempts)
        return await self.store.append_step(check_id(run), name, self.tenant, attempts)

    async def delete(self, run: UUID | str, by: str = "") -> Run:
        """Hide a run, with its chain, and stop executing it. `restore` undoes this until the run is
        purged.
        """
        await self._opened()
        return await self.store.delete(check_id(run), self.tenant, check_by(by))

    async def restore(self, run: UUID | str, by: str = "") -> Run:
        """Undo `delete`; an open run continues."""
        await self._opened()
        return await self.store.restore(check_id(run), self.tenant, check_by(by))

    def _opened(self) -> Coroutine[Any, Any, None]:
        return self.store.open()
