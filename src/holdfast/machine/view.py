"""The view: everything that moves need from a store, within one verb and one transaction.

A store offers one view for each verb. Moves read rows through it, change them in place, and add to the trail.
The store writes the changes when the verb ends (`save`). A row is the same object however often it is read.
The view decides nothing. Searches for due rows, slices and locks belong to the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from holdfast.lifecycle import Status
from holdfast.records import (
    Definition,
    Instant,
    Json,
    NewEvent,
    NewRun,
    Outbound,
    RunningStep,
    Step,
    Verdict,
)

from .rows import RunRow, StepRow

R = TypeVar("R", bound=RunRow)
Data = dict[str, Any]  # the data of a trail row; entries may be added until the view is saved


class Event(Protocol):
    """An event that a wait may take."""

    @property
    def seq(self) -> int: ...

    @property
    def id(self) -> str: ...

    @property
    def size(self) -> int:
        """The bytes of its payload."""

    @property
    def output(self) -> Json:
        """The output of a wait that takes the event: id, topic, at and payload. A store may build the
        text later."""

    @property
    def wake(self) -> Json:
        """The `wake` of a plan's task: the reason, and the output."""


class End(NamedTuple):
    """The end of a child, or its present status."""

    status: Status
    result: Json | None
    error: Json | None


class Beginning(NamedTuple):
    """The values of a new run that its caller has not given."""

    kind: str
    run_at: Instant
    max_attempts: int
    budget: int | None
    timeout_seconds: float | None
    timeout_at: Instant | None
    ttl_seconds: float | None
    watermark: int
    fence: int
    chain: UUID | None = None
    cost: int = 0
    status: Status = Status.PENDING
    resume_to: Status | None = None
    pause_asked_by: str | None = None
    account: UUID | None = None


class Account(NamedTuple):
    """A budget that a run shares with its children: in units of cost."""

    budget: int
    spent: int


class View(Protocol[R]):
    """The rows that one verb reads and changes. `copied`: bytes of values that waits were settled with so
    far."""

    now: Instant
    copied: int

    # The run.

    def run(self, id: UUID) -> R | None:
        """Return the run, deleted or not."""

    def go_on_as(self, run: R, first: R, next: UUID) -> None:
        """Make the run `next` the present run of the chain. `first`: the first run of the chain."""

    def links(self, first: R, limit: int, *, deleted: bool) -> Sequence[R]:
        """Return runs of the chain after its first one, by id: the deleted ones, or the others."""

    def call_holders(self) -> None:
        """Tell the workers that a leased run is moved by somebody other than its holder: they look at their
        leases right after this commit."""

    def show_running(self, run: R, steps: Sequence[RunningStep]) -> None:
        """Keep the steps that the holder executes now, in place of those that were kept before."""

    def keep_trace(self, run: R, trace: str) -> None:
        """Write the trace of the run, in place of the one that it has."""

    def changed_since(self, run: R, since: Instant) -> bool:
        """Return True when the stored run has changed at this instant or later. For a leased run only its
        claim, and the withdrawal of a pause (`resumed`), count: see `contract.people`.
        """

    def has_open_children(self, run: R) -> bool:
        """Return True when a child of the run (and of its tenant) is open."""

    def children_to_cancel(self, run: R, limit: int, *, orphans: bool) -> Sequence[R]:
        """Return open children, by id; orphans: those that no step of the run names any more."""

    def account(self, id: UUID) -> Account | None:
        """Return the shared budget of the run at the top. None: that run was purged."""

    def keep_account(self, id: UUID, account: Account) -> None:
        """Write a shared budget."""

    def stopped_members(self, id: UUID, by: str, limit: int) -> Sequence[R]:
        """Return runs of the account that are paused by this name and not deleted, by id."""

    def end_of(self, child: UUID) -> End | None:
        """Return the end of this run, or its present status. None: there is no such run."""

    # Steps.

    def step(self, run: R, key: str) -> StepRow | None:
        """Return the step of this key."""

    def put(self, run: R, step: StepRow) -> None:
        """Add a step whose key is new."""

    def put_all(self, run: R, steps: Sequence[StepRow]) -> None:
        """Add all steps of a plan to a run that has none. The rows are shared by runs, so the view copies
        them."""

    def drop(self, run: R, step: StepRow) -> None:
        """Remove a step."""

    def highest(self, run: R) -> int:
        """Return the highest number given to a step so far. Numbers of forgotten steps are not given
        again."""

    def next_seq(self, run: R) -> int:
        """Return the next number."""

    def current(self, run: R) -> StepRow | None:
        """Return the first step of a plan, by number, that has not succeeded."""

    def at_work(self, run: R) -> StepRow | None:
        """Return the same while a plan is leased: the first step that has not ended. Its cost does not
        grow with ended steps."""

    def after(self, run: R, seq: int) -> StepRow | None:
        """Return the step after this number."""

    def outline(self, run: R) -> Sequence[StepRow]:
        """Return all steps by number. Their values may be unread."""

    def open_steps(self, run: R) -> Sequence[StepRow]:
        """Return the steps that are ready or waiting."""

    def open_waits(self, run: R) -> Sequence[StepRow]:
        """Return the steps that are waiting, first due first."""

    def to_look_at(self, run: R) -> Iterable[StepRow]:
        """Return the open waits that may be settled now, first due first, and maybe others."""

    def gates(self, run: R) -> Sequence[StepRow]:
        """Return the approval steps that have been opened, by number."""

    def last_item(self, run: R) -> tuple[int, int]:
        """Return the highest fence and item number that a step has; (0, 0): no step has one."""

    def wrote(self, run: R, fence: int, number: int) -> bool:
        """Return True when this item, or a later one of its fence, has written a step."""

    def overtaken(self, run: R, fence: int) -> bool:
        """Return True when an item of a higher fence has written a step."""

    def has_news(self, run: R, known: int) -> bool:
        """Return True when a wait was settled with a number above this one."""

    def news(self, run: R, known: int) -> tuple[tuple[Step, ...], bool]:
        """Return those waits, by number. If their values are too large for an answer: nothing, and True."""

    def shown(self, run: R, step: StepRow) -> Step | None:
        """Return the step for an answer. None: its `wake` is too large, and the holder has to read it."""

    # Events.

    def newest_event(self) -> int:
        """Return the highest number of an event so far."""

    def record(self, event: NewEvent) -> None:
        """Put an event into the inbox. A known id changes nothing."""

    def available(self, run: R, wait: StepRow) -> Event | None:
        """Return the oldest event that the wait may take."""

    def take(self, run: R, event: Any, key: str, *, counts: bool) -> None:
        """Write a receipt, so that no other wait of the run's chain takes the event. counts: one more run
        is woken."""

    def forget_receipts(self, run: R, key: str) -> None:
        """Make the events available again that this step of this run has taken."""

    # Starts, messages, the trail.

    def by_key(self, tenant: str, key: str) -> tuple[UUID, str] | None:
        """Return the run of that idempotency key, and its digest."""

    def is_known(self, id: UUID) -> bool:
        """Return True when a run has this id."""

    def has_parent(self, id: UUID, tenant: str) -> bool:
        """Return True when there is a run of this id and tenant that is not deleted."""

    def open_runs(self, api_key: str, most: int) -> int:
        """Return how many open runs count under this API key, deleted ones too; at most `most`."""

    def definition(self, type: str) -> Definition | None:
        """Return the published definition of this type."""

    def insert(self, new: NewRun, begins: Beginning) -> R | None:
        """Add a run. None: its id is taken. The next run of a chain counts under the API key of the chain's
        first run."""

    def send(self, run: R, messages: Sequence[Outbound]) -> None:
        """Put messages into the outbox. A known id changes nothing."""

    def newest_note(self) -> int:
        """Return the highest number of a trail row so far, including rows that are not saved yet."""

    def note(self, run: R, what: str, /, **data: Any) -> Data:
        """Add a row to the trail. Entries may be added to its data until the view is saved."""

    def log(self, run: R, what: str, data: Json) -> None:
        """Add a row that the holder brings, with its text unchanged."""

    def was_added(self, run: R, key: str) -> bool:
        """Return True when the trail says that this step was added after the start."""

    def answer(self, run: R) -> Verdict | None:
        """Return the answer to the last recorded item."""

    def answered(self, run: R, verdict: Verdict) -> None:
        """Record the answer to an item in the run's row."""
