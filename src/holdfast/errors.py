"""The whole tree of errors on one page. Every message says what is wrong, where, and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from .lifecycle import Move, Status
    from .records import Error


class HoldfastError(Exception):
    """The root: everything Holdfast raises on purpose, but for the parking signal."""

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Copies and pickles keep args and attributes. Python would call the class with its `args`, which
        here are the message alone. A subclass of somebody's own is copied as Python does."""
        if type(self).__module__ != __name__:
            return super().__reduce__()
        return _copied, (type(self), self.args), vars(self)


def _copied(class_: type[HoldfastError], args: tuple[Any, ...]) -> HoldfastError:
    """An error of one of these classes, without its own `__init__`."""
    return class_.__new__(class_, *args)


class UsageError(HoldfastError):
    """The call itself is wrong; nothing was changed."""


class BadType(UsageError):
    """A workflow type is not of the form domain.action.vN."""


class BadValue(UsageError):
    """A value cannot be recorded exactly; the message names the field."""


class TooLarge(BadValue):
    """A value is larger than the limit."""


class UnknownWorkflow(UsageError):
    """No such workflow; the message names the nearest ones."""


class UnknownRun(UsageError):
    """No such run in this tenant."""

    def __init__(self, run_id: UUID | str) -> None:
        super().__init__(f"no run {run_id}: `holdfast ls` lists the runs of this store")
        self.run_id = run_id


class UnknownStep(UsageError):
    """The run has no such step; the message names those it has."""


class UnknownMessage(UsageError):
    """No such message in the outbox of this tenant."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"no message {message_id}: `holdfast outbox ls --all` lists those of this store")
        self.message_id = message_id


class UnknownSchedule(UsageError):
    """No such schedule in this tenant."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r}: `holdfast schedule ls` lists those of this store")
        self.name = name


class Conflict(HoldfastError):
    """The call is well formed, but the present state refuses it; nothing was changed."""


class IllegalMove(Conflict):
    """A move that the run's status does not allow."""

    def __init__(self, run_id: UUID, move: Move | str, status: Status, hint: str = "") -> None:
        verb = str(move).removesuffix("_run")  # people know retry_run as retry
        super().__init__(f"cannot {verb} run {run_id}: it is {status}{hint and '; ' + hint}")
        self.run_id, self.move, self.status = run_id, move, status


class KeyReused(Conflict):
    """The idempotency key belongs to a run of another type or with other params."""

    def __init__(self, key: str, run_id: UUID) -> None:
        super().__init__(
            f"key {key!r} was used for run {run_id} with another type or other params: "
            f"take another key, or make the same call"
        )
        self.key, self.run_id = key, run_id


class DuplicateRun(Conflict):
    """A run with this id exists; the original is intact."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(f"a run {run_id} exists already; leave out `id`, or use `key` for idempotent starts")
        self.run_id = run_id


class LeaseLost(Conflict):
    """The worker no longer holds the run; what it wrote changed nothing."""

    def __init__(self, run_id: UUID, fence: int) -> None:
        super().__init__(f"run {run_id} is no longer held under fence {fence}")
        self.run_id, self.fence = run_id, fence


class Drift(HoldfastError):
    """The code asks for something else than what the run has recorded under that key."""


class RunOverdue(HoldfastError):
    """The run's own timeout has passed: no further step begins."""


class StepTimeout(HoldfastError):
    """The step's function took longer than its `timeout`."""


class HistoryFull(HoldfastError):
    """The run has recorded as many steps or bytes as it may; `ctx.continue_as` is for endless loops."""


class RecordUnreadable(HoldfastError):
    """The record of the run cannot be read from the store, however small the pages."""


class Outcome(HoldfastError):
    """How something ended, raised where its value was asked for."""


class RunFailed(Outcome):
    """The run failed; `error` holds kind, type, message and traceback."""

    def __init__(self, run_id: UUID | str, error: Error | None, hint: str = "") -> None:
        why = f", {error.kind}: {error.message}" if error else ""
        super().__init__(f"run {run_id} failed{why}{hint and '; ' + hint}")
        self.run_id, self.error = run_id, error


class RunCancelled(Outcome):
    """The run was cancelled."""


class StepFailed(Outcome):
    """A step's tries are used up; it is recorded and raised again, the same, in every later execution.

    `type` and `message` are those of the exception that the last try raised, `traceback` is its text;
    `attempt` is how often it was tried, of `max_attempts`.
    """

    attempt: int | None = None
    max_attempts: int | None = None

    def __init__(
        self, step: str, kind: str, message: str, type_: str = "", *, said: str = "", traceback: str = ""
    ) -> None:
        super().__init__(f"step {step!r} failed: {said or message}")
        self.step, self.kind, self.type, self.message, self.traceback = step, kind, type_, message, traceback
        # Of the cause of an exception of `raises=`: the very `args` of that exception, by which it is known.
        # The exception itself would hold its cause and be held by it.
        self.raised_with: tuple[object, ...] | None = None


class EventTimeout(Outcome):
    """The awaited event did not come before its deadline."""

    def __init__(self, step: str, topic: str) -> None:
        super().__init__(f"no event on {topic!r} before the deadline of step {step!r}")
        self.step, self.topic = step, topic


class ChildFailed(Outcome):
    """A child run that was called has not succeeded; recorded, and raised again, the same, in every later
    execution.

    `type`, `message` and `kind` are those of the child's own error; without one, `kind` is its status.
    """

    def __init__(self, step: str, run_id: UUID | None, status: str, error: Error | None) -> None:
        how = (
            "has failed"
            if status == "failed"
            else "was cancelled"
            if status == "cancelled"
            else f"is {status}"
        )
        why = f", {error.kind}: {error.message}" if error else ""
        super().__init__(f"child run {run_id} of step {step!r} {how}{why}")
        self.step, self.run_id, self.status, self.error = step, run_id, status, error
        self.type, self.message = (error.type, error.message) if error else ("", "")
        self.kind = error.kind if error else status


class ResultTimeout(Outcome):
    """The run has not ended within the time the caller was ready to wait. It goes on."""


class Fatal(HoldfastError):
    """Raised by user code: do not retry."""


class RetryAfter(HoldfastError):
    """Raised by user code: try again after `delay` (seconds, or a timedelta), whatever the policy says."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        try:
            said = (
                f"try again in {delay:g} s"
                if isinstance(delay, int | float)
                else f"try again in {delay!s:.40}"
            )
        except OverflowError:  # a whole number that no float holds
            said = "a long time"
        super().__init__(message or f"try again in {said}")
        self.delay = delay


class CannotSeal(HoldfastError):
    """A hook of the codec could not seal a value, and nothing of it was written."""


class CannotOpen(HoldfastError):
    """A sealed value cannot be opened here; it stays as it is."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key  # the id of the key that it names


class UnknownKey(CannotOpen):
    """It was sealed under a key that is not here; `key` is its id."""


class WrongKey(CannotOpen):
    """The key of that id has other bytes, or the value was altered, or moved from elsewhere."""


class NotSealed(CannotOpen):
    """A plain value stands where this app has only sealed ones."""


class StoreError(HoldfastError):
    """The store could not do its work."""


class Unavailable(StoreError):
    """The store cannot be reached or cannot write now; trying again may help, and is safe."""


class NotADatabase(StoreError):
    """What the URL names is there, but is no store of ours."""


class SchemaMismatch(StoreError):
    """The store was written by another major version of Holdfast: stop, do not guess."""
