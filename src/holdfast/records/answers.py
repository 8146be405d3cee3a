"""Answers of the verbs that write."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from holdfast.lifecycle import Status

from .shown import Decision, Run, Step
from .units import Instant, Json
from .unreadable import read_object


class Started(msgspec.Struct, gc=False, frozen=True):
    """The answer to one start."""

    id: UUID
    created: bool


class Answer(StrEnum):
    """The answer to a holder about a run that it holds, or held.

    applied    done; the holder still has the run, or the run has become what the verdict's `status` says
    paused     the steps are recorded, and the run is paused now: stop
    cancelled  nothing changed: the run was cancelled: stop
    lost       nothing changed: another worker holds it, or nobody: stop
    busy       nothing changed, another session holds the row: send it again
    sealed     its values cannot be decrypted here (it is done), or cannot be encrypted
               (`refused`: nothing changed); `reason` says why: stop, and give the run back
    """

    APPLIED = "applied"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    LOST = "lost"
    BUSY = "busy"
    SEALED = "sealed"


class Verdict(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The answer to one item. `status` is the run's present status (leased: go on)."""

    answer: Answer
    status: Status
    kept: tuple[tuple[str, Json | None], ...] = ()  # keys that existed before, with their recorded values
    settled: tuple[Step, ...] = ()  # waits settled since `known`, oldest first; of a plan: the current step
    seq: int = 0  # highest seq of the run, when `known` was given
    more: bool = False  # waits were settled whose values are too large for this answer: `load` reads them
    left: int | None = None  # what is left of a budget that the run shares, after this item
    refused: bool = False  # it was not sent to the store at all
    reason: str = ""  # for sealed


class Held(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The news of a renewal about one run."""

    answer: Answer  # applied, cancelled, lost or sealed
    reason: str = ""
    renewed: bool = False  # False, although applied: another session keeps the row, and nothing was written
    pause_asked: bool = False
    settled: tuple[Step, ...] = ()
    more: bool = False  # as in Verdict


class LeaseState(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The state of one lease, as `lease_states` reads it."""

    answer: Answer  # applied, cancelled or lost
    pause_asked: bool = False


class Renewal(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The answer to a renewal: one Held per lease, in order, and strays.

    A stray is a run leased to this worker that it did not name: the reply to its claim was lost.
    """

    held: tuple[Held, ...]
    strays: tuple[tuple[UUID, int], ...] = ()


class Loaded(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One page of the params and steps of a held run; nothing, when the answer is not applied."""

    answer: Answer  # applied, cancelled, lost or sealed
    reason: str = ""
    params: Json | None = None  # on the first page
    labels_json: Json | None = None  # on the first page
    steps: tuple[Step, ...] = ()
    more: bool = False  # there is a further page, after the last of these steps


class Claim(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A run that is now held, with all that is needed to execute it; or `unread`, when that is much."""

    id: UUID
    type: str
    tenant: str
    params: Json = "null"
    fence: int
    attempt: int
    crashes: int
    max_attempts: int
    created_at: Instant
    lease_until: Instant
    steps: tuple[Step, ...] = ()
    logs: int = 0  # the highest `log_no` of its `log` rows: how many the code has logged
    timeout_at: Instant | None = None
    kind: str = "code"
    parent: UUID | None = None
    cost: int = 0
    budget: int | None = None
    account: UUID | None = None  # the run at the top whose budget covers this one; of that run its own id
    left: int | None = None  # what is left of that budget
    labels_json: Json | None = None
    run_at: Instant = 0  # when it became due
    trace: str = ""  # of the start, or of the holder that has let the run go since; also when it is unread
    unread: bool = False  # params, labels and steps are not here: `load` reads them, page by page
    # A store may claim ahead of the call of `claim`. How long before the call the lease began:
    ahead_seconds: float = 0.0
    # and how long before its return the claim was answered:
    kept_seconds: float = 0.0

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the run."""
        return read_object(self.labels_json)


class HeldRecord(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Fields of a held run that no claim brings. The names are those of `Run`."""

    priority: int
    limit_key: str | None
    timeout_seconds: float | None
    ttl_seconds: float | None
    budget_units: int | None
    parent_step: str | None
    error_json: Json | None
    last_error: str | None


class Decided(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The answer to a decision: which gate, its verdict, and whether that was there before."""

    step: str
    decision: Decision
    repeated: bool
    run: Run


class Emitted(msgspec.Struct, gc=False, frozen=True):
    """The answer to an emit: how many runs it woke, and whether the event had been there before.

    Inside a caller's own transaction nothing is delivered before the commit: `woken` is None.
    """

    woken: int | None
    duplicate: bool


class Chore(StrEnum):
    """A part of `tick`."""

    EXPIRE = "expire"
    TIME_OUT = "time_out"
    LAPSE = "lapse"
    DELIVER = "deliver"
    COUNT = "count"


class Ticked(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Counts of one keeper round. `more`: the round was cut short, and something may be left."""

    expired: int = 0
    lapsed: int = 0
    delivered: int = 0
    timed_out: int = 0
    fired: int = 0  # runs of schedules; started by the keeper itself, not by a store's tick
    folded: int = 0  # changes of the counts; nothing that can be read has changed
    failed: tuple[UUID, ...] = ()  # the runs that it has ended: crashed too often, or timed out
    more: bool = False

    @property
    def total(self) -> int:
        """Sum of the counts, without `folded`; zero means that nothing has happened to runs."""
        return self.expired + self.lapsed + self.delivered + self.timed_out + self.fired


class Due(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The next instants at which there may be something to claim, and to do for each chore; None: nothing is
    in sight.
    """

    now: Instant  # the store's clock when it was asked
    claim_at: Instant | None = None
    expire_at: Instant | None = None
    time_out_at: Instant | None = None
    lapse_at: Instant | None = None
    deliver_at: Instant | None = None
    count_at: Instant | None = None  # changes of the counts are old enough to be folded
    fire_at: Instant | None = None  # a schedule
    relay_at: Instant | None = None  # a message, for the sinks that were asked for

    @property
    def chore_at(self) -> Instant | None:
        """The instant of the first chore about runs that is due, including schedules; folding is not among
        them.
        """
        times = (self.expire_at, self.time_out_at, self.lapse_at, self.deliver_at, self.fire_at)
        return min((at for at in times if at is not None), default=None)

    def is_due(self, chore: Chore) -> bool:
        """Return True when this chore would find something now."""
        at: Instant | None = getattr(self, f"{chore}_at")
        return at is not None and at <= self.now


class Purged(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The rows that one slice of a purge has removed; empty: there are no more."""

    runs: int = 0
    events: int = 0  # events whose retention has ended
    workers: int = 0  # workers that were not seen for long
    claims: int = 0  # claims that no rate counts any more
    audit: int = 0  # rows of the audit log
    api_keys: int = 0  # API keys that ended long ago
    sessions: int = 0  # page sessions that have ended

    @property
    def total(self) -> int:
        """Sum of the counts; zero means that nothing was written."""
        keys = self.audit + self.api_keys + self.sessions
        return self.runs + self.events + self.workers + self.claims + keys
