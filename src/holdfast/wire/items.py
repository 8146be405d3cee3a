"""An item of a batch becomes a record of the store: checked, with derived ids, in the tenant of its run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.codec import Written, digest
from holdfast.engine.app.new_run import new_run
from holdfast.engine.code.scope import progress_of
from holdfast.engine.definitions import has_version, newest
from holdfast.engine.failures import MESSAGE_MAX, encoded, failing, line
from holdfast.engine.tracebacks import TRACEBACK_MAX
from holdfast.engine.tracing.carried import carried
from holdfast.errors import UsageError
from holdfast.lifecycle import WAITS, StepKind, StepStatus
from holdfast.machine.commit import refuse_foreign
from holdfast.records import (
    Error,
    Instant,
    Item,
    Json,
    NewEvent,
    NewRun,
    Outbound,
    PlanStep,
    Run,
    StepWrite,
    TrailWrite,
    instant,
)
from holdfast.records.moves import (
    CHECKPOINT,
    PARK,
    Advance,
    BeginPlan,
    Complete,
    HolderMove,
    Release,
    Retry,
)
from holdfast.stores.items import check_batch
from holdfast.world import World

from .ids import child_id, event_id, message_id, next_id
from .requests import BatchItem, ChildData, ContinueData, MessageData, PlanStepData, StepData
from .values import (
    Value,
    instant_of,
    optional_seconds,
    seconds,
    struct_of,
    text_of,
    units_of,
)

OPERATIONS = ("checkpoint", "park", "complete", "fail", "retry", "release", "advance", "begin")
STARTED = "started"  # the status in the row of a child that was started and is not awaited


class UnknownOperation(UsageError):
    """The item has an operation that this server does not know."""


class Origin(msgspec.Struct, array_like=True, frozen=True):
    """The facts of a lease that its token carries: whose it is, when it was claimed, when its run began."""

    tenant: str
    claimed_at: Instant
    created_at: Instant
    has_parent: bool


class _Log(msgspec.Struct):
    message: str
    level: str
    log_no: int | None = None
    step: str | None = None


class _Ask(msgspec.Struct, forbid_unknown_fields=True):
    ask: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Progress(msgspec.Struct):
    done: int | float
    total: int | float | None = None
    note: str | None = None


def item_of(
    wire: BatchItem, origin: Origin, world: World, published: Sequence[str], record: Run | None
) -> Item:
    """Return the record of an item. published: the types that a name without version may mean. record: the
    run itself, for `continue_as`.

    A UsageError says what is wrong: nothing of the item may be written then.
    """
    if wire.op not in OPERATIONS:
        raise UnknownOperation(f"op: there is no operation {wire.op!r}; there are {', '.join(OPERATIONS)}")
    maker = _Maker(wire, origin, world, published)
    item = Item(
        run=wire.run,
        tenant=origin.tenant,
        fence=wire.fence,
        number=wire.seq,
        move=maker.move(record),
        steps=tuple([maker.step(one) for one in wire.steps]),
        trail=tuple([_log(one) for one in wire.logs]),
        events=maker.events(),
        outbox=maker.messages(),
        started_at=instant_of(wire.started_ms, origin.claimed_at),
        progress=progress(wire.progress),
        known=wire.known,
        lease_seconds=seconds(wire.lease_ms),
        shares=wire.shares,
        trace=None if wire.traceparent is None else _trace(wire.traceparent) or None,
    )
    refuse_foreign(item, origin.tenant)
    check_batch("batch", [item])
    return item


def names_to_resolve(wire: BatchItem) -> bool:
    """Return True when a child is named without its version: then the published types are needed."""
    return any(one.child is not None and not has_version(one.child.type) for one in wire.steps)


def progress(value: Value) -> Json | None:
    """Return the progress of a run as it is recorded."""
    if (text := text_of(value, "progress")) is None or text == "null":
        return None
    said = struct_of(msgspec.Raw(text.encode()), _Progress, "progress")
    return progress_of(said.done, said.total, said.note)


def plan_step(wire: PlanStepData) -> PlanStep:
    """Return one step of a plan."""
    ask = _ask(wire.ask) if wire.kind is StepKind.APPROVAL else None
    return PlanStep(
        name=wire.name,
        kind=wire.kind,
        max_attempts=wire.max_attempts,
        topic=wire.topic,
        timeout_seconds=optional_seconds(wire.timeout_ms),
        ask=ask,
        digest=None if ask is None else digest("approval", ask),
        on_timeout=wire.on_timeout,
    )


class _Maker:
    """Makes the parts of one item."""

    def __init__(self, wire: BatchItem, origin: Origin, world: World, published: Sequence[str]) -> None:
        self._wire, self._origin, self._world, self._published = wire, origin, world, published

    def move(self, record: Run | None) -> HolderMove:
        """Return the move of the item's operation."""
        wire = self._wire
        match wire.op:
            case "checkpoint":
                return CHECKPOINT
            case "park":
                return PARK
            case "complete" if wire.continue_as is not None:
                return self._continued(wire.continue_as, record)
            case "complete":
                return Complete(result=text_of(wire.result, "result") or "null")
            case "fail":
                move = failing(_error(wire.error, "error"))
                return move if wire.last_error is None else replace(move, last_error=wire.last_error)
            case "retry":
                return self._retry()
            case "release":
                return Release(before=wire.before, cost_max=units_of(wire.cost_max))
            case "advance":
                return Advance(result=text_of(wire.result, "result"), in_place=wire.in_place)
            case _:
                return BeginPlan(plan=tuple(map(plan_step, wire.plan)))

    def _retry(self) -> Retry:
        wire = self._wire
        error = None if _is_none(wire.error) else _error(wire.error, "error")
        said = None if error is None else line(error)
        return Retry(
            error=None if error is None else encoded(error),
            last_error=said if wire.last_error is None else wire.last_error,
            delay_seconds=seconds(wire.delay_ms),
            in_place=wire.in_place,
            refund=wire.refund,
        )

    def _continued(self, wire: ContinueData, record: Run | None) -> Complete:
        assert record is not None
        params = text_of(wire.params, "params of continue_as") or "null"
        id_ = next_id(self._wire.token, self._origin.claimed_at)
        new = NewRun(
            id=id_,
            type=record.type,
            params=params,
            digest=digest(record.type, params),
            tenant=record.tenant,
            priority=record.priority,
            max_attempts=record.max_attempts,
            timeout_seconds=record.timeout_seconds,
            ttl_seconds=record.ttl_seconds,
            budget=record.budget_units,
            limit_key=record.limit_key,
            parent=record.parent,
            parent_step=record.parent_step,  # callers that wait for this run wait for the next one
            labels=msgspec.json.encode({**record.labels, "continued_from": str(record.id)}).decode(),
            trace=_trace(wire.traceparent),
            follows=record.id,
        )
        return Complete(result=msgspec.json.encode({"continued_as": str(id_)}).decode(), starts=(new,))

    def step(self, wire: StepData) -> StepWrite:
        """Return the record of one step."""
        waits = wire.status is StepStatus.WAITING
        if waits:
            _check_wait(wire)
        child = None if wire.child is None else self._child(wire.child, wire.key)
        ask = _ask(wire.ask) if wire.kind is StepKind.APPROVAL and waits else None
        due_at = instant_of(wire.due_ms, self._origin.claimed_at)
        if sum(one is not None for one in (wire.delay_ms, wire.due_ms, wire.until)) > 1:
            raise UsageError(f"step {wire.key!r}: give delay_ms, due_ms or until, not several of them")
        error = None if _is_none(wire.error) else encoded(_error(wire.error, f"error of step {wire.key!r}"))
        return StepWrite(
            key=wire.key,
            kind=wire.kind,
            status=wire.status,
            output=_output(wire, child),
            error=error,
            attempts=_attempts(wire),
            max_attempts=wire.max_attempts,
            cost=units_of(wire.cost),
            topic=wire.topic,
            due_at=due_at if wire.until is None else instant(wire.until),
            delay_seconds=optional_seconds(wire.delay_ms),
            since_now=wire.since_now,
            started_at=instant_of(wire.started_ms, self._origin.claimed_at),
            ask=ask,
            digest=None if ask is None else digest("approval", ask),
            on_timeout=wire.on_timeout,
            child=child,
        )

    def _child(self, wire: ChildData, key: str) -> NewRun:
        if not _is_none(wire.id):
            raise UsageError(f"step {key!r}: the id of a child cannot be given: the server makes it")
        type_ = newest(wire.type, self._published)
        params = Written(text_of(wire.params, f"params of {type_}") or "null")
        new = new_run(
            self._world,
            type_,
            params,
            priority=wire.priority,
            run_at=wire.run_at,
            delay=optional_seconds(wire.delay_ms),
            timeout=optional_seconds(wire.timeout_ms),
            max_attempts=wire.max_attempts,
            ttl=optional_seconds(wire.ttl_ms),
            budget=wire.budget,
            limit_key=wire.limit_key,
            parent=self._wire.run,
            tenant=wire.tenant or self._origin.tenant,
            labels=wire.labels,
        )
        id_ = child_id(self._wire.token, self._origin.claimed_at, key)
        trace = _trace(wire.traceparent)
        return replace(new, id=id_, parent_step=key, trace=trace, covers_children=wire.covers_children)

    def events(self) -> tuple[NewEvent, ...]:
        """Return the events of the item."""
        run, origin = self._wire.run, self._origin
        return tuple(
            [
                NewEvent(
                    id=event_id(run, origin.created_at, one.name),
                    topic=one.topic,
                    payload=text_of(one.payload, f"payload of event {one.topic!r}") or "null",
                    tenant=one.tenant or origin.tenant,
                )
                for one in self._wire.events
            ]
        )

    def messages(self) -> tuple[Outbound, ...]:
        """Return the messages of the item, those of each step numbered by their place."""
        seen: Counter[str] = Counter()
        return tuple([self._message(one, seen) for one in self._wire.messages])

    def _message(self, one: MessageData, seen: Counter[str]) -> Outbound:
        seen[one.step] += 1
        number = seen[one.step] if one.number is None else one.number
        return Outbound(
            id=message_id(self._wire.run, self._origin.created_at, one.step, number),
            sink=one.sink,
            payload=text_of(one.payload, f"payload of a message to {one.sink!r}") or "null",
            key=one.key,
            step=one.step,
        )


def _trace(text: str) -> str:
    """Return a trace context as it is stored; empty when it is not valid."""
    return str(carried(text))


def _is_none(value: Value) -> bool:
    return value is msgspec.UNSET or bytes(value) == b"null"


def _check_wait(wire: StepData) -> None:
    """Refuse a wait that nothing could end."""
    timed = wire.delay_ms is not None or wire.due_ms is not None or wire.until is not None
    if wire.kind is StepKind.SLEEP and not timed:
        raise UsageError(f"step {wire.key!r}: a sleep needs delay_ms, due_ms or until")
    if wire.kind is StepKind.EVENT and wire.topic is None:
        raise UsageError(f"step {wire.key!r}: an awaited event needs its topic")
    if wire.kind is StepKind.TASK and wire.topic is None and not timed:
        raise UsageError(f"step {wire.key!r}: a task that waits needs a topic, or delay_ms")


def _attempts(wire: StepData) -> int:
    if wire.attempts is not None:
        return wire.attempts
    return 0 if wire.kind in WAITS else 1


def _output(wire: StepData, child: NewRun | None) -> Json | None:
    if wire.status is not StepStatus.SUCCEEDED:
        return None
    if child is not None:
        return msgspec.json.encode({"run": child.id, "status": STARTED}).decode()
    text = text_of(wire.output, f"the output of step {wire.key!r}")
    return "null" if text is None and wire.kind is StepKind.TASK else text


def _ask(value: Value) -> Json:
    if (text := text_of(value, "ask")) is None:
        return '{"ask":"","data":null}'
    struct_of(msgspec.Raw(text.encode()), _Ask, "ask")
    return text


def _error(value: Value, what: str) -> Error:
    """Return an error. Its texts are cut to the lengths that errors of the library have."""
    text = text_of(value, what)
    found: Error = struct_of(msgspec.Raw((text or "null").encode()), Error, what)
    return replace(found, message=found.message[:MESSAGE_MAX], traceback=found.traceback[:TRACEBACK_MAX])


def _log(value: msgspec.Raw) -> TrailWrite:
    text = text_of(value, "a row of `logs`") or "null"
    struct_of(msgspec.Raw(text.encode()), _Log, "a row of `logs`")
    return TrailWrite("log", text)
