"""The outcome of a play, which no crash may change: the ends, results and steps of runs, and the messages.

Runs are named by a key or by their parent's step, because ids differ from play to play. Times, fences and
other marks of one execution are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any
from uuid import UUID

import msgspec

from holdfast.records import Run, Step
from verify.checks.evidence import Evidence

Outcome = tuple[object, ...]

OF_AN_EXECUTION = frozenset({"fence", "nonce", "at", "id", "traceback"})


def outcome(evidence: Evidence) -> Outcome:
    names = named(evidence)
    runs = [_run_outcome(run, evidence.steps[run.id], names) for run in evidence.runs.values()]
    return (*sorted(runs, key=repr), *_messages(evidence, names))


def differing(calm: Outcome, seen: Outcome) -> str:
    """Return the differences between two outcomes in words."""
    one, other = Counter(map(repr, calm)), Counter(map(repr, seen))
    missing, more = ("; ".join((a - b).elements()) for a, b in ((one, other), (other, one)))
    return f"calm [{missing}], here [{more}]"


def named(evidence: Evidence) -> dict[str, str]:
    """Return names of runs by id: a key, or parent and step; later runs of a chain get a + each."""
    return {str(run.id): _name(run, evidence.runs) for run in evidence.runs.values()}


def _name(run: Run, runs: dict[UUID, Run]) -> str:
    before = runs.get(UUID(run.labels.get("continued_from", str(UUID(int=0)))))
    if before is not None:
        return f"{_name(before, runs)}+"
    parent = None if run.parent is None else runs.get(run.parent)
    return run.key or run.type if parent is None else f"{_name(parent, runs)}/{run.parent_step}"


def _run_outcome(run: Run, steps: list[Step], names: dict[str, str]) -> tuple[object, ...]:
    rows = [
        (step.key, str(step.kind), str(step.status), step.waits, _plain(step.output, names))
        for step in sorted(steps, key=lambda step: step.key)
    ]
    error = run.error.kind if run.error is not None else None
    result = _plain(run.result_json, names)
    return (names[str(run.id)], str(run.status), result, error, run.last_error, rows)


def _messages(evidence: Evidence, names: dict[str, str]) -> list[object]:
    """Return the messages: those of one key in their order, those without a key sorted."""
    lines: dict[tuple[str, str], list[object]] = defaultdict(list)
    for one in evidence.outbox:
        lines[one.sink, names.get(one.key or "", one.key or "")].append(
            (names.get(str(one.run)), one.step, one.payload)
        )
    return [(*line, sorted(said, key=repr) if not line[1] else said) for line, said in sorted(lines.items())]


def _plain(value: str | None, names: dict[str, str]) -> Any:
    return _scrubbed(msgspec.json.decode(value), names) if value is not None else None


def _scrubbed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case dict():
            return {key: _scrubbed(one, names) for key, one in value.items() if key not in OF_AN_EXECUTION}
        case list():
            return [_scrubbed(one, names) for one in value]
        case str():
            return names.get(value, value)
        case _:
            return value
