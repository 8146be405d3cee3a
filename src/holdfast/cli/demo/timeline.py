"""The whole story in one picture: a line a step, time from left to right. Plain ASCII."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.lifecycle import WAITS
from holdfast.records import SECOND, Step

from .ledger import Executed
from .play import Play

WIDTH = 40
_LEGEND = "= runs, recorded   ! failed try   - in vain   X kill -9   ~ only a row"


def timeline(play: Play) -> Iterator[str]:
    """Who did what when."""
    assert play.run is not None
    assert play.run.finished_at is not None
    end = play.run.finished_at.timestamp()
    scale = _Scale(play.begun_at, end)
    names = {actor.pid: actor.name for actor in play.actors}
    width = max(len(step.key) for step in play.steps)
    yield f"{'':<{width}}  0 s{f'{end - play.begun_at:.1f} s':>{WIDTH - 3}}"
    for step in sorted(play.steps, key=lambda one: one.started_at or 0):
        executed = [one for one in play.executed() if one.step == step.key]
        bar, who = _bar(step, executed, play, scale), _who(executed, names)
        yield f"{step.key:<{width}}  {_coloured(bar)}  {who}".rstrip()
    yield click.style(_LEGEND, dim=True)


class _Scale:
    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._span = begin, max(end - begin, 0.001)

    def __call__(self, at: float) -> int:
        return min(WIDTH - 1, max(0, int((at - self._begin) / self._span * WIDTH)))


def _bar(step: Step, executed: list[Executed], play: Play, scale: _Scale) -> str:
    cells = [" "] * WIDTH
    began, ended = (step.started_at or 0) / SECOND, (step.finished_at or 0) / SECOND
    if step.kind in WAITS:
        _fill(cells, scale(began), scale(ended), "~")
        return "".join(cells)
    for number, one in enumerate(executed, 1):
        if number == len(executed):
            _fill(cells, scale(one.at), scale(ended), "=")
        elif one.at < play.killed_at < executed[number].at:
            _fill(cells, scale(one.at), scale(play.killed_at), "-")
            cells[scale(play.killed_at)] = "X"
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
