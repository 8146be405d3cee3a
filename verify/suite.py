"""Everything, one after the other: the experiments, then their twins with a bug switched in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from .crashpoints import crashpoints
from .exactly import exactly
from .kill9 import kill9, poison
from .purging import purging
from .report import Report
from .sabotage import (
    BLIND_RESEND,
    FORGETFUL,
    NO_FENCE,
    OPTIMIST,
    RENEW_ON_LOOP,
    SABOTAGES,
    SPLIT_START,
    TORN,
)
from .zombie import starve, zombie


def everything(seed: int, *, short: bool) -> list[Report]:
    """Short: what CI can afford. Otherwise the figures that the project promises."""
    began = time.monotonic()
    reports = [
        _shown(asyncio.run(kill9(runs=60, kills=20, seed=seed) if short else kill9(seed=seed))),
        _shown(asyncio.run(poison(good=40 if short else 100, seed=seed))),
        _shown(asyncio.run(zombie(rounds=1 if short else 8, seed=seed))),
        _shown(asyncio.run(starve(runs=2 if short else 6))),
        _shown(asyncio.run(purging(runs=5000, calm=3.0) if short else purging())),
        _shown(asyncio.run(exactly(runs=20, kills=15, seed=seed) if short else exactly(seed=seed))),
        *(_shown(report) for report in crashpoints(seed=seed, short=short)),
        *twins(seed),
    ]
    print(f"all of it took {time.monotonic() - began:.0f} s")
    return reports


def twins(seed: int) -> list[Report]:
    """Each experiment once more, with a bug that it is there to find. Green is when all go red."""
    report = Report("sabotages")
    played: dict[str, Callable[[], list[Report]]] = {
        NO_FENCE: lambda: [
            asyncio.run(zombie(rounds=1, sabotage=NO_FENCE, seed=seed)),
            *crashpoints(sabotage=NO_FENCE, seed=seed),
        ],
        RENEW_ON_LOOP: lambda: [asyncio.run(starve(runs=2, sabotage=RENEW_ON_LOOP))],
        TORN: lambda: [asyncio.run(exactly(runs=10, kills=5, seed=seed, torn=True))],
        **{
            name: partial(crashpoints, sabotage=name, seed=seed)
            for name in (BLIND_RESEND, SPLIT_START, FORGETFUL, OPTIMIST)
        },
    }
    for name, words in SABOTAGES.items():
        print(f"  sabotage {name}: {words}", flush=True)
        for twin in played[name]():
            red = [check.name for check in twin.red]
            report.expect(
                f"{name} is caught by {twin.command}", bool(red), "every invariant held: nothing is checked"
            )
            report.figures[f"{name} in {twin.command}"] = " and ".join(name.partition(" ")[0] for name in red)
    return [_shown(report)]


def _shown(report: Report) -> Report:
    report.show()
    return report
