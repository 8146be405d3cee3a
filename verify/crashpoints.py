"""crashpoints: at every store call in turn the caller dies, its reply is lost, or the call goes twice.

Or it stands still until another has taken over, and then sends what it was about to send. Each time
another goes on, or the same one. What comes out must be what comes out undisturbed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from holdfast.testing.complaints import complaints
from holdfast.testing.crashes import Crash, Made, Mode, modes_of
from holdfast.testing.virtual import play

from . import company, journey
from .acts import Act
from .invariants import INVARIANTS, OVERTAKEN, Invariant
from .outcome import differing
from .places import POSTGRES
from .report import SHOWN, Check, Report, progress
from .sabotage import BLIND_RESEND, FORGETFUL, NO_FENCE, OPTIMIST, SPLIT_START, broken, unfence
from .stage import Halfway, MakeStore, Played, Stage

ENOUGH = 10

ACTS = {act.name: act for act in (journey.ACT, company.ACT)}
UNHURT = {Mode.REPLY_LOST, Mode.NEVER_SENT, Mode.SENT_TWICE}
CHANGES = frozenset({"start", "commit", "emit", "deliver", "decide"})  # of runs
# After these a verb of Postgres has more to ask.
PARTS = frozenset({"emit_at_once", "decide", "expire", "time_out", "lapse", "deliver"})
SAMPLE = {"journey": 20, "company": 8}  # plays on Postgres that CI can afford
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


def stores() -> dict[str, MakeStore]:
    """Those that need no server."""
    from holdfast.stores.memory import MemoryStore
    from holdfast.stores.sqlite import SqliteStore

    return {
        "memory": lambda clock: MemoryStore(clock=clock),
        "sqlite": lambda clock: SqliteStore(":memory:", clock=clock),
    }


@contextmanager
def playing(name: str, sabotage: str | None = None) -> Iterator[MakeStore]:
    """What makes a fresh store for each play."""
    if name != POSTGRES:
        yield stores()[name]
        return
    from .rehearsed import Rehearsals

    with closing(Rehearsals(unfence if sabotage == NO_FENCE else None)) as rehearsals:
        yield rehearsals


def crashpoints(
    names: Sequence[str] = ("memory", "sqlite"),
    sabotage: str | None = None,
    seed: int = 0,
    *,
    short: bool = False,
    acts: Sequence[str] = tuple(ACTS),
) -> list[Report]:
    """Every call, every mode, on every store, in every act. Short: see `_briefly`; a sample on Postgres."""
    reports: list[Report] = []
    brief = short and sabotage is None
    quick = [name for name in names if name != POSTGRES]
    for act in acts if sabotage is None else [REVEALED[sabotage].act]:
        for name in names:
            choose = _revealing(REVEALED[sabotage]) if sabotage is not None else _every
            if brief and name != POSTGRES:
                choose = _briefly(ACTS[act], quick.index(name), len(quick))
            sample = SAMPLE[act] if brief and name == POSTGRES else None
            with playing(name, sabotage) as make:
                reports.append(Season(name, ACTS[act], make, sabotage, seed).report(choose, sample))
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


class Season:
    """All plays of one act on one store."""

    def __init__(self, name: str, act: Act, make: MakeStore, sabotage: str | None, seed: int) -> None:
        self._name, self._act, self._make, self._sabotage, self._seed = name, act, make, sabotage, seed

    def report(self, choose: Choose, sample: int | None) -> Report:
        """Sample: so many of the plays that were chosen, and a fifth of that of those that end halfway."""
        report, began = Report(f"crashpoints {self._act.name} {self._name}"), time.monotonic()
        with progress() as tell, complaints() as heard, broken(self._sabotage):
            calm = self._once(Crash())
            jury = _Jury(calm)
            crashes = self._crashes(calm, choose, sample) if calm.arrived else []
            for number, crash in enumerate(crashes, 1):
                if jury.stuck >= (ENOUGH if self._sabotage is None else 1):
                    break  # red as it is, and every play that does not end takes its time
                jury.hear(one := self._once(crash))
                tell(f"{self._name}: play {number} of {len(crashes)} ({_where(one)})")
        jury.report(report)
        report.expect("the engine itself never failed", not heard, "; ".join(heard[:SHOWN]))
        report.figures |= {
            "calls": len(calm.crash.made), "plays": jury.plays,
            "verbs": len({made.verb for made in calm.crash.made}),
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        return report

    def _once(self, crash: Crash) -> Played:
        return play(lambda: Stage(self._act, self._make, crash, self._sabotage, self._seed).play())

    def _crashes(self, calm: Played, choose: Choose, sample: int | None) -> list[Crash]:
        crashes = [Crash(made.number, mode) for made in calm.crash.made for mode in choose(made)]
        halfway = self._halfway() if self._name == POSTGRES and self._sabotage is None else []
        if sample is None:
            return [*crashes, *halfway]
        # Each seed another sample. Looks that find nothing are many, and there is little to them.
        idle = {made.number for made in calm.crash.made if made.idle}
        crashes, dice = [one for one in crashes if one.at not in idle], random.Random(self._seed)
        dice.shuffle(crashes)
        dice.shuffle(halfway)
        return [*crashes[:sample], *halfway[: sample // 5]]

    def _halfway(self) -> list[Crash]:
        calm = Halfway()
        self._once(calm)
        return [Halfway(number) for number, verb in enumerate(calm.trips, 1) if verb in PARTS]


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
    if isinstance(one.crash, Halfway):
        return f"{one.crash.mode} {one.crash.fired}"
    return f"{one.crash.mode} call {one.crash.at} ({one.crash.fired})" if one.crash.at else "calm"
