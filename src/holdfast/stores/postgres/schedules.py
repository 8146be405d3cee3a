"""Schedules."""

from __future__ import annotations

from .calls import Calls


class ScheduleRoom(Calls):
    """A part of the store."""
