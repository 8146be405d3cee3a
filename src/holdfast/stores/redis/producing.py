"""Starts from other languages: scripts/produce.lua, and what it needs to know of the published definitions.

The script does not decode definitions. `publish` writes the fields that a new run gets from its definition
into the hash `begin:<type>`, and the rows of a plan's steps into `begin:<type>:steps`. The script copies
them.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from holdfast.codec import digest, parse, untyped
from holdfast.errors import BadValue, TooLarge
from holdfast.lifecycle import StepKind
from holdfast.machine.durations import bounded, micros
from holdfast.machine.rows import PLAN
from holdfast.records import MAX_ATTEMPTS, Definition, Json

from .batches import EXACT
from .scripts import script
from .snapshot import Snapshot
from .starts import step_words

PRODUCED = "script"  # in place of the digest of a run that the script has started
FIRST = {
    StepKind.APPROVAL: "begins with an approval",
    StepKind.EVENT: "begins with a wait for an event",
    StepKind.SLEEP: "begins with a sleep",
}


def producer() -> str:
    """Return the script for programs in other languages. It has no flags: every server can read it."""
    return script("produce", flagged=False).text


def keep(snapshot: Snapshot, definition: Definition) -> None:
    """Write what the script needs of a definition."""
    key = snapshot.names("begin", definition.type)
    fields, steps = beginning(definition)
    snapshot.do("UNLINK", key)
    snapshot.do("HSET", key, *(word for pair in fields.items() for word in pair))
    snapshot.do("UNLINK", f"{key}:steps")
    if steps:
        snapshot.do("HSET", f"{key}:steps", *steps)


def beginning(known: Definition) -> tuple[dict[str, str | int], tuple[str, ...]]:
    """Return the fields of a new run that follow from its definition, and keys and rows of its steps.

    `timeout`: in microseconds. `created`: data of the trail row. `account`: its budget covers its children.
    `refused`: why the script may not start it.
    """
    attempts, timeout = known.max_attempts or MAX_ATTEMPTS, known.timeout_seconds
    steps = known.steps if known.kind == PLAN else ()
    fields: dict[str, str | int] = {}
    if steps and steps[0].kind is not StepKind.TASK:
        return {"refused": FIRST.get(steps[0].kind, "begins with no task")}, ()
    if timeout is not None and micros(timeout) >= EXACT:
        return {"refused": "has a timeout of 30 years or more"}, ()
    created: dict[str, object] = {"type": known.type}
    words: tuple[str, ...] = ()
    if known.kind == PLAN:
        fields["kind"] = PLAN
    if steps:
        created["steps"] = [step.name for step in steps]
        words, size = step_words(steps, attempts)
        first = steps[0].name
        fields |= {"seq": len(steps) - 1, "current": first, "cursor": first, "bytes": size}
    if attempts != MAX_ATTEMPTS:
        fields["max_attempts"] = attempts
    if timeout is not None:
        fields |= {"timeout": micros(timeout), "timeout_seconds": repr(bounded(timeout))}
    if known.budget is not None:
        fields["budget"] = known.budget
        if known.covers_children:
            fields["account"] = 1
    return fields | {"created": msgspec.json.encode(created).decode()}, words


def known_digest(snapshot: Snapshot, run: str, stored: str) -> str:
    """Return the digest of a run by what is stored for its key. For a run that the script has started, this
    is the digest that the library would have given to it.

    That is the digest of the text that the library would have written: the caller may have written the same
    value with spaces or other escapes.
    """
    if stored != PRODUCED:
        return stored
    type_, params = snapshot.read("HMGET", snapshot.names.run(run), "type", "params")
    text: Json = params or "null"
    with suppress(BadValue, TooLarge):
        text = untyped.encode(parse(text, "params", repeated=False), "params")
    return digest(type_ or "", text)
