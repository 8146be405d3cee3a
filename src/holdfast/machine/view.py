"""The view: all that moves need from a store, within one verb and one transaction.

A store offers one view per verb. Moves read rows through it, change them in place, and add to the trail; the
store writes what has changed when the verb ends (`save`). A row is the same object however often it is asked
for. Nothing here decides anything: scans for what is due, slices and locks stay with the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from holdfast.lifecycle import Status
from holdfast.records import Definition, Instant, Item, Json, NewEvent, NewRun, Outbound, Step, Verdict

from .rows import RunRow, StepRow

R = TypeVar("R", bound=RunRow)
Data = dict[str, Any]  # of a trail row, which may be added to until the view is saved


class Event(Protocol):
    """An event that a wait may take."""

    @property
    def seq(self) -> int: ...

    @property
    def id(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes of its payload."""

    @property
    def output(self) -> Json:
        """What a wait is settled with: id, topic, at and payload. A store may put the text together later."""

    @property
    def wake(self) -> Json:
        """What a plan's task is told: the reason, and the same."""


class End(NamedTuple):
    """How a child has ended, or where it is."""

    status: Status
    result: Json | None
    error: Json | None


class Beginning(NamedTuple):
    """What a new run begins with, beside what its caller has given."""

    kind: str
    run_at: Instant
    max_attempts: int
    budget: int | None
    timeout_seconds: float | None
    timeout_at: Instant | None
    ttl_seconds: float | None
    mark: int
    fence: int
    chain: UUID | None = None
    cost: int = 0
    status: Status = Status.PENDING
    resume_to: Status | None = None


class View(Protocol[R]):
    """One verb's window on the rows. `copied`: bytes of values that waits were settled with so far."""

    now: Instant
    copied: int

    # The run.

    def run(self, id: UUID) -> R | None:
        """The run, deleted or not."""

    def go_on_as(self, run: R, first: R, next: UUID) -> None:
        """Note that the chain of this run has come to another one. `first`: the first run of the chain."""

    def links(self, first: R, limit: int, *, deleted: bool) -> Sequence[R]:
        """Runs of the chain behind its first one, by id: those that are deleted, or those that are not."""

    def has_open_children(self, run: R) -> bool:
        """Whether a child of the run (and of its tenant) is open."""

    def children_to_cancel(self, run: R, limit: int, *, orphans: bool) -> Sequence[R]:
        """Open children, by id; orphans: those that no step of the run names any more."""

    def end_of(self, child: UUID) -> End | None:
        """How this run has ended, or where it is; None: there is no such run."""

    # Its steps.

    def step(self, run: R, key: str) -> StepRow | None:
        """The step of this key."""

    def put(self, run: R, step: StepRow) -> None:
        """Add a step whose key is new."""

    def put_all(self, run: R, steps: Sequence[StepRow]) -> None:
        """Add all steps of a plan to a run that has none; the rows are shared, so the view copies them."""

    def drop(self, run: R, step: StepRow) -> None:
        """Remove a step."""

    def highest(self, run: R) -> int:
        """The highest number given to a step so far; that of a forgotten one is not given again."""

    def next_seq(self, run: R) -> int:
        """Give the next number."""

    def current(self, run: R) -> StepRow | None:
        """Of a plan: the first step, by number, that has not succeeded."""

    def at_work(self, run: R) -> StepRow | None:
        """The same while a plan is held: the first step that has not ended, however many have."""

    def after(self, run: R, seq: int) -> StepRow | None:
        """The step behind this number."""

    def outline(self, run: R) -> Sequence[StepRow]:
        """All steps by number. Their values may be unread."""

    def open_steps(self, run: R) -> Sequence[StepRow]:
        """The steps that are ready or waiting."""

    def open_waits(self, run: R) -> Sequence[StepRow]:
        """The steps that are waiting, first due first."""

    def to_look_at(self, run: R) -> Iterable[StepRow]:
        """The open waits that may be settled now, first due first, and maybe others."""

    def gates(self, run: R) -> Sequence[StepRow]:
        """The approval steps that have been opened, by number."""

    def last_item(self, run: R) -> tuple[int, int]:
        """The highest fence and number under which a step stands; (0, 0): none does."""

    def wrote(self, run: R, fence: int, number: int) -> bool:
        """Whether a step stands that this item, or a later one of its fence, has written."""

    def overtaken(self, run: R, fence: int) -> bool:
        """Whether a step stands that an item of a higher fence has written."""

    def has_news(self, run: R, known: int) -> bool:
        """Whether a wait was settled with a number above this one."""

    def news(self, run: R, known: int) -> tuple[tuple[Step, ...], bool]:
        """Those waits, by number; nothing and True where their values are too large for an answer."""

    def shown(self, run: R, step: StepRow) -> Step | None:
        """The step for an answer; None: what it is woken with is too large, and the holder reads it."""

    # Events.

    def newest_event(self) -> int:
        """The highest number of an event so far."""

    def record(self, event: NewEvent) -> None:
        """Put an event into the inbox. One whose id is there is left alone."""

    def available(self, run: R, wait: StepRow) -> Event | None:
        """The oldest event that the wait may take."""

    def take(self, run: R, event: Any, key: str, *, counts: bool) -> None:
        """Write a receipt, so that no other wait of the run's chain takes the event; counts: one more run is
        woken.
        """

    def forget_receipts(self, run: R, key: str) -> None:
        """Make the events available again that this step of this very run has taken."""

    # Starts, messages, the trail.

    def by_key(self, tenant: str, key: str) -> tuple[UUID, str] | None:
        """The run of that idempotency key, and its digest."""

    def is_known(self, id: UUID) -> bool:
        """Whether a run has this id."""

    def has_parent(self, id: UUID, tenant: str) -> bool:
        """Whether there is a run of this id and tenant that is not deleted."""

    def definition(self, type: str) -> Definition | None:
        """The published workflow of this type."""

    def insert(self, new: NewRun, begins: Beginning) -> R | None:
        """Add a run; None: its id is taken."""

    def send(self, run: R, messages: Sequence[Outbound]) -> None:
        """Put messages into the outbox. One whose id is there is left alone."""

    def newest_note(self) -> int:
        """The highest number of a trail row so far, those included that are not saved yet."""

    def note(self, run: R, what: str, /, **data: Any) -> Data:
        """Add a row to the trail. Its data may be added to until the view is saved."""

    def log(self, run: R, what: str, data: Json) -> None:
        """Add a row that the holder brings, as the text it is."""

    def was_added(self, run: R, key: str) -> bool:
        """Whether the trail says that this step was added after the start."""

    def answer(self, run: R) -> Verdict | None:
        """The answer to the last recorded item."""

    def answered(self, run: R, item: Item, verdict: Verdict) -> None:
        """Record an item and its answer in the run's row."""
