"""Plans for tests: tasks that return their number, or the answers that a test gives them."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Approval, Backoff, Status, Task
from tests.engine.kit import until

TYPE = "shop.fulfil.v1"
V1, V2 = "shop.fulfil.v1", "shop.fulfil.v2"
POLICY = Backoff.fixed(5, attempts=3)


def fulfil(app, *names, seen=None, type_=TYPE, **options):
    """Define a plan of tasks. Each notes its name and returns its number."""
    plan = app.plan(type_, [Task(name) for name in names], **options)
    for name in names:

        @plan.task(name)
        async def work(task):
            if seen is not None:
                seen.append(task.name)
            return task.number

    return plan


def ship(app, work, *more, **options):
    """Define a plan whose first task is `work`; the others return their name."""
    plan = app.plan(TYPE, [Task("SHIP"), *(Task(name) for name in more)], **{"retry": POLICY, **options})
    plan.task("SHIP")(work)
    for name in more:
        plan.task(name)(lambda task: task.name)
    return plan


async def live(app, run):
    """Return name and status of all steps, in order."""
    return [(step.key, str(step.status)) for step in await app.steps(run.id)]


class Calls:
    """A handler that returns the given answers in turn, and notes the reason of each call."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []

    async def __call__(self, task):
        self.seen.append((task.reason, None if task.event is None else task.event.payload))
        answer = self.answers.pop(0) if self.answers else "done"
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass
class Receipt:
    number: int


def plan_of(app, type_, names, seen, *, bound=(), handled=None, **options):
    """Define a plan whose handlers note their version and name."""
    steps = [Approval(name) if name == "GATE" else Task(name) for name in names]
    plan = app.plan(type_, steps, **options)
    for name in names if handled is None else handled:
        if name != "GATE":

            @plan.task(name, only_this_version=name in bound)
            async def work(task, name=name, type_=type_):
                seen.append(f"{type_[-2:]} {name}")
                return name

    return plan


async def at_the_gate(app, plan):
    run = await app.start(plan)
    await until(app, run, Status.WAITING)
    return run
