"""Invariants of relations: between a run and its children, its gates' decisions, and its messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec

from holdfast.lifecycle import SETTLED, StepKind, StepStatus
from holdfast.records import MessageStatus, Run, Step

from .evidence import Evidence

OPENED = "approval_opened"
DECIDED = frozenset({"approved", "rejected", "timed_out"})
STARTED = "started"  # the status in the row of a child that its parent does not wait for


def not_one_child(ev: Evidence) -> Iterator[str]:
    """I10: a step has started no child or several, or a run names a parent's step that does not exist."""
    lines: dict[tuple[UUID | None, str], list[Run]] = defaultdict(list)
    for run in ev.runs.values():
        if run.parent_step is not None:
            lines[run.parent, run.parent_step].append(run)
    for run, step in _steps(ev, StepKind.CHILD):
        line = lines.pop((run.id, step.key), [])
        told = [row.data for row in ev.trail[run.id] if row.type == "child_started"]
        started = [row["child"] for row in told if row["step"] == step.key]
        if len(started) != 1 or not _is_line(line, started[0], step):
            yield f"run {run.id} {step.key}: {len(started)} started, there are {_ids(line)}"
    for (parent, key), line in lines.items():
        yield f"run {parent} has no {key}, of which {_ids(line)} call themselves children"


def _is_line(line: list[Run], first: str, step: Step) -> bool:
    """Return True when the runs are one chain without repeats, and the step names the right one of them."""
    after = {run.labels.get("continued_from", ""): str(run.id) for run in line}
    ids = [first]
    while ids[-1] in after and len(ids) < len(line):
        ids.append(after[ids[-1]])
    named = first if _said(step).get("status") == STARTED else ids[-1]
    return sorted(ids) == sorted(_ids(line)) and str(step.child) == named


def _ids(line: list[Run]) -> list[str]:
    return [str(run.id) for run in line]


def news_before_the_end(ev: Evidence) -> Iterator[str]:
    """I11: a parent was told of an end before it came, or of another end."""
    ends = {str(run): rows[-1] for run, rows in ev.trail.items() if rows}
    for row in ev.rows("woken"):
        if "child" in row.data:
            end = ends.get(row.data["child"])
            if end is None or end.type not in {"succeeded", "failed", "cancelled"} or end.seq > row.seq:
                yield f"run {row.run} {row.data['step']}: told of {row.data['child']} before its end"
    for run, step in _steps(ev, StepKind.CHILD):
        child, said = ev.runs.get(step.child or run.id), _said(step)
        if step.status in SETTLED and said.get("status") != STARTED and child is not None:
            told, true = (said.get("status"), said.get("result")), (child.status, child.result)
            if told != true:
                yield f"run {run.id} {step.key}: told {told}, and it is {true}"


def not_decided_once(ev: Evidence) -> Iterator[str]:
    """I12: a gate has no decision or several, one before it was opened, or one by a person who made none."""
    said = ev.of("decided")
    for run, step in _steps(ev, StepKind.APPROVAL):
        rows = [row for row in ev.trail[run.id] if row.data.get("step") == step.key]
        told = [row for row in rows if row.type == OPENED or row.type in DECIDED]
        settled = step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}
        wanted = [] if step.status is StepStatus.PENDING else [True] + [False] * settled
        if [row.type == OPENED for row in told] != wanted:
            yield f"run {run.id} {step.key} is {step.status}: {[row.type for row in told]}"
        by = {row.data["by"] for row in told if "by" in row.data} | {_said(step).get("by", "")}
        if by - {"", *(entry.nonce for entry in said[str(run.id), step.key])}:
            yield f"run {run.id} {step.key}: decided by {by}, and they have not"


def begun_after_waiting(ev: Evidence) -> Iterator[str]:
    """I13: a plan's task was called under a later fence, and was not told of a wait that was over."""
    called = ev.of("called")
    for run in ev.runs.values():
        waits, holder = Counter[str](), 0
        for row in ev.trail[run.id]:
            if row.type == "leased":
                holder = row.data["fence"]
            elif row.type == "waiting":
                step = row.data["step"]
                waits[step] += 1
                for entry in called[str(run.id), step]:
                    if entry.fence > holder and entry.amount < waits[step]:
                        yield f"run {run.id} {step}: had waited {waits[step]} times, told of {entry.amount}"


def message_lost(ev: Evidence) -> Iterator[str]:
    """OUT-1: a message is not sent at the end, or its sink never got it."""
    had = {entry.nonce for entry in ev.entries if entry.kind == "delivered"}
    for one in ev.outbox:
        if one.status is not MessageStatus.SENT or one.id not in had:
            had_it = "had" if one.id in had else "never had"
            yield f"{one.payload_json} of run {one.run} ({one.step}): {one.status}, {had_it}"


def message_invented(ev: Evidence) -> Iterator[str]:
    """OUT-1: a sink got a message that no commit has sent."""
    known = {one.id for one in ev.outbox}
    for entry in ev.entries:
        if entry.kind == "delivered" and entry.nonce not in known:
            yield f"message {entry.nonce} of run {entry.run}"


def message_out_of_order(ev: Evidence) -> Iterator[str]:
    """OUT-1: two messages of one key came in the wrong order."""
    place = {one.id: one.seq for one in ev.outbox}
    first = dict.fromkeys((one.step, one.nonce) for one in ev.entries if one.kind == "delivered" and one.step)
    for key in {key for key, _ in first}:
        seqs = [place.get(id_, 0) for other, id_ in first if other == key]
        if seqs != sorted(seqs):
            yield f"key {key}: {seqs}"


def _steps(ev: Evidence, kind: StepKind) -> Iterator[tuple[Run, Step]]:
    return ((run, step) for run in ev.runs.values() for step in ev.steps[run.id] if step.kind is kind)


def _said(step: Step) -> dict[str, Any]:
    said = msgspec.json.decode(step.output or "{}")
    return said if isinstance(said, dict) else {}
