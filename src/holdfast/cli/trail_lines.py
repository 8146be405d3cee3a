"""Entries of the trail as lines on a terminal: time, run, sentence."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.records import TrailEntry
from holdfast.shown.text import short
from holdfast.shown.times import clock, day, day_heading
from holdfast.shown.trail import sentence

_COLOURS = {
    "leased": "cyan",
    "step_succeeded": "green",
    "step_failed": "red",
    "waiting": "yellow",
    "approval_opened": "yellow",
    "approved": "green",
    "rejected": "red",
    "timed_out": "red",
    "retried": "yellow",
    "lease_expired": "red",
    "paused": "magenta",
    "cancelled": "red",
    "rewound": "magenta",
    "deleted": "red",
    "succeeded": "green",
    "failed": "red",
}


def coloured_sentence(entry: TrailEntry) -> str:
    """The sentence for an entry, in the colour of its type."""
    colour = _COLOURS.get(entry.type)
    return click.style(sentence(entry), fg=colour) if colour else sentence(entry)


class TrailLines:
    """Lines for entries in order. A heading with the date and the time zone comes before each new day."""

    def __init__(self, *, with_run: bool = False, today: str = "") -> None:
        """`today`: a date that needs no heading."""
        self._with_run, self._day = with_run, today

    def lines(self, entry: TrailEntry) -> Iterator[str]:
        """The heading of a new day if there is one, then the line of the entry."""
        if (date := day(entry.at)) != self._day:
            self._day = date
            yield click.style(day_heading(entry.at), dim=True)
        run = f"{short(entry.run)}  " if self._with_run else ""
        yield f"{click.style(clock(entry.at), dim=True)}  {run}{coloured_sentence(entry)}"
