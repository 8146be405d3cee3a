"""Reads, and what workers and definitions say of themselves."""

from __future__ import annotations

from .calls import Calls


class ReadsRoom(Calls):
    """A part of the store."""
