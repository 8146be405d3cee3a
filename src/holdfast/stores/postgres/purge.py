"""Removing what has expired."""

from __future__ import annotations

from .calls import Calls


class PurgeRoom(Calls):
    """A part of the store."""
