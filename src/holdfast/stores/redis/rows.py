"""Rows: a run as the fields of a hash, a step as JSON, an event, a row of the trail.

A field that has its default value is left out. Values that may be large are read only when they are needed.
Two fields hold several values, because the server takes as long for each field as for a short text:

- `writes`: all that plain writes of a holder compare and change: "<fence> <seq> <bytes> <item_fence>
  <item_no> <cursor_seq> <rare>". The fence is `-` unless the run is leased, is code, and no pause is asked
  for: then a write whose sender knows the whole text is plain (plain.py). `rare` is 1 when one of the fields
  of RARE may be there.
- `commit`: "<commit_fence> <commit_no> <commit_answer>".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import ROW_BYTES, text_bytes
from holdfast.lifecycle import Status
from holdfast.machine import rows as machine
from holdfast.machine.rows import UNREAD, StepRow
from holdfast.records import Answer, Definition, Instant, Json, Verdict
from holdfast.stores.events import TakenEvent


class RunRow(machine.RunRow, gc=True, kw_only=True):
    """A run. `rev` grows with each change, except a plain checkpoint: that grows `seq` only."""

    params: Json
    digest: str = ""
    key: str | None = None
    limit_key: str | None = None
    labels: Json | None = None
    created_at: Instant
    trace: str = ""
    origin: UUID | None = None
    api_key: str | None = None
    rev: int = 0
    seq: int = 0  # the highest number given to a step
    open: str = ""  # JSON list: the keys of steps that are ready or waiting
    waits_seq: int = 0  # the highest number of a wait that was settled
    item_fence: int = 0  # the highest fence and number of an item that wrote a step
    item_no: int = 0
    cursor: str | None = None  # the step with the latest outcome; for a plan the current one
    cursor_seq: int = 0
    current: str | None = None  # for a plan: the first step that has not succeeded
    current_seq: int = 0
    bytes: int = 0  # of its params, labels and steps in an answer
    logs: int = 0  # the highest number of a log row of its code
    called_at: Instant = 0  # when it was claimed, or a pause was withdrawn
    running: str | None = None  # JSON: a fence, and the steps that its holder executes
    logged: str = ""  # "<fence> <item> <rows>": log rows of an item that were written before the item
    writes: str = ""  # as it is stored; what it says is in the fields above
    commit: str = ""


HALF_GONE = -1  # a value of deleted_at: a purge has begun to remove the run
LARGE = ("params", "labels", "progress", "result")  # moves write these and never read them
_NAMES = {"attempt": "attempts", "deadline_at": "resume_at"}  # fields that are called otherwise in the hash
_ALWAYS = frozenset({"status", "run_at", "type", "tenant", "created_at", "updated_at", "fence", "rev"})
# Fields that most runs do not have. Claims and completes look at them only if one may be there.
RARE = (
    "deleted_at", "kind", "crashes", "survived", "max_attempts", "timeout_at", "parent", "cost", "budget",
    "account", "trace", "logs", "limit_key", "ttl_seconds", "owes", "parent_step", "api_key",
    "pause_asked_by", "open", "error", "last_error",
)  # fmt: skip
_PACKED = frozenset({
    "seq", "bytes", "item_fence", "item_no", "cursor_seq", "commit_fence", "commit_no", "commit_answer",
})  # fmt: skip
_PACKS = frozenset({"writes", "commit"})
_UUIDS = frozenset({"id", "parent", "chain", "present", "account", "origin"})
_STATUSES = frozenset({"status", "resume_to"})
_FLOATS = frozenset({"timeout_seconds", "ttl_seconds"})
_TEXTS = frozenset({
    "tenant", "kind", "leased_by", "pause_asked_by", "waiting_on", "wait_topic", "error", "last_error",
    "progress", "result", "type", "parent_step", "params", "digest", "key", "limit_key", "labels", "trace",
    "api_key", "open", "cursor", "current", "running", "logged", "writes", "commit",
})  # fmt: skip

_STATUS: dict[str, Status] = {status.value: status for status in Status}


def _decoder(name: str) -> Callable[[str], Any]:
    if name in _UUIDS:
        return UUID
    if name in _STATUSES:
        return _STATUS.__getitem__
    if name in _FLOATS:
        return float
    return str if name in _TEXTS else int


ALL = tuple(name for name in RunRow.__struct_fields__ if name != "id" and name not in _PACKED)
SMALL = tuple(name for name in ALL if name not in LARGE)
FIELDS = tuple(_NAMES.get(name, name) for name in ALL)  # of the hash, in the order of ALL
SMALL_FIELDS = tuple(_NAMES.get(name, name) for name in SMALL)
REV = SMALL.index("rev")
_DECODERS = {name: _decoder(name) for name in ALL}
_SMALL = tuple((name, _DECODERS[name]) for name in SMALL)
_EVERY = tuple((name, _DECODERS[name]) for name in ALL)
_DEFAULTS = dict(
    zip(RunRow.__struct_fields__[-len(RunRow.__struct_defaults__) :], RunRow.__struct_defaults__, strict=True)
)
_rare, _USUAL = attrgetter(*RARE), tuple(_DEFAULTS[name] for name in RARE)
_VERDICT = msgspec.json.Decoder(Verdict)
_STEP = msgspec.json.Decoder(StepRow)


def decoded(id: UUID, values: Sequence[str | None], *, small: bool) -> RunRow | None:
    """Return the run of a hash. None: there is none. small: without the values that may be large."""
    named = _SMALL if small else _EVERY
    given = {
        name: decode(value) for (name, decode), value in zip(named, values, strict=True) if value is not None
    }
    if "status" not in given:
        return None
    if small:
        given |= {"params": UNREAD, "labels": UNREAD, "progress": UNREAD, "result": UNREAD}
    given.setdefault("params", "null")
    row = RunRow(id=id, **given)
    if row.writes:
        _, *numbers, _ = row.writes.split(" ")
        row.seq, row.bytes, row.item_fence, row.item_no, row.cursor_seq = map(int, numbers)
    if row.commit:
        fence, number, answer = row.commit.split(" ", 2)
        row.commit_fence, row.commit_no, row.commit_answer = int(fence), int(number), answer or None
    return row


def writes_text(row: RunRow) -> str:
    """Return the field `writes` of a run. It follows from the row alone."""
    is_plain = row.status is Status.LEASED and not row.is_plan and row.pause_asked_by is None
    numbers = " ".join(map(str, numbers_of(row)))
    return f"{row.fence if is_plain else '-'} {numbers} {int(_rare(row) != _USUAL)}"


def _commit_text(row: RunRow) -> str:
    answer = row.commit_answer
    if answer is None and not row.commit_fence:
        return ""
    text = "" if answer is None else answer if isinstance(answer, str) else verdict_text(answer)
    return f"{row.commit_fence} {row.commit_no} {text}"


def changed(before: RunRow | None, after: RunRow) -> tuple[list[str], list[str]]:
    """Return the fields of the hash to set, each followed by its value, and those to remove; `writes` is not
    among them: see new_writes."""
    put: list[str] = []
    gone: list[str] = []
    values = msgspec.structs.astuple(after)
    olds = _NONE if before is None else msgspec.structs.astuple(before)
    for name, value, old in zip(RunRow.__struct_fields__, values, olds, strict=True):
        if value is old or value == old or name in _ELSEWHERE:
            continue
        field = _NAMES.get(name, name)
        if value is None or (name not in _ALWAYS and value == _DEFAULTS.get(name, _NOTHING)):
            if before is not None:
                gone.append(field)
        else:
            put += (field, _encoded(name, value))
    commit = _commit_text(after)
    if commit != ("" if before is None else before.commit):
        put += ("commit", commit)
    return put, gone


def new_writes(before: RunRow | None, after: RunRow, *, is_changed: bool) -> str | None:
    """Return the field `writes` if it is to be written. is_changed: other fields are written, too."""
    writes = writes_text(after)
    # A script may have left `rare` at 1. That alone is no change.
    is_new = before is None or writes != writes_text(before) or (is_changed and writes != before.writes)
    return writes if is_new else None


def numbers_of(row: RunRow) -> tuple[int, ...]:
    """Return the numbers in the field `writes`. Plain checkpoints change them, and do not grow `rev`."""
    return row.seq, row.bytes, row.item_fence, row.item_no, row.cursor_seq


_ELSEWHERE = _PACKED | _PACKS | {"id"}
_NOTHING: Any = object()
_NONE = (_NOTHING,) * len(RunRow.__struct_fields__)  # of a row that is not stored yet


_SUCCEEDED = Verdict(answer=Answer.APPLIED, status=Status.SUCCEEDED)
SUCCEEDED_TEXT = "s"


def verdict_text(verdict: Verdict) -> str:
    """Return an answer as it is stored: short, so that the hash of a run stays small."""
    if verdict == _SUCCEEDED:
        return SUCCEEDED_TEXT
    fields = zip(Verdict.__struct_fields__[2:], Verdict.__struct_defaults__, strict=True)
    said = {name: value for name, default in fields if (value := getattr(verdict, name)) != default}
    return msgspec.json.encode({"answer": verdict.answer, "status": verdict.status, **said}).decode()


def _encoded(name: str, value: Any) -> str:
    if name in _FLOATS:
        return repr(value)
    return value.value if name in _STATUSES else str(value)


def verdict(row: RunRow) -> Verdict | None:
    """Return the answer to the last recorded item."""
    answer = row.commit_answer
    if answer == SUCCEEDED_TEXT:
        return _SUCCEEDED
    return _VERDICT.decode(answer) if isinstance(answer, str) else answer


def copy(row: RunRow) -> RunRow:
    return msgspec.structs.replace(row)


def step_text(step: StepRow, without: Sequence[str] = ()) -> str:
    """Return a step as it is stored, with some fields left out."""
    return msgspec.json.encode(
        {
            name: value
            for name in _STEP_FIELDS
            if name not in without and (value := getattr(step, name)) != _STEP_DEFAULTS.get(name, _NOTHING)
        }
    ).decode()


_STEP_FIELDS = StepRow.__struct_fields__
_STEP_DEFAULTS = dict(
    zip(_STEP_FIELDS[-len(StepRow.__struct_defaults__) :], StepRow.__struct_defaults__, strict=True)
)


def step_row(text: str) -> StepRow:
    return _STEP.decode(text)


def step_bytes(step: StepRow) -> int:
    """Return how many bytes a step takes in an answer."""
    return ROW_BYTES + sum(map(text_bytes, (step.key, step.output, step.error, step.ask, step.wake)))


def open_keys(row: RunRow) -> list[str]:
    """Return the keys of the steps that are ready or waiting."""
    return msgspec.json.decode(row.open) if row.open else []


class EventRow(TakenEvent, kw_only=True):
    """An event in the inbox. `seq` is 0 until the script has numbered it."""

    seq: int
    tenant: str
    run: UUID | None = None
    keep: float = 0.0
    woken: int = 0
    cursor: str = ""  # during delivery: the last wait that has looked


def event_row(values: Mapping[str, str]) -> EventRow | None:
    """Return the event of a hash. None: there is none."""
    if "seq" not in values:
        return None
    return EventRow(
        seq=int(values["seq"]), id=values["id"], tenant=values["tenant"], topic=values["topic"],
        payload=values["payload"], at=int(values["at"]), run=UUID(values["run"]) if "run" in values else None,
        keep=float(values["keep"]), woken=int(values.get("woken", 0)), cursor=values.get("cursor", ""),
    )  # fmt: skip


PUBLISHED = "published"  # among the numbers: it grows whenever a definition is published
_DEFINITION = msgspec.json.Decoder(Definition)


def definition(text: str | None) -> Definition | None:
    """Return a published definition as it is stored."""
    return None if text is None else _DEFINITION.decode(text)


# Rows of the trail: "<number> <type> <time> <data>".


def trail_row(member: str) -> tuple[int, str, Instant, Json]:
    """Return number, type, time and data of a row of the trail."""
    seq, what, at, data = member.split(" ", 3)
    return int(seq), trail_word(what), int(at), data


def trail_word(word: str) -> str:
    return word.replace("%20", " ").replace("%25", "%")


def stored_word(what: str) -> str:
    """Return the type of a row without spaces: the parts of a row are divided by them."""
    return what.replace("%", "%25").replace(" ", "%20")


def log_number(what: str, text: Json) -> int:
    """Return the number of a log row. Only rows of the workflow code have one, not those of its steps."""
    if what != "log":
        return 0
    try:
        data = msgspec.json.decode(text)
    except (ValueError, RecursionError):  # any JSON, even JSON that cannot be decoded
        return 0
    number = data.get("log_no") if isinstance(data, dict) else None
    return number if type(number) is int else 0
