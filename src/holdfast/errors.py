"""All error classes. Every message says what is wrong, where, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from .lifecycle import Move, Status
    from .records import Error


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises on purpose."""

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Keep args and attributes in copies and pickles. Python would call the class with its `args`,
        which here are only the message. A user's own subclass is copied as Python does it."""
        if type(self).__module__ != __name__:
            return super().__reduce__()
        return _copied, (type(self), self.args), vars(self)


def _copied(class_: type[HoldfastError], args: tuple[Any, ...]) -> HoldfastError:
    """A new error of one of these classes, made without calling its `__init__`."""
    return class_.__new__(class_, *args)


class UsageError(HoldfastError):
    """The call itself is wrong; nothing was changed."""


class BadType(UsageError):
    """A workflow type does not have the form domain.action.vN."""


class BadValue(UsageError):
    """A value cannot be recorded exactly; the message names the field."""


class TooLarge(BadValue):
    """A value is larger than the limit."""


class UnknownWorkflow(UsageError):
    """No such workflow; the message names the nearest ones."""


class UnknownRun(UsageError):
    """No such run in this tenant."""

    def __init__(self, run_id: UUID | str) -> None:
        super().__init__(f"there is no run {run_id}: `holdfast ls` lists the runs of this store")
        self.run_id = run_id


class UnknownStep(UsageError):
    """The run has no such step; the message names the steps that it has."""


class UnknownMessage(UsageError):
    """No such message in the outbox of this tenant."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"there is no message {message_id}: `holdfast outbox ls --all` lists the messages of this store"
        )
        self.message_id = message_id


class UnknownSchedule(UsageError):
    """No such schedule in this tenant."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no schedule {name!r}: `holdfast schedule ls` lists the schedules of this store"
        )
        self.name = name


class UnknownApiKey(UsageError):
    """No such API key in this tenant."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no API key {key_id}: `holdfast keys ls` lists the keys of this store")
        self.key_id = key_id


class Conflict(HoldfastError):
    """The call is correct, but the current state does not allow it; nothing was changed."""


class IllegalMove(Conflict):
    """A move that the run's status does not allow."""

    def __init__(self, run_id: UUID, move: Move | str, status: Status, hint: str = "") -> None:
        from .lifecycle import spoken_status  # noqa: PLC0415 - `holdfast --help` imports this module

        verb = str(move).removesuffix("_run")  # people know retry_run as retry
        super().__init__(f"cannot {verb} run {run_id}: it is {spoken_status(status)}{hint and '; ' + hint}")
        self.run_id, self.move, self.status = run_id, move, status


class ChangedSince(Conflict):
    """The run has changed at or after the instant that the caller named; the call changed nothing."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(f"run {run_id} has changed meanwhile: look at it, and ask again")
        self.run_id = run_id


class KeyReused(Conflict):
    """The idempotency key belongs to a run of another type or with other params."""

    def __init__(self, key: str, run_id: UUID) -> None:
        super().__init__(
            f"key {key!r} belongs to run {run_id}, which has another type or other params: "
            f"another key would start another run; give one only for other work"
        )
        self.key, self.run_id = key, run_id


class DuplicateRun(Conflict):
    """A run with this id exists; it was not changed."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(f"run {run_id} exists already: leave out `id`, or use `key` for idempotent starts")
        self.run_id = run_id


class TooManyRuns(Conflict):
    """The API key has as many open runs as it may have; this run was not started."""

    def __init__(self, key_id: str, limit: int) -> None:
        super().__init__(
            f"API key {key_id} has {limit:,} open runs, its limit: "
            "wait until some have ended, or use a key with a higher limit"
        )
        self.key_id, self.limit = key_id, limit


class TooManySubscribers(HoldfastError):
    """This process serves as many live trails and long polls as it may; try again later, or elsewhere."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"this process has {limit:,} subscribers, as many as it may have: try again later")
        self.limit = limit


class NotAllowed(HoldfastError):
    """The server refuses the API key: there is none, it is not valid, or it lacks a scope."""


class RateLimited(HoldfastError):
    """The API key has made too many requests; `retry_after` is the time in seconds until the next one."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LeaseLost(Conflict):
    """The worker no longer holds the run; its writes changed nothing."""

    def __init__(self, run_id: UUID, fence: int) -> None:
        super().__init__(f"run {run_id} is no longer leased to this worker (fence {fence})")
        self.run_id, self.fence = run_id, fence


class Drift(HoldfastError):
    """The code has changed: it asks for another kind of step than the run has recorded under this key."""


class RunOverdue(HoldfastError):
    """The run's own timeout has passed: no further step begins."""


class StepTimeout(HoldfastError):
    """The step's function took longer than its `timeout`."""


class HistoryFull(HoldfastError):
    """The run has reached the limit of steps or bytes; use `ctx.continue_as` for endless loops."""


class RecordUnreadable(HoldfastError):
    """The record of the run cannot be read from the store, even in small pages."""


class Outcome(HoldfastError):
    """The end of a run, step or wait without a value, raised where the value was asked for."""


def named(error: Error) -> str:
    """Return type and message of an error: `'card'` alone would not show a KeyError. Our own errors need no
    type.
    """
    ours = error.type == "" or isinstance(globals().get(error.type), type)
    return error.message if ours else f"{error.type}: {error.message}"


class RunFailed(Outcome):
    """The run failed; `error` holds kind, type, message and traceback."""

    def __init__(self, run_id: UUID | str, error: Error | None, hint: str = "") -> None:
        why = f", {error.kind}: {named(error)}" if error else ""
        super().__init__(f"run {run_id} failed{why}{hint and '; ' + hint}")
        self.run_id, self.error = run_id, error


class RunCancelled(Outcome):
    """The run was cancelled."""


class StepFailed(Outcome):
    """All attempts of a step failed. It is recorded, and raised again in every later execution.

    `type`, `message` and `traceback` are those of the exception of the last attempt; `attempt` is the number
    of attempts that were made, of `max_attempts`.
    """

    attempt: int | None = None
    max_attempts: int | None = None

    def __init__(
        self, step: str, kind: str, message: str, type_: str = "", *, said: str = "", traceback: str = ""
    ) -> None:
        super().__init__(f"step {step!r} failed: {said or message}")
        self.step, self.kind, self.type, self.message, self.traceback = step, kind, type_, message, traceback
        # If this is the cause of an exception of `raises=`: the `args` object of that exception, which
        # identifies it. A reference to the exception itself would be a cycle.
        self.raised_with: tuple[object, ...] | None = None


class EventTimeout(Outcome):
    """The event did not arrive before the deadline."""

    def __init__(self, step: str, topic: str) -> None:
        super().__init__(f"no event on {topic!r} arrived before the deadline of step {step!r}")
        self.step, self.topic = step, topic


class ChildFailed(Outcome):
    """A child run did not succeed. It is recorded, and raised again in every later execution.

    `type`, `message` and `kind` are those of the child's own error; without one, `kind` is its status.
    """

    def __init__(self, step: str, run_id: UUID | None, status: str, error: Error | None) -> None:
        how = {"failed": "failed", "cancelled": "was cancelled"}.get(status, f"is {status}")
        why = f", {error.kind}: {error.message}" if error else ""
        super().__init__(f"child run {run_id} of step {step!r} {how}{why}")
        self.step, self.run_id, self.status, self.error = step, run_id, status, error
        self.type, self.message = (error.type, error.message) if error else ("", "")
        self.kind = error.kind if error else status


class ResultTimeout(Outcome):
    """The run has not ended within the caller's timeout. It continues."""


class Fatal(HoldfastError):
    """Raised by user code: do not retry."""


class RetryAfter(HoldfastError):
    """Raised by user code: retry after `delay` (seconds, or a timedelta), whatever the policy says."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        try:
            length = f"{delay:g} s" if isinstance(delay, int | float) else f"{delay!s:.40}"
        except OverflowError:  # a whole number that is too large for a float
            length = "a long time"
        super().__init__(message or f"retry in {length}")
        self.delay = delay


class CannotSeal(HoldfastError):
    """A hook of the codec could not encrypt or compress a value; nothing was written."""


class CannotOpen(HoldfastError):
    """A sealed value cannot be decrypted here; it stays as it is."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key  # the id of the key in the sealed value


class UnknownKey(CannotOpen):
    """The value was encrypted with a key that is not available here; `key` is its id."""


class WrongKey(CannotOpen):
    """The key with this id has other bytes, or the value was changed or copied from another place."""


class NotSealed(CannotOpen):
    """A value is not encrypted, but this app accepts only encrypted values."""


class StoreError(HoldfastError):
    """The store could not do its work."""


class Unavailable(StoreError):
    """The store cannot be reached or cannot write now; a retry is safe and may help."""


class NotADatabase(StoreError):
    """The URL names something that exists, but it is not a Holdfast store."""


class SchemaMismatch(StoreError):
    """The store belongs to another major version of Holdfast; nothing was changed."""
