"""A picture of the demo in ASCII: a line for each step, time from left to right."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.lifecycle import WAITS
from holdfast.records import SECOND, Step

from .ledger import Executed
from .scenario import Scenario

WIDTH = 40
_LEGEND = "= ran, recorded   ! failed   - ran, not recorded   X kill -9   ~ waited"


def timeline(demo: Scenario) -> Iterator[str]:
    """The lines of the picture."""
    assert demo.run is not None
    assert demo.run.finished_at is not None
    end = demo.run.finished_at.timestamp()
    scale = _Scale(demo.begun_at, end)
    names = {worker.pid: worker.name for worker in demo.workers}
    width = max(len(step.key) for step in demo.steps)
    yield f"{'':<{width}}  0 s{f'{end - demo.begun_at:.1f} s':>{WIDTH - 3}}"
    for step in sorted(demo.steps, key=lambda one: one.started_at or 0):
        executed = [one for one in demo.executed() if one.step == step.key]
        bar, who = _bar(step, executed, demo, scale), _who(executed, names)
        yield f"{step.key:<{width}}  {_coloured(bar)}  {who}".rstrip()
    yield click.style(_LEGEND, dim=True)


class _Scale:
    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._span = begin, max(end - begin, 0.001)

    def __call__(self, at: float) -> int:
        return min(WIDTH - 1, max(0, int((at - self._begin) / self._span * WIDTH)))


def _bar(step: Step, executed: list[Executed], demo: Scenario, scale: _Scale) -> str:
    cells = [" "] * WIDTH
    began, ended = (step.started_at or 0) / SECOND, (step.finished_at or 0) / SECOND
    if step.kind in WAITS:
        _fill(cells, scale(began), scale(ended), "~")
        return "".join(cells)
    for number, one in enumerate(executed, 1):
        if number == len(executed):
            _fill(cells, scale(one.at), scale(ended), "=")
        elif one.at < demo.killed_at < executed[number].at:
            _fill(cells, scale(one.at), scale(demo.killed_at), "-")
            cells[scale(demo.killed_at)] = "X"
        else:
            cells[scale(one.at)] = "!"
    return "".join(cells)


def _fill(cells: list[str], first: int, last: int, char: str) -> None:
    cells[first : last + 1] = char * (last + 1 - first)


def _coloured(bar: str) -> str:
    for char, colour in (("=", "green"), ("~", "yellow"), ("-", "red"), ("!", "red"), ("X", "red")):
        bar = bar.replace(char, click.style(char, fg=colour))
    return bar


def _who(executed: list[Executed], names: dict[int, str]) -> str:
    seen = dict.fromkeys(names.get(one.pid, str(one.pid)) for one in executed)
    return ", ".join(seen).replace(", worker", ",")
