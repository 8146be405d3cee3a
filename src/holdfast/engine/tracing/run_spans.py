"""The spans of one execution of a run: the execution itself, its steps, its waits, and the starts of children.

Every execution belongs to the span that the run was started under, never to another execution: a worker that is killed
loses its unfinished spans, and what belongs to a lost span would not be found in the tree. Executions, children and
successors refer to the execution before them by links.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import Token
from typing import TYPE_CHECKING, Any

from holdfast.lifecycle import WAITS, StepKind, StepStatus
from holdfast.records import Step

from . import attributes as named
from .carried import MARK_MAX, Carried, carried, parsed
from .provider import harmless, text_of_span, tracer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

    from holdfast.engine.code.record import Recorded
    from holdfast.engine.worker.held_run import HeldRun
    from holdfast.records import Error, Instant, NewRun

NANOS = 1000  # nanoseconds of one microsecond
_UNSTARTED = frozenset({"", "lost"})


@harmless(None)
def begin(run: HeldRun) -> RunSpans | None:
    """Begin the span of an execution and make it the current one in this task; None without a tracer."""
    found = tracer()
    return None if found is None else RunSpans(found, run)


def remote_context(text: str, base: Context | None = None) -> Context:
    """Return the context of a span that is known by its traceparent; one without a span, if that is empty."""
    from opentelemetry import context, trace

    fields, base = parsed(text), context.Context() if base is None else base
    if fields is None:
        return base
    flags = trace.TraceFlags(fields.flags)
    span = trace.SpanContext(fields.trace_id, fields.span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(span), base)


class StepSpan:
    """The span of one try of a step."""

    __slots__ = ("_detach", "_ended", "_span", "_token")

    def __init__(self, span: Span) -> None:
        from opentelemetry import context, trace

        self._span, self._ended, self._detach = span, False, context.detach
        self._token: Token[Any] | None = context.attach(trace.set_span_in_context(span))

    @harmless(None)
    def failed(self, error: Error) -> None:
        """End the span of a try that has failed."""
        _fail(self._span, error)
        self._end()

    @harmless(None)
    def stopped(self) -> None:
        """Note that the function was stopped: its try is neither done nor failed."""
        self._span.set_attribute(named.OUTCOME, "stopped")

    @harmless(None)
    def leave(self) -> None:
        """Make the span that was current before the current one again."""
        token, self._token = self._token, None
        if token is not None:
            self._detach(token)

    @harmless(None)
    def end(self) -> None:
        """End the span, if it has not ended yet, and leave it."""
        self.leave()
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._span.end()


class RunSpans:
    """The spans of one execution. `recording`: the execution is sampled; else nothing inside it is recorded."""

    __slots__ = ("_before", "_context", "_parent", "_run", "_seen", "_span", "_told", "_tracer", "recording")

    def __init__(self, made_by: Tracer, run: HeldRun) -> None:
        from opentelemetry import context, trace

        claim = run.claim
        self._tracer, self._run = made_by, run
        self._before = carried(claim.trace)
        self._parent = remote_context(self._before.parent)
        self._span = made_by.start_span(
            f"run {claim.type}",
            context=self._parent,
            kind=trace.SpanKind.CONSUMER,
            attributes={
                **named.messaging("run", "process", claim.type),
                **named.of_type(claim.type),
                named.MESSAGE_ID: str(claim.id),
                named.RUN_ID: str(claim.id),
                named.TENANT: claim.tenant,
                named.ATTEMPT: run.attempt,
                named.FENCE: claim.fence,
                named.WORKER: run.worker.id,
            },
            links=_links(self._before),
        )
        self.recording = self._span.is_recording()
        self._context = trace.set_span_in_context(self._span, self._parent)
        context.attach(self._context)  # for this task, which ends with the execution
        if not self._before.parent:
            self._parent = self._context
        self._seen = self._before.seen
        self._told: set[int] = set()  # numbers of waits that have their span

    # -- the stored trace ------------------------------------------------------------------------

    @harmless(None)
    def stored(self) -> str | None:
        """Return the trace that the run is to keep when it is let go; None: the one that it has."""
        if not self.recording and self._before.parent:
            return None
        mark = self._run.clock_at_claim if self._run.claim.kind == "plan" else self._run.record.known
        return self._handed_on(text_of_span(self._span), mark)

    @harmless("")
    def successor(self) -> str:
        """Return the trace of the run that this one goes on as."""
        return self._handed_on(text_of_span(self._span), 0)

    @harmless("")
    def child(self, new: NewRun) -> str:
        """Return the trace of a child, which is started by a span of its own in this execution."""
        if not self.recording:
            return self._handed_on("", 0)
        span = self._tracer.start_span("holdfast.start", **starting([new]))
        span.end()
        return self._handed_on(text_of_span(span), 0)

    def _handed_on(self, link: str, seen: int) -> str:
        parent = self._before.parent or text_of_span(self._span)
        if not self.recording:
            return parent
        return str(Carried(parent, link, min(max(seen, 0), MARK_MAX - 1)))

    # -- steps and waits -------------------------------------------------------------------------

    @harmless(None)
    def step(self, name: str, attempt: int) -> StepSpan | None:
        """Begin the span of a try and make it the current one; None when the execution is not sampled."""
        if not self.recording:
            return None
        attributes = {named.STEP: name, named.STEP_ATTEMPT: attempt, named.RUN_ID: str(self._run.claim.id)}
        return StepSpan(self._tracer.start_span(f"step {name}", attributes=attributes))

    @harmless(None)
    def waited(self, step: Recorded) -> None:
        """Add the span of a wait that is settled, unless an earlier execution has done so."""
        if not self.recording or not isinstance(step, Step) or step.seq <= self._seen:
            return
        if step.seq not in self._told:
            self._told.add(step.seq)
            self._wait(step.kind, step.started_at, step.finished_at, failed=step.status is StepStatus.FAILED)

    @harmless(None)
    def waited_in_plan(self, rows: Iterable[Step], current: Step | None) -> None:
        """Add the spans of a plan's waits that were settled since the execution before this one."""
        if not self.recording or not self._seen:
            return
        for row in rows:
            if row.kind in WAITS and row.finished_at is not None and row.finished_at > self._seen:
                self._wait(row.kind, row.started_at, row.finished_at)
        if current is not None and current.wake is not None:
            self._wait(StepKind.TASK, current.started_at, None)

    def _wait(
        self, kind: StepKind, begun_at: Instant | None, ended_at: Instant | None, *, failed: bool = False
    ) -> None:
        from opentelemetry import trace

        until = self._run.now() if ended_at is None else ended_at
        since = until if begun_at is None else min(begun_at, until)
        span = self._tracer.start_span(
            f"wait {kind}",
            context=self._parent,
            attributes={named.WAIT_KIND: str(kind), named.RUN_ID: str(self._run.claim.id)},
            start_time=since * NANOS,
        )
        if failed:
            span.set_status(trace.StatusCode.ERROR)
        span.end(until * NANOS)

    # -- the end ---------------------------------------------------------------------------------

    @harmless(None)
    def retried(self, error: Error, delay: float) -> None:
        """Note that a step, or the body, has failed and is tried again."""
        self._span.add_event("holdfast.retry", {**named.of_error(error), named.DELAY: delay})

    @harmless(None)
    def failed(self, error: Error) -> None:
        """Note the recorded error that has ended the execution."""
        _fail(self._span, error)

    @harmless(None)
    def end(self, ended_as: str) -> None:
        """End the span of the execution."""
        from opentelemetry import trace

        self._span.set_attribute(named.OUTCOME, ended_as or "lost")
        if ended_as in _UNSTARTED:
            self._span.set_status(trace.StatusCode.ERROR, "lost")
        self._span.end()


def _links(before: Carried) -> tuple[Link, ...]:
    """Return the link to the execution that has let the run go, or to the start of a child."""
    from opentelemetry import trace

    if not before.link or before.link == before.parent:
        return ()
    return (trace.Link(trace.get_current_span(remote_context(before.link)).get_span_context()),)


def starting(runs: list[NewRun]) -> dict[str, Any]:
    """Return the kind and the attributes of the span that starts these runs."""
    from opentelemetry import trace

    first, types = runs[0], {new.type for new in runs}
    attributes = {named.TENANT: first.tenant, **named.messaging("start", "send", first.type)}
    if len(runs) == 1:
        attributes |= {named.RUN_ID: str(first.id), named.MESSAGE_ID: str(first.id)}
    else:
        attributes[named.BATCH] = len(runs)
    if len(types) == 1:
        attributes |= named.of_type(first.type)
    else:
        del attributes[named.DESTINATION]
    if len({new.tenant for new in runs}) > 1:
        del attributes[named.TENANT]
    return {"kind": trace.SpanKind.PRODUCER, "attributes": attributes}


def _fail(span: Span, error: Error) -> None:
    from opentelemetry import trace

    span.set_attributes(named.of_error(error))
    said = error.kind if not error.type or error.type == error.kind else f"{error.kind}: {error.type}"
    span.set_status(trace.StatusCode.ERROR, said)
