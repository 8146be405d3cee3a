"""Running the cases. Each stage plays one case at a time; several stages share the cases."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from . import cases  # noqa: F401 - lists the cases
from .case import CASES, Case
from .checks import check_lease_kept
from .mistakes import Wrong
from .stage import Options, Stage

FIRST = "hello"  # a worker that fails here fails everywhere


class Verdict(StrEnum):
    """The verdict of a case."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one case. says: a sentence that names the mistake; see: the section of the protocol."""

    case: str
    title: str
    verdict: Verdict
    seconds: float = 0.0
    mistake: str = ""
    says: str = ""
    see: str = ""
    traffic: tuple[str, ...] = ()


Told = Callable[[Outcome], None]


async def run_cases(options: Options, names: Sequence[str], told: Told, jobs: int = 1) -> list[Outcome]:
    """Run the cases of these names, so many at once. Call `told` with each outcome as it is known.

    Each job has a server and a worker program of its own. The first case is run before all others.
    """
    outcomes = dict[str, Outcome]()
    waiting = deque(names)

    async def play(stage: Stage) -> None:
        while waiting:
            one = CASES[waiting.popleft()]
            first = outcomes.get(FIRST)
            has_failed_first = first is not None and first.verdict is Verdict.FAILED
            outcomes[one.name] = _not_run(one) if has_failed_first else await _outcome(stage, one)
            told(outcomes[one.name])
            if one.name == FIRST:
                return

    async def help_out() -> None:
        async with Stage(options) as stage:
            await play(stage)

    async with Stage(options) as stage:
        if FIRST in waiting:
            waiting.remove(FIRST)
            waiting.appendleft(FIRST)
            await play(stage)
        playing = [asyncio.create_task(play(stage))]
        playing += (asyncio.create_task(help_out()) for _ in range(min(jobs, len(waiting)) - 1))
        try:
            await asyncio.gather(*playing)
        finally:  # after an error or a cancel, no task may use a stage that is closed
            for one in playing:
                one.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
    return [outcomes[name] for name in names]


def _not_run(one: Case) -> Outcome:
    says = f"the case {FIRST} failed, and without it no other can be judged"
    return Outcome(case=one.name, title=one.title, verdict=Verdict.NOT_RUN, says=says)


async def _outcome(stage: Stage, one: Case) -> Outcome:
    began = asyncio.get_running_loop().time()
    wrong: Wrong | None = None
    stage.api.begin(one.expected)
    stage.may_end = one.alone
    try:
        await _play(stage, one)
    except Wrong as found:
        # A broken rule says more than what came of it.
        wrong = stage.rules.first or found
    lines = () if wrong is None else tuple(stage.traffic.lines(began))
    await stage.leave_case()
    if wrong is not None or one.alone:
        await stage.stop_worker()
    seconds = asyncio.get_running_loop().time() - began
    if wrong is None:
        return Outcome(case=one.name, title=one.title, verdict=Verdict.PASSED, seconds=seconds)
    return Outcome(
        case=one.name,
        title=one.title,
        verdict=Verdict.FAILED,
        seconds=seconds,
        mistake=wrong.name,
        says=wrong.sentence,
        see=wrong.see,
        traffic=lines,
    )


async def _play(stage: Stage, one: Case) -> None:
    if one.alone:
        await stage.stop_worker()
    elif stage.process is None:
        await stage.worker_started()
    try:
        async with asyncio.timeout(stage.options.case_seconds) as stage.limit:
            await one.play(stage)
            stage.check_rules()
            stage.check_alive()
    except TimeoutError:
        stage.check_rules()
        stage.check_alive()
        for script in stage.scripts:
            await check_lease_kept(stage, script)
        seen = f"after {stage.options.case_seconds:g} s the kit still waited for {stage.waits_for}"
        raise Wrong("stuck", seen) from None
    finally:
        stage.limit = None
