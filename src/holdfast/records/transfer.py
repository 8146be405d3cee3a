"""Runs and events on their way from one store to another, in a form that is the same for all stores.

Values are JSON text as they are stored, sealed ones too. Instants are microseconds. Numbers of events are
those of the store that the record comes from, or goes to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.arguments import BIG_MAX, EARLIEST, LATEST, WHOLE_MAX
from holdfast.lifecycle import Status, StepKind, StepStatus

from .outgoing import MessageStatus
from .units import MAX_ATTEMPTS, MAX_CRASHES, PRIORITY, Json

IMPORT = "import"  # who pauses an open run that is imported
MOVE = "move"  # who moves runs from one store to another
# `pause_asked_by` of an ended run that moves: until the source has recorded that it left, and then.
MOVING = "move"
MOVED = "moved"

# Numbers that every store can keep. A decoder refuses others: a file may have been edited.
Small = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
Big = Annotated[int, Meta(ge=0, le=BIG_MAX)]
Instant = Annotated[int, Meta(ge=EARLIEST, le=LATEST)]
Seconds = Annotated[float, Meta(ge=0)]

Departure = tuple[UUID, int]  # a run, and the number of its departure: its fence when it left
Copies = Mapping[UUID, int]  # runs, and the fences of their copies at the target while they wait there
NO_COPIES: Copies = MappingProxyType({})
Place = tuple[int, int]  # a section of a run's rows, and the number of the last row that was read of it


class CarriedStep(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """A step with all its fields. `took`: the numbers of the events that it has taken. `watermark`: it takes
    no event up to that number; None: none up to the newest event of the store that it comes to."""

    seq: Small
    key: str
    kind: StepKind
    status: StepStatus
    attempts: Small = 0
    output: Json | None = None
    error: Json | None = None
    cost: Big = 0
    topic: str | None = None
    due_at: Instant | None = None
    fence: Big = 0
    number: Small = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    max_attempts: Small | None = None
    timeout_seconds: Seconds | None = None
    ask: Json | None = None
    digest: str | None = None
    child: UUID | None = None
    wake: Json | None = None
    waits: Small = 0
    watermark: Big | None = 0
    on_timeout: str | None = "reject"
    took: tuple[Big, ...] = ()


class CarriedNote(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """A row of the trail. `told`: user SQL has written it."""

    type: str
    at: Instant
    data: Json = "{}"
    told: bool = False


class CarriedMessage(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """A message of the outbox. A relay that holds it is not carried."""

    id: str
    sink: str
    created_at: Instant
    next_at: Instant
    step: str | None = None
    key: str | None = None
    payload: Json = "null"
    status: MessageStatus = MessageStatus.PENDING
    attempts: Small = 0
    fence: Big = 0
    error: Json | None = None
    tried_at: Instant | None = None
    sent_at: Instant | None = None


class CarriedEvent(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """An event of the inbox, with its number. `chain`: the chain that it is addressed to."""

    seq: Big
    id: str
    tenant: str
    topic: str
    at: Instant
    keep_until: Instant
    payload: Json = "null"
    chain: UUID | None = None
    delivered: bool = False
    woken: Small = 0


class CarriedRow(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """The row of a run. A holder and its lease are not carried. `watermark`: as for steps, for events that
    are addressed to no run. `is_present`: the run is the present run of its chain, and not the first one.
    Only that makes it the present one: `goes_on_as` is for those who read a chain together."""

    type: str
    run_at: Instant
    created_at: Instant
    updated_at: Instant
    kind: str = "code"
    status: Status = Status.PENDING
    resume_to: Status | None = None
    pause_asked_by: str | None = None
    params: Json = "null"
    digest: str = ""
    key: str | None = None
    priority: Small = PRIORITY
    attempt: Small = 0
    max_attempts: Small = MAX_ATTEMPTS
    crashes: Small = 0
    max_crashes: Small = MAX_CRASHES
    survived: Small = 0
    tried_of: Small | None = None
    fence: Big = 0
    step_mark: Small = 0
    waiting_on: str | None = None
    wait_topic: str | None = None
    deadline_at: Instant | None = None
    owes: Small = 0
    cost: Big = 0
    budget: Big | None = None
    account: UUID | None = None
    shared: tuple[Big, Big] | None = (
        None  # of the run at the top of an account: its budget, and what is spent
    )
    error: Json | None = None
    last_error: str | None = None
    progress: Json | None = None
    result: Json | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    deleted_at: Instant | None = None
    timeout_seconds: Seconds | None = None
    timeout_at: Instant | None = None
    ttl_seconds: Seconds | None = None
    expires_at: Instant | None = None
    watermark: Big | None = 0
    parent: UUID | None = None
    parent_step: str | None = None
    is_present: bool = False
    goes_on_as: UUID | None = None  # of the first run of a chain, when it was read: the present run
    limit_key: str | None = None
    labels: Json | None = None
    trace: str = ""
    origin: UUID | None = None
    api_key: str | None = None


class CarriedRun(msgspec.Struct, gc=False, kw_only=True, omit_defaults=True):
    """A run, or a part of a large one. The last part has its row, and the steps that are not settled.

    `digest` is that of all parts: see `Digest`. The one who reads the parts writes it into the last.
    """

    id: UUID
    tenant: str
    chain: UUID | None = None  # the first run of its chain, if that is another run
    row: CarriedRow | None = None
    is_first: bool = True  # it is the first part
    steps: tuple[CarriedStep, ...] = ()
    notes: tuple[CarriedNote, ...] = ()
    messages: tuple[CarriedMessage, ...] = ()
    digest: str = ""


class BeforeRow(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The fields of an open run's row before it left."""

    status: Status
    resume_to: Status | None
    pause_asked_by: str | None
    run_at: Instant
    attempt: Small
    owes: Small
    waiting_on: str | None
    wait_topic: str | None
    deadline_at: Instant | None
    error: str | None
    last_error: str | None


class Before(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A run before it left. `row` and `steps`: of a run that was open."""

    expires_at: Instant | None = None
    row: BeforeRow | None = None
    steps: dict[str, StepStatus] = {}
    messages: list[str] = []


class LeavingNote(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The data of the trail row `leaving`."""

    to: str
    was: Before
    departure: Big


class ImportedNote(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The data of the trail row `imported`."""

    digest: str | None = None


class LeftNote(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The data of the trail row `left`. `copy`: the fence of the copy at the target that goes on."""

    copy: Big = 0


class Exported(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A part of a run as a store reads it. `after`: where its next part begins; None: it is the last one.

    `revision`: parts with the same revision were read of the same state.
    """

    part: CarriedRun
    after: Place | None = None
    revision: str = ""


class ImportAnswer(StrEnum):
    """The answer to an imported part."""

    IMPORTED = "imported"
    THERE = "there"  # the run was imported before, with the same content
    PART = "part"  # a part of a large run is kept
    REFUSED = "refused"


class Imported(msgspec.Struct, gc=False, frozen=True):
    """The answer to one run or part of `import_runs`. `reason`: why it was refused."""

    run: UUID
    answer: ImportAnswer
    reason: str = ""


class RelocationAnswer(StrEnum):
    """The answer to one run of `leave`, `left`, `went_on`, `come_back`, `arrive` or `drop_arrived`: where it
    is now."""

    LEAVING = "leaving"  # it does not go on at the source, and may come back
    LEFT = "left"  # the source has recorded that it is at the target
    WENT_ON = "went_on"  # the source has recorded that it goes on at the target
    HERE = "here"  # it goes on here
    DROPPED = "dropped"
    UNKNOWN = "unknown"
    BUSY = "busy"  # somebody changes it at this moment: ask again
    REFUSED = "refused"


class Relocated(msgspec.Struct, gc=False, frozen=True):
    """The answer for one run that moves to another store. `reason`: why it was refused. `departure`: which
    departure of the run it is about; `to`: its target, for a run that is leaving or has left. `copy`: the
    copy at the target that goes on, for a run that has left; 0: whichever is there."""

    run: UUID
    answer: RelocationAnswer
    reason: str = ""
    departure: int = 0
    to: str = ""
    copy: int = 0


class Digest:
    """The digest of a run's content. It does not depend on the parts that the run was read in."""

    def __init__(self) -> None:
        self._hashes = [hashlib.sha256() for _ in range(4)]

    def add(self, part: CarriedRun) -> None:
        """Add the next part."""
        # The steps that are not settled come last, whatever their numbers are.
        rows: tuple[Sequence[object], ...] = (part.steps, part.notes, part.messages)
        for kept, some in zip(self._hashes, rows, strict=False):
            if some:
                kept.update(_encode_lines(list(some)))  # msgspec 0.22 loses 48 bytes for each tuple
        if part.row is not None:
            self._hashes[3].update(_encode((part.id, part.tenant, part.chain, part.row)))

    @property
    def text(self) -> str:
        whole = hashlib.sha256()
        for one in self._hashes:
            whole.update(one.digest())
        return whole.hexdigest()


_encoder = msgspec.json.Encoder()
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


def digest_of(*parts: CarriedRun) -> str:
    """Return the digest of a run that is given in all its parts."""
    digest = Digest()
    for part in parts:
        digest.add(part)
    return digest.text
