"""Plain writes of holders: checkpoints of new steps, and completes, by one script for many runs.

The store remembers of each run that this process has claimed what its field `writes` says (rows.py). An item
is plain when nothing but the step, the trail and that text has to change, and the script takes it if the
stored text is still the same. Then nobody has changed the run since its holder wrote, and the server has lost
none of its writes. Everything else, and whatever the script does not take, goes through the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.bounds import ROW_BYTES, text_bytes
from holdfast.lifecycle import WAITS, Status, StepKind, StepStatus
from holdfast.machine.durations import micros
from holdfast.machine.rows import Owes
from holdfast.records import Answer, Instant, Item, Json, StepWrite, Verdict
from holdfast.records.moves import Checkpoint, Complete

from .batches import ROWS, SCRIPT_BYTES, Batch, ending_sets
from .names import Names
from .rows import SUCCEEDED_TEXT, RunRow, log_number, stored_word, writes_text

STEPS = 500  # steps of one item, in one command
LEASED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)
SUCCEEDED = Verdict(answer=Answer.APPLIED, status=Status.SUCCEEDED)


class Writes(NamedTuple):
    """The field `writes` of a leased run: see rows.py."""

    fence: int
    seq: int
    bytes: int
    item_fence: int
    item_no: int
    cursor_seq: int
    rare: int

    @property
    def text(self) -> str:
        return "%d %d %d %d %d %d %d" % self  # noqa: UP031 - much faster than the other ways


class Holding:
    """A run that this process has claimed, as far as its plain writes need to know it."""

    __slots__ = (
        "can_end", "holder", "is_tried", "keys", "leaves", "number", "owes", "tenant", "text", "type",
        "writes",
    )  # fmt: skip

    def __init__(
        self, names: Names, run: str, named: tuple[str, str, str], writes: Writes, *, is_tried: bool
    ) -> None:
        """`named`: its type, tenant and holder. is_tried: progress makes it forget earlier tries."""
        self.type, self.tenant, self.holder = named
        self.keys = names.run(run), names.steps(run), names.trail_of(run)
        self.writes, self.text, self.is_tried = writes, writes.text, is_tried
        self.number = writes.item_no if writes.item_fence == writes.fence else 0  # of its last item
        self.owes, self.can_end = "", True
        self.leaves = [names.of("leased:worker", self.holder)]  # sets that it leaves at its end

    def add(
        self, names: Names, *, limit_key: str | None, has_timeout: bool, parent: str | None,
        parent_step: str | None, api_key: str | None,
    ) -> None:  # fmt: skip
        """Add what few runs have."""
        if has_timeout:
            self.leaves.append(names("timeouts"))
        if limit_key is not None:
            self.leaves.append(names.of("leased", "key", limit_key))
        if parent is not None:
            self.leaves.append(names("children:open", parent))
        if api_key is not None:
            self.leaves.append(names.of("open:key", api_key))
        self.owes = "" if parent_step is None else str(Owes.END)


def holding_of(names: Names, row: RunRow) -> Holding | None:
    """Return what plain writes need of a leased run. None: it has no plain writes."""
    who, *numbers = writes_text(row).split(" ")
    if who == "-":
        return None
    named = (row.type, row.tenant, row.leased_by or "")
    made = Holding(
        names, str(row.id), named, Writes(int(who), *map(int, numbers)),
        is_tried=row.attempt != 1 or row.crashes > 0 or row.survived > 0,
    )  # fmt: skip
    if row.commit_fence == row.fence:
        made.number = max(made.number, row.commit_no)
    made.can_end = row.ttl_seconds is None and not row.owes and not row.open
    made.add(
        names, limit_key=row.limit_key, has_timeout=row.timeout_at is not None,
        parent=None if row.parent is None else str(row.parent), parent_step=row.parent_step,
        api_key=row.api_key,
    )  # fmt: skip
    return made


class Holdings:
    """Runs that this process has claimed lately."""

    MOST = 20_000

    def __init__(self) -> None:
        self._known: dict[UUID, Holding] = {}

    def learn(self, run: UUID, holding: Holding | None) -> None:
        if holding is None:
            self._known.pop(run, None)
            return
        if len(self._known) >= self.MOST:
            del self._known[next(iter(self._known))]
        self._known[run] = holding

    def of(self, run: UUID) -> Holding | None:
        return self._known.get(run)

    def forget(self, run: UUID) -> None:
        self._known.pop(run, None)


def is_plain(item: Item, held: Holding | None) -> bool:
    """Return True when the script may take the item. `held`: what is known about the run."""
    # A gap between the numbers of items: the server may have lost one.
    if held is None or held.writes.fence != item.fence or item.number != held.number + 1:
        return False
    if item.known is not None or item.progress is not None or item.shares or item.events or item.outbox:
        return False
    steps = item.steps
    for step in steps:
        if not _is_plain_step(step):
            return False
    if len(steps) > 1 and (len(steps) > STEPS or len({one.key for one in steps}) < len(steps)):
        return False
    move = item.move
    if type(move) is Checkpoint:
        return bool(steps)
    return type(move) is Complete and not move.starts and held.can_end


def _is_plain_step(write: StepWrite) -> bool:
    return (
        write.status is StepStatus.SUCCEEDED
        and not write.cost
        and write.error is None
        and write.child is None
        and write.kind not in WAITS
        and write.delay_seconds is None
        and not write.since_now
    )


class _Step(msgspec.Struct, gc=False, omit_defaults=True):
    """A step as its row is stored, but for its time, which the script adds."""

    seq: int
    key: str
    kind: StepKind
    status: StepStatus
    attempts: int
    output: Json | None
    topic: str | None
    due_at: Instant | None
    fence: int
    number: int
    started_at: Instant | None = None
    ask: Json | None = None
    digest: str | None = None
    on_timeout: str | None = "reject"


_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=4096)
def _recorded(key: str) -> str:
    """Return the data of the trail row of a step."""
    return _encode({"step": key}).decode()


class Plain(NamedTuple):
    """An item as hold.lua takes it. `place`: among the items of the call."""

    place: int
    item: Item
    held: Holding
    writes: Writes  # when it is applied
    text: str  # the same as text
    steps: list[str]
    notes: list[str]  # types and data of its own trail rows
    logs: int  # the highest number of a log row of the code among them
    bytes: int  # of its values; each row counts as many, too, because a script takes its time for each


def written(place: int, item: Item, held: Holding) -> Plain:
    """Return a plain item in the words of the script."""
    old, steps = held.writes, list[str]()
    seq, bytes_ = old.seq, old.bytes
    for one in item.steps:
        seq += 1
        step = _Step(
            seq, one.key, one.kind, one.status, one.attempts, one.output, one.topic, one.due_at, item.fence,
            item.number, one.started_at, one.ask, one.digest, one.on_timeout,
        )  # fmt: skip
        bytes_ += ROW_BYTES + text_bytes(one.key) + text_bytes(one.output) + text_bytes(one.ask)
        steps += (one.key, _encode(step).decode()[:-1], _recorded(one.key))
    size, notes, logs = bytes_ - old.bytes + len(item.steps) * SCRIPT_BYTES // ROWS, list[str](), 0
    for row in item.trail:
        notes += (stored_word(row.type), row.data)
        logs = max(logs, log_number(row.type, row.data))
        size += SCRIPT_BYTES // ROWS + len(row.data)
    if type(item.move) is Complete:
        size += len(item.move.result)
    rare = 1 if logs else old.rare
    if steps:
        new = Writes(old.fence, seq, bytes_, item.fence, item.number, seq, rare)
    else:
        new = old if rare == old.rare else old._replace(rare=rare)
    return Plain(place, item, held, new, held.text if new is old else new.text, steps, notes, logs, size)


def parts(items: Sequence[Plain], bytes_: int, most: int) -> Iterator[Sequence[Plain]]:
    """Yield the items of each call: so many items and bytes at most, but at least one item."""
    begun = total = 0
    for at, one in enumerate(items):
        total += one.bytes
        if at > begun and (total > bytes_ or at - begun == most):
            yield items[begun:at]
            begun, total = at, one.bytes
    if items:
        yield items[begun:]


def call(batch: Batch, items: Sequence[Plain]) -> None:
    """Add the words of hold.lua."""
    said = [
        (
            one.held.text,
            one.text,
            micros(one.item.lease_seconds),
            _extra(batch, one),
            *one.steps,
        )
        for one in items
    ]
    batch.say(batch.kinds, said)


def _extra(batch: Batch, one: Plain) -> Any:
    """Return what few items have, or False."""
    item, held, move = one.item, one.held, one.item.move
    ends: Any = False
    if type(move) is Complete:
        kind = batch.kind(held.type, held.tenant, ending_sets)
        leaves = [batch.place(key) for key in held.leaves]
        commit = f"{item.fence} {item.number} {SUCCEEDED_TEXT}"
        ends = (kind, move.result, commit, held.owes, leaves, held.writes.rare)
    elif item.started_at is None and not one.notes and not held.is_tried:
        return False
    return (
        str(item.fence), "" if item.started_at is None else str(item.started_at), one.notes, one.logs,
        held.is_tried and bool(item.steps), ends,
    )  # fmt: skip


def applied(one: Plain) -> Verdict:
    """Take note of an item that the script has taken. Return its answer."""
    if type(one.item.move) is Complete:
        return SUCCEEDED
    held = one.held
    held.writes, held.text, held.number, held.is_tried = one.writes, one.text, one.item.number, False
    return LEASED
