"""crashpoints: at every store call in turn the caller crashes, its reply is lost, or the call is sent twice.

Or the caller is frozen until another process has taken over, and then sends its call. Each time the outcome
must be the outcome of the undisturbed play. A play is one execution of a scenario, in virtual time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from holdfast.testing.crashes import Crash, Mode, StoreCall, modes_of
from holdfast.testing.logged_errors import logged_errors
from holdfast.testing.virtual import play
from verify.checks.invariants import INVARIANTS, OVERTAKEN, Invariant
from verify.checks.report import SHOWN, Check, Report, progress
from verify.environment.stores import POSTGRES, REDIS
from verify.sabotage import BLIND_RESEND, FORGETFUL, NO_FENCE, OPTIMIST, SPLIT_START, broken, unfence

from . import company, journey
from .outcome import differing
from .scenario import Scenario
from .simulation import CrashHalfway, MakeStore, Played, ScenarioPlay

ENOUGH = 10

SCENARIOS = {scenario.name: scenario for scenario in (journey.SCENARIO, company.SCENARIO)}
UNHURT = {Mode.REPLY_LOST, Mode.NEVER_SENT, Mode.SENT_TWICE}
CHANGES = frozenset({"start", "commit", "emit", "deliver", "decide"})  # verbs that change runs
# After these queries a verb of Postgres makes further ones; so does a verb of Redis after this script.
PARTS = frozenset({"emit_at_once", "decide", "expire", "time_out", "lapse", "deliver", "save"})
SERVERS = frozenset({POSTGRES, REDIS})
# Plays on a server in the short form. A play on Redis takes longer: it makes more round trips.
SAMPLE = {POSTGRES: {"journey": 20, "company": 8}, REDIS: {"journey": 5, "company": 2}}
SAME = "outcome other than that of the calm play"
ONCE = "twice, though nobody died"

Choose = Callable[[StoreCall], tuple[Mode, ...]]  # the faults to try at a call, one play each


@dataclass(frozen=True, slots=True)
class Revealed:
    """The scenario, the calls and the mode in which a switched-in bug must show."""

    scenario: str
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
    """Return the stores that need no server."""
    from holdfast.stores.memory import MemoryStore
    from holdfast.stores.sqlite import SqliteStore

    return {
        "memory": lambda clock: MemoryStore(clock=clock),
        "sqlite": lambda clock: SqliteStore(":memory:", clock=clock),
    }


@contextmanager
def playing(name: str, sabotage: str | None = None) -> Iterator[MakeStore]:
    """Return a function that makes a new store for each play."""
    if name == REDIS:
        from .virtual_redis import VirtualRedis

        with closing(VirtualRedis()) as redis:
            yield redis
        return
    if name != POSTGRES:
        yield stores()[name]
        return
    from .virtual_postgres import VirtualPostgres

    with closing(VirtualPostgres(unfence if sabotage == NO_FENCE else None)) as postgres:
        yield postgres


def crashpoints(
    names: Sequence[str] = ("memory", "sqlite"),
    sabotage: str | None = None,
    seed: int = 0,
    *,
    short: bool = False,
    scenarios: Sequence[str] = tuple(SCENARIOS),
) -> list[Report]:
    """Try every mode at every call, on every store, in every scenario. Short: see `_briefly`."""
    reports: list[Report] = []
    brief = short and sabotage is None
    quick = [name for name in names if name not in SERVERS]
    for scenario in scenarios if sabotage is None else [REVEALED[sabotage].scenario]:
        for name in names:
            choose = _revealing(REVEALED[sabotage]) if sabotage is not None else _every
            if brief and name not in SERVERS:
                choose = _briefly(SCENARIOS[scenario], quick.index(name), len(quick))
            sample = SAMPLE[name][scenario] if brief and name in SERVERS else None
            with playing(name, sabotage) as make:
                reports.append(
                    ScenarioReport(name, SCENARIOS[scenario], make, sabotage, seed).report(choose, sample)
                )
    return reports


def _every(call: StoreCall) -> tuple[Mode, ...]:
    return modes_of(call, briefly=False)


def _revealing(revealed: Revealed) -> Choose:
    def choose(call: StoreCall) -> tuple[Mode, ...]:
        there = call.verb == revealed.verb and revealed.words in str(call)
        return (revealed.mode,) if there else ()

    return choose


def _briefly(scenario: Scenario, share: int, of: int) -> Choose:
    """Choose fewer faults, for CI: a call that finds nothing gets only a crash.

    In the second scenario only the first such call of each verb gets one. The modes of all other calls are
    shared among the stores, and every second mode is left out where a call does not change runs.
    """
    if scenario is journey.SCENARIO:
        return partial(modes_of, briefly=True)
    looks = set[str]()

    def choose(call: StoreCall) -> tuple[Mode, ...]:
        modes = modes_of(call, briefly=True)
        if call.idle:
            known = call.verb in looks
            looks.add(call.verb)
            return () if known else modes
        turns = of if call.verb in CHANGES else 2 * of
        return tuple(mode for n, mode in enumerate(modes, call.number) if n % turns == share)

    return choose


class ScenarioReport:
    """All plays of one scenario on one store, and their report."""

    def __init__(
        self, name: str, scenario: Scenario, make: MakeStore, sabotage: str | None, seed: int
    ) -> None:
        self._name, self._scenario, self._make, self._sabotage, self._seed = (
            name,
            scenario,
            make,
            sabotage,
            seed,
        )

    def report(self, choose: Choose, sample: int | None) -> Report:
        """Play, and return the report. `sample`: the number of plays, plus a fifth of it that crash
        halfway.
        """
        report, began = Report(f"crashpoints {self._scenario.name} {self._name}"), time.monotonic()
        with progress() as tell, logged_errors() as errors, broken(self._sabotage, self._name):
            calm = self._once(Crash())
            judge = _Judge(calm)
            crashes = self._crashes(calm, choose, sample) if calm.arrived else []
            for number, crash in enumerate(crashes, 1):
                if judge.stuck >= (ENOUGH if self._sabotage is None else 1):
                    break  # the check fails anyway, and a play that does not end takes long
                judge.add(one := self._once(crash))
                tell(f"{self._name}: play {number} of {len(crashes)} ({_where(one)})")
        judge.report(report)
        report.expect("the engine itself never failed", not errors, "; ".join(errors[:SHOWN]))
        report.figures |= {
            "calls": len(calm.crash.calls), "plays": judge.plays,
            "verbs": len({call.verb for call in calm.crash.calls}),
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        return report

    def _once(self, crash: Crash) -> Played:
        return play(
            lambda: ScenarioPlay(self._scenario, self._make, crash, self._sabotage, self._seed).play()
        )

    def _crashes(self, calm: Played, choose: Choose, sample: int | None) -> list[Crash]:
        crashes = [Crash(call.number, mode) for call in calm.crash.calls for mode in choose(call)]
        halfway = self._halfway() if self._name in SERVERS and self._sabotage is None else []
        if sample is None:
            return [*crashes, *halfway]
        # Each seed takes another sample. Calls that find nothing are left out: there are many of them.
        idle = {call.number for call in calm.crash.calls if call.idle}
        crashes, dice = [one for one in crashes if one.at not in idle], random.Random(self._seed)
        dice.shuffle(crashes)
        dice.shuffle(halfway)
        return [*crashes[:sample], *halfway[: sample // 5]]

    def _halfway(self) -> list[Crash]:
        calm = CrashHalfway()
        self._once(calm)
        return [CrashHalfway(number) for number, verb in enumerate(calm.trips, 1) if verb in PARTS]


class _Judge:
    """The judge of plays, one by one: thousands of them could not all be kept in memory."""

    def __init__(self, calm: Played) -> None:
        self._calm = calm
        self._cases: dict[str, list[str]] = {name: [] for name in (*INVARIANTS, *OVERTAKEN, SAME, ONCE)}
        self._missed: list[str] = []
        self.plays = self.stuck = 0
        self._judge(calm, INVARIANTS)

    def add(self, one: Played) -> None:
        self.plays += 1
        self.stuck += not one.arrived
        # No process crashed or was frozen: a lost answer must cost no lease.
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
    """Return the number of effects and of delivered messages."""
    kinds = Counter(entry.kind for entry in one.evidence.entries)
    return {kind: kinds[kind] for kind in ("effect", "delivered")}


def _where(one: Played) -> str:
    if isinstance(one.crash, CrashHalfway):
        return f"{one.crash.mode} {one.crash.fired}"
    return f"{one.crash.mode} call {one.crash.at} ({one.crash.fired})" if one.crash.at else "calm"
