"""Plans, gates and children in the random histories of two stores."""

from __future__ import annotations

from holdfast.lifecycle import Move, StepKind, StepStatus
from holdfast.records import ANY, Definition, NewRun, StepWrite
from holdfast.records.moves import starts_of
from holdfast.testing.contract.driver import done, gate, hear, item, nap, task

PLAN, GATED, TASKS = "shop.plan.v1", "shop.gated.v1", "shop.tasks.v1"
LATER = (task("A"), task("B"))  # runs that were started before their plan was published

STEPS = {
    PLAN: (
        task("A", max_attempts=2), gate("G", 5.0), task("B"), hear("E", "t", 10.0), nap("N", 5.0),
        gate("H", on_timeout="approve", digest="d"), task("C"),
    ),
    GATED: (gate("G", digest="d", ask='{"ask":"?"}'), nap("N", 0.0), hear("E", "u"), task("A")),
    TASKS: (task("A"), task("B", max_attempts=5), task("C"), nap("N", 5.0), task("D"), task("E")),
}  # fmt: skip

DEFINITIONS = [
    Definition(type=PLAN, kind="plan", steps=STEPS[PLAN], max_attempts=4),
    Definition(type=GATED, kind="plan", steps=STEPS[GATED], budget=4, covers_children=True),
    Definition(type=TASKS, kind="plan", steps=STEPS[TASKS]),
]


def planned(pick, run, number, claim, current, **fields):
    """Draw an item of a plan's worker: mostly for the current step, now and then for another one."""
    move = pick(*[Move.ADVANCE] * 6, *[Move.PARK] * 3, Move.RETRY, Move.RELEASE, Move.FAIL)
    key = pick(*[current] * 9, "A", "B")
    brought = {
        Move.ADVANCE: lambda: {
            "steps": (done(key, pick("1", '"x"'), cost=pick(0, 0, 2), started_at=1),),
            "in_place": pick(True, False),
            "result": '{"ok":true}',
        },
        Move.PARK: lambda: {"steps": (_waiting(pick, key),)},
        Move.RETRY: lambda: {"in_place": pick(True, False), "delay_seconds": pick(0.0, 5.0)},
        Move.FAIL: dict,
        Move.RELEASE: dict,
    }[move]()
    return item(move, run=run, fence=claim.fence, number=number, **{**fields, **brought})


def _waiting(pick, key):
    wait = pick({"topic": "t"}, {"topic": "u", "delay_seconds": 5.0}, {"delay_seconds": 0.0})
    return StepWrite(key=key, status=StepStatus.WAITING, cost=pick(0, 0, 2), **wait)


def child(pick, key, run, types):
    """Return a step that starts a run, and mostly waits for it."""
    status = pick(*[StepStatus.WAITING] * 4, StepStatus.SUCCEEDED)
    new = NewRun(id=run, type=pick(*types), ttl_seconds=pick(None, 60.0))
    return StepWrite(key=key, kind=StepKind.CHILD, status=status, output=None, child=new)


def starts_runs(item):
    return bool(starts_of(item)) or any(write.child is not None for write in item.steps)


def is_foreign(item, claims):
    """Return True when an item brings something for another tenant than its run's."""
    (tenant,) = {one.tenant for one in claims if (one.id, one.fence) == (item.run, item.fence)}
    children = [write.child for write in item.steps if write.child is not None]
    return any(one.tenant != tenant for one in (*item.events, *starts_of(item), *children))


class Plans:
    """Operations with plans for the state machine that drives both stores."""

    def decide(self, pick, data):
        if self.runs:
            shown = self.pair.do(lambda driver: driver.approvals(tenant=ANY))
            run = pick(*[one.run for one in shown] * 4, *self.runs)
            named = {
                "step": pick(None, "G", "H", "gate"), "digest": pick(None, None, "d"), "by": pick("", "ann"),
                "comment": pick("", "so be it"), "tenant": pick(ANY, ANY, ANY, "default"),
            }  # fmt: skip
            verdict = pick("approve", "approve", "reject")
            self.pair.do(lambda driver: getattr(driver, verdict)(run, **named))

    def append_step(self, pick, data):
        if self.runs:
            run, name, attempts = pick(*self.runs), pick("A", "X", "Y"), pick(None, 7)
            self.pair.do(lambda driver: driver.append_step(run, name, max_attempts=attempts))

    def inbox(self, pick, data):
        """Read the open gates page by page."""
        tenant, limit = pick(ANY, "default"), pick(1, 2, 100)
        page = self.pair.do(lambda driver: driver.approvals(tenant=tenant, limit=limit))
        while page and len(page) == limit:
            after = (page[-1].run, page[-1].step)
            page = self.pair.do(
                lambda driver, after=after: driver.approvals(tenant=tenant, limit=limit, after=after)
            )

    def _kind(self, run):
        shown = self.pair.drivers[0].get(run)
        return None if shown is None else shown.kind

    def _planned(self, pick, data, claim):
        self.numbers[claim.id, claim.fence] += 1
        number, current = self.numbers[claim.id, claim.fence], self.pair.drivers[0].get(claim.id).cursor
        return planned(pick, claim.id, number, claim, current, **self._extras(pick, data, Move.RELEASE))
