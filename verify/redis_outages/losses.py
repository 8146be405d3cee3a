"""losses: what an outage may lose, and what it may not.

A server that answers before its log is on the disk, and a replica that copies later, may lose acknowledged
writes: those of a short time, and no others. Lost work is done again. Nothing else is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from verify.checks.evidence import Evidence
from verify.checks.invariants import INVARIANTS, Invariant, recorded_value
from verify.checks.report import Check, Report
from verify.environment.ledger import Entry

MICROS = 1_000_000
# Entries of the ledger are later than the answers that they tell of.
LATE_SECONDS = 3.0
# A loss of these is no breach by itself: see the invariants here.
REPLACED = ("I1 acked start missing", "I8 two values of one step")


@dataclass(frozen=True, slots=True)
class Window:
    """A time whose acknowledged writes may be lost, by the clock of the machine, in seconds."""

    begin: float
    end: float

    def covers(self, at: float, late: float = LATE_SECONDS) -> bool:
        return self.begin <= at <= self.end + late


@dataclass(slots=True)
class Losses:
    """The windows of an experiment, and what was lost in them."""

    acked_at: Mapping[UUID, float]
    windows: list[Window] = field(default_factory=list)

    def may_lose(self, at: float, late: float = LATE_SECONDS) -> bool:
        return any(window.covers(at, late) for window in self.windows)

    def starts(self, ev: Evidence) -> list[UUID]:
        """Return the acknowledged starts that are not there."""
        return [run for run in ev.acked if run not in ev.runs]

    def steps(self, ev: Evidence) -> list[Entry]:
        """Return the values of recorded steps that a body was given, and that are not there."""
        stands = {(str(run.id), step.key): recorded_value(step.output) for run, step in ev.recorded()}
        seen = (entry for entry in ev.entries if entry.kind == "seen")
        return [entry for entry in seen if stands.get((entry.run, entry.step)) != entry.nonce]

    def judge(self, report: Report, ev: Evidence) -> None:
        """Judge all invariants; where writes may be lost, only losses outside of the windows are breaches."""
        kept = {name: one for name, one in INVARIANTS.items() if name not in REPLACED}
        own: dict[str, Invariant] = {
            "R1 start lost outside of the window": self.starts_too_old,
            "R2 step lost outside of the window": self.steps_too_old,
            "R3 effect twice under one claim": twice_under_one_claim,
            "R4 work of a claim that was never lost": self.unknown_claims,
            "R5 fence given to two claims": fence_given_twice,
        }
        for name, invariant in {**kept, **own}.items():
            cases = tuple(invariant(ev))
            report.checks.append(Check(name, len(cases), cases[:5], invariant=True))

    def starts_too_old(self, ev: Evidence) -> Iterator[str]:
        """R1: a start was acknowledged outside of every window, and there is no such run."""
        for run in self.starts(ev):
            if not self.may_lose(self.acked_at[run]):
                yield f"run {run}, acknowledged at {self.acked_at[run]:.3f}: {self.windows}"

    def steps_too_old(self, ev: Evidence) -> Iterator[str]:
        """R2: a step was recorded outside of every window, and there is no such value."""
        for entry in self.steps(ev):
            if not self.may_lose(entry.at / MICROS):
                yield f"run {entry.run} {entry.step} {entry.nonce} at {entry.at / MICROS:.3f}: {self.windows}"

    def unknown_claims(self, ev: Evidence) -> Iterator[str]:
        """R4: a worker did something under a fence that the run never had, and no claim can be lost."""
        known = defaultdict[str, set[int]](set)
        for row in ev.rows("leased"):
            known[str(row.run)].add(row.data["fence"])
        claimed = {(one.run, one.fence): one.at for one in ev.entries if one.kind == "claimed"}
        for entry in ev.entries:
            if entry.kind == "effect" and entry.fence not in known[entry.run]:
                at = claimed.get((entry.run, entry.fence), entry.at)
                if not self.may_lose(at / MICROS):
                    yield f"run {entry.run} {entry.step} under fence {entry.fence}, which nobody was given"

    def figures(self, ev: Evidence) -> dict[str, object]:
        lost = self.steps(ev)
        return {
            "lost_starts": len(self.starts(ev)),
            "lost_steps": len(lost),
            "refused_writes": sum(one.kind == "refused" and one.step != "renew" for one in ev.entries),
            "claims": sum(one.kind == "claimed" for one in ev.entries),
        }


def twice_under_one_claim(ev: Evidence) -> Iterator[str]:
    """R3: a step was executed twice under one fence. No step of these workflows is retried."""
    done = Counter((one.run, one.step, one.fence) for one in ev.entries if one.kind == "effect")
    plans = {str(run.id) for run in ev.runs.values() if run.kind == "plan"}
    for (run, step, fence), times in done.items():
        if times > 1 and run not in plans:
            yield f"run {run} {step}: {times} times under fence {fence}"


def fence_given_twice(ev: Evidence) -> Iterator[str]:
    """R5: two claims of a run were given the same fence."""
    given = Counter((one.run, one.fence) for one in ev.entries if one.kind == "claimed")
    return (f"run {run}: fence {fence}, {times} times" for (run, fence), times in given.items() if times > 1)
