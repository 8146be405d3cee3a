"""The spans of one execution of a run: the execution itself, its steps, its waits, and starts of children.

Every execution belongs to the span that the run was started under, never to another execution: a worker that
is killed loses its unfinished spans, and what belongs to a lost span would not be found in the tree.
Executions, children and successors refer to the execution before them by links. Spans inside an execution
belong to it, and link to the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.code.scope import SCOPE
from holdfast.lifecycle import WAITS, StepKind, StepStatus
from holdfast.records import Step

from . import attributes as named
from .carried import MARK_MAX, Carried, carried
from .provider import harmless, text_of_span, tracer
from .spans import fail, links_of, remote_context, starting
from .step_spans import StepSpan, around

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from holdfast.engine.code.record import Recorded
    from holdfast.engine.worker.held_run import HeldRun
    from holdfast.records import Error, Instant, NewRun

NANOS = 1000  # nanoseconds of one microsecond
_LOST = frozenset({"", "lost"})


@harmless(None)
def begin(run: HeldRun) -> RunSpans | None:
    """Begin the span of an execution and make it the current one in this task; None without a tracer."""
    found = tracer()
    return None if found is None else RunSpans(found, run)


class RunSpans:
    """The spans of one execution. `recording`: it is sampled; if not, nothing inside it is recorded."""

    __slots__ = (
        "_before", "_context", "_id", "_links", "_open", "_parent", "_run", "_seen", "_span", "_told",
        "_tracer", "recording",
    )  # fmt: skip

    def __init__(self, made_by: Tracer, run: HeldRun) -> None:
        from opentelemetry import context, trace

        claim = run.claim
        self._tracer, self._run, self._id = made_by, run, str(claim.id)
        self._before = carried(claim.trace)
        self._parent = remote_context(self._before.parent)
        self._span = made_by.start_span(
            f"run {claim.type}",
            context=self._parent,
            kind=trace.SpanKind.CONSUMER,
            attributes={
                **named.messaging("run", "process", claim.type),
                **named.of_type(claim.type),
                named.MESSAGE_ID: self._id,
                named.RUN_ID: self._id,
                named.TENANT: claim.tenant,
                named.ATTEMPT: run.attempt,
                named.FENCE: claim.fence,
                named.WORKER: run.worker.id,
            },
            links=() if self._before.link == self._before.parent else links_of(self._before.link),
        )
        self.recording = self._span.is_recording()
        # For spans inside the execution: they are found under the start even if this span is lost in a crash.
        self._links = links_of(self._before.parent)
        self._context = trace.set_span_in_context(self._span, self._parent)
        context.attach(self._context)  # for this task, which ends with the execution
        if not self._before.parent:
            self._parent = self._context
        self._seen = self._before.seen
        self._told: set[int] = set()  # numbers of waits that have their span
        self._open: set[StepSpan] = set()  # spans of steps that have not ended

    # -- the stored trace ------------------------------------------------------------------------

    @harmless(None)
    def stored(self) -> str | None:
        """Return the trace that the run is to keep when it is let go; None: the one that it has."""
        if not self.recording and self._before.parent:
            return None
        mark = self._run.clock_at_claim if self._run.claim.kind == "plan" else self._run.record.known
        return self._handed_on(text_of_span(self._span), mark)

    def successor(self) -> str:
        """Return the trace of the run that this one goes on as."""
        return self._handed_on(text_of_span(self._span), 0)

    def child(self, new: NewRun) -> str:
        """Return the trace of a child, which is started by a span of its own in this execution."""
        return self._started(new) or self._run.claim.trace

    @harmless("")
    def _started(self, new: NewRun) -> str:
        if not self.recording:
            return self._handed_on("", 0)
        has_id = not self._run.worker.committer.names_children
        begun = starting([new], has_ids=has_id)
        span = self._tracer.start_span("holdfast.start", links=self._links, **begun)
        span.end()
        return self._handed_on(text_of_span(span), 0)

    def _handed_on(self, link: str, seen: int) -> str:
        parent = self._before.parent or text_of_span(self._span)
        if not self.recording:
            return parent
        return str(Carried(parent, link, min(max(seen, 0), MARK_MAX - 1)))

    # -- steps and waits -------------------------------------------------------------------------

    @harmless(None)
    def _begun(self, name: str) -> StepSpan | None:
        """Begin the span of the try that the current scope is about."""
        scope = SCOPE.get()
        attempt = 1 if scope is None else scope.tries
        attributes: named.Attributes = {named.STEP: name, named.STEP_ATTEMPT: attempt, named.RUN_ID: self._id}
        span = self._tracer.start_span(f"step {name}", attributes=attributes, links=self._links)
        made = StepSpan(span, self._open)
        if scope is not None:
            scope.span = made
        return made

    def traced(self, fn: Callable[..., Any], name: str, open_: tuple[type, ...] = ()) -> Callable[..., Any]:
        """Return a function that calls `fn` inside the span of a step.

        A try that fails, or that returns a value of the types `open_`, leaves its span to the scope: the
        engine knows what is recorded, and ends it. The end of the execution ends all others.
        """
        return around(fn, partial(self._begun, name), open_) if self.recording else fn

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
        since, self._seen = self._seen, 0  # once for each execution
        if not self.recording or not since:
            return
        for row in rows:
            if row.kind in WAITS and row.finished_at is not None and row.finished_at > since:
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
            attributes={named.WAIT_KIND: str(kind), named.RUN_ID: self._id},
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
        fail(self._span, error)

    @harmless(None)
    def end(self, ended_as: str) -> None:
        """End the span of the execution."""
        from opentelemetry import trace

        for one in list(self._open):
            one.end("stopped")
        self._span.set_attribute(named.OUTCOME, ended_as or "lost")
        if ended_as in _LOST:
            self._span.set_status(trace.StatusCode.ERROR, "lost")
        self._span.end()
