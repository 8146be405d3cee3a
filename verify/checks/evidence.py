"""The evidence of an experiment: the contents of the store after the end, and the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from holdfast.contract import Store
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import ANY, Miscount, OutboxFilter, OutboxMessage, Run, RunFilter, Step, TrailEntry
from verify.environment.ledger import Entry
from verify.workloads.workflows import AMOUNTS, LOGS

PAGE = 1000


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Runs with steps and trails, messages, ledger entries in order, acknowledged starts, wrong counts."""

    runs: dict[UUID, Run] = field(default_factory=dict)
    steps: dict[UUID, list[Step]] = field(default_factory=dict)
    trail: dict[UUID, list[TrailEntry]] = field(default_factory=dict)
    outbox: list[OutboxMessage] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    acked: list[UUID] = field(default_factory=list)
    miscounts: list[Miscount] = field(default_factory=list)
    drift: list[str] = field(default_factory=list)  # sets of Redis that do not agree with the rows
    amounts: dict[str, Callable[[dict[str, Any]], dict[str, int]]] = field(default_factory=lambda: AMOUNTS)
    # The log lines of a run of a type, in order.
    logs: Mapping[str, Callable[[Any], tuple[str, ...]]] = field(default_factory=lambda: LOGS)

    def of(self, kind: str) -> dict[tuple[str, str], list[Entry]]:
        """Return the entries of a kind by run and step."""
        found: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.kind == kind:
                found[entry.run, entry.step].append(entry)
        return found

    def wanted(self, run: Run) -> dict[str, int]:
        """Return the steps that a run of this type takes, with the amount of each."""
        return self.amounts[run.type](run.params)

    def logged(self, run: Run) -> tuple[str, ...]:
        """Return the log lines of a run of this type."""
        logs = self.logs.get(run.type)
        return () if logs is None else logs(run.params)

    def succeeded(self) -> Iterable[Run]:
        return (run for run in self.runs.values() if run.status is Status.SUCCEEDED)

    def recorded(self) -> Iterable[tuple[Run, Step]]:
        """Return every task with a recorded outcome."""
        for run in self.runs.values():
            for step in self.steps[run.id]:
                if step.kind is StepKind.TASK and step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}:
                    yield run, step

    def rows(self, *types: str) -> list[TrailEntry]:
        """Return the trail rows of these types."""
        return [row for rows in self.trail.values() for row in rows if row.type in types]

    @property
    def finished(self) -> int:
        return sum(run.status in FINAL for run in self.runs.values())

    @property
    def duplicates(self) -> int:
        """Return the number of repeated effects: allowed when a worker died before the step was recorded."""
        return sum(len(entries) - 1 for entries in self.of("effect").values())


async def gathered(store: Store, entries: list[Entry], acked: list[UUID], **more: Any) -> Evidence:
    """Read the whole store."""
    evidence = Evidence(entries=entries, acked=acked, **more)
    after: UUID | None = None
    while page := await store.list(RunFilter(tenant=ANY), PAGE, after):
        for run in page:
            evidence.runs[run.id] = run
            evidence.steps[run.id] = list(await store.steps(run.id, ANY))
            evidence.trail[run.id] = []
        after = page[-1].id
    seq = 0
    while rows := await store.trail(None, ANY, after=seq, limit=PAGE):
        for row in rows:
            evidence.trail.setdefault(row.run, []).append(row)
        seq = rows[-1].seq
    seq = 0
    while messages := await store.outbox(OutboxFilter(tenant=ANY), PAGE, seq):
        evidence.outbox += messages
        seq = messages[-1].seq
    evidence.miscounts += await store.recount()
    return evidence
