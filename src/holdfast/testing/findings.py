"""Findings of an exploration, in words: the crash, what was seen, what was expected, how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .crashes import Mode, StoreCall

CASES_SHOWN = 3
VALUE_MAX = 300

WORDS = {
    Mode.DIE_BEFORE: "the worker died before {}",
    Mode.DIE_AFTER: "the worker died after {}",
    Mode.REPLY_LOST: "the reply was lost to {}",
    Mode.NEVER_SENT: "the store could not be reached for {}",
    Mode.SENT_TWICE: "the store was sent twice {}",
    Mode.ROLLED_BACK: "its function had run, and nothing of it was committed by {}",
    Mode.STAND_STILL: "the worker stood still before {}, until another had taken over, and then went on",
}


@dataclass(frozen=True)
class Hints:
    """Hints how to mend a difference, by the kind of the workflow."""

    outside: str  # the outside world saw a difference, and no step was cut off
    outside_step: str  # the same, but a step was cut off, and `idempotent=True` was given
    outcome: str
    unseen: str  # nothing was found, but little was compared


OF_CODE = Hints(
    outside="no step was cut off, so this was done in the body, outside of any step, where it is done again "
    "in every execution. Put it into a step: await ctx.step(name, function)",
    outside_step="a step that is cut off before its commit runs again. Let the other side know it by "
    "ctx.idempotency_key, or leave out idempotent=True",
    outcome="the body must come to the same whenever it is executed: ctx.now(), ctx.random() and ctx.uuid() "
    "instead of the clock and of chance, and nothing remembered outside of steps. But a takeover takes time: "
    "a result that holds a time, be it of ctx.now(), differs rightly. Leave out by compare= what may differ",
    unseen=", in every play that executed the body again: what the body does outside of steps was not "
    "compared. With idempotent=True it is",
)
OF_PLANS = Hints(
    outside="no handler was cut off, so what one does depends on how it came to be called: after a crash "
    "task.attempt is another, task.reason may be retry instead of start, and time has passed. Let it do the "
    "same whenever its params, outputs and event are the same",
    outside_step="a handler that is cut off before its commit is called again. Let the other side know it by "
    "task.idempotency_key, or leave out idempotent=True",
    outcome="a handler that is cut off before its commit is called again, and must come to the same: nothing "
    "of the clock, of chance, of task.attempt or of what it remembers in its output. But a takeover takes "
    "time: a result that holds a time differs rightly. Leave out by compare= what may differ",
    unseen="",
)

AGAIN = "a recorded step is never run again: this is a fault of the store, or of Holdfast itself"
FENCE = "a worker without the current lease changes nothing: the store must check the fence of every write"
FAULT = "this is a fault of the store, or of Holdfast itself"
UNENDED = "the run waits for something that came only once, or came too early: give the script more time"
RESTLESS = (
    "even two undisturbed plays differ. Give reset=, so that each begins anew, and let nothing in the "
    "workflow depend on the clock or on chance"
)


def where(mode: Mode, call: StoreCall) -> str:
    """Return one crash in words."""
    return WORDS[mode].format(f"{call} (store call {call.number})")


@dataclass(frozen=True)
class Finding:
    """One difference from the undisturbed play; `cases` are the crashes that show it."""

    what: str
    expected: str
    seen: str
    hint: str
    cases: tuple[str, ...]

    def __str__(self) -> str:
        """Return the finding as text, as in the report."""
        more = len(self.cases) - CASES_SHOWN
        # Commits come first: they name the step.
        shown = sorted(self.cases, key=lambda case: "commit" not in case)
        lines = [
            *(f"  when {case}" for case in shown[:CASES_SHOWN]),
            *([f"  and in {more} more plays"] if more > 0 else []),
            f"    {self.what}: {self.seen}",
            f"    {'expected':>{len(self.what)}}: {self.expected}",
            f"    hint: {self.hint}",
        ]
        return "\n".join(lines)


@dataclass
class Report:
    """The result of an exploration. A play is one simulated execution from start to end, with one crash.

    `cut_off` counts plays in which a step was cut off before its commit. `compared` counts plays in which the
    body was executed again and the outside world had to see the same.
    """

    workflow: str
    plays: int = 0
    calls: int = 0
    cut_off: int = 0
    compared: int = 0
    observed: bool = False  # `observe=` was given
    findings: list[Finding] = field(default_factory=list)
    hints: Hints = field(default=OF_CODE, repr=False)

    @property
    def ok(self) -> bool:
        """Return True when nothing was found."""
        return not self.findings

    def check(self) -> Report:
        """Return the report, or raise AssertionError with its text."""
        if not self.ok:
            raise AssertionError(str(self))
        return self

    def add(self, what: str, expected: object, seen: object, hint: str, case: str) -> None:
        """Note a difference; a known difference gets a further case."""
        told = (what, _short(expected), _short(seen), hint)
        for n, one in enumerate(self.findings):
            if (one.what, one.expected, one.seen, one.hint) == told:
                self.findings[n] = Finding(*told, (*one.cases, case))
                return
        self.findings.append(Finding(*told, (case,)))

    def __str__(self) -> str:
        """Return the report as text."""
        played = f"{self.workflow}: {self.plays} plays, with a crash at each of {self.calls} store calls"
        if self.ok:
            again = f"; in {self.cut_off} a step was cut off before its commit and ran again"
            blind = self.hints.unseen if self.observed and self.cut_off and not self.compared else ""
            return f"{played}: all came to the same{again if self.cut_off else ''}{blind}"
        return "\n".join([f"{played}: {_count(self.findings)}", *map(str, self.findings)])


def _count(findings: Sequence[Finding]) -> str:
    return "one finding" if len(findings) == 1 else f"{len(findings)} findings"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= VALUE_MAX else text[:VALUE_MAX] + "…"
