"""crashpoints: at every store call in turn the caller dies, its reply is lost, or the call goes twice.

Or it stands still until another has taken over, and then sends what it was about to send. Each time
another goes on, or the same one. What comes out must be what comes out undisturbed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.testing.complaints import complaints
from holdfast.testing.crashes import Crash, Made, Mode, modes_of
from holdfast.testing.virtual import play

from . import company, journey
from .acts import Act
from .invariants import INVARIANTS, OVERTAKEN, Invariant
from .outcome import differing
from .report import SHOWN, Check, Report, progress
from .sabotage import BLIND_RESEND, FORGETFUL, NO_FENCE, OPTIMIST, SPLIT_START, broken
from .stage import Played, Stage

ENOUGH = 10

ACTS = {act.name: act for act in (journey.ACT, company.ACT)}
UNHURT = {Mode.REPLY_LOST, Mode.NEVER_SENT, Mode.SENT_TWICE}
CHANGES = frozenset({"start", "commit", "emit", "deliver", "decide"})  # of runs
SAME = "outcome other than that of the calm play"
ONCE = "twice, though nobody died"

Choose = Callable[[Made], tuple[Mode, ...]]  # what is to happen at a call, one play each


@dataclass(frozen=True, slots=True)
class Revealed:
    """Where a bug that is switched in must show: in which act, at which calls, in which mode."""

    act: str
    verb: str
    mode: Mode
    words: str = ""


REVEALED = {
    BLIND_RESEND: Revealed("journey", "commit", Mode.REPLY_LOST),
    NO_FENCE: Revealed("journey", "commit", Mode.STAND_STILL),
    SPLIT_START: Revealed("company", "start", Mode.DIE_AFTER),
    FORGETFUL: Revealed("company", "commit", Mode.DIE_AFTER, "complete"),
    OPTIMIST: Revealed("company", "relayed", Mode.DIE_AFTER, "relayed 1"),
}


def stores() -> dict[str, Callable[[Callable[[], int]], Any]]:
    from holdfast.stores.memory import MemoryStore
    from holdfast.stores.sqlite import SqliteStore

    return {
        "memory": lambda clock: MemoryStore(clock=clock),
        "sqlite": lambda clock: SqliteStore(":memory:", clock=clock),
    }


def crashpoints(
    names: Sequence[str] = ("memory", "sqlite"),
    sabotage: str | None = None,
    seed: int = 0,
    *,
    short: bool = False,
    acts: Sequence[str] = tuple(ACTS),
) -> list[Report]:
    """Every call, every mode, on every store, in every act. Short: see `_briefly`."""
    reports: list[Report] = []
    for act in acts if sabotage is None else [REVEALED[sabotage].act]:
        for share, name in enumerate(names):
            choose = _revealing(REVEALED[sabotage]) if sabotage is not None else _every
            if short and sabotage is None:
                choose = _briefly(ACTS[act], share, len(names))
            reports.append(_on(name, ACTS[act], sabotage, seed, choose))
    return reports


def _every(made: Made) -> tuple[Mode, ...]:
    return modes_of(made, briefly=False)


def _revealing(revealed: Revealed) -> Choose:
    def choose(made: Made) -> tuple[Mode, ...]:
        there = made.verb == revealed.verb and revealed.words in str(made)
        return (revealed.mode,) if there else ()

    return choose


def _briefly(act: Act, share: int, of: int) -> Choose:
    """What CI can afford: calls that find nothing only see a death.

    Of an act that is not the first to be played, the first such call of each verb does; the modes of all
    others are shared among the stores, and every second one is left out where a call only takes or answers.
    """
    if act is journey.ACT:
        return partial(modes_of, briefly=True)
    looks = set[str]()

    def choose(made: Made) -> tuple[Mode, ...]:
        modes = modes_of(made, briefly=True)
        if made.idle:
            known = made.verb in looks
            looks.add(made.verb)
            return () if known else modes
        turns = of if made.verb in CHANGES else 2 * of
        return tuple(mode for n, mode in enumerate(modes, made.number) if n % turns == share)

    return choose


def _on(name: str, act: Act, sabotage: str | None, seed: int, choose: Choose) -> Report:
    report, began, make = Report(f"crashpoints {act.name} {name}"), time.monotonic(), stores()[name]

    def once(crash: Crash) -> Played:
        return play(lambda: Stage(act, make, crash, sabotage, seed).play())

    with progress() as tell, complaints() as heard, broken(sabotage):
        calm = once(Crash())
        jury = _Jury(calm)
        for made in calm.crash.made if calm.arrived else ():
            if jury.stuck >= ENOUGH:
                break  # red as it is, and every play that does not end takes its time
            tell(f"{name}: call {made.number} of {len(calm.crash.made)} ({made})")
            for mode in choose(made):
                jury.hear(once(Crash(made.number, mode)))
    jury.report(report)
    report.expect("the engine itself never failed", not heard, "; ".join(heard[:SHOWN]))
    report.figures |= {
        "calls": len(calm.crash.made), "plays": jury.plays,
        "verbs": len({made.verb for made in calm.crash.made}), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


class _Jury:
    """Judges play by play: thousands of them could not all be kept."""

    def __init__(self, calm: Played) -> None:
        self._calm = calm
        self._cases: dict[str, list[str]] = {name: [] for name in (*INVARIANTS, *OVERTAKEN, SAME, ONCE)}
        self._missed: list[str] = []
        self.plays = self.stuck = 0
        self._judge(calm, INVARIANTS)

    def hear(self, one: Played) -> None:
        self.plays += 1
        self.stuck += not one.arrived
        # Nobody died and nobody stood still: an answer that did not come must cost no lease.
        self._judge(one, {**INVARIANTS, **(OVERTAKEN if one.crash.mode in UNHURT else {})})
        if one.outcome != self._calm.outcome:
            self._cases[SAME].append(f"{_where(one)}: {differing(self._calm.outcome, one.outcome)}")
        if one.crash.mode in UNHURT and _done(one) != _done(self._calm):
            self._cases[ONCE].append(f"{_where(one)}: {_done(one)}, calm {_done(self._calm)}")
        if one.crash.fired is None:
            self._missed.append(_where(one))

    def _judge(self, one: Played, invariants: Mapping[str, Invariant]) -> None:
        for name, invariant in invariants.items():
            self._cases[name] += [f"{_where(one)}: {case}" for case in invariant(one.evidence)]

    def report(self, report: Report) -> None:
        for name, cases in self._cases.items():
            report.checks.append(Check(name, len(cases), tuple(cases[:SHOWN]), invariant=True))
        report.expect("every fault fired", not self._missed, ", ".join(self._missed[:SHOWN]))
        report.expect("the calm play arrives", self._calm.arrived, str(self._calm.outcome))


def _done(one: Played) -> dict[str, int]:
    """How often anything was done that can be seen outside."""
    kinds = Counter(entry.kind for entry in one.evidence.entries)
    return {kind: kinds[kind] for kind in ("effect", "delivered")}


def _where(one: Played) -> str:
    return f"{one.crash.mode} call {one.crash.at} ({one.crash.fired})" if one.crash.at else "calm"
