"""What people do to one run."""

from __future__ import annotations

from .calls import Calls


class PeopleRoom(Calls):
    """A part of the store."""
