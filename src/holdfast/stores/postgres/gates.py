"""Gates, and the people who decide them."""

from __future__ import annotations

from .calls import Calls


class GatesRoom(Calls):
    """A part of the store."""
